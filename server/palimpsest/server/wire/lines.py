"""Read lines that may be of any length, without keeping more than a message may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from palimpsest.server.wire.json_text import MAX_MESSAGE_BYTES
from palimpsest.server.wire.unparsed import EDGE_BYTES

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
