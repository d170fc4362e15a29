"""Read the transcripts of Claude Code and Codex from where the last reading ended."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from pydantic import BaseModel, ValidationError

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.files import replace_file
from palimpsest.core.validation import well_formed
from palimpsest.hooks import spool
from palimpsest.hooks.events import PROGRAM_ENTRYPOINT
from palimpsest.hooks.spool import hashed, make_private_folder

# What every reader of a transcript returns.

LeftOut: TypeAlias = Counter[str]
"""How much of a transcript was left out, by reason."""

TOOLS = "tool calls and their results"
THINKING = "thinking"
ADDED = "what the client added: reminders, commands and their output"
SUBAGENTS = "what subagents said"
SUMMARIES = "summaries of compactions"
NO_TEXT = "images and other things without text"


@dataclass(frozen=True, slots=True)
class SaidLine:
    """A line of a transcript that says something. `message_id` is the client's, or made of what the line holds.

    `text` is as it stands in the transcript. `session` is the one that the line names, or "".
    """

    message_id: str
    session: str
    role: str
    text: str
    at: datetime | None
    cwd: str = ""


@dataclass(slots=True)
class Notes:
    """What a reader noticed: what it left out, what it does not know by type, and what holds for the whole file.

    `title` is the name of the session, `session` its id, and `is_subagent` says that nobody spoke in it.
    """

    left_out: LeftOut = field(default_factory=Counter[str])
    unknown: LeftOut = field(default_factory=Counter[str])
    title: str = ""
    session: str = ""
    cwd: str = ""
    origin: str = ""
    is_subagent: bool = False


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON object, and an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a JSON list, and an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a JSON text, and "" for anything else."""
    return value if isinstance(value, str) else ""


def instant_of(value: Any) -> datetime | None:
    """Return the instant of an ISO 8601 text in UTC, or None."""
    try:
        return parse_instant(value, "the time").astimezone(UTC) if isinstance(value, str) else None
    except InputError:
        return None


# Claude Code's transcripts: JSON lines of `user`, `assistant`, `attachment` and much else.
#
# The form is internal to Claude Code and is read as it was seen until version 2.1. `content` is a text, or a list of
# blocks. An assistant's message has a line for each block.

_SILENT_CLAUDE_CODE = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "cost-state",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "saved_hook_context",
        "speculation-accept",
        "summary",
        "system",
        "tag",
        "task-summary",
        "worktree-state",
    }
)
"""Types of lines that say nothing."""

_TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines with the title of the session, and their keys."""

_BLOCKS = {
    "thinking": THINKING,
    "redacted_thinking": THINKING,
    "tool_use": TOOLS,
    "tool_result": TOOLS,
    "tool_reference": TOOLS,
    "server_tool_use": TOOLS,
    "web_search_tool_result": TOOLS,
    "image": NO_TEXT,
    "document": NO_TEXT,
}


def claude_code_files(folder: Path) -> list[Path]:
    """Return the transcripts of all sessions, without those of subagents."""
    return sorted(path for path in folder.glob("*/*.jsonl") if not path.name.startswith("agent-"))


def claude_code_lines(line: dict[str, Any], notes: Notes) -> Iterator[SaidLine]:
    """Yield what a line of a transcript says, and note the rest."""
    kind = text_of(line.get("type"))
    notes.cwd = notes.cwd or text_of(line.get("cwd"))
    notes.session = notes.session or text_of(line.get("sessionId"))
    if kind in _TITLES:
        notes.title = text_of(line.get(_TITLES[kind])) or notes.title
    elif kind in ("user", "assistant"):
        text = _claude_code_text(line, kind, notes)
        if text:
            yield _said(line, kind, text)
    elif kind == "attachment":
        text = _queued_prompt(object_of(line.get("attachment")))
        if text and not line.get("isSidechain"):
            yield _said(line, "user", text)
    elif kind not in _SILENT_CLAUDE_CODE:
        notes.unknown[kind or "no type"] += 1


def _said(line: dict[str, Any], role: str, text: str) -> SaidLine:
    message_id = text_of(line.get("uuid")) or hashed(role, text, text_of(line.get("timestamp")))
    origin = text_of(object_of(line.get("forkedFrom")).get("sessionId"))
    session = origin or text_of(line.get("sessionId"))
    return SaidLine(message_id, session, role, text, instant_of(line.get("timestamp")), text_of(line.get("cwd")))


def _claude_code_text(line: dict[str, Any], role: str, notes: Notes) -> str:
    """Return the text of a line of the user or the assistant; "" if they did not say it."""
    reason = _not_said(line)
    if reason:
        notes.left_out[reason] += 1
        return ""
    content = object_of(line.get("message")).get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        notes.unknown[f"{role} without content"] += 1
        return ""
    blocks = [object_of(block) for block in list_of(content)]
    for block in blocks:
        kind = text_of(block.get("type"))
        if kind in _BLOCKS:
            notes.left_out[_BLOCKS[kind]] += 1
        elif kind != "text":
            notes.unknown[f"{role}: {kind or 'no type'}"] += 1
    if any(block.get("type") == "tool_result" for block in blocks):
        return ""  # what stands beside a result was added by the client
    return "\n".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")


def _not_said(line: dict[str, Any]) -> str:
    """Return the reason why nobody said a line, or ""."""
    message, origin = object_of(line.get("message")), object_of(line.get("origin"))
    if line.get("isSidechain"):
        return SUBAGENTS
    if line.get("isCompactSummary"):
        return SUMMARIES
    if (
        line.get("isMeta")
        or line.get("isVisibleInTranscriptOnly")
        or line.get("isApiErrorMessage")
        or message.get("model") == "<synthetic>"
        or text_of(line.get("entrypoint")).startswith(PROGRAM_ENTRYPOINT)
        or origin.get("kind", "human") != "human"
    ):
        return ADDED
    return ""


def _queued_prompt(attachment: dict[str, Any]) -> str:
    """Return what the user typed while the assistant worked; other attachments say nothing."""
    origin = object_of(attachment.get("origin")).get("kind", "human")
    is_prompt = attachment.get("type") == "queued_command" and attachment.get("commandMode") == "prompt"
    if not is_prompt or origin != "human":
        return ""
    prompt = attachment.get("prompt")
    if isinstance(prompt, str):
        return prompt
    blocks = [object_of(block) for block in list_of(prompt)]
    return "\n".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")


# Codex's rollouts: JSON lines `{timestamp, type, payload}`; until the summer of 2025 the payload alone.
#
# The types are those of `RolloutItem` and `ResponseItem` in codex-rs/protocol, until version 0.160. What was said is
# in `response_item` lines of type `message`, in every version; events repeat some of it.

_SILENT_CODEX = frozenset({"event_msg", "turn_context", "world_state", "token_usage_record", "ghost_snapshot"})
"""Types of lines that say nothing."""

_ITEMS = {
    "reasoning": THINKING,
    "compaction": SUMMARIES,
    "compaction_summary": SUMMARIES,
    "local_shell_call": TOOLS,
    "function_call": TOOLS,
    "function_call_output": TOOLS,
    "custom_tool_call": TOOLS,
    "custom_tool_call_output": TOOLS,
    "tool_search_call": TOOLS,
    "tool_search_output": TOOLS,
    "web_search_call": TOOLS,
    "mcp_call": TOOLS,
    "image_generation_call": NO_TEXT,
    "ghost_snapshot": ADDED,
}
"""What items other than messages are."""

_ADDED = (
    "# AGENTS.md instructions",
    "These AGENTS.md instructions",
    "The previously provided AGENTS.md instructions",
    "<user_instructions>",
    "<environment_context>",
    "<skill>",
    "<codex_internal_context",
)
"""How texts begin that Codex adds to what the user said."""

_REQUEST = "## My request for Codex:"
"""What an editor puts before the user's own words, after the files that are open."""

_CONTEXT = "# Context from my IDE setup:"


def codex_files(folder: Path) -> list[Path]:
    """Return the rollouts of all sessions."""
    return sorted(folder.rglob("rollout-*.jsonl"))


def codex_lines(line: dict[str, Any], notes: Notes) -> Iterator[SaidLine]:
    """Yield what a line of a rollout says, and note the rest."""
    kind = text_of(line.get("type"))
    payload = object_of(line.get("payload"))
    if kind == "session_meta":
        _begin(payload, notes)
    elif kind == "compacted":
        notes.left_out[SUMMARIES] += 1
    elif kind == "response_item":
        yield from _item(payload, text_of(line.get("timestamp")), notes)
    elif kind == "message" or kind in _ITEMS:
        yield from _item(line, text_of(line.get("timestamp")), notes)
    elif not kind and "id" in line and "timestamp" in line:
        _begin(line, notes)  # the first line of old rollouts
    elif kind not in _SILENT_CODEX and line.get("record_type") != "state":
        notes.unknown[kind or "no type"] += 1


def _begin(meta: dict[str, Any], notes: Notes) -> None:
    """Note what the first line says of the session. A fork also has that of the session it was made from."""
    if notes.session:
        return
    notes.session = text_of(meta.get("id")) or text_of(meta.get("session_id"))
    notes.cwd = text_of(meta.get("cwd"))
    notes.origin = text_of(meta.get("forked_from_id"))
    notes.is_subagent = bool(object_of(meta.get("source")).keys() & {"subagent", "internal"})


