"""Import a file: upload it, see what it would bring, import it, and undo that."""

from __future__ import annotations

from http import HTTPStatus

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.care.importers.source import MAX_BYTES
from palimpsest.core.errors import InputError
from palimpsest.page.asked import memory_of, scope_of, visitor_of, writable_scope_of
from palimpsest.page.rendering import in_project, is_part, rendered
from palimpsest.page.safety import MAX_UPLOAD_BYTES, UPLOAD_PATH
from palimpsest.page.views.care.rights import require_import, work_of
from palimpsest.page.views.care.uploads import store_upload
from palimpsest.page.views.care.work import FileImport, new_file

MAX_BYTES_OF_OTHERS = 32 * 2**20
"""The largest file, unpacked, of a visitor who does not own the machine: reading one takes a multiple of it in memory.
Set by hand: some 100,000 messages."""

MEGABYTE = 2**20


async def import_(request: Request) -> Response:
    """Show the form for a file, or how far the import of the one that was chosen is."""
    require_import(request)
    scope = scope_of(request)
    upload = work_of(request).import_of(scope.user_id)
    if upload is not None:
        scope = upload.scope
    values = {"scope": scope, "upload": upload, "megabytes": _max_bytes(request) // MEGABYTE}
    return rendered(request, "care/import_state.html" if is_part(request) else "care/import.html", values)


async def upload(request: Request) -> Response:
    """Take in a file, and read in the background what it would bring."""
    require_import(request)
    memory, scope, work = await memory_of(request), writable_scope_of(request), work_of(request)
    work.refuse_second(scope.user_id)
    max_bytes = _max_bytes(request)
    if int(request.headers["content-length"]) > max_bytes:
        raise InputError(f"the file has more than {max_bytes // MEGABYTE} MB. Nothing was imported")
    file = await anyio.to_thread.run_sync(new_file, memory.settings.data_dir)
    name = await store_upload(request, file)
    work.read(FileImport(file, name, scope, _max_unpacked(request)))
    return RedirectResponse(in_project(UPLOAD_PATH, scope), HTTPStatus.SEE_OTHER)


async def start(request: Request) -> Response:
    """Import the file that was read."""
    require_import(request)
    scope, form = writable_scope_of(request), await request.form()
    work_of(request).start(scope.user_id, brings_back=form.get("brings_back") == "on")
    return RedirectResponse(in_project(UPLOAD_PATH, scope), HTTPStatus.SEE_OTHER)


async def discard(request: Request) -> Response:
    """Delete the uploaded file, and forget what came of it."""
    require_import(request)
    scope = writable_scope_of(request)
    work_of(request).discard(scope.user_id)
    return RedirectResponse(in_project(UPLOAD_PATH, scope), HTTPStatus.SEE_OTHER)


def _max_bytes(request: Request) -> int:
    return MAX_UPLOAD_BYTES if visitor_of(request).is_owner else MAX_BYTES_OF_OTHERS


def _max_unpacked(request: Request) -> int:
    return MAX_BYTES if visitor_of(request).is_owner else MAX_BYTES_OF_OTHERS
