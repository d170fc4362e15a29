"""Find the names in a text, with no model: names that are known already, and those that the text shows to be names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from palimpsest.core.models import MAX_NAME_CHARS, SELF_NAMES, EntityType, NamedEntity, name_key
from palimpsest.text.names.capitals import capital_spans, kind_by_own_words
from palimpsest.text.names.known_names import Span, beginning, known_names, words_of
from palimpsest.text.names.lexicon import CUES, NEVER, UNMISTAKABLE, WELL_KNOWN, is_english_word
from palimpsest.text.names.uncased import uncased_spans
from palimpsest.text.stopwords import FUNCTION_WORDS
from palimpsest.text.word_lists import LazyPattern

# Find what programs know by name: handles, hosts, addresses, file paths, and identifiers of code.

_EXTENSIONS = (
    "bash|bat|bib|c|cc|cfg|conf|cpp|cs|css|csv|cts|db|docx?|env|epub|go|gpx|gradle|h|hpp|html?|ini|ipynb|java|jpe?g|js|"
    "json|jsonl|jsx|key|kt|lock|log|lua|md|mk|ml|mov|mp3|mp4|mts|nix|odt|parquet|pdf|pem|php|png|pptx?|proto|ps1|py|pyi|"
    "rb|rs|rst|scala|service|sh|sock|sql|sqlite|svg|swift|tex|tf|timer|toml|ts|tsx|txt|vue|wav|xlsx?|xml|ya?ml|zip|zsh"
)
_TOP_DOMAINS = (
    "ai|app|at|au|be|biz|br|ca|ch|cloud|cn|co|com|cz|de|dev|dk|edu|es|eu|example|fi|fr|gov|home|ie|info|internal|in|io|it|"
    "jp|kr|lan|local|localhost|me|mx|net|nl|no|nz|org|pl|pt|ru|se|sh|so|test|tech|tr|tv|ua|uk|us|xyz"
)

_ASCII = LazyPattern(
    r"""(?P<code>`++[^`\n]+`+)
    |(?P<command>(?:(?<![\w.])[a-z][\w.+-]*\ )?(?<!\w)--?[A-Za-z][\w-]*(?:[ =][^\n,;\u3002\uff0c\uff1b]*?)?
        (?=[.!?](?:\s|$)|[\n,;\u3002\uff0c\uff1b]|$))
    |(?P<plate>(?<![\w-])[A-Z\u00c4\u00d6\u00dc]{1,3}-[A-Z]{1,2}\ \d{1,4}(?![\w-]))
    |(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<address>\b[a-z][a-z\d+.-]{1,15}://[^\s<>"'`\u3000-\u303f\uff00-\uffef]+)
    |(?P<handle>(?<![\w.@/])@[A-Za-z_][\w-]*(?:\.[\w-]+)*(?:/[\w.-]+)?)
    |(?P<channel>(?<![\w#&])\#[a-z][\w-]*[a-z][\w-]*(?!\w)(?::[\w-]+(?:\.[\w-]+)+)?)
    |(?P<path>(?<![\w/.~-])(?:~|\.{1,2}|[A-Za-z]:|\\(?=\\))?(?:[/\\](?:[\w.@+\u00c0-\u024f-]*[\w@+\u00c0-\u024f-]|[\u0400-\u04ff\w]+))+
        (?:/(?:[\u3005\u3040-\u30ff\u3400-\u9fff]+|[\uac00-\ud7af]+))*/?
        |(?<![\w/.~-])[A-Za-z_.][\w.@+-]*(?:/[\w.@+-]*\w)+/?)
    |(?P<number>(?<![\w.-])[vV]?\d[\d.,:/-]*(?:[A-Za-z]{1,3}\b)?)
    |(?P<qualified>(?<![\w.:-])[A-Za-z_]\w*(?:::\w+)+)
    |(?P<dotted>(?<![\w.-])\.?[A-Za-z_][\w-]*(?:\.[A-Za-z\d_][\w-]*)+(?:\(\))?)
    |(?P<identifier>(?<![\w.-])[A-Za-z_]\w*(?:-\w+)*(?:\(\))?(?![\w-]))""",
    re.VERBOSE | re.ASCII,
)

_FILE = LazyPattern(rf"[\w.+-]*\w\.(?:{_EXTENSIONS})")
_HOST = LazyPattern(rf"(?:[a-z\d][a-z\d-]*\.)+(?:{_TOP_DOMAINS})", re.IGNORECASE)
_SNAKE = LazyPattern(r"_*[A-Za-z][A-Za-z\d]*(?:_+[A-Za-z\d]+)+_*(?:\(\))?|[A-Za-z]\w*\(\)")
_CAMEL = LazyPattern(r"[a-z]+[A-Z]\w*|[A-Z][a-z\d]+(?:[A-Z][a-z\d]*)+|[A-Z]{2,}[a-z]{2,}\w*|[A-Z][a-z]+[A-Z]{2,}\d*")
_TICKET = LazyPattern(r"[A-Z][A-Z\d]+(?:-[A-Z\d]+)+|[A-Z]{2,}\d{2,}[A-Z\d]*")
_MACHINE = LazyPattern(r"[a-z][a-z\d]*(?:-[a-z\d]+)*-\d{1,4}[a-z]?")
_PROGRAM = LazyPattern(
    r"(?!co-|self-)[a-z][a-z\d]*(?:-[a-z\d]+)*-(?:api|svc|sdk|cli|db|ui|backend|frontend|gateway|worker|bot)"
)
"""A part of a program, as repositories and services are called: "checkout-api"."""

_PERSONAL = LazyPattern(r"(?:Mc|Mac|De|Di|La|Le|Van|O)[A-Z][a-z]+")
_NO_CODE = LazyPattern(
    r"(?:UTF|ISO|SHA|MD|AES|RSA|WPA|IP|HTTP|USB|HDMI|COVID|CO|CET|UTC|GMT|DIN|EN|A|PM|MP|H|ES|HTML|CSS|PS|Q|KW|FY|GPT|RFC|PDF|IEC|EUR|USD)"
    r"[\dv]?-?\d*\w{0,2}|(?:mid|pre|post|under|over|top|late|early|non|age|aged|year|type|level|step|part|phase|vitamin|omega|covid)-.*"
)
_NUMBER_BEFORE = LazyPattern(
    r"(?:\b(?:number|no|plates?|serial|vat|isbn|pin|phone|tel|passport|iban|bic|swift|licen[cs]e|policy|account|postcode|zip|"
    r"registration|certificate|customer|member|order|booking|invoice|reference|ref)|[nN]ummer|Kennzeichen|Nr|Aktenzeichen|matrícula|"
    r"número|numéro|plaque|targa|numero|номер\w*|车牌号?|编号|号码?|番号|ナンバー|번호|رقم)"
    r"[\s:.,(]*(?:is|ist|lautet|are|es|est|è|是|は|为)?[\s:(\"']*(?:[A-ZÄÖÜ\d-]{1,8} )?$",
    re.IGNORECASE,
)
_CODE = LazyPattern(r"(?<![\w-])[A-Z]{1,3}-?\d{1,5}(?![\w-])")
_CODE_BEFORE = LazyPattern(
    r"(?:\b(?:error|alarm|fault|erreur|c[oó]digo|код|\w*(?:code|fehler|meldung)|ошибк\w+)|代码|错误码?|コード|エラー|코드|오류)\s*$",
    re.IGNORECASE,
)
"""Words after which a letter and a number are a code: elsewhere "A-4" may be a size of paper."""
_CYRILLIC_CODE = LazyPattern(r"(?<![\w-])[А-ЯЁ]{2,}-\d{1,4}[А-Я]?(?![\w-])")  # noqa: RUF001 - Russian
_FOLDER_BEFORE = LazyPattern(
    r"(?:\b(?:from|in|under|into|inside|see|folder|directory|dir|repo|repository|package|packages|module|path|branch|file|im|"
    r"unter|aus|Ordner|Verzeichnis|Paket|Zweig|dans|dossier|carpeta|paquete|cartella|папк\w+|каталог\w*|ветк\w+)"
    r"|仓库|目录|文件夹?|分支|模块|フォルダ|ブランチ|リポジトリ)[\s:\"']*$"
)
_WORDS_TOO = ("in", "so", "it", "me", "no", "at", "us", "is")
"""Top-level domains that are also words: "later.so" is a full stop without a space."""

TWO = 2
"""A name with one dot may also be the end of a sentence."""

_COMMON = frozenset(word for words in FUNCTION_WORDS.values() for word in words)


def code_spans(text: str) -> Iterator[Span]:
    """Yield codes that the words before them show, and codes in Cyrillic, such as "E-417" in "error E-417"."""
    for match in _CODE.finditer(text):
        if _CODE_BEFORE.search(text[max(0, match.start() - 40) : match.start()]):
            yield Span(match.start(), match.end(), match[0])
    for match in _CYRILLIC_CODE.finditer(text):
        yield Span(match.start(), match.end(), match[0])


def technical_spans(text: str) -> Iterator[Span]:
    """Yield what programs know by name, and without a name what holds no names: commands, mail addresses, numbers."""
    for match in _ASCII.finditer(text):
        kind = match.lastgroup or ""
        is_whole = kind == "identifier" or match[0].endswith("()")
        name = match[0] if is_whole else match[0].rstrip(".,;:!?)")
        start, end = match.start(), match.start() + len(name)
        if kind == "code":
            inner = match[0].strip("`")
            name = inner if not re.search(r"\s", inner) and re.match(r"[\w./@#~$]*[A-Za-z]", inner) else ""
            yield Span(start, match.end(), name)
        elif kind in ("command", "mail", "plate"):
            yield Span(start, match.end())
        elif kind == "number":
            continue
        elif kind in ("address", "handle", "channel", "qualified"):
            yield Span(start, end, name)
        elif kind == "path":
            yield Span(start, end, name if _is_path(name, text[max(0, start - 24) : start]) else "")
        elif (found := _code_type(name)) and not _NUMBER_BEFORE.search(text[max(0, start - 40) : start]):
            yield Span(start, end, name, found)
        elif found or kind == "dotted":
            yield Span(start, end)


def _is_path(name: str, before: str) -> bool:
    segments = [segment for segment in re.split(r"[/\\]", name) if segment]
    if name[0] == "/" and len(segments) == 1 and not _FILE.fullmatch(segments[0]):  # "/script" is a command of a client
        return _FOLDER_BEFORE.search(before) is not None
    if name[0] in "/~\\" or name[1:2] == ":" or name.startswith("."):
        return any(len(re.sub(r"[^A-Za-z]", "", segment)) > 1 for segment in segments) and not re.fullmatch(
            r"/v?\d*/?", name
        )
    if _FILE.fullmatch(segments[-1]) or len(segments) > 3:  # noqa: PLR2004 - "a/b/c" may still be alternatives
        return True
    if any(segment.casefold() in _COMMON or not re.search(r"[a-z]", segment) for segment in segments):
        return False
    if re.search(r"[_.@\d]|\w-\w", name) and name == name.lower():
        return True
    return name == name.lower() and _FOLDER_BEFORE.search(before) is not None


_NO_NAMES = frozenset(("node_modules", "site-packages", "__init__", "__main__", "__pycache__", "dist-packages"))
"""What every project has under the same name."""


def _code_type(name: str) -> EntityType | None:
    """Return the type of an identifier: "product" for a name as brands write it. None if it is a plain word."""
    if name.isalpha() and (name.islower() or name.istitle()):  # most words
        return "product" if name in UNMISTAKABLE else None
    if name in WELL_KNOWN:
        return None  # its capital shows it, and it may be part of a longer name
    if "." in name.strip("."):
        return _dotted_type(name)
    if (
        name in _NO_NAMES
        or name == "GmbH"
        or name.casefold() in NEVER
        or _NO_CODE.fullmatch(name)
        or _PERSONAL.fullmatch(name)
    ):
        return None
    if _SNAKE.fullmatch(name):
        return "other"
    if _CAMEL.fullmatch(name) and re.search(r"[a-z]", name):
        return "product" if name[0].isupper() or name[:2] in ("iP", "iO", "eB", "iC", "iM") else "other"
    return "other" if any(form.fullmatch(name) for form in (_TICKET, _MACHINE, _PROGRAM)) else None


def _dotted_type(name: str) -> EntityType | None:
    labels = [label for label in name.removesuffix("()").split(".") if label]
    if _FILE.fullmatch(name):
        return "product" if name[0].isupper() and name.endswith((".js", ".io")) else "other"
    if (
        all(len(label) == 1 for label in labels[1:])
        or all(len(label) == 1 for label in labels[:-1])
        or any(not label[0].isalpha() and label[0] != "_" and not label.isdigit() for label in labels)
    ):
        return None
    if _HOST.fullmatch(name) and (len(labels) > TWO or labels[-1] not in _WORDS_TOO):
        return "other"
    if len(labels) > TWO or any(re.search(r"[_\d-]|[a-z][A-Z]", label) for label in labels):
        return "other"
    first, second = labels
    is_sentence_end = is_english_word(second) or second.casefold() in _COMMON  # the space after a full stop lacks
    if first.islower() and second[0].isupper():
        return None if is_sentence_end else "other"
    is_code = first.islower() and second.islower() and not (is_english_word(first) and is_sentence_end)
    return "other" if is_code else None


_TITLE = LazyPattern(
    r"[\"\u201c\u201e\u00ab][\s\u00a0]*([A-Z\u00c0-\u00de\u0410-\u042f][\w'\u2019-]*(?:[ ,]+[\w'\u2019-]+){1,8})"
    r"[\s\u00a0]*[\"\u201d\u201c\u00bb]"
)
"""A title in quotation marks: several words, the first with a capital."""

_TITLE_BEFORE = LazyPattern(
    r"\b(?:titre|titles?|titel|título|titolo|titled|entitled|intitulée?|названи\w+)\b[^.!?]{0,30}$", re.IGNORECASE
)
_QUOTED = LazyPattern(
    r"(?<![\w-])([^\W\d_][\w-]+)\s?[\"\u201c\u201e\u00ab][\s\u00a0]*([^\W\d_a-z][\w'\u2019&.-]*(?:[\s\u00a0][\w'\u2019&.-]+){0,5})"
    r"[\s\u00a0]*[\"\u201d\u201c\u00bb]"
)
"""A quotation that begins with a capital, and the word before it."""
_RUSSIAN_NOUNS: tuple[tuple[str, EntityType], ...] = (
    (
        "компани фирм завод банк магазин кафе ресторан издательств школ клуб театр клиник больниц отел агентств "
        "хор групп ферм пекарн",  # noqa: RUF001 - Russian
        "organization",
    ),
    ("пансионат санатори станци улиц посёлк деревн сел", "place"),
    ("книг роман фильм песн газет журнал рассказ повест сериал альбом поэм", "document"),
    ("программ приложени сервис систем машин библиотек", "product"),
    ("проект", "project"),
    ("фестивал конференци турнир", "event"),
)
"""How Russian nouns begin that say what the name in quotation marks after them is."""
MAX_ENDING = 3
"""How many letters the ending of a Russian noun has at most."""


def find_names(text: str, known: Mapping[str, EntityType]) -> list[NamedEntity]:
    """Return what a text names, each once and in the order of the text. `known` has the types of names by their keys.

    What may be a name or not is left out: a first word of a sentence, or a German noun, is one only if something else
    shows it. So is what is too long for a name, such as an address with a query.
    """
    text = beginning(text)
    taken: list[Span] = []
    covered = bytearray(len(text))
    for span in _spans(text, known, covered):
        if covered.find(1, span.start, span.end) < 0:
            taken.append(span)
            covered[span.start : span.end] = b"\1" * (span.end - span.start)
    named: dict[str, NamedEntity] = {}
    for span in sorted(taken, key=lambda span: span.start):
        key = name_key(span.name)
        if key and key not in SELF_NAMES and len(span.name) <= MAX_NAME_CHARS:
            named.setdefault(key, NamedEntity(span.name, known.get(key, span.type)))
    return list(named.values())


def _spans(text: str, known: Mapping[str, EntityType], covered: bytearray) -> Iterator[Span]:
    """Yield the parts of a text that name something, the surest first. The caller marks those it takes in `covered`."""
    words, technical = words_of(text), [*code_spans(text), *technical_spans(text)]
    if places := known_names(text, known):
        in_code = bytearray(len(text))
        for span in technical:
            in_code[span.start : span.end] = b"\1" * (span.end - span.start)
        longer = {span.start: span for span in capital_spans(text, words, in_code)}
        for place in places:
            span = Span(place.start, place.end, place.name, known[name_key(place.name)])
            whole = longer.get(span.start)
            yield whole if whole is not None and _is_part(span, whole) else span
    yield from technical
    for match in _TITLE.finditer(text):
        capitals = sum(word[0].isupper() for word in re.findall(r"\w{4,}", match[1]))
        is_title = capitals > 1 or _TITLE_BEFORE.search(text[max(0, match.start() - 60) : match.start()]) is not None
        if is_title and not match[1].endswith((".", "!", "?")):
            yield Span(match.start(1), match.end(1), match[1], "document")
    for match in _QUOTED.finditer(text):
        if kind := _quoted_type(match[1].casefold()):
            yield Span(match.start(2), match.end(2), match[2], kind)
    yield from uncased_spans(text)
    yield from capital_spans(text, words, covered)


def _is_part(span: Span, whole: Span) -> bool:
    """Return whether a known name is only the beginning of a longer one, of somebody or something else.

    "Tom" is known, and a text is about Tom Smith; "Ghent" is known, and a text is about the Ghent Amateur Orchestra. A
    name that goes on without such a sign may be the known one with a word about it, such as "Stripe API".
    """
    if whole.start != span.start or not whole.name.startswith(f"{span.name} "):
        return False
    if span.type == "person":
        return True
    kind = kind_by_own_words(whole.name.split())
    return kind is not None and kind != span.type


def _quoted_type(noun: str) -> EntityType | None:
    """Return of what type something in quotation marks is by the noun before it; None if that does not show it."""
    noun = noun.rsplit("-", 1)[-1]
    kind = CUES.get(noun)
    if kind is not None and kind not in ("pet", "person"):
        return kind
    for stems, russian in _RUSSIAN_NOUNS:
        if any(noun.startswith(stem) and len(noun) - len(stem) <= MAX_ENDING for stem in stems.split()):
            return russian
    return None
