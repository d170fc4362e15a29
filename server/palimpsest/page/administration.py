"""Administer: imports, exports, findings, backups, tokens, prompts, settings."""

import hashlib
import logging
import os
import secrets
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import anyio.to_thread
from anyio.abc import TaskGroup
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from palimpsest.admin import backup, configuration
from palimpsest.admin.configuration import PromptInUse
from palimpsest.admin.doctor import examine
from palimpsest.admin.import_file import ImportResult
from palimpsest.admin.importers.records import MAX_BYTES
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError, PalimpsestError, PromptError, raised_as
from palimpsest.core.files import OWNER_ONLY, delete_older
from palimpsest.core.models import Scope
from palimpsest.core.settings import Settings
from palimpsest.core.threads import end_if_cancelled
from palimpsest.core.validation import ScopeInput, one_line, scope_from
from palimpsest.memory import Memory
from palimpsest.page import page_context as context
from palimpsest.page.page_context import MAX_UPLOAD_BYTES, UPLOAD_PATH
from palimpsest.server import access_tokens
from palimpsest.server.session.context import LazyMemory
from palimpsest.text.display import visible

# Take in one file of a form, into a private file: it may be too long to be held in memory.

# How long an upload may take. 512 MB at 5 Mbit a second.
SECONDS = 900.0

UPLOAD_CHUNK_BYTES = 1024 * 1024

# How many parts a form may have that are no file.
MAX_FIELDS = 10

_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)

MAX_NAME_CHARS = 100


async def store_upload(request: Request, file: Path) -> str:
    """Write the part `file` of a form to a new file (mode 0600), and return the name that it has for the person.

    Raises InputError if there is no such part or it takes too long. A part of the file may be left then.
    """
    try:
        with anyio.fail_after(SECONDS):
            async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
                part = form.get("file")
                if not isinstance(part, UploadFile) or not part.filename or not part.size:
                    raise InputError("choose a file that is not empty. Nothing was imported")
                with os.fdopen(os.open(file, _NEW_FILE, OWNER_ONLY), "wb") as stream:
                    while chunk := await part.read(UPLOAD_CHUNK_BYTES):
                        await anyio.to_thread.run_sync(stream.write, chunk)
                return visible(one_line(part.filename.replace("\\", "/").rpartition("/")[2]))[:MAX_NAME_CHARS]
    except (HTTPException, OSError) as error:  # TimeoutError is an OSError
        reason = str(error) or f"it took longer than {SECONDS:g} seconds"
        raise InputError(f"the file cannot be taken in: {reason}. Nothing was imported") from error


# What the page does in the background: imports, one at a time, which go on when a browser is closed.
#
# An uploaded file lies in a private folder until it is imported, and no longer than an hour.

logger = logging.getLogger(__name__)

FOLDER = "uploads"

# How long a file waits for somebody to say that it is to be imported: longer than a preview is read.
KEPT_SECONDS = 3600.0

# After this long a file is one that a killed process left behind: no upload and no import takes a day.
LEFT_OVER_SECONDS = 24 * KEPT_SECONDS


@dataclass(slots=True)
class FileImport:
    """A user's import: the uploaded file and its name, where it is imported to, and how far it is.

    `result` says what it would bring or brought, and `problem` what went wrong.
    """

    file: Path
    name: str
    scope: Scope
    max_bytes: int
    state: Literal["reading", "read", "importing", "imported", "failed"] = "reading"
    done: int = 0
    total: int = 0
    result: ImportResult | None = None
    problem: str = ""

    @property
    def is_under_way(self) -> bool:
        """Return whether its file is being read or imported."""
        return self.state in ("reading", "importing")


