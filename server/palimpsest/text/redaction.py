"""Remove secrets from a text before any of it is stored: keys, tokens, passwords and private keys.

A secret is recognized by its frame (the BEGIN line of a private key), its format, its place in a URL, a command, a
header, a table or an answer, or by a statement: a name for a kind of secret, a joint that connects the name to a value
(a sign, a verb, a dash, or nothing), and the value, as in `my password is …`, `API_KEY=…` and `пароль: …`.

Repetitions are bounded, or cannot start twice at the same place. After each name, and for each place, a bounded stretch
of text is read, and no value is read twice. So the time is linear in the length of the text.

There is no entropy check, because it would remove hashes and ids. No secret is ever verified with its provider, because
that would send it over the network.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from palimpsest.core.errors import InputError
from palimpsest.text.stopwords import ALL_FUNCTION_WORDS, FUNCTION_WORDS, without_function_words
from palimpsest.text.word_lists import LazyPattern, filled, patterns, word_lists

_LISTS = word_lists("palimpsest.text", "redaction.txt")
_RE = patterns("palimpsest.text", "redaction.txt")

# The deepest nesting of metadata that is accepted. Deeper values would exhaust the interpreter's stack.
MAX_DEPTH = 100

# Removing a secret can expose another one, so passes are repeated until one finds nothing. Usually the second does.
_PASSES = 4


# How many words beside function words a text says at least beside its secrets.
MIN_REST = 2


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the kind of each secret that was removed."""

    text: str
    kinds: tuple[str, ...] = ()


def is_marker(text: str) -> bool:
    """Return whether a text consists of nothing but markers for removed secrets."""
    return _RE["marker"].search(text) is not None and not any(map(str.isalnum, _RE["marker"].sub("", text)))


def says_only_secrets(text: str) -> bool:
    """Return whether a text says nothing but that there was a secret, and for which user name it was."""
    if _RE["marker"].search(text) is None:
        return False
    from palimpsest.text.tokenizer import query_tokens  # noqa: PLC0415 - redaction itself loads no library for stems

    clauses = _RE["clause end"].split(_RE["marker"].sub("\x00", text))
    rest = " ".join(each for each in clauses if "\x00" not in each and not _RE["user name"].match(each))
    return len(query_tokens(NAME.sub("", lower_case(rest)))) < MIN_REST


def redact(text: str) -> Redacted:
    """Return a text with a marker in place of each secret. A redacted text is returned unchanged."""
    kinds: list[str] = []
    for _ in range(_PASSES):
        if not (spans := _secrets(text)):
            break
        parts: list[str] = []
        end = 0
        for span in spans:
            parts += text[end : span.start], f"[secret removed: {span.kind}]"
            end = span.end
        text = "".join(parts) + text[end:]
        kinds.extend(span.kind for span in spans)
    return Redacted(text, tuple(kinds))


