"""Read the transcripts of Claude Code and Codex from where the last reading ended."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from pydantic import BaseModel, Field, ValidationError

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError, logged
from palimpsest.core.files import replace_file
from palimpsest.core.models import PICTURE
from palimpsest.core.validation import list_of, object_of, well_formed
from palimpsest.hooks import spool
from palimpsest.hooks.events import PROGRAM_ENTRYPOINT
from palimpsest.text.word_lists import patterns

# What every reader of a transcript returns.


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A message of a transcript. `message_id` is the client's, or made of what the line holds.

    `text` is as it stands in the transcript. `session` is the one that the line names, or "".
    """

    message_id: str
    session: str
    role: str
    text: str
    at: datetime | None


# How often a text was met in a transcript, and the short names of the records with it, by a key of the text.
#
# Records are named and not counted, because one that was left out comes again if its reader is killed.
Counts: TypeAlias = dict[str, tuple[int, tuple[str, ...]]]


class ReadPosition(BaseModel):
    """How far a transcript was read: its first `offset` bytes, whose beginning has the hash `head`.

    `counts` are those of its texts, None if they have to be counted again.
    """

    offset: int = 0
    head: str = ""
    counts: Counts | None = None


@dataclass(slots=True)
class Reading:
    """What a client's transcript says before the position from which it was read, and after it.

    `unknown` counts what is not known, by type. The rest holds for the whole file: `title` is the name of the session,
    `session` its id, and `is_subagent` says that nobody spoke in it.
    """

    client: str
    before: list[TranscriptMessage] = field(default_factory=list[TranscriptMessage])
    new: list[TranscriptMessage] = field(default_factory=list[TranscriptMessage])
    position: ReadPosition = field(default_factory=ReadPosition)
    is_anew: bool = False
    unknown: Counter[str] = field(default_factory=Counter[str])
    title: str = ""
    session: str = ""
    cwd: str = ""
    origin: str = ""
    is_subagent: bool = False


def text_of(value: Any) -> str:
    """Return a JSON text without lone surrogates, which no file accepts, and "" for anything else."""
    return well_formed(value) if isinstance(value, str) else ""


def text_of_blocks(content: Any) -> str:
    """Return the text of a message's content: a text, or a list of blocks."""
    if isinstance(content, str):
        return text_of(content)
    blocks = [block for block in map(object_of, list_of(content)) if block.get("type") in ("text", "image")]
    return "\n".join(PICTURE if block["type"] == "image" else text_of(block.get("text")) for block in blocks)


def instant_of(value: Any) -> datetime | None:
    """Return the instant of an ISO 8601 text in UTC, or None."""
    with suppress(InputError):
        return parse_instant(value, "the time").astimezone(UTC) if isinstance(value, str) else None
    return None


# Claude Code's transcripts: JSON lines of `user`, `assistant`, `attachment` and much else.
#
# The form is internal to Claude Code and is read as it was seen until version 2.1. `content` is a text, or a list of
# blocks. An assistant's message has a line for each block.

_PATTERNS = patterns("palimpsest.hooks", "clients.txt")

# Types of lines with the title of the session, and their keys.
_TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}


def claude_code_lines(line: dict[str, Any], reading: Reading) -> Iterator[TranscriptMessage]:
    """Yield what a line of a transcript says, and note what is not known."""
    kind = text_of(line.get("type"))
    reading.cwd = reading.cwd or text_of(line.get("cwd"))
    reading.session = reading.session or text_of(line.get("sessionId"))
    if kind in _TITLES:
        reading.title = text_of(line.get(_TITLES[kind])) or reading.title
    elif kind in ("user", "assistant"):
        if text := _claude_code_text(line):
            yield _said(line, kind, text)
    elif kind == "attachment":
        # What the user typed while the assistant worked. Other attachments say nothing.
        attachment = object_of(line.get("attachment"))
        is_prompt = attachment.get("type") == "queued_command" and attachment.get("commandMode") == "prompt"
        is_by_person = object_of(attachment.get("origin")).get("kind", "human") == "human"
        text = text_of_blocks(attachment.get("prompt")) if is_prompt and is_by_person else ""
        if text and not line.get("isSidechain"):
            yield _said(line, "user", text)
    elif not _PATTERNS["silent"].fullmatch(kind):
        reading.unknown[kind or "no type"] += 1


def _said(line: dict[str, Any], role: str, text: str) -> TranscriptMessage:
    message_id = text_of(line.get("uuid")) or spool.hashed(role, text, text_of(line.get("timestamp")))
    session = text_of(object_of(line.get("forkedFrom")).get("sessionId")) or text_of(line.get("sessionId"))
    return TranscriptMessage(message_id, session, role, text, instant_of(line.get("timestamp")))


def _claude_code_text(line: dict[str, Any]) -> str:
    """Return the text of a line of the user or the assistant; "" if they did not say it."""
    if _is_not_said(line):
        return ""
    content = object_of(line.get("message")).get("content")
    # What stands beside a result was added by the client.
    is_result = any(object_of(block).get("type") == "tool_result" for block in list_of(content))
    return "" if is_result else text_of_blocks(content)