@dataclass(slots=True)
class CareWork:
    """The imports of all users, and locks for what costs a machine much. `run` has to run while the page is served."""

    get_memory: Callable[[], Awaitable[Memory]]
    examining: anyio.Lock = field(default_factory=anyio.Lock)
    exporting: anyio.Lock = field(default_factory=anyio.Lock)
    _importing: anyio.Lock = field(default_factory=anyio.Lock)
    imports: dict[str, FileImport] = field(default_factory=dict[str, FileImport])
    _tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled. Then what an import has stored is kept, and the uploaded files are deleted."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await anyio.sleep_forever()
        finally:
            self._tasks = None
            for user_id in list(self.imports):
                self._forget(user_id)

    def refuse_second(self, user_id: str) -> None:
        """Raise InputError if an import of a user is under way."""
        if (known := self.imports.get(user_id)) is not None and known.is_under_way:
            raise InputError(f"the import of {known.name} is under way. Nothing else was imported. Wait for its end")

    def read(self, upload: FileImport) -> None:
        """Read an uploaded file in the background, and say what it would bring. It replaces an earlier one."""
        user_id = upload.scope.user_id
        self.refuse_second(user_id)
        tasks = self._running()
        self._forget(user_id)
        self.imports[user_id] = upload
        tasks.start_soon(self._work, upload)

    def start(self, user_id: str) -> None:
        """Import in the background what was read. Raises InputError if nothing waits for it."""
        self.refuse_second(user_id)
        upload, tasks = self.imports.get(user_id), self._running()
        if upload is None or upload.state != "read":
            raise InputError("no file waits to be imported. Nothing was imported. Choose one again")
        upload.state, upload.done, upload.total = "importing", 0, 0
        tasks.start_soon(self._work, upload)

    def discard(self, user_id: str) -> None:
        """Delete a user's uploaded file and forget what came of it. Raises InputError if it is being imported."""
        self.refuse_second(user_id)
        self._forget(user_id)

    async def _work(self, upload: FileImport) -> None:
        """Read or import a file when no other is; keep what came of it or went wrong. Delete it, unless it was read."""

        def progress(done: int, total: int) -> None:
            end_if_cancelled()  # what is stored by then is kept, and the next import of the file goes on from there
            upload.done, upload.total = done, total

        is_preview = upload.state == "reading"
        try:
            async with self._importing:
                memory = await self.get_memory()
                upload.result = await memory.care.import_file(
                    upload.scope, upload.file, progress, dry_run=is_preview, max_bytes=upload.max_bytes
                )
                upload.state = "read" if is_preview else "imported"
        except PalimpsestError as error:
            upload.problem = str(error).replace(str(upload.file), upload.name)
        except Exception:  # the page must stay up to report it
            logger.exception("a file could not be imported")
            upload.problem = "the file could not be imported; the log of the server says why"
        if upload.problem:
            upload.state = "failed"
        if upload.state == "read":
            await anyio.sleep(KEPT_SECONDS)
            if upload.state == "read" and self.imports.get(upload.scope.user_id) is upload:
                self._forget(upload.scope.user_id)
        else:
            upload.file.unlink(missing_ok=True)

    def _forget(self, user_id: str) -> None:
        if forgotten := self.imports.pop(user_id, None):
            forgotten.file.unlink(missing_ok=True)

    def _running(self) -> TaskGroup:
        if self._tasks is None:
            raise PalimpsestError("the page is closing, so nothing was imported")
        return self._tasks


def new_file(data_dir: Path) -> Path:
    """Return a path for an upload that is used by nobody, after deleting what killed processes left there. Blocking."""
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    delete_older(folder.iterdir(), LEFT_OVER_SECONDS)
    return folder / secrets.token_hex(16)


def work_of(request: Request) -> CareWork:
    """Return what the page does in the background."""
    return cast("CareWork", request.app.state.care)


async def settings_of(request: Request) -> Settings:
    """Return the settings, also those with which the memory could not be opened. Raises PalimpsestError."""
    memory = cast("LazyMemory", request.app.state.memory)
    try:
        return (await memory.get()).settings
    except PalimpsestError:
        with anyio.move_on_after(0):
            return await memory.settings()
        raise


# Import a file: upload it, see what it would bring, import it, and undo that.

# The largest file, unpacked, of a visitor who does not own the machine: some 100,000 messages. Reading a file takes a
# multiple of its size in memory.
MAX_BYTES_OF_OTHERS = 32 * 2**20

MEGABYTE = 2**20


