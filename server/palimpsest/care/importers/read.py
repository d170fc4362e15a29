"""Files of other memory tools and assistants, read into records of ours. What a file is, its content says.

The official MCP memory server's JSONL, mem0's history database or export, ChatGPT's and Claude's conversation exports,
packed or not. Each is read through before anything is returned: a damaged file gives nothing.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from palimpsest.care.importers import chatgpt, claude, mem0, server_memory
from palimpsest.care.importers.records import (
    EXPECTED,
    Foreign,
    ForeignMemory,
    ForeignTurn,
    ForeignVersion,
    fields,
    items,
)
from palimpsest.core.errors import InputError

__all__ = ["Foreign", "ForeignMemory", "ForeignTurn", "ForeignVersion", "read_foreign"]

MAX_BYTES = 2 * 1024**3
"""The largest text, unpacked: a ZIP of a megabyte can hold a thousand times that."""

_SQLITE = b"SQLite format 3\x00"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")
"""ChatGPT numbers the parts of a long export."""


def read_foreign(file: Path, now: datetime) -> Foreign:
    """Return what a file of another tool holds. Blocking.

    Times to come, and those before 1970, become `now`. Raises InputError naming the file and what was expected when it
    is none of the formats or damaged, with the line number where there are lines.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE))
        if head == _SQLITE:
            return mem0.read_history(file, now)
        if head.startswith(_ZIP):
            return _from_parts(_unpacked(file), now)
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"{file} is larger than {MAX_BYTES:,} bytes; {EXPECTED}")
        text = _decoded(str(file), file.read_bytes())
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}; {EXPECTED}") from error
    try:
        value = _parsed(str(file), text)
    except InputError:
        if server_memory.is_graph(text):
            return server_memory.read_graph(server_memory.lines_of(str(file), text), now)
        raise
    return _from_value(str(file), value, now)


def _unpacked(file: Path) -> list[tuple[str, str]]:
    """Return the names and texts of the conversations in a ZIP."""
    try:
        with zipfile.ZipFile(file) as packed:
            found = _conversations_in(packed)
            if not found:
                raise InputError(f"{file} has no conversations.json in it; {EXPECTED}")
            if sum(member.file_size for member in found) > MAX_BYTES:
                raise InputError(f"{file} would unpack to more than {MAX_BYTES:,} bytes; {EXPECTED}")
            if not {member.compress_type for member in found} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise InputError(f"{file} is packed in a way no export is; unpack it and give its conversations.json")
            # a member that holds more than it says is cut off there, and fails its checksum
            named = ((f"{file}, {member.filename}", member) for member in found)
            return [(name, _decoded(name, packed.read(member))) for name, member in named]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise InputError(f"{file} is a damaged or encrypted ZIP: {error}; {EXPECTED}") from error


def _conversations_in(packed: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the one member named conversations.json, or its numbered parts in order, nearest to the top."""
    found = {PurePosixPath(member.filename): member for member in packed.infolist()}
    paths = sorted((path for path in found if _CONVERSATIONS.fullmatch(path.name)), key=lambda path: len(path.parts))
    beside = sorted(path for path in paths if path.parent == paths[0].parent)
    whole = [path for path in beside if path.name == "conversations.json"]
    return [found[path] for path in whole or beside]


def _from_parts(parts: list[tuple[str, str]], now: datetime) -> Foreign:
    values = [_parsed(name, text) for name, text in parts]
    joined = values[0] if len(values) == 1 else [each for value in values for each in items(value)]
    return _from_value(parts[0][0], joined, now)


def _decoded(name: str, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is no text in UTF-8; {EXPECTED}") from error
    if not text.strip():
        raise InputError(f"{name} is empty; {EXPECTED}")
    return text


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)  # NaN is no JSON, and no reason to refuse the rest
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {error.lineno}: {error.msg} at column {error.colno}; {EXPECTED}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} cannot be read as JSON: {error}; {EXPECTED}") from error


def _from_value(name: str, value: Any, now: datetime) -> Foreign:
    whole = fields(value)
    lists = (whole.get(key) for key in ("conversations", "results", "memories"))
    listed: list[Any] = next((items(each) for each in (value, *lists) if isinstance(each, list)), [value])
    graph = [*items(whole.get("entities")), *items(whole.get("relations"))] or listed
    if any(chatgpt.is_conversation(each) for each in listed):
        return chatgpt.read_conversations(listed, now)
    if any(claude.is_conversation(each) for each in listed):
        return claude.read_conversations(listed, now)
    if any(mem0.is_memory(each) for each in listed):
        return mem0.read_export(listed, whole, now)
    if any(server_memory.is_item(each) for each in graph):
        return server_memory.read_graph(graph, now)
    if not listed:
        raise InputError(f"{name} holds an empty list, so there is nothing to import")
    raise InputError(f"{name} is JSON of another kind; {EXPECTED}")
