"""Open a file of another tool as far as that is possible without knowing which tool wrote it."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from palimpsest.care.importers.values import list_of, object_of
from palimpsest.core.errors import InputError

EXPECTED = (
    "Expected the JSONL file of the official MCP memory server, a mem0 history database or export, "
    "or a ChatGPT or Claude conversation export (.json or .zip)"
)
MAX_BYTES = 2 * 1024**3
"""The largest text, unpacked. A ZIP of one megabyte can unpack to a thousand times its size."""

_SQLITE = b"SQLite format 3\x00"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_CONVERSATIONS = re.compile(r"conversations(?:-\d+)?\.json")
"""ChatGPT splits a long export into numbered parts."""

_LIST_KEYS = ("conversations", "results", "memories")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An opened file of another tool.

    A SQLite database has `is_database` set and nothing else. Any other file has a `text`. If the text is JSON, `value`
    is what it holds and `items` is its list: the value itself, the list under one of the usual keys, or the value as
    the only item. If the text is not JSON, `json_error` says why. `name` is for error messages; it includes the
    member of a ZIP.
    """

    path: Path
    name: str
    is_database: bool = False
    text: str = ""
    value: Any = None
    items: list[Any] = field(default_factory=list[Any])
    json_error: str = ""


def open_source(file: Path) -> SourceFile:
    """Read a file. Blocking.

    Raises InputError if the file cannot be read, is empty, too large or not UTF-8, or is not a ZIP with conversations.
    """
    try:
        with file.open("rb") as stream:
            head = stream.read(len(_SQLITE))
        if head == _SQLITE:
            return SourceFile(file, str(file), is_database=True)
        if head.startswith(_ZIP):
            return _zip_source(file)
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"{file} is larger than {MAX_BYTES:,} bytes. {EXPECTED}")
        text = _decoded(str(file), file.read_bytes())
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}. {EXPECTED}") from error
    try:
        value = _parsed(str(file), text)
    except InputError as error:
        return SourceFile(file, str(file), text=text, json_error=str(error))
    return SourceFile(file, str(file), text=text, value=value, items=_items_of(value))


def _zip_source(file: Path) -> SourceFile:
    members = _zip_members(file)
    values = [_parsed(name, text) for name, text in members]
    value = values[0] if len(values) == 1 else [item for part in values for item in list_of(part)]
    return SourceFile(file, members[0][0], text=members[0][1], value=value, items=_items_of(value))


def _zip_members(file: Path) -> list[tuple[str, str]]:
    """Return the name and text of each conversations file in a ZIP."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = _conversation_members(archive)
            if not members:
                raise InputError(f"{file} has no conversations.json in it. {EXPECTED}")
            if sum(member.file_size for member in members) > MAX_BYTES:
                raise InputError(f"{file} would unpack to more than {MAX_BYTES:,} bytes. {EXPECTED}")
            if not {member.compress_type for member in members} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise InputError(
                    f"{file} uses a compression that no export uses. Unpack it and import its conversations.json"
                )
            # A member larger than its stated size is cut off at that size, and then fails its checksum.
            named = ((f"{file}, {member.filename}", member) for member in members)
            return [(name, _decoded(name, archive.read(member))) for name, member in named]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise InputError(f"{file} is a damaged or encrypted ZIP: {error}. {EXPECTED}") from error


def _conversation_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return conversations.json or its numbered parts in order, from the folder nearest to the top of a ZIP."""
    members = {PurePosixPath(member.filename): member for member in archive.infolist()}
    paths = sorted((path for path in members if _CONVERSATIONS.fullmatch(path.name)), key=lambda path: len(path.parts))
    in_top_folder = sorted(path for path in paths if path.parent == paths[0].parent)
    unnumbered = [path for path in in_top_folder if path.name == "conversations.json"]
    return [members[path] for path in unnumbered or in_top_folder]


def _decoded(name: str, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not text in UTF-8. {EXPECTED}") from error
    if not text.strip():
        raise InputError(f"{name} is empty. {EXPECTED}")
    return text


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)  # NaN is not JSON, but the rest can still be read
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {error.lineno}: {error.msg} at column {error.colno}. {EXPECTED}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} cannot be read as JSON: {error}. {EXPECTED}") from error


def _items_of(value: Any) -> list[Any]:
    whole = object_of(value)
    candidates = (value, *(whole.get(key) for key in _LIST_KEYS))
    return next((list_of(candidate) for candidate in candidates if isinstance(candidate, list)), [value])
