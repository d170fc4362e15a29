"""Back up the ledger, and restore a backup. Both concern every user of this machine's ledger."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, cast

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.care.backup import StoredBackup, back_up, inspect_backup, restore, stored_backups
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError
from palimpsest.page.asked import answered, scope_of, told_to
from palimpsest.page.rendering import in_project, rendered
from palimpsest.page.views.care.rights import require_owner, settings_of, work_of
from palimpsest.server.session.lazy_memory import LazyMemory


async def backups(request: Request) -> Response:
    """List the backups, the newest first."""
    require_owner(request)
    listed = await anyio.to_thread.run_sync(stored_backups, await settings_of(request))
    done = "backed_up" if request.query_params.get("done") == "backed_up" else ""
    values = {"scope": scope_of(request), "backups": [_shown(backup) for backup in listed], "done": done}
    return rendered(request, "care/backups.html", values)


async def make(request: Request) -> Response:
    """Make a backup now."""
    require_owner(request)
    settings = await settings_of(request)
    await anyio.to_thread.run_sync(partial(back_up, settings, None, now))
    return RedirectResponse(in_project("/care/backups?done=backed_up", scope_of(request)), HTTPStatus.SEE_OTHER)


async def ask(request: Request) -> Response:
    """Say what restoring a backup will do, and ask for it."""
    require_owner(request)
    name = request.query_params.get("file", "")
    copy = await anyio.to_thread.run_sync(inspect_backup, await settings_of(request), name)
    return rendered(request, "care/restore.html", {"scope": scope_of(request), "name": name, "copy": copy})


async def put_back(request: Request) -> Response:
    """Restore a backup. The ledger as it was is backed up first, and the answer leads back to it."""
    require_owner(request)
    form = await request.form()
    if form.get("confirmed") != "on":
        raise InputError("restoring was not confirmed. Nothing was changed")
    if work_of(request).is_importing:
        raise InputError("an import is under way. Nothing was restored. Wait until it is done")
    name, settings = str(form.get("file", "")), await settings_of(request)
    opened = cast("LazyMemory", request.app.state.memory).opened
    if opened is not None:
        done = await opened.care.restore(name)
    else:  # the ledger is damaged, which is when a backup is needed most

        def work() -> Any:
            return restore(settings, inspect_backup(settings, name).path, now)

        done = await anyio.to_thread.run_sync(work)
    return answered(request, in_project("/care/backups/restored", scope_of(request)), {"restored": done})


async def restored(request: Request) -> Response:
    """Say what the restore did that led here, and how to go back."""
    require_owner(request)
    told, scope = told_to(request), scope_of(request)
    if not told:
        return RedirectResponse(in_project("/care/backups", scope), HTTPStatus.SEE_OTHER)
    return rendered(request, "care/restored.html", {"scope": scope, **told})


def _shown(backup: StoredBackup) -> dict[str, Any]:
    """Return a backup for the page. The occasion of a new schema names the old one."""
    occasion = "schema" if backup.occasion.startswith("schema-") else backup.occasion
    return {
        "name": backup.path.name,
        "made_at": backup.made_at,
        "word": f"backup_{occasion.replace('-', '_')}",
        "occasion": backup.occasion,
        "megabytes": backup.size / 1e6,
    }
