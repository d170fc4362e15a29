"""Find statements of a secret, such as `my password is …`, `API_KEY=…` or `пароль: …`, by the words before the secret.

A statement is a name for a kind of secret (see `secret_names`), a joint that connects the name to a value (a sign, a
verb, a dash, or nothing), and the value. `secret_values` decides whether the value is a secret.

After each name a bounded stretch of text is read, and no value is read twice. The time is linear in the length of the
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, cast

from palimpsest.text.secrets.further import further_secrets
from palimpsest.text.secrets.names import LOCAL_NAMES, NAME, kind_of, lower_case
from palimpsest.text.secrets.values import CHOSEN_KINDS, PIN, Statement, is_phrase, is_secret, wallet_words


class Span(NamedTuple):
    """The place of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


_AFTER_NAME = (
    r"s?\d?(?:_(?:prod|production|dev|test|staging|live|main|root|admin|old|new|value|plain)\b)?"
    r"(?:\\?[\"'`]|\]|\*\*|__){0,3}"
    r"(?:\s\([^()\n\x00]{1,40}\)|\uff08[^\uff08\uff09\n\x00]{1,40}\uff09|\s(?:wi-?fi|wlan|admin|root"
    r"|server|router|ssh|gmail|google|apple|icloud|amazon|netflix|github|openai|paypal|windows"
    r"|antigu[oa]|anterior|nuev[oa]|actual|actuel)\b"
    r"| (?:for|of|to|on|at|in|from|für|fürs|vom|von|zum|zur|des|der|im|pour|du|de|del|della|dello|dell|do|da|para|en"
    r"|от|для|к|на|из|в|від|до"
    r"|that|which|i|we|you|he|she|they)"
    r"(?: (?:[^\s.,:;!?=\x00\"()<>]|[.:/](?=\w)){1,40}){1,5}?)??"
)
_SIGN = (
    r"\s{0,3}(?::\s?(?:str|string)\s?=|:=|=>|->|→|(?:!==?|={2,3})(?=\s?[\"'])|[:=\uff1a\uff1d](?![:=>~])"
    r"|>(?=[^<>\s]{1,100}</))"
)
_VERB = (
    r"\s?[\u2013\u2014]\s(?:это|c['\u2019]est)(?=\s)"
    r"|\s(?:is|was|will be|equals|are|were|ist|war|sind|waren|lautete?n?|heißt|heisst|est|était|sera|sont|étaient"
    r"|c['\u2019]est|es|era|será|son|eran|è|é|это|такой|был|теперь)(?:\s(?:either|now|still|currently"
    r"|set to|changed to|entweder|jetzt|nun|soit|maintenant|désormais|ahora|теперь))?"
    r"(?:\s?[:\uff1a]|(?=\s))"
    r"|,\s(?:c['\u2019]est|das ist|it['\u2019]s|it is)(?=\s)"
    r"|['\u2019]s(?=\s)|\s?已?(?:是|为|為|改成|改[为為]|设[为置]为?|設[為定]|[换換]成|は|が|を)[:\uff1a]?"
)
_JOINT = re.compile(
    rf"{_AFTER_NAME}(?:(?P<sign>{_SIGN})|(?P<verb>{_VERB})"
    r"|(?P<dash>\s?[\u2013\u2014]\s?|\s-{1,2}\s|\s\|\s)"
    r"|(?P<call>\((?=[\"'][^\"'\n]{1,100}[\"']\))))"
    r"(?:\*\*|__)?(?P<gap>\s{0,4})(?:\*\*|__)?(?:(?:bearer|basic|token)\s)?(?:[rbfu@](?=[\"']))?\\?"
)
"""What can stand between a name and its value, by the kind of joint. `gap` is the white space before the value."""

_LOCAL_JOINT = re.compile(
    r"(?:\s?\([^()\n\x00]{1,40}\))?(?:\s[^\s.,:;!?=\x00\"()<>]{1,30}){0,6}?"
    rf"(?:(?P<sign>{_SIGN})|(?P<verb>\s(?:is|was|luidt|to jest|to|jest|brzmi|je|znie|zní|er|är|on|este|e|é|és|yra|είναι"
    r"|adalah|là|คือ|है|হল|হলো|هي|هو|است|היא|הוא)(?:\s?[:\uff1a]|(?=\s))|\s?(?:คือ|은|는|이|가)[:\uff1a]?(?=\s))|(?P<dash>\s?[\u2013\u2014]\s))"
    r"(?P<gap>\s{0,4})"
)
"""The same for names in `LOCAL_NAMES`."""

