"""What every reader returns, and how the files of other tools are opened."""

import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.files import open_plain_file, read_plain_file
from palimpsest.core.filters import as_list
from palimpsest.core.models import PICTURE, Event
from palimpsest.core.validation import MAX_TEXT_CHARS, list_of, object_of, trimmed

# What every reader returns: the memories and messages of another tool's file, and notes about what was left out.

# How many items a reader left out, by reason.
Skipped: TypeAlias = Counter[str]

TOO_LONG = f"memories longer than {MAX_TEXT_CHARS:,} characters"
NOT_SAID = "reasoning, tool calls, system and hidden messages, and what has no text"
PICTURES = f"pictures, for which {PICTURE} stands in the text"
BRANCHES = "other branches of conversations (edited messages, regenerated answers)"

# How many files that were not read are named: an export has up to ten, and folders of images.
MAX_NAMED_FILES = 8

UNKNOWN_CONVERSATION = "conversations in an unknown format"


@dataclass(frozen=True, slots=True)
class ImportedVersion:
    """One version of a memory in another tool. `text` is None if the version is a deletion."""

    event: Event
    text: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """A memory of another tool, with at least one version, oldest first. The last version is the current one.

    `metadata` holds the tool's name under "imported_from", and what identifies the memory in that tool.
    """

    versions: tuple[ImportedVersion, ...]
    metadata: Mapping[str, Any]
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message of a conversation in another tool.

    `id` is the tool's own id, or "" if it has none. `role` is "user" or "assistant".
    """

    id: str
    role: str
    content: str
    said_at: datetime
    name: str = ""


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """A conversation in another tool, with at least one message. `id` and `title` are "" if it has none."""

    id: str
    title: str
    messages: tuple[ImportedMessage, ...]


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The contents of another tool's file.

    `format` is "server-memory", "mem0-history", "mem0-export", "chatgpt" or "claude". The conversation that began
    first comes first. `notes` say what was left out, one note per reason.
    """

    format: str
    memories: tuple[ImportedMemory, ...] = ()
    conversations: tuple[ImportedConversation, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Reading:
    """What a reader has met of a file at the instant `now`: memories by their text, and how many items it left out."""

    now: datetime
    skipped: Skipped = field(default_factory=Counter[str])
    memories: dict[str, ImportedMemory] = field(default_factory=dict[str, ImportedMemory])

    def time_of(self, *values: Any) -> datetime:
        """Return the first value that is a time; `now` if none is, or if it is in the future or before 1970."""
        at = next(filter(None, map(instant_of, values)), self.now)
        return self.now if at > self.now or at.year < _FIRST_YEAR else at

    def keep(self, tool: str, text: str, at: datetime, tags: tuple[str, ...] = (), **metadata: str) -> None:
        """Keep a memory without a history, once. One that is too long is counted."""
        if len(text) > MAX_TEXT_CHARS:
            self.skipped[TOO_LONG] += 1
        elif text not in self.memories:
            version = ImportedVersion(Event.ADD, text, at)
            self.memories[text] = ImportedMemory((version,), {"imported_from": tool, **metadata}, tags)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return one note for each reason why something was left out."""
        return tuple(f"left out: {reason} ({count:,})" for reason, count in self.skipped.items() if count)


def unread_notes(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the files of an export that hold nothing to remember, if there are any."""
    named = ", ".join(names[:MAX_NAMED_FILES])
    rest = f" and {len(names) - MAX_NAMED_FILES} more" if len(names) > MAX_NAMED_FILES else ""
    return (f"left out, because nothing in it is said or known: {named}{rest}",) if names else ()


def in_order(conversations: Iterable[ImportedConversation]) -> tuple[ImportedConversation, ...]:
    """Return the conversations that have messages, the one that began first at the front.

    Exports begin with the newest conversation.
    """
    with_messages = (conversation for conversation in conversations if conversation.messages)
    return tuple(sorted(with_messages, key=lambda conversation: conversation.messages[0].said_at))


def shown_branch(
    said: dict[str, dict[str, Any]], parents: dict[str, str | None], current: str, time_key: str, reading: Reading
) -> Iterator[tuple[str, dict[str, Any], datetime | None]]:
    """Yield the branch of messages that ends in `current`, or in the newest message if there is no such message.

    The first message comes first. Each has its name and its time; one without a time has that of its parent.
    `parents` has the message that each one answers. A cycle ends the branch. Other branches are counted.
    """
    answered = set(parents.values())
    leaves = [message for message in parents if message not in answered]
    if current not in parents:
        last = next(reversed(parents), "")
        current = max(reversed(leaves), key=lambda leaf: instant_of(said[leaf].get(time_key)) or OLDEST, default=last)
    branch: dict[str, None] = {}
    message: str | None = current
    while message is not None and message in parents and message not in branch:
        branch[message] = None
        message = parents[message]
    reading.skipped[BRANCHES] += len({*leaves} - {*branch})
    at: datetime | None = None
    for name in reversed(branch):
        at = instant_of(said[name].get(time_key)) or at
        yield name, said[name], at


# Open a file of another tool as far as that is possible without knowing which tool wrote it.

# Values from JSON that another tool wrote, checked for their type: texts, objects, lists, times and tags.

MAX_TAG_CHARS = 64
OLDEST = datetime.min.replace(tzinfo=UTC)
_FIRST_YEAR = 1970


def text_of(value: Any) -> str:
    """Return a string as `trimmed` does. Return "" for any other value."""
    return trimmed(value) if isinstance(value, str) else ""


def instant_of(value: Any) -> datetime | None:
    """Return the instant of an ISO 8601 string (UTC if it has no zone) or of a number of seconds since 1970.

    An instant stays as it is. Return None if the value is none of these.
    """
    with suppress(InputError, ValueError, OverflowError, OSError):
        if isinstance(value, datetime):
            return value
        if isinstance(value, str):
            return parse_instant(value, "a time").astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    return None


def tags_of(value: Any) -> tuple[str, ...]:
    """Return one tag made from a word of the other tool, or no tag if the word is empty."""
    tag = " ".join(text_of(value).lower().split())[:MAX_TAG_CHARS].strip()
    return (tag,) if tag else ()


EXPECTED = (
    "Expected the JSONL file of the official MCP memory server, a mem0 history database or export, "
    "or a ChatGPT or Claude export (the .zip, its folder, or its conversations.json)"
)
# The largest text, unpacked. A ZIP of one megabyte can unpack to a thousand times its size.
MAX_BYTES = 2 * 1024**3

_SQLITE = b"SQLite format 3\x00"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")

# ChatGPT splits a long export into numbered parts.
_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")

# What an export has beside its conversations: memories and projects, in one file or in a folder of them.
_BESIDE = re.compile(r"(?:memory|memories|projects)(?:\.json|/[^/]+\.json)")

_LIST_KEYS = ("conversations", "results", "memories")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An opened file of another tool.

    A SQLite database has `is_database` set and nothing else. `value` is the JSON that any other file holds, a list if
    that is JSON lines, and `items` is its list: the value itself, the list under one of the usual keys, or the value as
    the only item. `name` is for error messages; it includes the member of a ZIP.

    Of a ZIP or folder, `beside` has the values of its memories and projects, and `unread` the names of the files that
    no reader knows.
    """

    path: Path
    name: str
    is_database: bool = False
    value: Any = None
    items: list[Any] = field(default_factory=list[Any])
    beside: list[Any] = field(default_factory=list[Any])
    unread: tuple[str, ...] = ()


def open_source(file: Path, max_bytes: int = MAX_BYTES) -> SourceFile:
    """Read a file. Blocking.

    Raises InputError if the file cannot be read, is too large, no JSON, or a ZIP without conversations.
    """
    with raised_as(InputError, f"{file} cannot be read", f". {EXPECTED}", OSError):
        if file.is_dir():
            return _source_of(file, _sizes_in(file), lambda name: read_plain_file(file / name, MAX_BYTES), max_bytes)
        with open_plain_file(file) as stream:
            if (head := stream.read(len(_SQLITE))) == _SQLITE:
                return SourceFile(file, str(file), is_database=True)
            if head.startswith(_ZIP):
                return _zip_source(file, max_bytes)
            raw = head + stream.read(max_bytes + 1 - len(head))
        if len(raw) > max_bytes:
            raise InputError(f"{file} is larger than {max_bytes:,} bytes. {EXPECTED}")
    value = _parsed(str(file), raw)
    return SourceFile(file, str(file), value=value, items=_items_of(value))


def _zip_source(file: Path, max_bytes: int) -> SourceFile:
    faults = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
    fault = f"{file} is a damaged or encrypted ZIP"
    with raised_as(InputError, fault, f". {EXPECTED}", *faults), zipfile.ZipFile(file) as archive:
        members = [info for info in archive.infolist() if not info.is_dir()]
        if not {info.compress_type for info in members} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise InputError(f"{file} uses a compression that no export uses. Unpack it and import its folder")
        # A member larger than its stated size is cut off at that size, and then fails its checksum.
        return _source_of(file, {info.filename: info.file_size for info in members}, archive.read, max_bytes)


def _sizes_in(folder: Path) -> dict[str, int]:
    """Return the sizes of the files of an unpacked export by name. Of its folders, memories and projects are read."""
    paths = sorted([*folder.iterdir(), *folder.glob("memories/*.json"), *folder.glob("projects/*.json")])
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths if path.is_file()}


def _source_of(file: Path, sizes: Mapping[str, int], read: Callable[[str], bytes], max_bytes: int) -> SourceFile:
    """Return what a ZIP or folder has: the conversations, and what lies beside them. `sizes` are those of its files."""
    conversations = _conversation_files(sizes)
    top = f"{PurePosixPath(conversations[0]).parent}/" if conversations else ""
    below = {name.removeprefix(top): name for name in sizes}
    beside = [name for path, name in below.items() if _BESIDE.fullmatch(path)]
    if not (known := [*conversations, *beside]):
        raise InputError(f"{file} has no conversations.json in it. {EXPECTED}")
    if sum(sizes[name] for name in known) > max_bytes:
        raise InputError(f"{file} would unpack to more than {max_bytes:,} bytes. {EXPECTED}")
    values = {name: _parsed(f"{file}, {name}", read(name)) for name in known}
    parts = [values[name] for name in conversations]
    value = parts[0] if len(parts) == 1 else [item for part in parts for item in list_of(part)]
    others = [item for name in beside for item in as_list(values[name])]
    unread = _names_of_files(path for path, name in below.items() if name not in known)
    name = f"{file}, {conversations[0]}" if conversations else str(file)
    return SourceFile(file, name, value=value, items=_items_of(value), beside=others, unread=unread)


def _names_of_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Return names, one for each folder that files lie in. Hidden files are those of the system."""
    parts = (path.partition("/") for path in paths)
    names = (f"{first}{'/' if rest else ''}" for first, _, rest in parts if not first.startswith((".", "__MACOSX")))
    return tuple(dict.fromkeys(names))


def _conversation_files(names: Iterable[str]) -> list[str]:
    """Return conversations.json or its numbered parts in order, from the folder nearest to the top."""
    found = {name: path for name in names if _CONVERSATIONS.fullmatch((path := PurePosixPath(name)).name)}
    top = min((path.parent for path in found.values()), key=lambda folder: len(folder.parts), default=None)
    parts = sorted(name for name, path in found.items() if path.parent == top)
    return [name for name in parts if found[name].name == "conversations.json"] or parts


def _parsed(name: str, raw: bytes) -> Any:
    """Return what a JSON text holds, a list if it is JSON lines."""
    try:
        # NaN is not JSON, but the rest can still be read.
        return json.loads(raw.decode("utf-8-sig"), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return list(_values_of_lines(name, error.doc))
        raise InputError(f"{name} cannot be read as JSON: {error}. {EXPECTED}") from error


def _values_of_lines(name: str, text: str) -> Iterator[Any]:
    """Yield the JSON value of every line. Raises InputError that names the first line that is not JSON."""
    # Not splitlines: inside a JSON string, characters such as U+2028 may stand unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        fault, advice = f"{name}, line {number}", ". Nothing was imported. Correct or delete the line"
        with raised_as(InputError, fault, advice, ValueError, RecursionError):
            if line.strip():
                yield json.loads(line)


def _items_of(value: Any) -> list[Any]:
    whole = object_of(value)
    return next((list_of(whole[key]) for key in _LIST_KEYS if isinstance(whole.get(key), list)), as_list(value))
