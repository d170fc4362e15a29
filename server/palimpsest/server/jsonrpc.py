"""Read JSON-RPC messages, and say what is wrong with those that are not to be passed on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never, cast

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError

from palimpsest.core.validation import well_formed

# Parse JSON from outside: only UTF-8, only what JSON allows, and never more than memory and other readers can bear.

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
HALF_CHARACTER = re.compile(
    rb"(?<!\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\u[dD][c-fC-F]|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
)
"""The escape of half a character. Two halves in the right order are a character."""


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


# Read the id of a request that is too large to be parsed, so that its sender need not wait for an answer in vain.

EDGE_BYTES = 1_000
"""How much of the beginning and the end of a message is looked at. Clients write the id first or last."""

MAX_ID_CHARS = 200
"""Digits or characters of an id that is read."""

_MEMBER = rf'"(?:jsonrpc|id|method)"\s*:\s*(?:"[^"\\]{{0,{MAX_ID_CHARS}}}"|-?\d{{1,{MAX_ID_CHARS}}})'.encode()
_FIRST = re.compile(rb"\s*\{\s*((?:" + _MEMBER + rb"\s*,\s*)*+)")
_LAST = re.compile(rb"[}\]]((?:\s*,\s*" + _MEMBER + rb")*+)\s*\}\s*\Z")


def unparsed_id(text: bytes | bytearray, end: bytes | None = None) -> RequestId | None:
    """Return the id of a request, or None if it is not to be seen at its edges or if it is no request.

    `end` is the end of the message, if `text` is only its beginning.
    """
    first = _FIRST.match(bytes(text[:EDGE_BYTES]))
    last = _LAST.search(bytes(text[-EDGE_BYTES:] if end is None else end[-EDGE_BYTES:]))
    members = [found[1].strip(b", \t\r\n") for found in (first, last) if found and found[1]]
    try:
        outer = json.loads((b"{" + b",".join(members) + b"}").decode())  # of bytes, json accepts half characters
    except ValueError:
        return None
    request_id = outer.get("id")
    return request_id if "method" in outer and isinstance(request_id, int | str) else None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a message is not passed on.

    `id` is the id of the request, if it can be read. `expects_answer` is False for a notification or a reply, which
    nobody answers.
    """

    code: int
    reason: str
    id: RequestId | None = None
    expects_answer: bool = True
    too_large: bool = False

    def as_error(self) -> JSONRPCError:
        """Return the answer to the message."""
        return JSONRPCError(
            jsonrpc="2.0", id=self.id, error=ErrorData(code=self.code, message=f"{self.reason}. Nothing was done.")
        )


def unparsable(text: bytes | bytearray) -> Refused | None:
    """Return why a text is refused before it is parsed, or None. Other readers have no limits for values and levels."""
    if excess := _excess(text):
        return Refused(INVALID_REQUEST, f"the message is too large: {excess}", unparsed_id(text), too_large=True)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Refused(PARSE_ERROR, f"the message is not JSON: byte {error.start} is not UTF-8")
    return None


def half_character(text: bytes | bytearray) -> str:
    """Return what is wrong with a text that escapes half a character, which no tool could keep, or ""."""
    return "half a character (a lone surrogate)" if HALF_CHARACTER.search(text.replace(rb"\\", b"")) else ""


def read_message(text: bytes | bytearray) -> JSONRPCMessage | Refused:
    """Return the message in a JSON text, or why it is refused. A faulty reply to the server becomes an error reply.

    Of two equal keys the last counts.
    """
    if refused := unparsable(text):
        return refused
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

    def no_constant(name: str) -> Never:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(text.decode(), parse_int=whole_number, parse_float=real_number, parse_constant=no_constant)
    except ValueError as error:
        return Refused(PARSE_ERROR, f"the message is not JSON: {error}")
    if half := half_character(text):
        faults.append(half)
    if not isinstance(value, dict):
        return Refused(INVALID_REQUEST, "a message is one JSON object; a batch is not accepted")
    members = cast("dict[str, Any]", value)
    if "method" in members:
        return _call(members, faults)
    if "result" in members or "error" in members:
        return _reply(members, faults)
    return Refused(INVALID_REQUEST, "the message has no method", _id_of(members))


def too_long(beginning: bytes, end: bytes) -> Refused:
    """Refuse a message that is too long to be kept."""
    reason = f"the message is longer than {MAX_MESSAGE_BYTES} bytes"
    return Refused(INVALID_REQUEST, reason, unparsed_id(beginning, end), too_large=True)


def _call(members: dict[str, Any], faults: Sequence[str]) -> JSONRPCMessage | Refused:
    """Return a request or a notification. A message with a method and without an id is a notification."""
    is_notification = "id" not in members and isinstance(members["method"], str)
    reason = f"the message has {faults[0]}" if faults else ""
    try:
        if not reason:
            return (JSONRPCNotification if is_notification else JSONRPCRequest).model_validate(members)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        reason = f"{fault['loc'][0]} is not valid: {fault['msg']}"
    return Refused(INVALID_REQUEST, reason, _id_of(members), expects_answer=not is_notification)


def _reply(members: dict[str, Any], faults: Sequence[str]) -> JSONRPCMessage | Refused:
    """Return the client's reply to a request of the server. If it is faulty, the request must not wait any longer."""
    kind = JSONRPCError if "error" in members else JSONRPCResponse
    try:
        if not faults:
            return kind.model_validate(members)
    except ValidationError:
        faults = ["not the form of a reply"]
    request_id = _id_of(members)
    if request_id is None:
        return Refused(INVALID_REQUEST, f"a reply has {faults[0]}", expects_answer=False)
    error = ErrorData(code=INVALID_REQUEST, message=f"the client's reply has {faults[0]}")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _id_of(members: dict[str, Any]) -> RequestId | None:
    """Return the id of a message, or None if it has no valid one. JSON-RPC has no answer for half a character."""
    request_id = members.get("id")
    if isinstance(request_id, str):
        return request_id if well_formed(request_id) == request_id else None
    return request_id if isinstance(request_id, int) and not isinstance(request_id, bool) else None
