"""Download a memory: everything as JSON lines, or what is believed now as Markdown."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Literal

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.threads import end_if_cancelled
from palimpsest.memory import Memory
from palimpsest.page.asked import memory_of, visitor_of
from palimpsest.page.views.care.rights import work_of

CHUNK_BYTES = 64 * 1024

MEDIA = {"jsonl": "application/x-ndjson", "markdown": "text/markdown; charset=utf-8"}
ENDINGS = {"jsonl": "jsonl", "markdown": "md"}


async def export(request: Request) -> Response:
    """Send the visitor's memory as a file; to a visitor of one project what that project sees, as Markdown.

    It is written to a file without a name first. So a browser that reads slowly keeps no state of the ledger open, and
    what does not work is said in place of half a download.
    """
    form = request.path_params["form"]
    grant = visitor_of(request).grant
    if form not in MEDIA or (grant.project and form != "markdown"):
        raise HTTPException(404)
    memory = await memory_of(request)
    async with work_of(request).exporting:
        file = await _exported(memory, grant.within(Scope(grant.user_id, grant.project)), form)
    headers = {
        "content-disposition": f'attachment; filename="palimpsest-{memory.engine.clock():%Y-%m-%d}.{ENDINGS[form]}"',
        "content-length": str(file.seek(0, os.SEEK_END)),
    }
    return StreamingResponse(_chunks(file), media_type=MEDIA[form], headers=headers)


async def _exported(memory: Memory, scope: Scope, form: Literal["jsonl", "markdown"]) -> IO[bytes]:
    """Return an open file without a name that holds an export. It is gone when it is closed."""
    file = await anyio.to_thread.run_sync(_unnamed_file, memory.settings.data_dir)
    try:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        await memory.care.export(
            text, form, lambda _done, _total: end_if_cancelled(), scope=scope, one_project=bool(scope.project)
        )
        text.flush()
        text.detach()
    except OSError as error:
        file.close()
        raise InputError(f"the export cannot be written: {error.strerror or error}. Nothing was changed") from error
    except BaseException:
        file.close()
        raise
    return file


def _unnamed_file(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


async def _chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    with file:
        file.seek(0)
        while chunk := await anyio.to_thread.run_sync(file.read, CHUNK_BYTES):
            yield chunk
