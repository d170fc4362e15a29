"""Read JSON-RPC messages, say what is wrong with those that are not to be passed on, and carry them over stdio."""

import json
import logging
import math
import os
import re
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, BinaryIO, Never, TypeAlias, cast

import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.os.win32.utilities import rebind_std_handle_to_fd
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from palimpsest.core.validation import well_formed

# Parse JSON from outside: only UTF-8, only what JSON allows, and never more than memory and other readers can bear.

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

# Values in a message. The longest conversation that is accepted has some 3,000.
MAX_JSON_VALUES = 20_000

# Levels of a message. The deepest filter that is accepted has ten; many parsers give up between 128 and 1,000.
MAX_JSON_DEPTH = 100

# Digits of a whole number. Converting a number takes time with the square of its length.
MAX_DIGITS = 1_000

BETWEEN_VALUES = (b",", b"[", b"{")
OPENING = (b"[", b"{")
ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")

# The escape of half a character. Two halves in the right order are a character.
HALF_CHARACTER = re.compile(
    rb"(?<!\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\u[dD][c-fC-F]|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
)

# What may be a number that is too large, or half a character.
DOUBTFUL = re.compile(rb"[0-9]{309}|[0-9][eE]\+?[0-9]{3}|NaN|Infinity|\\u[dD][89a-fA-F]")


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
    depths = accumulate(1 if bracket in b"[{" else -1 for bracket in outside_texts.translate(None, ALL_BUT_BRACKETS))
    # A text that closes more than it has opened is not JSON.
    is_deep = any(depth > MAX_JSON_DEPTH for depth in takewhile(lambda depth: depth >= 0, depths))
    return f"it is nested deeper than {MAX_JSON_DEPTH} levels" if is_deep else ""


def _count(text: bytes | bytearray, marks: tuple[bytes, ...]) -> int:
    return sum(text.count(mark) for mark in marks)


# Read the id of a request that is too large to be parsed, so that its sender need not wait for an answer in vain.

# How much of the beginning and the end of a message is looked at. Clients write the id first or last.
EDGE_BYTES = 1_000

# Digits or characters of an id that is read.
MAX_ID_CHARS = 200

_MEMBER = rf'"(?:jsonrpc|id|method)"\s*:\s*(?:"[^"\\]{{0,{MAX_ID_CHARS}}}"|-?\d{{1,{MAX_ID_CHARS}}})'.encode()

# A possessive quantifier over alternatives is broken before Python 3.11.5.
_FIRST = re.compile(rb"\s*\{\s*(?=((?:" + _MEMBER + rb"\s*,\s*)*))\1")
_LAST = re.compile(rb"[}\]](?=((?:\s*,\s*" + _MEMBER + rb")*))\1\s*\}\s*\Z")


def unparsed_id(text: bytes | bytearray, end: bytes | None = None) -> types.RequestId | None:
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
    id: types.RequestId | None = None
    expects_answer: bool = True
    too_large: bool = False

    def as_error(self) -> types.JSONRPCError:
        """Return the answer to the message."""
        return _error(self.id, self.code, f"{self.reason}. Nothing was done.")