def _is_not_said(line: dict[str, Any]) -> bool:
    """Return whether a line is of a subagent or a compaction, or was added by the client or a program."""
    message, origin = object_of(line.get("message")), object_of(line.get("origin"))
    flags = ("isSidechain", "isCompactSummary", "isMeta", "isVisibleInTranscriptOnly", "isApiErrorMessage")
    return (
        any(line.get(flag) for flag in flags)
        or message.get("model") == "<synthetic>"
        or text_of(line.get("entrypoint")).startswith(PROGRAM_ENTRYPOINT)
        or origin.get("kind", "human") != "human"
    )


# Codex's rollouts: JSON lines `{timestamp, type, payload}`, since the summer of 2025.
#
# The types are those of `RolloutItem` and `ResponseItem` in codex-rs/protocol, until version 0.160. What was said is
# in `response_item` lines of type `message`, in every version; events repeat some of it.

# What an editor puts before the user's own words, after the files that are open.
_REQUEST = "## My request for Codex:"

_CONTEXT = "# Context from my IDE setup:"


def codex_lines(line: dict[str, Any], reading: Reading) -> Iterator[TranscriptMessage]:
    """Yield what a line of a rollout says, and note what is not known."""
    kind = text_of(line.get("type"))
    payload = object_of(line.get("payload"))
    if kind == "session_meta":
        _begin(payload, reading)
    elif kind == "response_item":
        yield from _item(payload, text_of(line.get("timestamp")), reading)
    elif not _PATTERNS["silent of Codex"].fullmatch(kind):
        reading.unknown[kind or "no type"] += 1


def _begin(meta: dict[str, Any], reading: Reading) -> None:
    """Note what the first line says of the session. A fork also has that of the session it was made from."""
    if reading.session:
        return
    reading.session = text_of(meta.get("id")) or text_of(meta.get("session_id"))
    reading.cwd = text_of(meta.get("cwd"))
    reading.origin = text_of(meta.get("forked_from_id"))
    reading.is_subagent = bool(object_of(meta.get("source")).keys() & {"subagent", "internal"})


def _item(item: dict[str, Any], timestamp: str, reading: Reading) -> Iterator[TranscriptMessage]:
    kind, role = text_of(item.get("type")), text_of(item.get("role"))
    if kind != "message" and not _PATTERNS["silent items of Codex"].fullmatch(kind):
        reading.unknown[f"response_item: {kind or 'no type'}"] += 1
    elif kind == "message" and role in ("user", "assistant"):
        texts = (_codex_text(object_of(part)) for part in list_of(item.get("content")))
        if text := "\n".join(filter(None, texts)):
            message_id = text_of(item.get("id")) or spool.hashed(role, text, timestamp)
            yield TranscriptMessage(message_id, "", role, text, instant_of(timestamp))


def _codex_text(part: dict[str, Any]) -> str:
    """Return the text of a part of a message; "" if it has none, or if Codex added it."""
    kind, text = text_of(part.get("type")), text_of(part.get("text"))
    if kind not in ("input_text", "output_text", "text"):
        return PICTURE if kind == "input_image" else ""
    if text.lstrip().startswith(_CONTEXT):
        text = text.partition(_REQUEST)[2]
    return "" if _PATTERNS["added by Codex"].match(text) else text


# Read what is new in a transcript, line by line from an offset. Blocking.
#
# A transcript is a file of JSON lines that its client may still be writing, in a form that may change. So half a
# line at the end waits, and what is unknown is counted and left out.

# A longer line is left out: a line holds one message or the result of one tool, with its images.
MAX_LINE_BYTES = 64 * 1024 * 1024

# How much of the beginning of a file tells it from another one at the same path: the first line of a transcript has an
# id or a time in it.
HEAD_BYTES = 256

NOT_JSON = "no JSON"


@dataclass(frozen=True, slots=True)
class Format:
    """How the transcripts of a client are read. `folder` is where they lie, below the user's home."""

    folder: str
    pattern: str
    lines_of: Callable[[dict[str, Any], Reading], Iterator[TranscriptMessage]]

    def files_in(self, folder: Path) -> list[Path]:
        """Return the transcripts of all sessions, without those of subagents."""
        return sorted(path for path in folder.glob(self.pattern) if not path.name.startswith("agent-"))


# The clients whose transcripts can be read. Others say everything in what they give to their hooks.
FORMATS = {
    "claude-code": Format(".claude/projects", "*/*.jsonl", claude_code_lines),
    "codex": Format(".codex/sessions", "**/rollout-*.jsonl", codex_lines),
}


def read_transcript(client: str, path: Path, since: ReadPosition, *, with_before: bool) -> Reading:
    """Read what is new in a transcript, and with `with_before` also what was read before.

    If the file was truncated or replaced since, all of it is new. Raises OSError.
    """
    reading = Reading(client)
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        reading.is_anew = not 0 < since.offset <= size or _head(stream, since.offset) != since.head
        offset = 0 if reading.is_anew else since.offset
        begin = 0 if with_before else offset
        if begin:
            _parse(stream.readline(MAX_LINE_BYTES), reading)  # it names the session
            reading.unknown.clear()  # an earlier reading has counted it
        stream.seek(begin)
        for line in _whole_lines(stream):
            is_new = stream.tell() > offset
            (reading.new if is_new else reading.before).extend(_parse(line, reading))
            if not is_new:
                reading.unknown.clear()  # an earlier reading has counted it
            begin = stream.tell()
        reading.position = ReadPosition(offset=begin, head=_head(stream, begin))
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
        is_long = False
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line, is_long = stream.readline(MAX_LINE_BYTES), True
        if not line.endswith(b"\n"):
            return
        yield b"-" if is_long else line


