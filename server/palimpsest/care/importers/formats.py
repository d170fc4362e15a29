"""The formats that can be imported, and the readers that understand them. The content of a file decides, not its name.

To add a format, write one module in this package with one reader, and add the reader to `READERS`. A reader takes an
opened `SourceFile` and the present instant. It returns an `ImportedFile`, or None if the file has another format. It
raises InputError if the file has its format but is damaged. A reader reads the whole file before it returns anything,
so a damaged file brings nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from palimpsest.care.importers import chatgpt, claude, mem0, server_memory
from palimpsest.care.importers.records import ImportedFile
from palimpsest.care.importers.source import EXPECTED, MAX_BYTES, SourceFile, open_source
from palimpsest.core.errors import InputError

Reader: TypeAlias = Callable[[SourceFile, datetime], ImportedFile | None]

READERS: tuple[Reader, ...] = (
    mem0.read_history,
    chatgpt.read,
    claude.read,
    mem0.read_export,
    server_memory.read,
)
"""Every format. The first reader that recognizes a file reads it."""


def read_file(file: Path, now: datetime, max_bytes: int = MAX_BYTES) -> ImportedFile:
    """Return the contents of another tool's file. Blocking.

    Times in the future and before 1970 become `now`. Raises InputError if the file is damaged, has none of the formats
    or more than `max_bytes`, unpacked. The error names the file, the line if there are lines, and the formats.
    """
    source = open_source(file, max_bytes)
    for read in READERS:
        imported = read(source, now)
        if imported is not None:
            return imported
    if source.is_database:
        raise InputError(f"{source.name} is a database without a mem0 history. {EXPECTED}")
    if source.json_error:
        raise InputError(source.json_error)
    if not source.items:
        raise InputError(f"{source.name} contains an empty list, so there is nothing to import")
    raise InputError(f"{source.name} is JSON in an unknown format. {EXPECTED}")