async def import_(request: Request) -> Response:
    """Show the form for a file, or how far the import of the one that was chosen is."""
    scope = context.writable_scope_of(request)
    if (upload := work_of(request).imports.get(scope.user_id)) is not None:
        scope = upload.scope
    template = "care/import_state.html" if context.is_part(request) else "care/import.html"
    return context.shown(request, template, scope=scope, upload=upload, megabytes=_max_bytes(request) // MEGABYTE)


async def upload(request: Request) -> Response:
    """Take in a file, and read in the background what it would bring."""
    memory, scope, work = await context.memory_of(request), context.writable_scope_of(request), work_of(request)
    work.refuse_second(scope.user_id)
    is_owner, max_bytes = context.visitor_of(request).is_owner, _max_bytes(request)
    if int(request.headers["content-length"]) > max_bytes:
        raise InputError(f"the file has more than {max_bytes // MEGABYTE} MB. Nothing was imported")
    file = await anyio.to_thread.run_sync(new_file, memory.settings.data_dir)
    try:
        name = await store_upload(request, file)
        work.read(FileImport(file, name, scope, MAX_BYTES if is_owner else MAX_BYTES_OF_OTHERS))
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return context.redirect(UPLOAD_PATH, scope)


async def start_or_discard(request: Request) -> Response:
    """Import the file that was read, or delete it and forget what came of it."""
    scope, work = context.writable_scope_of(request), work_of(request)
    (work.start if request.url.path.endswith("/start") else work.discard)(scope.user_id)
    return context.redirect(UPLOAD_PATH, scope)


def _max_bytes(request: Request) -> int:
    return MAX_UPLOAD_BYTES if context.visitor_of(request).is_owner else MAX_BYTES_OF_OTHERS


# Download a memory as JSON lines.

CHUNK_BYTES = 64 * 1024


async def export(request: Request) -> Response:
    """Send the visitor's memory as a file, if they may see all projects.

    It is written to a file without a name first. So a browser that reads slowly keeps no state of the ledger open, and
    what does not work is said in place of half a download.
    """
    if (grant := context.visitor_of(request).grant).project:
        raise HTTPException(404)
    memory = await context.memory_of(request)
    async with work_of(request).exporting:
        file = await _exported(memory, grant.user_id)
    headers = {
        "content-disposition": f'attachment; filename="palimpsest-{memory.engine.clock():%Y-%m-%d}.jsonl"',
        "content-length": str(file.buffer.seek(0, os.SEEK_END)),
    }
    return StreamingResponse(_chunks(file), media_type="application/x-ndjson", headers=headers)


async def _exported(memory: Memory, user_id: str) -> TextIO:
    """Return an open file without a name that holds an export. It is gone when it is closed."""
    new = partial(tempfile.TemporaryFile, "w+", encoding="utf-8", newline="", dir=memory.settings.data_dir)
    file = cast("TextIO", await anyio.to_thread.run_sync(new))
    try:
        with raised_as(InputError, "the export cannot be written", ". Nothing was changed", OSError):
            await memory.care.export(file, lambda _done, _total: end_if_cancelled(), user_id)
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


async def _chunks(file: TextIO) -> AsyncGenerator[bytes]:
    with file:
        file.buffer.seek(0)
        while chunk := await anyio.to_thread.run_sync(file.buffer.read, CHUNK_BYTES):
            yield chunk


# The first page of care: what is found about each part, and where the rest is.


async def care(request: Request) -> Response:
    """Show what can be looked after. The findings follow, because they take some seconds."""
    return context.shown(request, "care/care.html", may_import=context.visitor_of(request).may_import, findings=None)


async def findings(request: Request) -> Response:
    """Examine every part, as `palimpsest doctor` does."""
    settings = await settings_of(request)
    async with work_of(request).examining:
        found = [*await examine(settings), *access_tokens.token_findings(settings)]
    template = "care/findings.html" if context.is_part(request) else "care/care.html"
    return context.shown(request, template, may_import=True, findings=found)


# Back up the ledger, and restore a backup. Both concern every user of this machine's ledger.


async def backups(request: Request) -> Response:
    """List the backups, the newest first, below what a backup or a restore did that led here."""
    listed = await anyio.to_thread.run_sync(backup.stored_backups, await settings_of(request))
    told: dict[str, Any] = {"done": "", "restored": None, **context.told_to(request)}
    return context.shown(request, "care/backups.html", backups=listed, **told)


async def make(request: Request) -> Response:
    """Make a backup now."""
    await anyio.to_thread.run_sync(backup.back_up, await settings_of(request), None, now)
    return context.answered(request, "/care/backups", {"done": "backed_up"})


async def ask(request: Request) -> Response:
    """Say what restoring a backup will do, and ask for it."""
    name = request.query_params.get("file", "")
    copy = await anyio.to_thread.run_sync(backup.inspect_backup, await settings_of(request), name)
    return context.shown(request, "care/restore.html", name=name, copy=copy)


async def put_back(request: Request) -> Response:
    """Restore a backup. The ledger as it was is backed up first, and the answer says how to go back to it."""
    form = await request.form()
    if form.get("confirmed") != "on":
        raise InputError("restoring was not confirmed. Nothing was changed")
    if any(each.state == "importing" for each in work_of(request).imports.values()):
        raise InputError("an import is under way. Nothing was restored. Wait until it is done")
    name, settings = str(form.get("file", "")), await settings_of(request)
    if (opened := cast("LazyMemory", request.app.state.memory).opened) is not None:
        done = await opened.care.restore(name)
    else:  # the ledger is damaged, which is when a backup is needed most
        copy = await anyio.to_thread.run_sync(backup.inspect_backup, settings, name)
        done = await anyio.to_thread.run_sync(backup.restore, settings, copy.path, now)
    return context.answered(request, "/care/backups", {"restored": done})


# Access tokens for HTTP: list them, create one, which is shown once, and revoke one.

# The longest that a token may be valid, so that its end is a date: a hundred years.
MAX_DAYS = 36_500


async def create(request: Request) -> Response:
    """Create an access token and show it. It is shown only once, because only its hash is stored."""
    settings, form = await settings_of(request), await request.form()
    given = ScopeInput(user_id=str(form.get("user", "")) or None, project=str(form.get("project", "")) or None)
    scope = scope_from(Scope(settings.user_id), given)
    if given.project is not None and not scope.project:
        raise InputError("the project is white space. Name it, or leave it empty for a token of all projects")
    days = context.number_in(form, "days")
    if form.get("days") and not 0 < (days or 0) <= MAX_DAYS:
        raise InputError(f"the days are a number from 1 to {MAX_DAYS:,}, or nothing. No token was created")
    known = (await context.memory_of(request)).projects if scope.project else None
    unknown = await known.unknown(scope.project, user_id=scope.user_id) if known else ""
    read_only, with_general = form.get("read_only") == "on", form.get("with_general") == "on"
    grant = access_tokens.Grant(scope.user_id, scope.project, read_only, with_general)
    text, _ = await anyio.to_thread.run_sync(access_tokens.create, settings.data_dir, grant, now(), days)
    return context.answered(request, "/care/tokens", {"created": text, "unknown": unknown})


async def revoke(request: Request) -> Response:
    """Revoke an access token. A running server refuses it from the next request on."""
    settings = await settings_of(request)
    await anyio.to_thread.run_sync(access_tokens.revoke, settings.data_dir, request.path_params["id"])
    return context.redirect("/care/tokens?done=revoked", context.scope_of(request))


async def tokens(request: Request) -> Response:
    """List the access tokens. The text of one that was just created is shown once, and not when the page is reloaded.

    Beside it stands what there is to say about its project if that is not known.
    """
    settings = await settings_of(request)
    told = context.told_to(request, once=True)
    stored = await anyio.to_thread.run_sync(access_tokens.stored_tokens, settings.data_dir)
    return context.shown(
        request,
        "care/tokens.html",
        tokens=[(token, token.is_expired(now())) for token in stored],
        of_settings=settings.http.tokens,
        user=settings.user_id,
        done="revoked" if request.query_params.get("done") == "revoked" else "",
        created=told.get("created", ""),
        unknown=told.get("unknown", ""),
    )


# The prompts: each with its difference to the shipped one. An owner may write their own.

# What the first character of a line of a difference means.
CHANGES = {"+": "added", "-": "removed", "@": "place"}


async def prompts(request: Request) -> Response:
    """List the prompts, and which of them are one's own."""
    settings = await settings_of(request)
    listed = await anyio.to_thread.run_sync(configuration.prompts_in_use, settings)
    return context.shown(request, "care/prompts.html", prompts=listed, folder=settings.prompts_dir)


async def save(request: Request) -> Response:
    """Write one's own prompt. A text that cannot be used is shown again, with the reason."""
    found, form = await _named(request), await request.form()
    text, read = str(form.get("text", "")), form.get("read")
    if read is not None and read != _digest(found.text) and _plain(text) != _plain(found.text):
        return await prompt(request, found, draft=text, changed=True, status=409)
    try:
        copy = await anyio.to_thread.run_sync(configuration.save_prompt, await settings_of(request), found.name, text)
    except PromptError as error:
        return await prompt(request, found, draft=text, problem=str(error), status=400)
    said = {"done": "prompt_saved", "kept": copy.name if copy else ""}
    return context.answered(request, f"/care/prompts/{found.name}", said)


async def _named(request: Request) -> PromptInUse:
    """Return the prompt that a path names. Raises HTTPException if there is none."""
    settings = await settings_of(request)
    with context.or_not_found():
        return await anyio.to_thread.run_sync(configuration.prompt_in_use, settings, request.path_params["name"])


async def prompt(
    request: Request, found: PromptInUse | None = None, *, draft: str = "", status: int = 200, **said: str | bool
) -> Response:
    """Show a prompt, and how it differs from the shipped one. `said`: why a `draft` of it was not saved."""
    found = found or await _named(request)
    settings, told = await settings_of(request), context.told_to(request)
    return context.shown(
        request,
        "care/prompt.html",
        status,
        prompt=found,
        lines=[(CHANGES.get(line[:1], ""), line if line[:1] == "@" else line[1:]) for line in found.difference],
        draft=draft or found.text,
        read=_digest(found.text),
        done=told.get("done", ""),
        kept=told.get("kept", ""),
        may_write=context.visitor_of(request).is_owner and settings.prompts_dir is not None,
        **{"problem": "", "changed": False, **said},
    )


def _digest(text: str) -> str:
    """Return what tells a text of a prompt from another one. Browsers change the ends of its lines."""
    return hashlib.sha256(_plain(text).encode()).hexdigest()


def _plain(text: str) -> str:
    return "\n".join(text.splitlines()).strip()


# The settings in effect, and where each comes from.


async def settings(request: Request) -> Response:
    """List the settings. They can only be read here: some decide who may read the page."""
    effective = await settings_of(request)
    listed = configuration.settings_in_effect(effective)
    return context.shown(request, "care/settings.html", settings=listed, file=effective.config)
