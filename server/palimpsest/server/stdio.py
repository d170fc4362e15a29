"""Carry messages over stdin and stdout, one a line, and answer the faulty ones.

The SDK's own transport drops them without an answer or a line in the log, and their sender waits until it gives up.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.os.win32.utilities import rebind_std_handle_to_fd
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse

from palimpsest.server.jsonrpc import EDGE_BYTES, MAX_MESSAGE_BYTES, Refused, read_message, too_long

# Read lines that may be of any length, without keeping more than a message may have.

SKIPPED_AT_ONCE = 64 * 1024


@dataclass(frozen=True, slots=True)
class LongLine:
    """The beginning and the end of a line that is longer than a message may be."""

    beginning: bytes
    end: bytes


def read_line(stream: BinaryIO) -> bytes | LongLine | None:
    """Read a line, with its end. Returns None at the end of the stream. Blocks."""
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
    return LongLine(beginning, end)


logger = logging.getLogger(__name__)

Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_messages() -> AsyncGenerator[tuple[Incoming, Outgoing]]:
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
            if isinstance(line, LongLine):
                message = too_long(line.beginning, line.end)
            elif line.isspace():
                continue
            else:
                message = read_message(line)
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
    async with to_client:
        async for message in to_client:
            line = _line_of(message.message)
            await anyio.to_thread.run_sync(_write_line, stdout, line, limiter=limit)


def _write_line(stdout: BinaryIO, line: bytes) -> None:
    stdout.write(line)
    stdout.flush()


def _line_of(message: JSONRPCMessage) -> bytes:
    """Return a message as a line. What JSON cannot hold becomes an error if it is a reply, and else nothing."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        logger.exception("a message could not be written as JSON")
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return b""
        data = ErrorData(code=INTERNAL_ERROR, message="the reply could not be written as JSON")
        return JSONRPCError(jsonrpc="2.0", id=message.id, error=data).model_dump_json().encode() + b"\n"


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
