"""Read a file as text, by its type, within limits of size, time and memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from palimpsest.core.errors import InputError
from palimpsest.core.files import refuse_special
from palimpsest.learn.documents.readers.plain import decoded
from palimpsest.learn.documents.readers.worker import MAX_CHARS
from palimpsest.text.shorten import shorten

MAX_BYTES = 50_000_000
"""Larger files are refused. Set by hand: a long book with pictures as a PDF."""

READ_SECONDS = 60.0
"""How long reading an HTML or PDF file may take. Set by hand: a PDF of a thousand pages takes half of it."""

MAX_ERROR_CHARS = 200

MARKUP = frozenset({".html", ".htm", ".xhtml", ".pdf"})
"""The types that are read in a process of their own."""

TEXT = frozenset({".md", ".markdown", ".mdown", ".txt", ".text", ".rst", ".org", ".adoc"})
"""The types that a folder is searched for, besides those of `MARKUP`. A file that is named may be any text."""


async def read_file(file: Path) -> str:
    """Return the text of a file, without white space that shows nothing. Raises InputError that says what is wrong."""
    try:
        refuse_special(file)
        async with await anyio.open_file(file, "rb") as stream:
            content = await stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"it has more than {MAX_BYTES:,} bytes")
        text = await _read_apart(file) if file.suffix.lower() in MARKUP else decoded(content)
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror or error}") from error
    if len(text) > MAX_CHARS:
        raise InputError(f"it has {len(text):,} characters of text, more than {MAX_CHARS:,}. Split it")
    return text


async def _read_apart(file: Path) -> str:
    """Return what a process of its own reads. It is killed if it takes too long, or if this is cancelled."""
    command = [sys.executable, "-m", "palimpsest.learn.documents.readers.worker", str(file)]
    try:
        with anyio.fail_after(READ_SECONDS):
            done = await anyio.run_process(command, check=False)
    except TimeoutError:
        raise InputError(f"reading it takes longer than {READ_SECONDS:g} seconds") from None
    try:
        reply: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise InputError("it ended the process that read it, which takes too much memory") from None
    if "error" in reply:
        raise InputError(shorten(str(reply["error"]), MAX_ERROR_CHARS))
    return str(reply["text"])
