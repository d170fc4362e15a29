"""Lists of names and words, which tell a name from a word where the spelling does not.

`benchmarks/fitting/word_lists.py` wrote them. Each says in its first line what it was made from. A list is unpacked when it
is first needed, and searched as it is: making sets of all lists would take 60 ms, and unpacking them takes 5.
"""

from __future__ import annotations

import gzip
import re
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - it ships none

_FOLDER = Path(__file__).parent / "data"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_LOCK = Lock()
"""A stemmer keeps the word it works on."""

_STEMMERS = {language: cast("Any", snowballstemmer).stemmer(language) for language in ("english", "german")}

_ALSO_WORDS = _set(
    """
    amber april art august autumn basil bill bishop brook buck carol chance chase cherry chuck cliff clay coral
    crystal daisy dale dawn dean dell destiny drew duke earl early ernest eve faith fern flora frank gene ginger
    glen grace grant guy harmony hazel heath heather henna holly honor hope hunter ice iris ivy jade jasmine jay
    jewel joy june justice king lance laurel lily lux major marina mark mason may melody mercy merit miles
    miller misty noble north olive opal parker pat patience pearl penny piper poppy porter preston price prince
    queen ray reed rich rob robin rod rose rosemary royal ruby rusty sage sandy scout serenity shepherd sierra
    sky sterling stone storm summer sue tanner taylor terry tiger trinity tucker van violet wade ward west will
    willow winter wood woody young bach bär beate dirk ernst falk falke falter gold graf heide herbst herr jahr
    jung kai kaiser karl klaus klee könig lang linde lob mai mandel mut nelke ostern rabe reich reiner rita rosa
    sommer sonne star stern tanne tor treu viola wolf wolke zug linse perle blume bath battle bury buffalo como
    corona deal derby essen füssen gera halle hamm hof hull lens lima mali male man march marl mobile most nice
    nome orange plan police poole reading regen rye sale salt singen split tours ware wells worms baden bergen
    buchen norden weiden celle kiel zeit singles date data faro mayor sur central union victoria florence
    independence liberty paradise enterprise granada mercedes laredo chester eagle phoenix ferrol aurora lena
    bella angel cruz león luz paz mar sol rio flor gloria socorro dolores pilar consuelo esperanza alba blanca
    clara mesa france ada api con dos las los para sin pan вера надежда любовь роман роза слава лев мир мира
    орёл майя дата яна лада كريم جميل سعيد أمل نور حسن سالم فرح هدى وفاء حياة سلام رحمة عادل صالح أمين ماجد بسمة
    سعاد منى هبة مريم محمود ناصر حكيم شريف عزيز فريد خالد راشد سامي 사랑 하늘 구름 바다 이슬 보람 나라 우리 지금 수도 上海道 中央 一般 高原
    """
)
"""Given names and places that are also words, in lower case. They are names only where something else shows it. Set by
hand: what is common as a word, in sentences about everyday life."""


_ENGLISH_WORDS = _set(
    """
    made gun among per jail odd tone mate bent yoga ants server ninja wage valid roar mist canal beta paw ion hind much most hang wedding normal soul
    surprise mission island lend bend temple horn barking brick limo reunion grenade chili lime sunrise springs sparks shaping cork dual rugby plantation
    uptown tyre mango pest little love said ever long lot else friend son job case reason till baby worth true beat less line red lucky marry lady sister
    doctor carry sing mad brain kick rock green press boss peace sad judge floor innocent roll cash captain wash lies general add tiny tea fancy park river
    harm bird page fate precious trace joke silver bell heaven golden journey rush mile nail treasure brown hall forest comfort loyal link pleasant candy loan
    rice fairy unknown skip unique miracle media pink princess constant council minor toy chip lean wing gray math jet fleet governor liberty colonel ties sole
    cap branch greet doll raid blessing sunshine harsh lemon sunny infant icy graves urban essence ham handy kit sincere hence shade bush cinnamon
    meadow windy junior til delta metro canyon arch peer gauge blossom haven loot mentor marvel rim aura champ butler garrison bud ale velvet echo
    cord bunk ridge purity ash lantern barley clover saffron peaches honey reef marsh moor cove port vale ocean lake bay
    """
)
_GERMAN_WORDS = _set(
    """
    einer lasse beste rein bitten davor per tage dick wage malen ritt made helle fügen hege mist tore waren dabei kamen langen normal leiden leer
    ungern klang ende senden lehrte enger springe siegen rissen mission most bade frechen lage mal dann davon sage eben allen anders ab leider solange hart
    darin lies reine major fern lady landen prima brennen loyal wilder wende art handy kläre hellen traute lila chance tod roll general edel eitel lot boss
    park ferne junior olive mitte neubau
    """
)
"""Given names and places somewhere that are frequent words of a language, so that the lists of words leave them out. They
were read from the most frequent 12,000 words, and those left out that are mostly names. Set by hand."""