_LOCAL_NAME = re.compile(LOCAL_NAMES)
_CHANGED_TO = re.compile(r"(?P<to>\s(?:to|auf|à|a|en|на)\s{1,2})")
_NO_JOINT = re.compile(r"(?<![\u3040-\u9fff])(?:\s(?:от|для|від|до)\s\w{1,20}| карты)?\s{1,2}|(?<=[\u3040-\u9fff])\s?")
_VALUE_BEFORE_NAME = re.compile(
    r"(?:^|[\s\"'`])([^\s\x00\"'`]{7,40})[\"'`]?\s(?:is|was|as|ist|war|als|est|es|como)"
    r"\s(?:my|our|his|her|their|the|mein|unser|das|mon|notre|le|mi|la)\s(?:[\w-]{1,20}\s){0,2}\Z",
    re.IGNORECASE,
)


_MAX_VALUE_CHARS = 128
"""How much of a value is read before it is known to be a secret. Only a secret is then read to its end."""

_MAX_CONTEXT_CHARS = 60
"""How much of the text before a name is read. It is enough for the clause that the name belongs to."""

_QUOTES = ('""', "''", "``", "\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb", "\u2018\u2019", "\u300c\u300d")
_QUOTED = re.compile(
    "|".join(rf"{a}(?![\s)\]}},;:])((?:[^{a}{b}\n\x00\\]|\\(?!{b})){{1,200}})\\?{b}(?![A-Za-z0-9])" for a, b in _QUOTES)
)
_RUN = re.compile(
    r"[\"'`]?([^\s\x00\"'`<>,;\\\u201c-\u201f\u00ab\u00bb\u2018\u2019\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff01-\uff1f]+)"
)
"""A value without quotes, or with an opening quote only."""

_END_OF_ASSIGNED_VALUE = re.compile(r"[&)\]}]|=(?=[\w.])")
_PHRASE = re.compile(r"[^\W\d_]{2,14}(?:[ -][^\W\d_]{2,14}){3,23}(?=[.!]?\s*(?:\Z|[\n\"'`,;(]))")
_WORDS_IN_A_ROW = re.compile(r"[a-z]{3,8}(?: [a-z]{1,8}){11,27}")
_END_OF_CLAUSE = re.compile(
    r"[)\]}*]{0,3}(?:\s*(?:\Z|[\n\r,;|<&#(\u3001\u3002\uff0c\uff1b])|[\"'`\u201d\u00bb](?!\w)|[.!?](?:\s|\Z)|\s-{1,2}\w)"
)
_UNIT = re.compile(
    r"\s?-?(?:char|digit|bit|byte|day|year|time|user|account|zeichen|stell|caract|символ|знак|位|文字|%)"
)
_START_OF_ASSIGNMENT = re.compile(r"(?:^|[\n?&;]|--|\bexport )[\w.-]*\Z")
_PUBLIC = re.compile(r"(?::|(?:page|public_?key|design|continuation)[_ -]?)\Z")
"""What makes a name one of something public: a page token, a public key, a design token, a label inside a key."""

_POSTAL = re.compile(r"address|postal|street|road|nagar|district")
"""Words of an address, in which PIN is the Indian postal code."""

_CHANGED = re.compile(r"\b(?:set\b|chang|reset|updat|rotat|switch|geändert|setz|mis\b|cambi|помен|смен|измен)")


def secret_kind(key: str, value: str) -> str:
    """Return the kind of secret that a value under this key is, or an empty string if it is none."""
    low = lower_case(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:_MAX_VALUE_CHARS]))
    key_end = len(low.rstrip("s_0123456789"))  # the name must end the key: `password_hint` holds no password
    name = next((match.group() for match in NAME.finditer(low) if match.end() >= key_end), "")
    kind = kind_of(name) if name else ""
    return kind if kind and is_secret(Statement(kind, "sign", value.strip()[:_MAX_VALUE_CHARS])) else ""


def stated_secrets(text: str) -> Iterator[Span]:
    """Yield the values that a text states to be passwords, PINs, keys or tokens, from left to right."""
    low = lower_case(text)
    position = 0
    while name := NAME.search(low, position):
        position = name.end()
        patterns = (_CHANGED_TO, _JOINT, _LOCAL_JOINT if _LOCAL_NAME.fullmatch(name.group()) else _JOINT, _NO_JOINT)
        joints = (pattern.match(low, position) for pattern in dict.fromkeys(patterns))
        spans = (_value_after_name(text, low, name, joint) for joint in joints if joint)
        span = next((span for span in spans if span), None) or _value_before_name(text, low, name)
        if span:
            yield span
            position = max(position, span.end)
            for start, end in further_secrets(text, position, span.kind, text[span.start : span.end]):
                yield Span(start, end, span.kind)
                position = end


