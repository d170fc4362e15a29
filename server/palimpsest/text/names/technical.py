"""Find what programs know by name: handles, hosts, addresses, file paths, and identifiers of code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.core.models import EntityType
from palimpsest.text.names.known_names import Span
from palimpsest.text.names.lexicon import NEVER, UNMISTAKABLE, WELL_KNOWN, is_english_word
from palimpsest.text.stopwords import FUNCTION_WORDS

_EXTENSIONS = (
    "bash|bat|bib|c|cc|cfg|conf|cpp|cs|css|csv|cts|db|docx?|env|epub|go|gpx|gradle|h|hpp|html?|ini|ipynb|java|jpe?g|js|"
    "json|jsonl|jsx|key|kt|lock|log|lua|md|mk|ml|mov|mp3|mp4|mts|nix|odt|parquet|pdf|pem|php|png|pptx?|proto|ps1|py|pyi|"
    "rb|rs|rst|scala|service|sh|sock|sql|sqlite|svg|swift|tex|tf|timer|toml|ts|tsx|txt|vue|wav|xlsx?|xml|ya?ml|zip|zsh"
)
_TOP_DOMAINS = (
    "ai|app|at|au|be|biz|br|ca|ch|cloud|cn|co|com|cz|de|dev|dk|edu|es|eu|example|fi|fr|gov|home|ie|info|internal|in|io|it|"
    "jp|kr|lan|local|localhost|me|mx|net|nl|no|nz|org|pl|pt|ru|se|sh|so|test|tech|tr|tv|ua|uk|us|xyz"
)

_ASCII = re.compile(
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

_FILE = re.compile(rf"[\w.+-]*\w\.(?:{_EXTENSIONS})")
_HOST = re.compile(rf"(?:[a-z\d][a-z\d-]*\.)+(?:{_TOP_DOMAINS})", re.IGNORECASE)
_SNAKE = re.compile(r"_*[A-Za-z][A-Za-z\d]*(?:_+[A-Za-z\d]+)+_*(?:\(\))?|[A-Za-z]\w*\(\)")
_CAMEL = re.compile(r"[a-z]+[A-Z]\w*|[A-Z][a-z\d]+(?:[A-Z][a-z\d]*)+|[A-Z]{2,}[a-z]{2,}\w*|[A-Z][a-z]+[A-Z]{2,}\d*")
_TICKET = re.compile(r"[A-Z][A-Z\d]+(?:-[A-Z\d]+)+|[A-Z]{2,}\d{2,}[A-Z\d]*")
_MACHINE = re.compile(r"[a-z][a-z\d]*(?:-[a-z\d]+)*-\d{1,4}[a-z]?")
_PROGRAM = re.compile(
    r"(?!co-|self-)[a-z][a-z\d]*(?:-[a-z\d]+)*-(?:api|svc|sdk|cli|db|ui|backend|frontend|gateway|worker|bot)"
)
"""A part of a program, as repositories and services are called: "checkout-api"."""

_PERSONAL = re.compile(r"(?:Mc|Mac|De|Di|La|Le|Van|O)[A-Z][a-z]+")
_NO_CODE = re.compile(
    r"(?:UTF|ISO|SHA|MD|AES|RSA|WPA|IP|HTTP|USB|HDMI|COVID|CO|CET|UTC|GMT|DIN|EN|A|PM|MP|H|ES|HTML|CSS|PS|Q|KW|FY|GPT|RFC|PDF|IEC|EUR|USD)"
    r"[\dv]?-?\d*\w{0,2}|(?:mid|pre|post|under|over|top|late|early|non|age|aged|year|type|level|step|part|phase|vitamin|omega|covid)-.*"
)
_NUMBER_BEFORE = re.compile(
    r"(?:\b(?:number|no|plates?|serial|vat|isbn|pin|phone|tel|passport|iban|bic|swift|licen[cs]e|policy|account|postcode|zip|"
    r"registration|certificate|customer|member|order|booking|invoice|reference|ref)|[nN]ummer|Kennzeichen|Nr|Aktenzeichen|matrícula|"
    r"número|numéro|plaque|targa|numero|номер\w*|车牌号?|编号|号码?|番号|ナンバー|번호|رقم)"
    r"[\s:.,(]*(?:is|ist|lautet|are|es|est|è|是|は|为)?[\s:(\"']*(?:[A-ZÄÖÜ\d-]{1,8} )?$",
    re.IGNORECASE,
)
_CODE = re.compile(r"(?<![\w-])[A-Z]{1,3}-?\d{1,5}(?![\w-])")
_CODE_BEFORE = re.compile(
    r"(?:\b(?:error|alarm|fault|erreur|c[oó]digo|код|\w*(?:code|fehler|meldung)|ошибк\w+)|代码|错误码?|コード|エラー|코드|오류)\s*$",
    re.IGNORECASE,
)
"""Words after which a letter and a number are a code: elsewhere "A-4" may be a size of paper."""
_CYRILLIC_CODE = re.compile(r"(?<![\w-])[А-ЯЁ]{2,}-\d{1,4}[А-Я]?(?![\w-])")  # noqa: RUF001 - Russian
_FOLDER_BEFORE = re.compile(
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
