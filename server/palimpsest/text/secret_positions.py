"""Find secrets by where they stand: after an option of a command, in a header, in the column of a table, in an answer.

Nothing near such a value needs to say what it is. What the place says instead is in the tables below. Each function
reads a bounded stretch of text for what it has found, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from palimpsest.text import secret_statements as stated
from palimpsest.text.secret_statements import Span, Statement
from palimpsest.text.stopwords import FUNCTION_WORDS
from palimpsest.text.word_lists import LazyPattern, filled, patterns, word_lists

_LISTS = word_lists("palimpsest.text", "secret_positions.txt")
_RE = patterns("palimpsest.text", "secret_positions.txt")

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
    low = stated.lower_case(text)
    yield from _in_commands(text)
    for pattern, kind, is_lower in _PLACES:
        for match in _RE[pattern].finditer(low if is_lower else text):
            yield Span(*match.span(match.lastindex or 0), kind)
    for pattern, kind, is_lower, sign in _CHOSEN:
        for match in _RE[pattern].finditer(low if is_lower else text) if sign in low else ():
            yield from _chosen(text, match, kind)
    for header in _RE["header"].finditer(text) if "cookie" in low else ():
        for cookie in _RE["cookie"].finditer(text, header.start(1), header.end(1)):
            if cookie[1].lower() not in _COOKIE_ATTRIBUTES and not stated.is_placeholder(cookie[2]):
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
            if stated.is_secret(Statement("password", "sign", text[span.start : span.end])):
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
    if end - start >= len("abc") and not value.startswith("-") and not stated.is_placeholder(value):
        yield Span(start, end, kind)


def _seeds(text: str, low: str) -> Iterator[Span]:
    """Yield the secrets of second factors, behind words that name one."""
    named = [match.end() for match in _RE["second factor"].finditer(low)]
    for seed in _RE["seed"].finditer(text):
        place = bisect_right(named, seed.start()) - 1
        if place >= 0 and seed.start() - named[place] <= _MAX_BEFORE_SEED:
            yield Span(*seed.span(), "totp secret")


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
    if "\n" not in text or not stated.NAME.search(stated.lower_case(text)):
        return
    columns: list[tuple[int, str]] = []
    separator, width, place, is_login = "", 0, 0, False
    for line in text.split("\n"):
        start, place = place, place + len(line) + 1
        cells = _cells(line, start, separator) if separator else []
        if columns and _RE["rule"].fullmatch(line):
            continue
        if columns and len(cells) == width:
            for column, kind in columns:
                yield from _in_cell(text, *cells[column], kind, is_login=is_login)
            continue
        columns, separator, is_login = [], "", False
        if len(line) > _MAX_HEADER_CHARS:
            continue
        for sign in _SEPARATORS:
            if sign not in line:
                continue
            cells = _cells(line, start, sign)
            found = [(number, _kind_of_column(text[a:b])) for number, (a, b) in enumerate(cells)]
            columns = [(number, kind) for number, kind in found if kind]
            if columns and len(cells) > 1:
                separator, width = sign, len(cells)
                is_login = any(_RE["of login"].fullmatch(stated.lower_case(text[a:b])) for a, b in cells)
                break
            columns = []


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
    low = stated.lower_case(heading.strip())
    name = stated.NAME.search(low)
    if name is None or len(low.split()) > 3 or len(low) > 40:  # noqa: PLR2004 - "wifi password (guest)"
        return ""
    rest = low[name.end() :].strip("s ")
    return stated.kind_of(name.group()) if not rest or rest.startswith("(") else ""


def _in_cell(text: str, start: int, end: int, kind: str, *, is_login: bool) -> Iterator[Span]:
    value = text[start:end]
    if stated.is_placeholder(value) or len(value) > 128 or not value.strip("-\u2013\u2014x*. \x00"):  # noqa: PLR2004
        return
    is_likely = is_login and value.lower() not in _PROSE_WORDS
    if _is_value(kind, value, "sign", is_likely=is_likely):
        yield Span(start, end, kind)


def _is_value(kind: str, value: str, joint: str, *, is_likely: bool, min_generated_chars: int = 0) -> bool:
    """Return whether a value that stands alone is a secret of a kind, given whether what is chosen is likely one."""
    if kind == "pin":
        fits = stated.PIN.fullmatch(value) is not None
    elif kind in stated.CHOSEN_KINDS:
        fits = " " not in value and (is_likely or _RE["strong answer"].fullmatch(value) is not None)
    else:
        fits = len(value) >= min_generated_chars and stated.looks_random(value)
    return fits and stated.is_secret(Statement(kind, joint, value))


# --- Questions and their answers


_MIN_ANSWER_CHARS = 12
"""How long a generated secret is at least."""


def _answers(text: str, low: str) -> Iterator[Span]:
    """Yield what answers a question for a secret, in the same line or the next."""
    if "?" not in text and "\uff1f" not in text:
        return
    end = 0
    for name in stated.NAME.finditer(low):
        if name.start() < end:
            continue
        kind = stated.kind_of(name.group())
        answer = _RE["answer"].match(text, name.end(), name.end() + 220)
        if answer is None:
            continue
        start = answer.start(1)
        stop = start + len(answer[1].rstrip(".,:!?"))
        value = text[start:stop]
        is_digits = kind == "access code" and value.isdigit()
        if _is_value(kind, value, "verb", is_likely=is_digits, min_generated_chars=_MIN_ANSWER_CHARS):
            yield Span(start, stop, kind)
            end = stop