_SHORT_ENDS = (
    "tag",
    "rad",
    "amt",
    "zug",
    "weg",
    "hof",
    "bus",
    "tor",
    "öl",
    "eis",
    "tee",
    "uhr",
    "bad",
    "bau",
    "see",
    "ort",
    "bar",
    "rat",
    "typ",
    "abo",
)
"""German nouns of two or three letters with which compounds end. Set by hand."""


@cache
def _read(name: str) -> bytes:
    """Return a list: sorted lines in UTF-8, without the first one, between line ends."""
    text = gzip.decompress((_FOLDER / f"{name}.txt.gz").read_bytes())
    return text[text.index(b"\n") :]


@lru_cache(maxsize=16_384)
def _has(name: str, entry: str) -> bool:
    """Return whether a list has an entry, by halving the part where it may be."""
    lines, wanted = _read(name), entry.encode("utf-8", "surrogatepass")
    low, high = 0, len(lines) - 1  # line ends, between which the entry may be
    while low < high:
        end = lines.find(b"\n", (low + high) // 2 + 1)
        start = lines.rfind(b"\n", low, end)
        line = lines[start + 1 : end]
        if line == wanted:
            return True
        low, high = (end, high) if line < wanted else (low, start)
    return False


def is_given_name(word: str) -> bool:
    """Return whether a word is a given name in some language."""
    return _has("given", word)


def is_place(name: str) -> bool:
    """Return whether a name is that of a country or a city."""
    return _has("places", name)


def is_surname(name: str) -> bool:
    """Return whether a name is a family name in China, Korea or Japan."""
    return _has("surnames", name)


def is_also_word(word: str) -> bool:
    """Return whether a given name or a place is also a common word."""
    folded = word.casefold()
    return folded in _ALSO_WORDS or folded in _ENGLISH_WORDS or folded in _GERMAN_WORDS


_NEWER_WORDS = _set("""webhook webhooks backend backends frontend frontends endpoint endpoints changelog middleware codebase codebases
    refactoring refactor linter linters formatter hotfix hotfixes rollout rollouts rollback rollbacks onboarding offboarding
    standup standups retrospective retrospectives kanban scrum sprint sprints timestamp timestamps namespace namespaces
    workflow workflows repo repos commit commits dataset datasets hyperparameter hyperparameters tokenizer dropdown tooltip
    checkbox homepage podcast podcasts smartphone smartphones chatbot chatbots vegan glutenfree sourdough unittest
    screenshot screenshots spreadsheet spreadsheets dashboard dashboards login logins signup username usernames config configs
    runtime uptime downtime autoscaling serverless microservice microservices monorepo submodule submodules whitelist
    blacklist allowlist blocklist throughput latency async mutex semaphore regex json yaml url urls plugins addon addons
    matcha hummus tofu pesto chai quinoa yoga pilates kombucha kimchi sushi ramen falafel couscous norovirus hackathon varroa pinkel
    sudoku karaoke zumba crossfit pho miso tahini granola muesli smoothie latte espresso cappuccino barista ciabatta focaccia brioche
    childcare daycare eczema hayfever penicillin ibuprofen paracetamol insulin antihistamine antihistamines homeschool
    crowdfunding freelancer freelancers coworking invoicing payroll ebike scooter scooters allotment vaping""")
"""English words that are rare in the subtitles of films, which the list was made from. Set by hand."""

_GERMAN_NOUN = re.compile(
    r"(?:ung|heit|keit|schaft|tion|tät|ment|ling|chen|nis|ismus|iat|thie|nie|gie|phie|trie|lie|enz|anz|innen|rei|erin|arin|orin|eur|gramm"
    r"|ik|iker|ismus|ium|är|logie|loge|eile|itis|ur|ler|thekar|thekarin)(?:e?[ns])?$"
)
"""How German nouns end, and names seldom do. Set by hand."""


@lru_cache(maxsize=8_192)
def is_english_word(word: str, *, compounds: bool = False) -> bool:
    """Return whether a word is a form of an English word, or, with `compounds`, of two of them."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or folded in _ENGLISH_WORDS or _is_listed("english", folded):
        return True
    return compounds and any(
        _is_listed("english", folded[:middle]) and _is_listed("english", folded[middle:])
        for middle in range(3, len(folded) - 3)
    )


@lru_cache(maxsize=8_192)
def is_german_word(word: str, *, compounds: bool = True) -> bool:
    """Return whether a word is a form of a German word, or, with `compounds`, of one that ends with one."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or folded in _GERMAN_WORDS or _is_listed("german", folded):
        return True
    if not compounds:
        return False
    if folded.endswith(_SHORT_ENDS) or _GERMAN_NOUN.search(folded):
        return True
    return any(folded[n:] in _GERMAN_WORDS or _is_listed("german", folded[n:]) for n in range(2, len(folded) - 3))


def _is_listed(language: str, word: str) -> bool:
    with _LOCK:
        stem = str(_STEMMERS[language].stemWord(word))
    return _has(language, stem) or _has(language, word)