def redact_json(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a copy of a JSON value with a marker in place of each secret, and the kinds of the secrets.

    A string or number under a key such as `password` or `api_key` is read as a statement of a secret. Raises InputError
    if the value is nested more than MAX_DEPTH deep.
    """
    kinds: list[str] = []
    return _redacted_value(value, "", kinds, 0), tuple(kinds)


def _redacted_value(value: Any, key: str, kinds: list[str], depth: int) -> Any:
    """Return a value without its secrets, and append their kinds to `kinds`. `key` is the key of the value or ""."""
    if depth > MAX_DEPTH:
        raise InputError(f"metadata is nested more than {MAX_DEPTH} deep; nothing was stored. Flatten it.")
    if isinstance(value, Mapping):
        redacted: dict[Any, Any] = {}
        for item_key, item in cast("Mapping[Any, Any]", value).items():
            new_key = _redacted_value(item_key, "", kinds, depth + 1) if isinstance(item_key, str) else item_key
            while new_key in redacted:  # two secrets of one kind as keys: neither value may be lost
                new_key += " again"
            redacted[new_key] = _redacted_value(item, item_key if isinstance(item_key, str) else "", kinds, depth + 1)
        return redacted
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return type(items)(_redacted_value(item, key, kinds, depth + 1) for item in items)
    is_named = key and isinstance(value, str | int) and not isinstance(value, bool)
    if is_named and (kind := secret_kind(key, str(value))):
        kinds.append(kind)
        return f"[secret removed: {kind}]"
    if not isinstance(value, str):
        return value
    result = redact(value)
    kinds.extend(result.kinds)
    return result.text


def _secrets(text: str) -> list[Span]:
    """Return the secrets in order, without overlaps. Overlapping secrets become one, of the kind of the first."""
    # NUL characters belong to no value and end no clause, so a marker does not change how the text around it is read
    unmarked = (
        _RE["marker"].sub(lambda marker: "\x00" * len(marker.group()), text) if "[secret removed: " in text else text
    )
    candidates = (
        *_private_keys(unmarked),
        *_tokens(unmarked),
        *_url_passwords(unmarked),
        *placed_secrets(unmarked),
        *stated_secrets(unmarked),
    )
    spans: list[Span] = []
    for span in sorted(candidates, key=lambda span: span.start):
        if spans and span.start < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(span.end, spans[-1].end))
        else:
            spans.append(span)
    return spans


# --- Private keys, by their first and last line


# The longest private key with an END line. An RSA key of 16,384 bits has a third of it.
_MAX_KEY_CHARS = 40_000


def _private_keys(text: str) -> Iterator[Span]:
    """Yield whole private keys.

    A key without an END line ends where the text no longer looks like one. A BEGIN line without a key is not a secret.
    """
    if "PRIVATE KEY" not in text and "PuTTY-User" not in text:
        return
    ends = [match.span() for match in _RE["end"].finditer(text)]
    begins = [match.span() for match in _RE["begin"].finditer(text)]
    next_end = 0
    for (start, body), (next_start, _) in zip(begins, [*begins, (len(text), 0)][1:], strict=True):
        while next_end < len(ends) and ends[next_end][0] < body:
            next_end += 1
        if next_end < len(ends) and ends[next_end][0] < min(next_start, body + _MAX_KEY_CHARS):
            end = ends[next_end][1]
        else:
            match = _RE["body"].match(text, body, next_start)
            end = match.end() if match else body
        if _RE["base64"].search(text, body, end):
            yield Span(start, end, "private key")


# --- Keys and tokens, by their format


@cache
def token_formats() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the kind and the pattern of each format, for each of its prefixes.

    Texts without a long word do not need them, so they are compiled on first use.
    """
    found: list[tuple[str, re.Pattern[str]]] = []
    for kind, lines in word_lists("palimpsest.text", "secret_formats.txt").items():
        for line in lines.splitlines():
            *prefixes, rest = line.split()
            # The prefix stands before the assertion about what precedes it: `re` is faster with a leading literal.
            literals = map(re.escape, prefixes or [""])
            found += [(kind, re.compile(f"{literal}(?<![A-Za-z0-9]{literal}){rest}", re.ASCII)) for literal in literals]
    return tuple(found)


def _tokens(text: str) -> Iterator[Span]:
    """Yield the keys and tokens that have one of the formats of `secret_formats.txt`."""
    if not _RE["long word"].search(text):
        return
    for kind, pattern in token_formats():
        end = 0
        for match in pattern.finditer(text):
            start, token_end = match.span(pattern.groups)  # the group, or the whole match if there is no group
            if start >= end and _is_random(text[start:token_end]):
                end = cast("re.Match[str]", _RE["rest"].match(text, token_end)).end()
                yield Span(start, end, kind)


def _is_random(token: str) -> bool:
    """Return False for a masked token (`sk-xxxx`) and for words that look like one (`sk-fade-in-animation`)."""
    return len(set(token[-12:])) > 2 and (looks_random(token) or token.isupper())  # noqa: PLR2004 - `xX`, `x-`


# --- Passwords in URLs


def _url_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords in URLs such as `postgres://user:password@host`."""
    if "://" in text:
        for match in _RE["url password"].finditer(text):
            if not is_placeholder(match[1]):
                yield Span(*match.span(1), "password")


# The words by which people and programs call a secret, in some thirty languages.


_NAMES = patterns("palimpsest.text", "secret_names.txt")

# Any name of a secret, in text from `lower_case`.
NAME = _NAMES["name"]


@lru_cache(maxsize=1024)
def kind_of(name: str) -> str:
    """Return the kind of secret that a match of `NAME` stands for."""
    return next(kind for kind, names in _NAMES.items() if names.fullmatch(name))


def lower_case(text: str) -> str:
    """Return a text in lower case, with every character at the same place."""
    return text.replace("\u0130", "i").lower()  # the only letter whose lower case is two characters long


# Decide whether a value that is stated to be a secret is one.
#
# People write far more about secrets than they write secrets ("the password is required"). So a value must look like
# a secret, and the weaker its connection to the name is, the more so.

# The kinds of secrets that people choose. The other kinds, except PINs, are generated at random and look like it.
CHOSEN_KINDS = ("password", "passphrase", "access code")


class Statement(NamedTuple):
    """A value that a text states to be a secret.

    `joint` is how the value is connected to the name: `sign` (`:` or `=`), `verb` ("is"), `dash`, `call`
    (`password("x")`), `to` ("changed my password to"), or `bare` (nothing). `plural` is true if a list of values may
    follow the name. `ended` is true if the clause ends after the value. `assigned` is true if the sign contains `=`.
    `alone` is false if such an assignment is part of a longer expression. `local` is true if the name is of a language
    that joins no adjectives by hyphens, so that `abacaxi-azul` is a value.
    """

    kind: str
    joint: str
    value: str
    quoted: bool = True
    plural: bool = False
    ended: bool = True
    assigned: bool = False
    alone: bool = True
    local: bool = False


_MIN_LETTERS_ONLY = 16

# A value of letters only looks random from this length and number of case changes on. Identifiers in camel case are
# shorter or have fewer words.
_MIN_CASE_CHANGES = 3


PIN = _RE["pin"]
_WORDS_ABOUT_SECRETS = frozenset(_LISTS["words about secrets"].split())

_MAX_PHRASE_WORDS = 8

# A passphrase in quotes of so many words may have function words: "four green lamps over Vienna".
_MIN_PHRASE_WORDS = 4

_ANDS = ("and", "und", "et", "y", "e", "и", "en", "i", "och", "og", "for", "für", "pour", "para")

# The numbers of words that the recovery phrase of a wallet can have (BIP 39).
_WALLET_PHRASE_WORDS = (12, 15, 18, 21, 24)

_MIN_GENERATED_CHARS = {"sign": 6, "bare": 20}
_MIN_GENERATED_CHARS_IN_PROSE = 8

# The shortest generated secret by joint. The weaker the joint, the longer the value must be, because short ids are
# frequent in prose and in lists.
_MIN_GENERATED_CHARS_IN_LIST = 16


def is_placeholder(value: str) -> bool:
    """Return whether a value stands in the place of a secret, as `$DB_PASSWORD`, `your_token` and `password` do."""
    named = NAME.search(lower_case(value)) and not _RE["digit"].search(value)
    return bool(named or _RE["not a secret"].fullmatch(value))


def looks_random(value: str) -> bool:
    """Return whether a value mixes digits and letters within a part, or capital and small letters within a long one."""
    mixed = any(not part.isalpha() and not part.isdigit() for part in _RE["part"].findall(value))
    return mixed or (len(value) >= _MIN_LETTERS_ONLY and len(_RE["case change"].findall(value)) >= _MIN_CASE_CHANGES)


def is_secret(statement: Statement) -> bool:
    """Return whether the value of a statement looks like a secret, rather than like a word about one."""
    value = statement.value
    if not any(map(str.isalnum, value)):  # the rule of a table
        return False
    has_digit = bool(_RE["digit"].search(value))
    if not has_digit and _WORDS_ABOUT_SECRETS.intersection(_RE["words"].findall(value.casefold())):
        return False
    if statement.kind == "pin":
        likely = bool(PIN.fullmatch(value))
    elif statement.kind not in CHOSEN_KINDS:
        likely = _looks_generated(statement)
    elif " " in value:
        likely = _is_quoted_phrase(statement, has_digit=has_digit)
    else:
        likely = _looks_chosen(statement)
    if not likely or _RE["not a secret"].fullmatch(value):
        return False
    return statement.quoted or not _is_code(statement, has_digit=has_digit)


def _wallet_words(words: list[str]) -> int:
    """Return how many of some words are the recovery phrase of a wallet, before an "and" goes on; 0 if none are."""
    end = next((place for place, word in enumerate(words) if word in _ANDS), len(words))
    return end if end in _WALLET_PHRASE_WORDS else 0


def _is_phrase(words: list[str], kind: str, joint: str) -> bool:
    """Return whether words without quotes are a secret of several words, such as a recovery phrase."""
    if kind == "passphrase" and len(words) in _WALLET_PHRASE_WORDS:
        return True
    if _WORDS_ABOUT_SECRETS.intersection(words) or NAME.search(" ".join(words)):
        return False
    if without_function_words(words) != words or len(words) > _MAX_PHRASE_WORDS:
        return False
    return (kind == "passphrase" or joint == "sign") and not words[0].endswith("ly")  # "usually four random words"


def _is_code(statement: Statement, *, has_digit: bool) -> bool:
    """Return whether a value is a call, a subscript, an attribute, or the name of a variable for a secret."""
    value = statement.value
    if _RE["call"].fullmatch(value):
        return True
    if _RE["attribute"].fullmatch(value):
        return statement.assigned or not has_digit or bool(_RE["stem"].search(value))
    return bool(_RE["identifier"].fullmatch(value) and _RE["stem"].search(value))


def _looks_generated(statement: Statement) -> bool:
    value, joint = statement.value, statement.joint
    if " " in value or _is_camel_case_name(value) or _RE["constant"].fullmatch(value):
        return False
    if joint == "bare" and _RE["public id"].fullmatch(value):
        return False
    if _RE["long number"].fullmatch(value):
        return joint == "sign" and statement.kind.endswith("key")
    shortest = _MIN_GENERATED_CHARS.get(joint, _MIN_GENERATED_CHARS_IN_PROSE)
    return len(value) >= (_MIN_GENERATED_CHARS_IN_LIST if statement.plural else shortest) and looks_random(value)


def _is_camel_case_name(value: str) -> bool:
    """Return whether a value is the name of a variable for a secret: `userPassword`, `V1SecretVolume`."""
    return value.isidentifier() and bool(_RE["case change"].search(value) and _RE["stem"].search(value))


def _looks_chosen(statement: Statement) -> bool:
    value, joint = statement.value, statement.joint
    if _is_camel_case_name(value) and not _RE["digit"].search(value):
        return False
    if _RE["strong"].fullmatch(value) or (_RE["capitals"].fullmatch(value) and (statement.ended or joint != "sign")):
        if joint == "bare":
            stronger = _RE["stronger"].fullmatch(value) and not _RE["ticket"].fullmatch(value)
            return statement.kind == "access code" or bool(stronger)
        return joint == "sign" or not _RE["ticket"].fullmatch(value)
    if statement.kind == "access code" or _RE["stem"].search(value) or NAME.fullmatch(value.lower()):
        return False
    if statement.quoted:
        return joint in ("sign", "verb") and len(value) > len("bar")
    if joint in ("sign", "verb") and _RE["compound"].fullmatch(value):
        words = value.casefold().replace("_", "-").split("-")
        # In other languages, adjectives are joined by hyphens too: "end-to-end-encrypted".
        if statement.local or (len(words) >= _MIN_PHRASE_WORDS and without_function_words(words) == words):
            return True
    is_plain = joint == "sign" and statement.ended and statement.alone and not statement.plural
    return is_plain and bool(_RE["weak"].fullmatch(value)) and value.lower() not in ALL_FUNCTION_WORDS


def _is_quoted_phrase(statement: Statement, *, has_digit: bool) -> bool:
    """Return whether several words are a password. Labels, and sentences about passwords, have function words."""
    words = statement.value.casefold().split()
    if statement.joint not in ("sign", "verb") or len(words) > _MAX_PHRASE_WORDS or statement.value[-1] in "?:":
        return False
    is_long = statement.kind == "passphrase" and len(words) >= _MIN_PHRASE_WORDS
    likely = has_digit or is_long or without_function_words(words) == words
    return likely and not NAME.search(lower_case(statement.value))


class Span(NamedTuple):
    """The place of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


# Find the further values of a statement of a secret: `… is hunter2, and for the bank it's …`, `… are x1 and y2`.
#
# Whoever states one secret often states the next without its name. Such a value stands in a list with the one before
# it, or after words that say what else it is for ("for the bank it's", "celui du wifi est", "另一张卡的是"). It must look
# like a secret without any help: a word could be anything.
#
# A bounded stretch of text is read after each secret, so the time is linear in the length of the text.


# How much of the text after a secret is read for the next, and around what opens something: a clause is shorter.
_MAX_CHARS = 200


def _next_value(text: str, span: Span, before: str) -> Span | None:
    """Return the place of the value that follows a secret and belongs to the same statement."""
    for pattern in (_RE["european"], _RE["east asian"]):
        if (link := pattern.match(text, span.end, span.end + _MAX_CHARS)) is None:
            continue
        # "for the bank it's …" says what a value is for and that it is so. Another one stands in a list, without a verb.
        in_full = bool(link["label"] and (link["verb"] or link["sign"]))
        in_list = bool(link["list"].strip()) and not (link["verb"] or link["sign"] or link.groupdict().get("stop"))
        if not in_full and not in_list:
            continue
        opening = len(link["value"]) - len(link["value"].lstrip("\"'`\u201c\u201e\u00ab\u300c"))
        start = link.start("value") + opening
        stop = _without_punctuation(text, start, link.end("value"))
        if _RE["followed by"].match(text, stop) and _is_value(span.kind, text[start:stop], before, in_full=in_full):
            return Span(start, stop, span.kind)
    return None


def _is_value(kind: str, value: str, before: str, *, in_full: bool) -> bool:
    """Return whether a value can be a further secret of this kind. Numbers follow only numbers."""
    if value.isdigit():
        fits = (kind == "pin" or before.isdigit()) and bool(PIN.fullmatch(value))
        return fits and (in_full or (len(value) == len(before) and not _RE["year"].fullmatch(value)))
    if kind == "pin" or _RE["ticket"].fullmatch(value) or _RE["assignment"].match(value):
        return False
    if kind in CHOSEN_KINDS and not in_full and _RE["letters then digits"].fullmatch(value):
        return False
    return is_secret(Statement(kind, "verb", value, quoted=False))


# How much of a value is read before it is known to be a secret. Only a secret is then read to its end.
_MAX_VALUE_CHARS = 128

# How much of the text before a name is read. It is enough for the clause that the name belongs to.
_MAX_CONTEXT_CHARS = 60


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
        kind = kind_of(name.group())
        is_local = _NAMES["local names"].fullmatch(name.group()) is not None
        links = ("changed to", "joint", "local joint", "pin joint" if kind == "pin" else "strong joint", "no joint")
        joints = (_RE[link].match(low, position) for link in links if is_local or link != "local joint")
        spans = (_value_after_name(text, low, name, joint) for joint in joints if joint)
        span = next((span for span in spans if span), None) or _value_before_name(text, low, name)
        value = text[span.start : span.end] if span else ""
        while span:
            yield span
            position = max(position, span.end)
            span = _next_value(text, span, value)


def _value_after_name(text: str, low: str, name: re.Match[str], link: re.Match[str]) -> Span | None:
    """Return the place of the value that follows a name and the text `link`, if it is a secret."""
    position = link.end()
    quoted = _RE["quoted"].match(text, position)
    value = quoted or _RE["run"].match(text, position, position + _MAX_VALUE_CHARS)
    if not value:
        return None
    kind = kind_of(name.group())
    parts = link.groupdict("")
    joint = next((joint for joint in ("sign", "verb", "dash", "call", "to") if parts.get(joint)), "bare")
    if _is_other_use(text, low, name, joint):
        return None
    phrase = _RE["phrase"].match(text, position) if kind in CHOSEN_KINDS and joint in ("sign", "verb") else None
    if phrase is None and kind == "passphrase" and joint in ("sign", "verb"):
        words = _RE["words in a row"].match(text, position)
        count = _wallet_words(words.group().lower().split()) if words else 0
        if words and count:
            return Span(position, position + len(" ".join(words.group().split(" ")[:count])), kind)
    if phrase and _is_phrase(phrase.group().lower().split(), kind, joint):
        return Span(*phrase.span(), kind)
    start, end = value.span(value.lastindex or 0)
    assigned = "=" in parts.get("sign", "")
    complete = True
    if not quoted and kind == "pin":
        pin = PIN.match(text, start)
        end = pin.end() if pin else start
    elif not quoted:
        cut = _RE["end of assigned value"].search(text, start, end) if assigned else None
        complete = bool(cut) or end < position + _MAX_VALUE_CHARS
        end = _without_punctuation(text, start, cut.start() if cut else end)
    statement = Statement(
        kind,
        joint,
        text[start:end],
        quoted=bool(quoted),
        plural=low.startswith("s", name.end()) or name.group() == "clave",
        ended=(assigned or parts.get("gap", "") in (" ", "  ")) and bool(_RE["end of clause"].match(text, end)),
        assigned=assigned,
        local=bool(_NAMES["local names"].fullmatch(name.group())) or name.group().startswith("contrase"),
        alone=not assigned or bool(_RE["start of assignment"].search(low, *_before(name, _MAX_CONTEXT_CHARS))),
    )
    if not is_secret(statement) or (statement.value.isdigit() and _RE["unit"].match(low, end)):
        return None
    if not complete:  # a value that is no secret is not read to its end, so that no text is read twice
        end = _without_punctuation(text, start, cast("re.Match[str]", _RE["run"].match(text, position)).end())
    return Span(start, end, kind)


def _without_punctuation(text: str, start: int, end: int) -> int:
    """Return where a value ends without the punctuation of the sentence around it."""
    return start + len(text[start:end].rstrip(".:)]}*\u2026"))


def _before(name: re.Match[str], chars: int) -> tuple[int, int]:
    """Return the bounds of the text before a name, at most `chars` long."""
    return max(0, name.start() - chars), name.start()


def _value_before_name(text: str, low: str, name: re.Match[str]) -> Span | None:
    """Return the place of the value in statements such as `hunter2 is my password`."""
    if low[name.start() - 1 : name.start()] != " ":
        return None
    value = _RE["value before name"].search(text, *_before(name, 2 * _MAX_CONTEXT_CHARS))
    kind = kind_of(name.group())
    if (
        not value
        or not (value["as"] or _RE["end of clause"].match(low, name.end()))
        or kind not in CHOSEN_KINDS
        or not is_secret(Statement(kind, "bare", value[1], quoted=False))
    ):
        return None
    return Span(*value.span(1), kind)


def _is_other_use(text: str, low: str, name: re.Match[str], joint: str) -> bool:
    """Return whether a name is a verb, the result of a test, or a name of something public."""
    word, (start, end) = name.group(), _before(name, _MAX_CONTEXT_CHARS)
    if joint == "to":
        return not _RE["changed"].search(low, start, end)
    is_verb = joint == "bare" and word in ("pin", "pass") and not text.startswith("PIN", end)
    is_result = word == "pass" and text.startswith("PASS", end) and low[end - 1 : end] != "_"
    is_postal = word.startswith("pin") and _RE["postal"].search(low, start, end)
    return bool(is_verb or is_result or is_postal or _RE["public"].search(low, start, end))


# Find secrets by where they stand: after an option of a command, in a header, in the column of a table, in an answer.
#
# Nothing near such a value needs to say what it is. What the place says instead is in the tables below.


_OPTIONS: dict[str, list[re.Pattern[str]]] = {}
for _line in _LISTS["commands"].splitlines():
    _names, _pattern = _line.split(": ", 1)
    for _name in _names.split():
        _OPTIONS.setdefault(_name, []).append(LazyPattern(filled(_pattern, _LISTS)))

_COMMAND = LazyPattern(
    rf"(?<![\w./=-])(?:[\w./~-]{{0,80}}/)?({'|'.join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))})(?=\s)"
)
_MAX_COMMAND_CHARS = 400

_PROSE_WORDS = frozenset(_LISTS["prose words"].split()).union(
    *(FUNCTION_WORDS[language] for language in ("en", "de", "fr", "es"))
)

_COOKIE_ATTRIBUTES = _LISTS["cookie attributes"].split()
_MAX_BEFORE_SEED = 80


_PLACES = (
    # of each row: a pattern whose last group is the secret, its kind, and whether it is of text in lower case
    ("lock codes", "access code", True),
    ("otpauth", "totp secret", False),
    ("card code", "card code", True),
    ("identity", "identity number", False),
    ("tax code", "identity number", False),
    ("six digits", "recovery key", False),
    ("pin of", "pin", True),
)
_CHOSEN = (
    # the same of passwords and tokens, where something else may stand, with a word without which there is none
    ("authorization", "token", False, "uthorization"),
    ("wifi", "password", False, "wifi"),
    ("password file line", "password", False, ":"),
    ("reads", "password", True, "wort"),
    ("login pair", "password", True, ""),
    ("network pass", "password", True, ""),
    ("quoted pass", "password", False, "pass"),
)


def placed_secrets(text: str) -> Iterator[Span]:
    """Yield the secrets that their place makes known; they may overlap.

    Numbers by which a state knows a person are secrets; those of passports and bank accounts are shown and stay.
    """
    low = lower_case(text)
    yield from _in_commands(text)
    for pattern, kind, is_lower in _PLACES:
        for match in _RE[pattern].finditer(low if is_lower else text):
            yield Span(*match.span(match.lastindex or 0), kind)
    for pattern, kind, is_lower, sign in _CHOSEN:
        for match in _RE[pattern].finditer(low if is_lower else text) if sign in low else ():
            yield from _chosen(text, match, kind)
    for header in _RE["header"].finditer(text) if "cookie" in low else ():
        for cookie in _RE["cookie"].finditer(text, header.start(1), header.end(1)):
            if cookie[1].lower() not in _COOKIE_ATTRIBUTES and not is_placeholder(cookie[2]):
                yield Span(*cookie.span(2), "cookie")
    for match in _RE["codes"].finditer(low):
        for code in _RE["code"].finditer(low, *match.span("codes")):
            yield Span(*code.span(), "recovery code")
    for match in _RE["card"].finditer(text):
        is_grouped = bool(match[1] or match[2])
        around = text[max(0, match.start() - 60) : match.end() + 30]
        if _is_card_number(match[0]) and (is_grouped or _RE["card words"].search(around)):
            yield Span(*match.span(), "card number")
    yield from _seeds(text, low)
    yield from _openers(text, low)
    yield from _in_tables(text)
    yield from _answers(text, low)


def _in_commands(text: str) -> Iterator[Span]:
    commands = [*_COMMAND.finditer(text)]
    for command, next_start in zip(commands, [*(each.start() for each in commands[1:]), len(text)], strict=False):
        limit = min(command.end() + _MAX_COMMAND_CHARS, next_start)
        stop = _RE["end of command"].search(text, command.end(), limit)
        end = stop.start() if stop else limit
        for pattern in _OPTIONS[command[1]]:
            for match in pattern.finditer(text, command.end(), end):
                yield from _given(text, match, end)
    for pattern in (_RE["long option"], _RE["piped"], _RE["piped pair"], _RE["here string"]):
        for match in pattern.finditer(text):
            yield from _given(text, match, match.end() + 40)
    for match in _RE["variable"].finditer(text):
        for span in _chosen(text, match, "password"):
            if is_secret(Statement("password", "sign", text[span.start : span.end])):
                yield span


def _given(text: str, match: re.Match[str], end: int) -> Iterator[Span]:
    """Yield the value of an option, unless the option is only spoken of."""
    for span in _chosen(text, match, "password"):
        value = text[span.start : span.end]
        spoken = text[span.start : min(end, span.end + 60)].partition("#")[0].split()[:5]
        is_word = value.isalpha() and (value.islower() or value.istitle())
        if not (is_word and any(word.strip(".,").lower() in _PROSE_WORDS for word in spoken)):
            yield span


def _chosen(text: str, match: re.Match[str], kind: str) -> Iterator[Span]:
    """Yield the group of a match that is a value, unless something stands in its place."""
    number = match.lastindex or 0
    start, end = match.span(number)
    if number and text[start - 1 : start] not in ("'", '"'):
        end = start + len(text[start:end].rstrip(".,:`)]}\"'"))
    value = text[start:end]
    if end - start >= len("abc") and not value.startswith("-") and not is_placeholder(value):
        yield Span(start, end, kind)


def _seeds(text: str, low: str) -> Iterator[Span]:
    """Yield the secrets of second factors, behind words that name one."""
    named = [match.end() for match in _RE["second factor"].finditer(low)]
    for seed in _RE["seed"].finditer(text):
        place = bisect_right(named, seed.start()) - 1
        if place >= 0 and seed.start() - named[place] <= _MAX_BEFORE_SEED:
            yield Span(*seed.span(), "totp secret")


def _openers(text: str, low: str) -> Iterator[Span]:
    """Yield what opens a lock, unlocks a device or logs in, where the clause says so: "the safe opens with 4711".

    A noun behind a number says what it counts: "with 1500 visitors".
    """
    for match in _RE["given to open"].finditer(low):
        start, end = match.span(match.lastindex or 0)
        head = _RE["sentence break"].split(low[max(0, match.start() - _MAX_CHARS) : start])[-1]
        tail = _RE["sentence break"].split(low[end : end + _MAX_CHARS])[0].lstrip(" ")
        is_opened = _RE["opened"].search(f"{head} {tail}") and _RE["opens"].search(f"{head} {tail}")
        if match.lastgroup == "phrase" and is_opened and _is_phrase(match["phrase"].split(), "passphrase", "verb"):
            yield Span(start, end, "passphrase")
        elif match.lastgroup == "word" and (is_opened or _RE["logs in"].search(f"{head} {tail}")):
            end = _without_punctuation(text, start, end)
            if is_secret(Statement("password", "bare", text[start:end], quoted=False)):
                yield Span(start, end, "password")
        elif not match.lastgroup and is_opened:
            word = _RE["words"].match(tail)
            if word is None or word[0] in ALL_FUNCTION_WORDS or _RE["opens"].match(tail):
                yield Span(start, end, "access code")


def _is_card_number(number: str) -> bool:
    """Return whether the last digit is that of a card number (Luhn, ISO/IEC 7812)."""
    digits = [int(char) for char in number if char.isdigit()][::-1]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])  # noqa: PLR2004 - twice 5 has two digits
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


