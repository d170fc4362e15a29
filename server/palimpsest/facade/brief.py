"""What sessions begin with, and what is recalled for their prompts: rendered, kept current, removed, answered."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from palimpsest.brief.answer import NOTHING, Answer, RecallRequest, answer, least_score
from palimpsest.brief.launch import Launch
from palimpsest.brief.rendering import GIVING_MODES, LedgerState, Renderer
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import Event, Outcome, Scope
from palimpsest.core.settings import Settings
from palimpsest.core.threads import Threads, in_background
from palimpsest.facade.recall.forgetting import forgetting_of
from palimpsest.facade.recall.log import RecallLog
from palimpsest.learn.background.work import OnLearned
from palimpsest.learn.engine import Engine
from palimpsest.recall.pipeline import SearchQuery, SearchResult, search

logger = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""How often a server looks for writes of other processes. A look is one short query. Set by hand."""

REST_SECONDS = 1.0
"""How long to wait after a write before rendering, so that writes that follow each other are rendered once. Set by
hand."""

REST_SHARE = 9
"""Rendering rests at least this many times as long as it took: a tenth of a core at most. Set by hand."""

THREADS = 2
"""How many threads prompts may use. They are none of those of the calls, so that hooks never delay a call. Set by
hand."""

MAX_PROJECTS = 200
"""Of how many folders the project is remembered. Set by hand."""


class Briefs:
    """What sessions of the settings' user begin with, as `memory.briefs`."""

    def __init__(self, settings: Settings, engine: Engine, launch: Launch | None, recall_log: RecallLog) -> None:
        limit = anyio.CapacityLimiter(THREADS)
        self._settings = settings
        self._engine = engine
        self._recall_log = recall_log
        self._threads = Threads((limit,), (limit,))
        self._renderer = Renderer(settings, engine.ledger, engine.clock, launch, engine.embedder.fingerprint)
        self._projects: dict[str, str] = {}
        self._rendered: LedgerState | None = None
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

        def work() -> LedgerState:
            return self._renderer.render({folder: self._current_name(name) for folder, name in projects.items()})

        state = await self._threads.write(work)
        self._rendered = state if projects == self._projects else None

    @asynccontextmanager
    async def kept_current(self) -> AsyncGenerator[None]:
        """Render after the block if it has changed the memory. A failure is logged."""
        self.learn_folder(str(Path.cwd()), self._settings.project)
        before = await self._engine.run(self._renderer.state)
        try:
            yield
        finally:
            self._rendered = before
            await self._render_if_needed()

    async def after_write(self, user: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
        """Follow a write of a user: remove what may say what was deleted or changed, and have it rendered anew.

        Return notes on what could not be removed.
        """
        notes: tuple[str, ...] = ()
        if any(outcome.event in (Event.UPDATE, Event.DELETE) or outcome.replaced for outcome in outcomes):
            notes = await self._remove(user)
        self._woken.set()
        return notes

    async def after_work(self, outcomes: Sequence[Outcome]) -> None:
        """Follow work in the background, of which nobody waits for notes. It may also have written a summary."""
        for user in {outcome.memory.scope.user_id for outcome in outcomes}:
            for note in await self.after_write(user, outcomes):
                logger.warning("%s", note)
        self.wake()

    def before(self, on_learned: OnLearned) -> OnLearned:
        """Return a function that follows work in the background, and then passes on what was learned."""

        async def follow(outcomes: Sequence[Outcome]) -> None:
            await self.after_work(outcomes)
            await on_learned(outcomes)

        return follow

    async def _remove(self, user: str) -> tuple[str, ...]:
        try:
            await self._engine.run(lambda: self._renderer.remove(user))
        except OSError as error:
            return (f"what new sessions begin with may still name it, because a file could not be removed: {error}",)
        self._rendered = None
        self._woken.set()
        return ()

    def wake(self) -> None:
        """Render soon, because something was written."""
        self._woken.set()

    async def instructions(self, scope: Scope) -> str:
        """Return the instructions for a connection that works in a scope. Raises LedgerError."""
        return await self._threads.run(lambda: self._renderer.instructions(scope))

    def learn_folder(self, folder: str, project: str) -> None:
        """Have the brief of a project rendered for the sessions in a folder, if the folder decides the project."""
        if self._settings.repository is None or self._projects.get(folder) == project:
            return
        if len(self._projects) >= MAX_PROJECTS:
            self._projects.clear()
        self._projects[folder] = project
        self._rendered = None
        self._woken.set()

    async def answer(self, request: RecallRequest) -> Answer:
        """Return what is recalled for a prompt; nothing for another user's. Raises OSError and PalimpsestError."""
        user, engine = self._settings.user_id, self._engine
        if self._settings.hooks not in GIVING_MODES or request.user not in ("", user):
            return NOTHING
        if not request.user and not await self._threads.run(self._renderer.is_only_user):
            return NOTHING  # whose session it is is not known
        scope = self._renderer.scope_of(await self._project_of(request.folder))

        fading = forgetting_of(self._settings)

        def search_ledger(query: SearchQuery) -> SearchResult:
            return search(engine.ledger, engine.embedder, engine.index, replace(query, forgetting=fading))

        now, floor = engine.clock(), self._settings.min_relevance
        score = least_score(engine.embedder.fingerprint)
        recalled = await self._threads.run(lambda: answer(search_ledger, scope, request, now, floor, score))
        self._recall_log.note(scope, request.prompt, recalled.ids, request.client)
        return recalled

    async def _project_of(self, folder: str) -> str:
        """Return the project of a session's folder, if the folder decides it."""
        if self._settings.repository is None or not folder:
            return ""
        if folder not in self._projects:
            limit = self._threads.limits[-1]  # the folder may be on a network drive that does not answer
            repository = await anyio.to_thread.run_sync(_repository_at, folder, limiter=limit, abandon_on_cancel=True)
            self.learn_folder(folder, await self._threads.run(lambda: self._project_at(repository)))
        project = self._projects[folder]
        return await self._threads.run(lambda: self._current_name(project))

    def _project_at(self, repository: Repository) -> str:
        try:
            return self._engine.ledger.project_of(self._settings.user_id, repository)
        except InputError:  # its name is not valid in a scope
            return ""

    def _current_name(self, project: str) -> str:
        """Return the name that a project has now, if it was moved."""
        return self._engine.ledger.current_project(self._settings.user_id, project)

    async def _render_if_needed(self) -> None:
        try:
            if await self._threads.run(self._is_outdated):
                await self.render()
        except (OSError, LedgerError) as error:
            logger.warning("what new sessions begin with is not up to date: %s", error)

    def _is_outdated(self) -> bool:
        rendered = self._rendered
        return rendered is None or self._renderer.has_changed_since(rendered) or self._renderer.is_missing()


def _repository_at(folder: str) -> Repository:
    try:
        return repository_of(Path(folder))
    except (OSError, ValueError):  # unreadable, or not a path
        return Repository()
