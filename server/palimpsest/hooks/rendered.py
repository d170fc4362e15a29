"""Render briefs to files, keep them current, and remove those that are outdated."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import anyio
import anyio.to_thread
from filelock import Timeout
from pydantic import BaseModel, ValidationError

from palimpsest.core.clock import iso
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.files import file_lock, replace_file
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import Event, Outcome, Scope
from palimpsest.core.settings import Settings
from palimpsest.core.threads import Threads, in_background
from palimpsest.hooks import brief, spool
from palimpsest.hooks.brief import NOTHING, ContextBlock, RecallRequest, Sources
from palimpsest.hooks.instructions import INSTRUCTIONS, INSTRUCTIONS_SIGN, VERSION, Launch, instructions_sign
from palimpsest.learn.background import OnLearned
from palimpsest.learn.engine import Engine
from palimpsest.learn.recall_log import RecallLog, forgetting_of
from palimpsest.recall.search import SearchQuery, SearchResult, search
from palimpsest.store import entries, summaries
from palimpsest.store import projects as project_queries

# The rendered files: who may write them when, and that none outlives what it says. Blocking.
#
# Whoever renders holds a lock from before it reads the ledger until its files are written. Whoever removes files has
# changed the ledger before, and takes the lock: what is rendered after that no longer knows what was deleted.

logger = logging.getLogger(__name__)

LOCK_SECONDS = 5.0
"""How long to wait for another process that renders, which takes milliseconds."""

MAX_FOLDERS = 200
"""How many folders of a user are known; those used longest ago are forgotten."""

MAX_INSTRUCTIONS = 50
"""How many ways to start a server have rendered instructions; the oldest are forgotten."""


class Folders(BaseModel):
    """Which brief a session in a folder begins with: a key by folder, of each user. `projects` are those of the keys.

    The folder that was used last stands last. "" stands for every folder that is not named.
    """

    v: int = VERSION
    users: dict[str, dict[str, str]] = {}
    projects: dict[str, str] = {}

    def learn(self, user: str, folder: str, key: str, project: str) -> None:
        """Set the key of a folder, and forget the folder used longest ago if there are too many."""
        folders = self.users.setdefault(user, {})
        folders.pop(folder, None)
        folders[folder] = key
        for old in [name for name in folders if name][: max(len(folders) - MAX_FOLDERS, 0)]:
            del folders[old]
        used = {known for names in self.users.values() for known in names.values()}
        self.projects = {known: name for known, name in {**self.projects, key: project}.items() if known in used}

    def keys_of(self, user: str) -> frozenset[str]:
        """Return the keys of a user's briefs."""
        return frozenset(self.users.get(user, {}).values())