# --- Tables

_SEPARATORS = "|\t;,"
_MAX_HEADER_CHARS = 300


def _in_tables(text: str) -> Iterator[Span]:
    """Yield the values in a column that is headed by the name of a secret, in Markdown and in CSV."""
    if "\n" not in text or not NAME.search(lower_case(text)):
        return
    columns: list[tuple[int, str]] = []
    separator, width, place, is_login = "", 0, 0, False
    for line in text.split("\n"):
        start, place = place, place + len(line) + 1
        if columns and _RE["rule"].fullmatch(line):
            continue
        cells = _cells(line, start, separator) if columns else []
        if columns and len(cells) == width:
            for column, kind in columns:
                yield from _in_cell(text, *cells[column], kind, is_login=is_login)
            continue
        columns = []
        for separator in filter(line.__contains__, _SEPARATORS if len(line) <= _MAX_HEADER_CHARS else ""):
            cells = _cells(line, start, separator)
            kinds = [_kind_of_column(text[begin:end]) for begin, end in cells] if len(cells) > 1 else []
            columns = [(number, kind) for number, kind in enumerate(kinds) if kind]
            if columns:
                width = len(cells)
                is_login = any(_RE["of login"].fullmatch(lower_case(text[begin:end])) for begin, end in cells)
                break


