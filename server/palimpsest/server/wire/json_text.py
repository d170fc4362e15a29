"""Parse JSON from outside: only UTF-8, only what JSON allows, and never more than memory and other readers can bear."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Never

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

MAX_JSON_VALUES = 20_000
"""Values in a message. The longest conversation that is accepted has some 3,000."""

MAX_JSON_DEPTH = 100
"""Levels of a message. The deepest filter that is accepted has ten; many parsers give up between 128 and 1,000."""

MAX_DIGITS = 1_000
"""Digits of a whole number. Converting a number takes time with the square of its length."""

BETWEEN_VALUES = (b",", b"[", b"{")
OPENING = (b"[", b"{")
ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of half a character. Two halves in the right order are a character."""


class NotJsonError(ValueError):
    """The bytes are not JSON in UTF-8."""


class TooLargeError(ValueError):
    """The JSON has too many values or levels, and was not parsed."""


@dataclass(frozen=True, slots=True)
class ParsedJson:
    """The value of a JSON text. `fault` says what in it no tool could keep, such as half a character, or is ""."""

    value: Any
    fault: str = ""


def parse_json(text: bytes | bytearray) -> ParsedJson:
    """Parse a JSON text. Raises NotJsonError and TooLargeError. Of two equal keys the last counts."""
    if excess := _excess(text):
        raise TooLargeError(excess)
    faults: list[str] = []

    def whole_number(digits: str) -> int | None:
        if len(digits) > MAX_DIGITS:
            faults.append(f"a number of {len(digits):,} digits, more than {MAX_DIGITS:,}")
            return None
        return int(digits)

    def real_number(digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            faults.append("a number that is too large")
        return number

    try:
        value = json.loads(text.decode(), parse_int=whole_number, parse_float=real_number, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise NotJsonError(f"byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise NotJsonError(f"{error.msg} at character {error.pos}") from error
    if SURROGATE.search(text) and _has_half_characters(value):
        faults.append("half a character (a lone surrogate)")
    return ParsedJson(value, faults[0] if faults else "")


def _excess(text: bytes | bytearray) -> str:
    """Return what a JSON text has too much of, without parsing it, or "".

    Each value takes many times as much memory as the two bytes it may be written with.
    """
    if _count(text, BETWEEN_VALUES) <= MAX_JSON_VALUES and _count(text, OPENING) <= MAX_JSON_DEPTH:
        return ""
    # A message of very many texts is refused by its quotes alone. Each value has four at most, with those of its key.
    parts = text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"', 4 * MAX_JSON_VALUES + 1)
    outside_texts = b"".join(parts[::2])
    if len(parts) > 4 * MAX_JSON_VALUES + 1 or _count(outside_texts, BETWEEN_VALUES) > MAX_JSON_VALUES:
        return f"it has more than {MAX_JSON_VALUES} JSON values"
    if _is_deep(outside_texts):
        return f"it is nested deeper than {MAX_JSON_DEPTH} levels"
    return ""


def _count(text: bytes | bytearray, marks: tuple[bytes, ...]) -> int:
    return sum(text.count(mark) for mark in marks)


def _is_deep(outside_texts: bytes | bytearray) -> bool:
    depth = 0
    for bracket in outside_texts.translate(None, ALL_BUT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_JSON_DEPTH:
            return True
        if depth < 0:  # it is not JSON
            return False
    return False


def _no_constant(name: str) -> Never:
    raise NotJsonError(f"{name} is not JSON")


def _has_half_characters(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
