"""Lists of names and words, which tell a name from a word where the spelling does not.

`benchmarks/fitting/word_lists.py` wrote them. Each says in its first line what it was made from. A list is read when it is
first needed, which takes milliseconds.
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
def _read(name: str) -> frozenset[str]:
    text = gzip.decompress((_FOLDER / f"{name}.txt.gz").read_bytes()).decode()
    return frozenset(text.split("\n")[1:-1])


def is_given_name(word: str) -> bool:
    """Return whether a word is a given name in some language."""
    return word in _read("given")


def is_place(name: str) -> bool:
    """Return whether a name is that of a country or a city."""
    return name in _read("places")


def is_surname(name: str) -> bool:
    """Return whether a name is a family name in China, Korea or Japan."""
    return name in _read("surnames")


def is_also_word(word: str) -> bool:
    """Return whether a given name or a place is also a common word."""
    return word.casefold() in _ALSO_WORDS


_NEWER_WORDS = _set("""webhook webhooks backend backends frontend frontends endpoint endpoints changelog middleware codebase codebases
    refactoring refactor linter linters formatter hotfix hotfixes rollout rollouts rollback rollbacks onboarding offboarding
    standup standups retrospective retrospectives kanban scrum sprint sprints timestamp timestamps namespace namespaces
    workflow workflows repo repos commit commits dataset datasets hyperparameter hyperparameters tokenizer dropdown tooltip
    checkbox homepage podcast podcasts smartphone smartphones chatbot chatbots vegan glutenfree sourdough unittest
    screenshot screenshots spreadsheet spreadsheets dashboard dashboards login logins signup username usernames config configs
    runtime uptime downtime autoscaling serverless microservice microservices monorepo submodule submodules whitelist
    blacklist allowlist blocklist throughput latency async mutex semaphore regex json yaml url urls plugins addon addons
    childcare daycare eczema hayfever penicillin ibuprofen paracetamol insulin antihistamine antihistamines homeschool
    crowdfunding freelancer freelancers coworking invoicing payroll ebike scooter scooters allotment vaping""")
"""English words that are rare in the subtitles of films, which the list was made from. Set by hand."""

_GERMAN_NOUN = re.compile(
    r"(?:ung|heit|keit|schaft|tion|tät|ment|ling|chen|nis|ismus|iat|thie|nie|gie|phie|trie|lie|enz|anz|innen|rei|erin|arin|orin|eur|gramm"
    r"|ik|iker|ismus|ium|är|logie|loge|eile|itis|ur|ler)(?:e?[ns])?$"
)
"""How German nouns end, and names seldom do. Set by hand."""


@lru_cache(maxsize=8_192)
def is_english_word(word: str, *, compounds: bool = False) -> bool:
    """Return whether a word is a form of an English word, or, with `compounds`, of two of them."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or _is_listed("english", folded):
        return True
    return compounds and any(
        _is_listed("english", folded[:middle]) and _is_listed("english", folded[middle:])
        for middle in range(3, len(folded) - 3)
    )


@lru_cache(maxsize=8_192)
def is_german_word(word: str, *, compounds: bool = True) -> bool:
    """Return whether a word is a form of a German word, or, with `compounds`, of one that ends with one."""
    folded = word.casefold()
    if _is_listed("german", folded):
        return True
    if not compounds:
        return False
    if folded.endswith(_SHORT_ENDS) or _GERMAN_NOUN.search(folded):
        return True
    return any(_is_listed("german", folded[n:]) for n in range(3, len(folded) - 3))


def _is_listed(language: str, word: str) -> bool:
    with _LOCK:
        stem = str(_STEMMERS[language].stemWord(word))
    listed = _read(language)
    return stem in listed or word in listed