def _cells(line: str, start: int, separator: str) -> list[tuple[int, int]]:
    """Return where the cells of a line begin and end, without the white space, quotes and marks around them."""
    begin, end, stripped = 0, len(line), line.strip()
    if separator == "|" and stripped.startswith("|"):
        begin = line.index("|") + 1
    if separator == "|" and stripped.endswith("|") and len(stripped) > 1:
        end = line.rindex("|")
    cells: list[tuple[int, int]] = []
    at = start + begin
    for part in line[begin:end].split(separator):
        value = part.strip(" \t\r\"'`*")
        left = at + part.index(value)
        cells.append((left, left + len(value)))
        at += len(part) + 1
    return cells


def _kind_of_column(heading: str) -> str:
    """Return the kind of secret in a column, or "". The name must be all of the heading but for a word or two."""
    low = lower_case(heading.strip())
    name = NAME.search(low)
    if name is None or len(low.split()) > 3 or len(low) > 40:  # noqa: PLR2004 - "wifi password (guest)"
        return ""
    rest = low[name.end() :].strip("s ")
    return kind_of(name.group()) if not rest or rest.startswith("(") else ""


def _in_cell(text: str, start: int, end: int, kind: str, *, is_login: bool) -> Iterator[Span]:
    value = text[start:end]
    if is_placeholder(value) or len(value) > 128 or not value.strip("-\u2013\u2014x*. \x00"):  # noqa: PLR2004
        return
    is_likely = is_login and value.lower() not in _PROSE_WORDS
    if _stands_alone(kind, value, "sign", is_likely=is_likely):
        yield Span(start, end, kind)


