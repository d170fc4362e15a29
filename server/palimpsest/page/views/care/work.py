"""What the page does in the background: imports, one at a time, which go on when a browser is closed.

An uploaded file lies in a private folder until it is imported, and no longer than an hour.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup

from palimpsest.care.transfer.import_file import ImportResult
from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.core.models import Scope
from palimpsest.core.threads import end_if_cancelled
from palimpsest.memory import Memory

logger = logging.getLogger(__name__)

FOLDER = "uploads"

KEPT_SECONDS = 3600.0
"""How long a file waits for somebody to say that it is to be imported. Set by hand: longer than a preview is read."""

LEFT_OVER_SECONDS = 24 * KEPT_SECONDS
"""After this long a file is one that a killed process left behind. Set by hand: no upload and no import takes a day."""

State: TypeAlias = Literal["reading", "read", "importing", "imported", "failed"]


@dataclass(slots=True)
class FileImport:
    """A user's import: the uploaded file and its name, where it is imported to, and how far it is.

    `preview` says what it would bring, `result` what it brought, and `problem` what went wrong.
    """

    file: Path
    name: str
    scope: Scope
    max_bytes: int
    state: State = "reading"
    done: int = 0
    total: int = 0
    preview: ImportResult | None = None
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
    _imports: dict[str, FileImport] = field(default_factory=dict[str, FileImport])
    _tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled. Then what an import has stored is kept, and the uploaded files are deleted."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await anyio.sleep_forever()
        finally:
            self._tasks = None
            for user_id in list(self._imports):
                self._forget(user_id)

    def import_of(self, user_id: str) -> FileImport | None:
        """Return a user's import, if there is one."""
        return self._imports.get(user_id)

    @property
    def is_importing(self) -> bool:
        """Return whether anything is being imported."""
        return any(each.state == "importing" for each in self._imports.values())

    def refuse_second(self, user_id: str) -> None:
        """Raise InputError if an import of a user is under way."""
        known = self._imports.get(user_id)
        if known is not None and known.is_under_way:
            raise InputError(
                f"the import of {known.name} is under way. Nothing else was imported. Wait until it is done"
            )

    def read(self, upload: FileImport) -> None:
        """Read an uploaded file in the background, and say what it would bring. It replaces an earlier one."""
        user_id = upload.scope.user_id
        try:
            self.refuse_second(user_id)
            tasks = self._running()
        except PalimpsestError:
            upload.file.unlink(missing_ok=True)
            raise
        self._forget(user_id)
        self._imports[user_id] = upload
        tasks.start_soon(self._read, upload)

    def start(self, user_id: str, *, brings_back: bool) -> None:
        """Import in the background what was read. Raises InputError if nothing waits for it."""
        self.refuse_second(user_id)
        upload, tasks = self._imports.get(user_id), self._running()
        if upload is None or upload.state != "read":
            raise InputError("no file waits to be imported. Nothing was imported. Choose one again")
        upload.state = "importing"
        tasks.start_soon(self._import, upload, brings_back)

    def discard(self, user_id: str) -> None:
        """Delete a user's uploaded file and forget what came of it. Raises InputError if it is being imported."""
        self.refuse_second(user_id)
        self._forget(user_id)

    async def _read(self, upload: FileImport) -> None:
        async def work(memory: Memory) -> None:
            upload.preview = await memory.care.import_file(
                upload.scope, upload.file, _end_if_cancelled, dry_run=True, max_bytes=upload.max_bytes
            )
            upload.state = "read"

        await self._attempt(upload, work)
        if upload.state == "read":
            await anyio.sleep(KEPT_SECONDS)
            if upload.state == "read" and self._imports.get(upload.scope.user_id) is upload:
                self._forget(upload.scope.user_id)

    async def _import(self, upload: FileImport, brings_back: bool) -> None:  # noqa: FBT001 - `start_soon` passes no names
        def progress(done: int, total: int) -> None:
            end_if_cancelled()  # what is stored by then is kept, and the next import of the file goes on from there
            upload.done, upload.total = done, total

        async def work(memory: Memory) -> None:
            upload.result = await memory.care.import_file(
                upload.scope, upload.file, progress, brings_back=brings_back, max_bytes=upload.max_bytes
            )
            upload.state = "imported"

        await self._attempt(upload, work)
        upload.file.unlink(missing_ok=True)

    async def _attempt(self, upload: FileImport, work: Callable[[Memory], Awaitable[None]]) -> None:
        """Work with the memory when no other import does; keep what went wrong, and delete the file then."""
        try:
            async with self._importing:
                await work(await self.get_memory())
        except PalimpsestError as error:
            upload.problem = str(error).replace(str(upload.file), upload.name)
        except Exception:  # the page must stay up to report it
            logger.exception("a file could not be imported")
            upload.problem = "the file could not be imported; the log of the server says why"
        if upload.problem:
            upload.state = "failed"
            upload.file.unlink(missing_ok=True)

    def _forget(self, user_id: str) -> None:
        forgotten = self._imports.pop(user_id, None)
        if forgotten is not None:
            forgotten.file.unlink(missing_ok=True)

    def _running(self) -> TaskGroup:
        if self._tasks is None:
            raise PalimpsestError("the page is closing, so nothing was imported")
        return self._tasks


def _end_if_cancelled(_done: int, _total: int) -> None:
    end_if_cancelled()


def new_file(data_dir: Path) -> Path:
    """Return a path for an upload that is used by nobody, after deleting what killed processes left there. Blocking."""
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in folder.iterdir():
        try:
            if time.time() - file.stat().st_mtime > LEFT_OVER_SECONDS:
                file.unlink()
        except OSError:  # another process has just deleted it
            continue
    return folder / secrets.token_hex(16)
