"""Read what is new in a transcript, line by line from an offset. Blocking.

A transcript is a file of JSON lines that its client may still be writing, in a form that may change. So half a line at
the end waits, and what is unknown is counted and left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

from palimpsest.capture.transcripts import claude_code, codex
from palimpsest.capture.transcripts.said import Notes, SaidLine
from palimpsest.core.validation import well_formed

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is left out. Set by hand: a line holds one message or the result of one tool, with its images."""

HEAD_BYTES = 256
"""How much of the beginning of a file tells it from another one at the same path. Set by hand: the first line of a
transcript has an id or a time in it."""

NOT_JSON = "no JSON"


@dataclass(frozen=True, slots=True)
class Format:
    """How the transcripts of a client are read. `folder` is where they lie, below the user's home."""

    folder: str
    files_in: Callable[[Path], list[Path]]
    lines_of: Callable[[dict[str, Any], Notes], Iterator[SaidLine]]


FORMATS = {
    "claude-code": Format(".claude/projects", claude_code.files_in, claude_code.lines_of),
    "codex": Format(".codex/sessions", codex.files_in, codex.lines_of),
}
"""The clients whose transcripts can be read. Others say everything in what they give to their hooks."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a transcript was read: its first `offset` bytes, whose beginning has the hash `head`."""

    offset: int = 0
    head: str = ""


@dataclass(slots=True)
class Reading:
    """What was said before the place from which the reading began, and after it, and how far it went."""

    before: list[SaidLine] = field(default_factory=list[SaidLine])
    new: list[SaidLine] = field(default_factory=list[SaidLine])
    notes: Notes = field(default_factory=Notes)
    place: Place = Place()
    is_anew: bool = False


def read_transcript(client: str, path: Path, since: Place, *, with_before: bool) -> Reading:
    """Read what is new in a transcript, and with `with_before` also what was read before.

    If the file was truncated or replaced since, all of it is new. Raises OSError.
    """
    reading = Reading()
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        reading.is_anew = since.offset > size or _head(stream, since.offset) != since.head
        offset = 0 if reading.is_anew else since.offset
        begin = 0 if with_before else offset
        if begin:
            _parse(client, stream.readline(MAX_LINE_BYTES), reading.notes)  # it names the session
            reading.notes.left_out.clear()
            reading.notes.unknown.clear()
        stream.seek(begin)
        for line in _whole_lines(stream):
            is_new = stream.tell() > offset
            notes = reading.notes if is_new else Notes()
            (reading.new if is_new else reading.before).extend(_parse(client, line, notes))
            if not is_new:
                _take_over(notes, reading.notes)
            begin = stream.tell()
        reading.place = Place(begin, _head(stream, begin))
    return reading


def _head(stream: BinaryIO, offset: int) -> str:
    """Return the hash of the first bytes of a file, and leave its position at the beginning."""
    stream.seek(0)
    head = stream.read(min(offset, HEAD_BYTES))
    stream.seek(0)
    return sha256(head).hexdigest()[:32] if head else ""


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines that have an end; of one that is too long, an empty line."""
    while line := stream.readline(MAX_LINE_BYTES):
        if line.endswith(b"\n"):
            yield line
        elif len(line) < MAX_LINE_BYTES or not _skip_line(stream):
            return
        else:
            yield b"-"


def _skip_line(stream: BinaryIO) -> bool:
    """Move to the end of the line; return whether it has one."""
    while line := stream.readline(MAX_LINE_BYTES):
        if line.endswith(b"\n"):
            return True
    return False


def _parse(client: str, line: bytes, notes: Notes) -> list[SaidLine]:
    if not line.strip():
        return []
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        notes.unknown[NOT_JSON] += 1
        return []
    said = FORMATS[client].lines_of(cast("dict[str, Any]", value), notes)
    return [
        SaidLine(
            well_formed(line.message_id),
            well_formed(line.session),
            line.role,
            well_formed(line.text),
            line.at,
            well_formed(line.cwd),
        )
        for line in said
    ]


def _take_over(old: Notes, new: Notes) -> None:
    """Take over what lines that were read before say of the whole file."""
    new.title = old.title or new.title
    new.session = new.session or old.session
    new.cwd = new.cwd or old.cwd
    new.origin = new.origin or old.origin
    new.is_subagent = new.is_subagent or old.is_subagent