def _stands_alone(kind: str, value: str, joint: str, *, is_likely: bool, min_generated_chars: int = 0) -> bool:
    """Return whether a value that stands alone is a secret of a kind, given whether what is chosen is likely one."""
    if kind == "pin":
        fits = PIN.fullmatch(value) is not None
    elif kind in CHOSEN_KINDS:
        fits = " " not in value and (is_likely or _RE["strong answer"].fullmatch(value) is not None)
    else:
        fits = len(value) >= min_generated_chars and looks_random(value)
    return fits and is_secret(Statement(kind, joint, value))


# --- Questions and their answers


# How long a generated secret is at least.
_MIN_ANSWER_CHARS = 12


def _answers(text: str, low: str) -> Iterator[Span]:
    """Yield what answers a question for a secret, in the same line or the next."""
    if "?" not in text and "\uff1f" not in text:
        return
    end = 0
    for name in NAME.finditer(low):
        if name.start() < end:
            continue
        kind = kind_of(name.group())
        answer = _RE["answer"].match(text, name.end(), name.end() + 220)
        if answer is None:
            continue
        start = answer.start(1)
        stop = start + len(answer[1].rstrip(".,:!?"))
        value = text[start:stop]
        is_digits = kind == "access code" and value.isdigit()
        if _stands_alone(kind, value, "verb", is_likely=is_digits, min_generated_chars=_MIN_ANSWER_CHARS):
            yield Span(start, stop, kind)
            end = stop
