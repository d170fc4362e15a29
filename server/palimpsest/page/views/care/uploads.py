"""Take in one file of a form, straight into a private file: it may be too long to be held in memory."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import anyio
import anyio.to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from palimpsest.core.errors import InputError
from palimpsest.core.files import OWNER_ONLY
from palimpsest.core.validation import one_line
from palimpsest.text.control_characters import visible

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD = "file"

SECONDS = 900.0
"""How long an upload may take. Set by hand: 512 MB at 5 Mbit a second."""

MAX_HEADER_BYTES = 8 * 1024
"""How long what precedes a part of a form may be. Set by hand: more than any name of a file."""

MAX_NAME_CHARS = 100


async def store_upload(request: Request, file: Path) -> str:
    """Write the part `file` of a form to a new file (mode 0600), and return the name that it has for the person.

    Raises InputError if there is no such part or it takes too long; no file is left then.
    """
    try:
        with anyio.fail_after(SECONDS):
            return await _store(request, file)
    except BaseException as error:
        file.unlink(missing_ok=True)  # noqa: ASYNC240 - a moment, also while the request is cancelled
        if isinstance(error, TimeoutError):
            raise InputError(
                f"the file took longer than {SECONDS:g} seconds to arrive. Nothing was imported"
            ) from error
        if isinstance(error, FormParserError):
            raise InputError("the form cannot be read. Nothing was imported") from error
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise InputError(f"the file cannot be stored here: {reason}. Nothing was imported") from error
        raise


async def _store(request: Request, file: Path) -> str:
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if not boundary:
        raise InputError("choose a file. Nothing was imported")
    part = _FilePart()
    parser = MultipartParser(boundary, part.callbacks())
    with _new(file) as stream:
        async for chunk in request.stream():
            parser.write(chunk)
            if part.unwritten:
                await anyio.to_thread.run_sync(stream.write, bytes(part.unwritten))
                part.unwritten.clear()
        parser.finalize()
        size = stream.tell()
    if not part.name or not size:
        raise InputError("choose a file that is not empty. Nothing was imported")
    return visible(one_line(part.name.replace("\\", "/").rpartition("/")[2]))[:MAX_NAME_CHARS]


@contextmanager
def _new(file: Path) -> Generator[BinaryIO]:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(file, flags, OWNER_ONLY), "wb") as stream:
        yield stream


class _FilePart:
    """The first part of a form that is called `file`: its name, and what of it is not written yet."""

    def __init__(self) -> None:
        self.unwritten = bytearray()
        self.name = ""
        self._is_file = False
        self._field = b""
        self._value = b""
        self._disposition = b""

    def callbacks(self) -> MultipartCallbacks:
        """Return what a parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_field,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._data,
        }

    def _begin(self) -> None:
        self._is_file, self._disposition = False, b""

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._field = _within_bounds(self._field + data[start:end])

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value = _within_bounds(self._value + data[start:end])

    def _end_header(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        if options.get(b"name") == FIELD.encode() and b"filename" in options and not self.name:
            self._is_file, self.name = True, options[b"filename"].decode("utf-8", "replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.unwritten += data[start:end]


def _within_bounds(header: bytes) -> bytes:
    if len(header) > MAX_HEADER_BYTES:
        raise InputError("the name of the file is too long. Nothing was imported")
    return header