def _error(request_id: types.RequestId | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def unparsable(text: bytes | bytearray) -> Refused | None:
    """Return why a text is refused before it is parsed, or None."""
    if excess := _excess(text):
        return Refused(types.INVALID_REQUEST, f"the message is too large: {excess}", unparsed_id(text), too_large=True)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Refused(types.PARSE_ERROR, f"the message is not JSON: byte {error.start} is not UTF-8")
    return None


def fault_of_body(text: bytes | bytearray) -> Refused | None:
    """Return why a body is refused that the SDK is to parse, or None. It has no limits, and takes what nobody can keep.

    A body is only parsed here if it may have such a number or half a character.
    """
    message = unparsable(text) or (read_message(text) if DOUBTFUL.search(text) else None)
    return message if isinstance(message, Refused) else None


def read_message(text: bytes | bytearray) -> types.JSONRPCMessage | Refused:
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
        return Refused(types.PARSE_ERROR, f"the message is not JSON: {error}")
    if HALF_CHARACTER.search(text.replace(rb"\\", b"")):
        faults.append("half a character (a lone surrogate)")
    if not isinstance(value, dict):
        return Refused(types.INVALID_REQUEST, "a message is one JSON object; a batch is not accepted")
    return _message(cast("dict[str, Any]", value), faults)


def _message(members: dict[str, Any], faults: list[str]) -> types.JSONRPCMessage | Refused:
    """Return a message, or why it is refused. One with a method and without an id is a notification.

    If the client's reply to a request of the server is faulty, the request must not wait any longer.
    """
    is_call, request_id = "method" in members, _id_of(members)
    is_notification = is_call and "id" not in members and isinstance(members["method"], str)
    if is_call:
        kind = types.JSONRPCNotification if is_notification else types.JSONRPCRequest
    elif "error" in members or "result" in members:
        kind = types.JSONRPCError if "error" in members else types.JSONRPCResponse
    else:
        return Refused(types.INVALID_REQUEST, "the message has no method", request_id)
    reason = f"the message has {faults[0]}" if faults else ""
    try:
        if not faults:
            return kind.model_validate(members)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        reason, faults = f"{fault['loc'][0]} is not valid: {fault['msg']}", ["not the form of a reply"]
    if is_call:
        return Refused(types.INVALID_REQUEST, reason, request_id, expects_answer=not is_notification)
    if request_id is None:
        return Refused(types.INVALID_REQUEST, f"a reply has {faults[0]}", expects_answer=False)
    return _error(request_id, types.INVALID_REQUEST, f"the client's reply has {faults[0]}")


def _id_of(members: dict[str, Any]) -> types.RequestId | None:
    """Return the id of a message, or None if it has no valid one. JSON-RPC has no answer for half a character."""
    request_id = members.get("id")
    if isinstance(request_id, str):
        return request_id if well_formed(request_id) == request_id else None
    return request_id if isinstance(request_id, int) and not isinstance(request_id, bool) else None


# Carry messages over stdin and stdout, one a line, and answer the faulty ones.
#
# The SDK's own transport drops them without an answer or a line in the log, and their sender waits until it gives up.

# Read lines that may be of any length, without keeping more than a message may have.

SKIPPED_AT_ONCE = 64 * 1024


def read_line(stream: BinaryIO) -> bytes | Refused | None:
    """Read a line, with its end. Returns None at the end of the stream, and why a line that is too long is refused."""
    line = stream.readline(MAX_MESSAGE_BYTES + 1)
    if not line:
        return None
    if len(line) <= MAX_MESSAGE_BYTES or line.endswith(b"\n"):
        return line
    beginning, end = line[:EDGE_BYTES], line[-EDGE_BYTES:]
    del line
    while part := stream.readline(SKIPPED_AT_ONCE):
        end = (end + part)[-EDGE_BYTES:]
        if part.endswith(b"\n"):
            break
    reason = f"the message is longer than {MAX_MESSAGE_BYTES} bytes"
    return Refused(types.INVALID_REQUEST, reason, unparsed_id(beginning, end), too_large=True)


logger = logging.getLogger(__name__)

Outgoing: TypeAlias = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_messages() -> AsyncGenerator[tuple[MemoryObjectReceiveStream[SessionMessage | Exception], Outgoing]]:
    """Yield the messages that arrive on stdin, and a stream whose messages are written to stdout.

    Meanwhile, stdin is empty and stdout is stderr for everything else in this process and its children.
    """
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, to_client = anyio.create_memory_object_stream[SessionMessage]()
    with _standard_streams() as (stdin, stdout):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, stdin, to_server, outgoing.clone())
            tasks.start_soon(_write, to_client, stdout)
            yield incoming, outgoing


async def _read(
    stdin: BinaryIO, to_server: MemoryObjectSendStream[SessionMessage | Exception], answers: Outgoing
) -> None:
    """Pass on every message and answer every faulty line, until stdin ends or the server does."""
    limit = anyio.CapacityLimiter(1)
    async with to_server, answers:
        while (line := await anyio.to_thread.run_sync(read_line, stdin, limiter=limit)) is not None:
            if isinstance(line, bytes) and line.isspace():
                continue
            message = read_message(line) if isinstance(line, bytes) else line
            try:
                if isinstance(message, Refused):
                    logger.warning("refused a line on stdin: %s", message.reason)
                    if message.expects_answer:
                        await answers.send(SessionMessage(message.as_error()))
                else:
                    await to_server.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


async def _write(to_client: MemoryObjectReceiveStream[SessionMessage], stdout: BinaryIO) -> None:
    limit = anyio.CapacityLimiter(1)

    def write(line: bytes) -> None:
        stdout.write(line)
        stdout.flush()

    async with to_client:
        async for message in to_client:
            await anyio.to_thread.run_sync(write, _line_of(message.message), limiter=limit)


def _line_of(message: types.JSONRPCMessage) -> bytes:
    """Return a message as a line. What JSON cannot hold becomes an error if it is a reply, and else nothing."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        logger.exception("a message could not be written as JSON")
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return b""
        error = _error(message.id, types.INTERNAL_ERROR, "the reply could not be written as JSON")
        return error.model_dump_json().encode() + b"\n"


@contextmanager
def _standard_streams() -> Generator[tuple[BinaryIO, BinaryIO]]:
    """Yield stdin and stdout as streams of bytes, and give their descriptors to the null device and to stderr."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        _point(0, nothing)
        _point(1, 2)
        # The thread that reads stdin may outlive the block, so its descriptor stays open.
        yield os.fdopen(stdin, "rb", closefd=False), os.fdopen(stdout, "wb", closefd=False)
    finally:
        os.close(nothing)
        _point(1, stdout)
        _point(0, stdin)


def _point(descriptor: int, target: int) -> None:
    os.dup2(target, descriptor)
    rebind_std_handle_to_fd(descriptor)  # for child processes on Windows; elsewhere it does nothing