def _parse(line: bytes, reading: Reading) -> list[TranscriptMessage]:
    if not line.strip():
        return []
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        reading.unknown[NOT_JSON] += 1
        return []
    return list(FORMATS[reading.client].lines_of(cast("dict[str, Any]", value), reading))


# How full the context of a session is, as the last lines of its transcript say.

# How much of the end of a transcript is looked at. A line with a picture is longer, and then nothing is known.
TAIL_BYTES = 512 * 1024

# The contexts of Claude Code. Which one a session has is known when it holds more than the first.
CLAUDE_TOKENS, CLAUDE_LONG_TOKENS = 200_000, 1_000_000

_CLAUDE_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def context_tokens(client: str, path: Path) -> tuple[int, int]:
    """Return how many tokens the context of a session holds, and how many it can hold; zeros if nobody says.

    Raises OSError.
    """
    with path.open("rb") as stream:
        stream.seek(max(os.fstat(stream.fileno()).st_size - TAIL_BYTES, 0))
        lines = stream.readlines()
    for line in reversed(lines):
        with suppress(ValueError, RecursionError):
            value = object_of(json.loads(line))
            if value.get("subtype") == "compact_boundary" or value.get("type") == "compacted":
                break
            if (tokens := _tokens_in(client, value))[0]:
                return tokens
    return 0, 0


def _tokens_in(client: str, line: dict[str, Any]) -> tuple[int, int]:
    if client == "codex":
        info = object_of(object_of(line.get("payload")).get("info"))
        return _count(object_of(info.get("last_token_usage")), "total_tokens"), _count(info, "model_context_window")
    usage = {} if line.get("isSidechain") else object_of(object_of(line.get("message")).get("usage"))
    used = _count(usage, *_CLAUDE_USAGE)
    return used, CLAUDE_LONG_TOKENS if used > CLAUDE_TOKENS else CLAUDE_TOKENS


def _count(counts: dict[str, Any], *names: str) -> int:
    return sum(value for name in names if isinstance(value := counts.get(name), int))


# How far transcripts were read, in `transcripts.json`. Only the holder of the intake's lock reads and writes it.

logger = logging.getLogger(__name__)

# Of how many transcripts the counts are kept, those that were read last: of a session that goes on after so many
# others, they are counted again.
KEPT_COUNTS = 50

# Of more transcripts, those that no longer exist are forgotten.
KEPT_FILES = 5_000


def write_file(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a file of the hooks, as `replace_file` does, in a folder of its owner alone. Raises OSError."""
    spool.make_private_folder(str(path.parent))
    with replace_file(path, durable=durable) as file:
        file.write(text)


class Offsets(BaseModel):
    """How far each transcript was read, by its path, and how many lines of unknown types were met, by client."""

    file: Path = Field(Path(), exclude=True)
    files: dict[str, ReadPosition] = {}
    unknown: dict[str, dict[str, int]] = {}

    @classmethod
    def load(cls, data_dir: Path) -> Offsets:
        """Return what is written down. If that is damaged, all transcripts are read anew, and nothing is kept twice."""
        file = Path(spool.transcripts_file(str(data_dir)))
        fault = f"{file} cannot be read, so transcripts are read from their beginning"
        with logged(logger, fault, OSError, ValidationError):
            content = file.read_bytes() if file.exists() else b"{}"
            return cls.model_validate_json(content).model_copy(update={"file": file})
        return cls(file=file)

    def position(self, path: Path) -> ReadPosition:
        """Return how far a transcript was read. What changes its counts is written down with `move`."""
        return self.files.get(str(path)) or ReadPosition(counts={})

    def move(self, path: Path, position: ReadPosition, counts: Counts) -> None:
        """Note how far a transcript was read. `counts` may still change until it is written down."""
        self.files.pop(str(path), None)
        self.files[str(path)] = position.model_copy(update={"counts": counts})

    def count_unknown(self, client: str, unknown: Mapping[str, int]) -> None:
        """Add lines of unknown types."""
        if unknown:
            self.unknown[client] = dict(Counter(self.unknown.get(client, {})) + Counter(unknown))

    def save(self) -> None:
        """Write it down. A failure is logged: the transcripts are then read again, and nothing is kept twice."""
        if len(self.files) > KEPT_FILES:
            self.files = {name: known for name, known in self.files.items() if Path(name).exists()}
        for name in list(self.files)[:-KEPT_COUNTS]:
            self.files[name].counts = None
        with logged(logger, f"{self.file} cannot be written, so transcripts will be read again", OSError):
            write_file(self.file, self.model_dump_json())