class RenderedFiles:
    """The rendered files in the folder of the hooks. Every method raises OSError."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = str(data_dir)
        self._briefs = Path(spool.briefs_dir(self._data_dir))
        self._instructions = Path(spool.instructions_file(self._data_dir, "")).parent

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other processes from rendering and removing. One that holds the lock for too long is not waited for."""
        spool.make_private_folder(spool.hooks_dir(self._data_dir))
        lock = file_lock(Path(spool.hooks_dir(self._data_dir)) / "rendering.lock")
        with ExitStack() as stack:
            try:
                stack.enter_context(lock.acquire(timeout=LOCK_SECONDS))
            except Timeout:
                logger.warning("another process has been rendering for %s seconds; it is not waited for", LOCK_SECONDS)
            yield

    def folders(self) -> Folders:
        """Return the folders that are known; none if the file is missing or cannot be understood."""
        try:
            return Folders.model_validate_json(Path(spool.folders_file(self._data_dir)).read_bytes())
        except (FileNotFoundError, ValidationError):
            return Folders()  # it is written anew, and briefs that no folder names are removed

    def write_folders(self, folders: Folders) -> None:
        """Write the folders. The only user that is known is also the user of clients that name none, ""."""
        users = {user: names for user, names in folders.users.items() if user}
        if len(users) == 1:
            users = {**users, "": next(iter(users.values()))}
        content = folders.model_copy(update={"users": users}).model_dump_json()
        self._write(Path(spool.folders_file(self._data_dir)), content)

    def write_brief(self, key: str, block: ContextBlock, at: str) -> None:
        """Write the brief of a key, or remove its file if there is nothing to say."""
        path = Path(spool.brief_file(self._data_dir, key))
        if not block.text:
            path.unlink(missing_ok=True)
            return
        self._write(path, json.dumps({"v": VERSION, "text": block.text, "ids": block.ids, "at": at}))

    def has_brief(self, key: str) -> bool:
        """Return whether a brief is rendered."""
        return Path(spool.brief_file(self._data_dir, key)).is_file()

    def write_instructions(self, launch: str, sign: str, text: str) -> None:
        """Write the instructions for servers that are started in one way, and remove the oldest if there are many."""
        self._write(Path(spool.instructions_file(self._data_dir, launch)), f"{sign}\n{text}")
        for _, old, _ in self._instruction_files()[:-MAX_INSTRUCTIONS]:
            old.unlink(missing_ok=True)

    def launches_of(self, sign: str) -> list[str]:
        """Return the ways to start a server whose instructions have this sign."""
        return [path.stem for _, path, line in self._instruction_files() if line == sign]

    def remove(self, user: str, folders: Folders) -> None:
        """Remove everything rendered of a user, and what cannot be assigned to a user."""
        others = frozenset[str]().union(*(folders.keys_of(other) for other in folders.users if other not in ("", user)))
        briefs = {Path(spool.folders_file(self._data_dir)).name, *(f"{key}.json" for key in others)}
        for path in _files(self._briefs):
            if path.name not in briefs:
                path.unlink(missing_ok=True)
        sign = instructions_sign(user)
        for _, path, line in self._instruction_files():
            if line.startswith(f"{sign} ") or not line.startswith(f"{INSTRUCTIONS_SIGN} "):
                path.unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove everything rendered of all users."""
        with self.locked():
            for path in (*_files(self._briefs), *_files(self._instructions)):
                path.unlink(missing_ok=True)

    def _instruction_files(self) -> list[tuple[int, Path, str]]:
        """Return when each file of instructions was written, the file, and its first line, the oldest first."""
        found: list[tuple[int, Path, str]] = []
        for path in _files(self._instructions):
            # Another process may have removed it.
            with suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
                found.append((os.fstat(file.fileno()).st_mtime_ns, path, file.readline(200).rstrip("\n")))
        return sorted(found)

    def _write(self, path: Path, text: str) -> None:
        spool.make_private_folder(str(path.parent))
        with replace_file(path, durable=False) as file:  # a lost one is rendered anew
            file.write(text)


def _files(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.iterdir() if not path.is_dir()) if folder.is_dir() else ()


# What sessions begin with, and what is recalled for their prompts: rendered, kept current, removed, answered.

LOOK_SECONDS = 10.0
"""How often a server looks for writes of other processes. A look is one short query."""

REST_SECONDS = 1.0
"""How long to wait after a write before rendering, so that writes that follow each other are rendered once."""

REST_SHARE = 9
"""Rendering rests at least this many times as long as it took: a tenth of a core at most."""

THREADS = 2
"""How many threads prompts may use. They are none of those of the calls, so that hooks never delay a call."""

MAX_PROJECTS = 200
"""Of how many folders the project is remembered."""

GIVING_MODES = ("on", "recall")
"""The values of the setting `hooks` with which hooks give memories to a session."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """How far the ledger was when something was read.

    That is its epoch, the newest number of the index log, and that of the newest summary.
    """

    epoch: str
    log_number: int
    summary_number: int


class Briefs:
    """What sessions of the settings' user begin with, as `memory.briefs`.

    `launch` is how this process was started, if known. Private methods without `async` are blocking.
    """

    def __init__(self, settings: Settings, engine: Engine, launch: Launch | None, recall_log: RecallLog) -> None:
        limit = anyio.CapacityLimiter(THREADS)
        self._settings, self._engine, self._launch, self._recall_log = settings, engine, launch, recall_log
        self._threads = Threads((limit,), (limit,))
        self._files = RenderedFiles(settings.data_dir)
        self._scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
        self._projects: dict[str, str] = {}
        self._rendered: LedgerState | None = None
        self._keys: frozenset[str] = frozenset()
        """Keys of the briefs that were rendered last."""
        self._launches: set[str] = set()
        """Ways to start a server whose instructions were removed."""
        self._woken = anyio.Event()

    async def run(self) -> None:
        """Render what is missing or has changed, by whatever process, until cancelled, and a last time then.

        Failures are logged.
        """
        self.learn_folder(str(Path.cwd()), self._settings.project)
        with in_background():
            try:
                while True:
                    began = time.monotonic()
                    await self._render_if_needed()
                    rest = max(REST_SECONDS, REST_SHARE * (time.monotonic() - began))
                    with anyio.move_on_after(LOOK_SECONDS):
                        await self._woken.wait()
                    await anyio.sleep(rest)
            finally:
                with anyio.CancelScope(shield=True):  # the next session may begin before the next server
                    await self._render_if_needed()

    async def render(self) -> None:
        """Render everything of the settings' user now. Raises OSError and LedgerError."""
        projects = dict(self._projects)
        self._woken = anyio.Event()

        state = await self._threads.write(lambda: self._render(projects))
        self._rendered = state if projects == self._projects else None

    @asynccontextmanager
    async def kept_current(self) -> AsyncGenerator[None]:
        """Render after the block if it has changed the memory. A failure is logged."""
        self.learn_folder(str(Path.cwd()), self._settings.project)
        before = await self._engine.run(self._state)
        try:
            yield
        finally:
            self._rendered = before
            await self._render_if_needed()

    async def after_write(self, user: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
        """Follow a write of a user: remove what may say what was deleted or changed, and have it rendered anew.

        Return notes on what could not be removed.
        """
        self._woken.set()
        if any(outcome.event in (Event.UPDATE, Event.DELETE) or outcome.replaced for outcome in outcomes):
            try:
                await self._engine.run(lambda: self._remove(user))
            except OSError as error:
                note = "what new sessions begin with may still name it, because a file could not be removed"
                return (f"{note}: {error}",)
            self._rendered = None
            self._woken.set()
        return ()

    def before(self, on_learned: OnLearned) -> OnLearned:
        """Return a function that follows work in the background, and then passes on what was learned.

        Nobody waits for its notes. It may also have written a summary.
        """

        async def follow(outcomes: Sequence[Outcome]) -> None:
            for user in {outcome.memory.scope.user_id for outcome in outcomes}:
                for note in await self.after_write(user, outcomes):
                    logger.warning("%s", note)
            self.wake()
            await on_learned(outcomes)

        return follow

    def wake(self) -> None:
        """Render soon, because something was written."""
        self._woken.set()

    async def instructions(self, scope: Scope) -> str:
        """Return the instructions for a connection that works in a scope. Raises LedgerError."""
        return await self._threads.run(lambda: self._instructions(scope))

    def learn_folder(self, folder: str, project: str) -> None:
        """Have the brief of a project rendered for the sessions in a folder, if the folder decides the project."""
        if self._settings.repository is None or self._projects.get(folder) == project:
            return
        if len(self._projects) >= MAX_PROJECTS:
            self._projects.clear()
        self._projects[folder] = project
        self._rendered = None
        self._woken.set()

    async def answer(self, request: RecallRequest) -> ContextBlock:
        """Return what is recalled for a prompt; nothing for another user's. Raises OSError and PalimpsestError."""
        # No reranker: a prompt waits, and the bound of the scores was fitted without one.
        user, engine = self._settings.user_id, replace(self._engine, reranker=None)
        if self._settings.hooks not in GIVING_MODES or request.user not in ("", user):
            return NOTHING
        if not request.user and not await self._threads.run(self._is_only_user):
            return NOTHING  # whose session it is is not known
        scope = self._scope_of(await self._project_of(request.folder))

        fading = forgetting_of(self._settings)

        def search_ledger(query: SearchQuery) -> SearchResult:
            return search(engine, replace(query, forgetting=fading))

        now, floor = engine.clock(), self._settings.min_score
        recalled = await self._threads.run(lambda: brief.answer(search_ledger, scope, request, now, floor))
        self._recall_log.note(scope, request.prompt, recalled.ids, request.client)
        return recalled

    async def _project_of(self, folder: str) -> str:
        """Return the project of a session's folder, if the folder decides it."""
        if self._settings.repository is None or not folder:
            return ""
        if folder not in self._projects:
            limit = self._threads.limits[-1]  # the folder may be on a network drive that does not answer
            repository = await anyio.to_thread.run_sync(_repository_at, folder, limiter=limit, abandon_on_cancel=True)
            project = ""
            with suppress(InputError):  # its name is not valid in a scope
                ledger, user = self._engine.ledger, self._settings.user_id
                project = await self._threads.run(lambda: ledger.project_of(user, repository))
            self.learn_folder(folder, project)
        project = self._projects[folder]
        return await self._threads.run(lambda: self._current_name(project))

    def _current_name(self, project: str) -> str:
        """Return the name that a project has now, if it was moved."""
        return self._engine.ledger.read_with(project_queries.current_name, self._settings.user_id, project)

    async def _render_if_needed(self) -> None:
        try:
            rendered = self._rendered
            if rendered is None or await self._threads.run(lambda: self._is_outdated(rendered)):
                await self.render()
        except (OSError, LedgerError) as error:
            logger.warning("what new sessions begin with is not up to date: %s", error)

    def _scope_of(self, project: str) -> Scope:
        """Return the scope of a session in a project, if its folder decides it; "" is that of an unknown folder."""
        return self._scope if self._settings.repository is None else replace(self._scope, project=project)

    def _state(self) -> LedgerState:
        """Return how far the ledger is now. Raises LedgerError."""
        with self._engine.ledger.read() as conn:
            newest = summaries.newest_number(conn, self._scope.user_id)
            return LedgerState(entries.epoch(conn), entries.newest_log_number(conn), newest)

    def _is_outdated(self, state: LedgerState) -> bool:
        """Return whether a brief is missing, or anything of the user may have changed since it was rendered at a state.

        Raises OSError and LedgerError.
        """
        if any(not self._files.has_brief(key) for key in self._keys):
            return True
        if replace(self._state(), log_number=state.log_number) != state:
            return True
        changed = self._engine.ledger.read_with(entries.entries_changed_since, self._scope.user_id, state.log_number, 1)
        return bool(changed)

    def _is_only_user(self) -> bool:
        """Return whether nobody else's sessions begin with memories from this data directory. Raises OSError."""
        return not {user for user in self._files.folders().users if user} - {self._scope.user_id}

    def _render(self, projects: Mapping[str, str]) -> LedgerState:
        """Render everything of the user, and return the state of the ledger that it says.

        `projects` are the projects of folders that were used lately. Raises OSError and LedgerError.
        """
        with self._files.locked():
            state = self._state()
            if self._settings.hooks in GIVING_MODES:
                self._render_briefs({folder: self._current_name(name) for folder, name in projects.items()})
            if self._settings.instructions == "memories":
                self._render_instructions()
            return state

    def _remove(self, user: str) -> None:
        """Remove everything rendered of a user. Raises OSError."""
        with self._files.locked():
            self._launches.update(self._files.launches_of(_sign_of(self._scope_of(""))))
            self._files.remove(user, self._files.folders())

    def _instructions(self, scope: Scope) -> str:
        """Return the instructions for a connection that works in a scope. Raises LedgerError."""
        if self._settings.instructions != "memories":
            return INSTRUCTIONS
        return brief.instructions_with(self._sources(scope, self._engine.clock()))

    def _render_briefs(self, projects: Mapping[str, str]) -> None:
        folders = self._files.folders()
        user, default = self._scope.user_id, self._scope_of("")
        folders.learn(user, "", _key(default), default.project)
        for folder, project in projects.items():
            folders.learn(user, folder, _key(self._scope_of(project)), project)
        self._files.write_folders(folders)
        now = self._engine.clock()
        keys, rendered = folders.keys_of(user), set[str]()
        for scope in [replace(self._scope, project=folders.projects.get(key, "")) for key in keys]:
            key = _key(scope)
            if key in keys:  # another agent's or run's keys are rendered by its server
                block = brief.session_brief(self._sources(scope, now), scope.project)
                self._files.write_brief(key, block, iso(now))
                rendered.update([key] if block.text else [])
        self._keys = frozenset(rendered)

    def _sources(self, scope: Scope, now: datetime) -> Sources:
        engine = self._engine
        with engine.ledger.read() as conn:
            return brief.read_sources(engine.ledger, conn, scope, now, engine.embedder.fingerprint)

    def _render_instructions(self) -> None:
        """Render the instructions for all ways to start a server that works in the same scope.

        A server in a project also writes those without one, for projects that no server has worked in yet. A server
        that finds its project by its folder has others for that folder, which are written last.
        """
        default, launch = self._scope_of(""), self._launch
        general = replace(default, project="")
        of_all = () if launch is None else (launch.general,)
        own = () if launch is None else (launch.key,)
        if general != default:
            self._write_instructions(general, of_all)
            of_all = ()
        self._write_instructions(default, (*sorted(self._launches), *of_all, *own))
        if self._scope != default:
            self._write_instructions(self._scope, () if launch is None else (launch.in_folder,))

    def _write_instructions(self, scope: Scope, own: Sequence[str]) -> None:
        """Write the instructions of a scope for all ways to start a server in it: those that are known, and `own`."""
        sign, text = _sign_of(scope), self._instructions(scope)
        for launch in dict.fromkeys((*self._files.launches_of(sign), *own)):
            self._files.write_instructions(launch, sign, text)


def _sign_of(scope: Scope) -> str:
    return instructions_sign(scope.user_id, scope.project, scope.agent_id, scope.run_id)


def _key(scope: Scope) -> str:
    return spool.hashed(scope.user_id, scope.project, scope.agent_id, scope.run_id)


def _repository_at(folder: str) -> Repository:
    try:
        return repository_of(Path(folder))
    except (OSError, ValueError):  # unreadable, or not a path
        return Repository()