def _value_after_name(text: str, low: str, name: re.Match[str], link: re.Match[str]) -> Span | None:
    """Return the place of the value that follows a name and the text `link`, if it is a secret."""
    position = link.end()
    quoted = _QUOTED.match(text, position)
    value = quoted or _RUN.match(text, position, position + _MAX_VALUE_CHARS)
    if not value:
        return None
    kind = kind_of(name.group())
    parts = link.groupdict("")
    joint = next((joint for joint in ("sign", "verb", "dash", "call", "to") if parts.get(joint)), "bare")
    if _is_other_use(text, low, name, joint):
        return None
    phrase = _PHRASE.match(text, position) if kind in CHOSEN_KINDS and joint in ("sign", "verb") else None
    if phrase is None and kind == "passphrase" and joint in ("sign", "verb"):
        words = _WORDS_IN_A_ROW.match(text, position)
        count = wallet_words(words.group().lower().split()) if words else 0
        if words and count:
            return Span(position, position + len(" ".join(words.group().split(" ")[:count])), kind)
    if phrase and is_phrase(phrase.group().lower().split(), kind, joint):
        return Span(*phrase.span(), kind)
    start, end = value.span(value.lastindex or 0)
    assigned = "=" in parts.get("sign", "")
    complete = True
    if not quoted and kind == "pin":
        pin = PIN.match(text, start)
        end = pin.end() if pin else start
    elif not quoted:
        cut = _END_OF_ASSIGNED_VALUE.search(text, start, end) if assigned else None
        complete = bool(cut) or end < position + _MAX_VALUE_CHARS
        end = _without_punctuation(text, start, cut.start() if cut else end)
    statement = Statement(
        kind,
        joint,
        text[start:end],
        quoted=bool(quoted),
        plural=low.startswith("s", name.end()) or name.group() == "clave",
        ended=(assigned or parts.get("gap", "") in (" ", "  ")) and bool(_END_OF_CLAUSE.match(text, end)),
        assigned=assigned,
        local=bool(_LOCAL_NAME.fullmatch(name.group())) or name.group().startswith("contrase"),
        alone=not assigned or bool(_START_OF_ASSIGNMENT.search(low, *_before(name, _MAX_CONTEXT_CHARS))),
    )
    if not is_secret(statement) or (statement.value.isdigit() and _UNIT.match(low, end)):
        return None
    if not complete:  # a value that is no secret is not read to its end, so that no text is read twice
        end = _without_punctuation(text, start, cast("re.Match[str]", _RUN.match(text, position)).end())
    return Span(start, end, kind)


def _without_punctuation(text: str, start: int, end: int) -> int:
    """Return where a value ends without the punctuation of the sentence around it."""
    return start + len(text[start:end].rstrip(".:)]}*\u2026"))


def _before(name: re.Match[str], chars: int) -> tuple[int, int]:
    """Return the bounds of the text before a name, at most `chars` long."""
    return max(0, name.start() - chars), name.start()


def _value_before_name(text: str, low: str, name: re.Match[str]) -> Span | None:
    """Return the place of the value in statements such as `hunter2 is my password`."""
    if low[name.start() - 1 : name.start()] != " " or not _END_OF_CLAUSE.match(low, name.end()):
        return None
    value = _VALUE_BEFORE_NAME.search(text, *_before(name, 2 * _MAX_CONTEXT_CHARS))
    kind = kind_of(name.group())
    if not value or kind not in CHOSEN_KINDS or not is_secret(Statement(kind, "bare", value[1], quoted=False)):
        return None
    return Span(*value.span(1), kind)


def _is_other_use(text: str, low: str, name: re.Match[str], joint: str) -> bool:
    """Return whether a name is a verb, the result of a test, or a name of something public."""
    word, (start, end) = name.group(), _before(name, _MAX_CONTEXT_CHARS)
    if joint == "to":
        return not _CHANGED.search(low, start, end)
    if joint == "bare" and word in ("pin", "pass") and not text.startswith("PIN", end):
        return True  # a verb
    if word == "pass" and text.startswith("PASS", end) and low[end - 1 : end] != "_":
        return True  # the result of a test
    if _PUBLIC.search(low, start, end):
        return True
    return word.startswith("pin") and bool(_POSTAL.search(low, start, end))