def _item(item: dict[str, Any], timestamp: str, notes: Notes) -> Iterator[SaidLine]:
    kind, role = text_of(item.get("type")), text_of(item.get("role"))
    if kind in _ITEMS:
        notes.left_out[_ITEMS[kind]] += 1
    elif kind != "message":
        notes.unknown[f"response_item: {kind or 'no type'}"] += 1
    elif role not in ("user", "assistant"):
        notes.left_out[ADDED] += 1
    else:
        text = "\n".join(text for part in list_of(item.get("content")) if (text := _codex_text(object_of(part), notes)))
        if text:
            message_id = text_of(item.get("id")) or hashed(role, text, timestamp)
            yield SaidLine(message_id, "", role, text, instant_of(timestamp))


def _codex_text(part: dict[str, Any], notes: Notes) -> str:
    """Return the text of a part of a message; "" if it has none, or if Codex added it."""
    kind, text = text_of(part.get("type")), text_of(part.get("text"))
    if kind not in ("input_text", "output_text", "text"):
        if kind in ("input_image", "input_file", "input_audio"):
            notes.left_out[NO_TEXT] += 1
        else:
            notes.unknown[f"message: {kind or 'no type'}"] += 1
        return ""
    if text.lstrip().startswith(_CONTEXT):
        text = text.partition(_REQUEST)[2]
    if text.lstrip().startswith(_ADDED):
        notes.left_out[ADDED] += 1
        return ""
    return text


# Read what is new in a transcript, line by line from an offset. Blocking.
#
# A transcript is a file of JSON lines that its client may still be writing, in a form that may change. So half a
# line at the end waits, and what is unknown is counted and left out.

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
    "claude-code": Format(".claude/projects", claude_code_files, claude_code_lines),
    "codex": Format(".codex/sessions", codex_files, codex_lines),
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


# How far transcripts were read, in `transcripts.json`. Only the holder of the intake's lock reads and writes it.

logger = logging.getLogger(__name__)

KEPT_COUNTS = 50
"""Of how many transcripts the counts are kept, those that were read last. Set by hand: of a session that goes on after
so many others, they are counted again."""

KEPT_FILES = 5_000
"""Of more transcripts, those that no longer exist are forgotten. Set by hand."""


class Counts(dict[str, tuple[int, tuple[str, ...]]]):
    """How often a text was met in a transcript, and the short names of the records with it, by a key of the text.

    Records are named and not counted, because one that was left out comes again if its reader is killed.
    """

    def forget_lines(self) -> None:
        """Count the texts of the transcript anew."""
        self.update({key: (0, records) for key, (_, records) in self.items()})


class _File(BaseModel):
    offset: int
    head: str
    counts: dict[str, tuple[int, tuple[str, ...]]] | None = None


class _State(BaseModel):
    files: dict[str, _File] = {}
    unknown: dict[str, dict[str, int]] = {}


@dataclass(slots=True)
class Offsets:
    """How far each transcript was read, by its path, and how many lines of unknown types were met, by client."""

    file: Path
    _state: _State = field(default_factory=_State)

    @classmethod
    def load(cls, data_dir: Path) -> Offsets:
        """Return what is written down. If that is damaged, all transcripts are read anew, and nothing is kept twice."""
        file = Path(spool.transcripts_file(str(data_dir)))
        try:
            return cls(file, _State.model_validate_json(file.read_bytes()))
        except FileNotFoundError:
            return cls(file)
        except (OSError, ValidationError) as error:
            logger.warning("%s cannot be read, so transcripts are read from their beginning: %s", file, error)
            return cls(file)

    def place(self, path: Path) -> Place:
        """Return how far a transcript was read."""
        known = self._state.files.get(str(path))
        return Place() if known is None else Place(known.offset, known.head)

    def counts(self, path: Path) -> Counts | None:
        """Return the counts of a transcript, or None if they have to be counted again."""
        known = self._state.files.get(str(path))
        if known is None:
            return Counts()
        return None if known.counts is None else Counts(known.counts)

    def move(self, path: Path, place: Place, counts: Counts) -> None:
        """Note how far a transcript was read."""
        self._state.files.pop(str(path), None)
        self._state.files[str(path)] = _File(offset=place.offset, head=place.head, counts=dict(counts))

    def count_unknown(self, client: str, unknown: Mapping[str, int]) -> None:
        """Add lines of unknown types."""
        known = Counter(self._state.unknown.get(client, {}))
        known.update(unknown)
        if known:
            self._state.unknown[client] = dict(known)

    @property
    def unknown(self) -> dict[str, dict[str, int]]:
        """Return how many lines of each unknown type were met, by client."""
        return self._state.unknown

    def save(self) -> None:
        """Write it down. Raises OSError."""
        files = self._state.files
        if len(files) > KEPT_FILES:
            files = {name: known for name, known in files.items() if Path(name).exists()}
        for name in list(files)[:-KEPT_COUNTS]:
            files[name].counts = None
        self._state.files = files
        content: dict[str, Any] = self._state.model_dump()
        make_private_folder(str(self.file.parent))
        with replace_file(self.file, durable=False) as file:
            json.dump(content, file)
