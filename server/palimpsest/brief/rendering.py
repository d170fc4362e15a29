"""Render what sessions of one user begin with, and remove it when it may say what is no longer true. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from palimpsest.brief.files import RenderedFiles
from palimpsest.brief.instructions import instructions_with
from palimpsest.brief.launch import Launch, instructions_sign
from palimpsest.brief.session import session_brief
from palimpsest.brief.sources import read_sources
from palimpsest.brief.static_text import INSTRUCTIONS
from palimpsest.core.clock import Clock, iso
from palimpsest.core.models import Scope
from palimpsest.core.settings import Settings
from palimpsest.hook import paths
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import summaries as summary_queries

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


class Renderer:
    """Renders what sessions of the settings' user begin with.

    `launch` is how this process was started, if known, and `embedder` the fingerprint of the embedder.
    """

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, launch: Launch | None, embedder: str) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self._clock = clock
        self._launch = launch
        self._files = RenderedFiles(settings.data_dir)
        self._has_briefs = settings.hooks in GIVING_MODES
        self._has_instructions = settings.instructions == "memories"
        self._scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
        self._is_project_found = settings.repository is not None
        self._sign = _sign_of(self.default_scope)
        self._rendered: frozenset[str] = frozenset()
        """Keys of the briefs that were rendered last."""
        self._launches: set[str] = set()
        """Ways to start a server whose instructions were removed."""

    @property
    def default_scope(self) -> Scope:
        """Return the scope of a session whose folder is not known: without a project, unless the settings name one."""
        return replace(self._scope, project="") if self._is_project_found else self._scope

    def scope_of(self, project: str) -> Scope:
        """Return the scope of a session in a project."""
        return replace(self._scope, project=project) if self._is_project_found else self._scope

    def state(self) -> LedgerState:
        """Return how far the ledger is now. Raises LedgerError."""
        with self._ledger.read() as conn:
            newest = summary_queries.newest_number(conn, self._scope.user_id)
            return LedgerState(log_queries.epoch(conn), log_queries.newest_log_number(conn), newest)

    def has_changed_since(self, state: LedgerState) -> bool:
        """Return whether anything of the user may have changed since a state. Raises LedgerError."""
        with self._ledger.read() as conn:
            newest = summary_queries.newest_number(conn, self._scope.user_id)
            if log_queries.epoch(conn) != state.epoch or newest != state.summary_number:
                return True
            return bool(log_queries.entries_changed_since(conn, self._scope.user_id, state.log_number, 1))

    def is_missing(self) -> bool:
        """Return whether a brief that this process rendered is no longer there. Raises OSError."""
        return any(not self._files.has_brief(key) for key in self._rendered)

    def is_only_user(self) -> bool:
        """Return whether nobody else's sessions begin with memories from this data directory. Raises OSError."""
        return not {user for user in self._files.folders().users if user} - {self._scope.user_id}

    def render(self, projects: Mapping[str, str]) -> LedgerState:
        """Render everything of the user, and return the state of the ledger that it says.

        `projects` are the projects of folders that were used lately. Raises OSError and LedgerError.
        """
        with self._files.locked():
            state = self.state()
            if self._has_briefs:
                self._render_briefs(projects)
            if self._has_instructions:
                self._render_instructions()
            return state

    def remove(self, user: str) -> None:
        """Remove everything rendered of a user. Raises OSError."""
        with self._files.locked():
            self._launches.update(self._files.launches_of(self._sign))
            self._files.remove(user, self._files.folders())

    def instructions(self, scope: Scope) -> str:
        """Return the instructions for a connection that works in a scope. Raises LedgerError."""
        if not self._has_instructions:
            return INSTRUCTIONS
        with self._ledger.read() as conn:
            return instructions_with(read_sources(self._ledger, conn, scope, self._clock(), self._embedder))

    def _render_briefs(self, projects: Mapping[str, str]) -> None:
        folders = self._files.folders()
        user, default = self._scope.user_id, self.default_scope
        folders.learn(user, "", _key(default), default.project)
        for folder, project in projects.items():
            folders.learn(user, folder, _key(self.scope_of(project)), project)
        self._files.write_folders(folders)
        now = self._clock()
        scopes = [replace(self._scope, project=folders.projects.get(key, "")) for key in folders.keys_of(user)]
        # Another agent's or run's keys are rendered by its server.
        own = [scope for scope in scopes if _key(scope) in folders.keys_of(user)]
        self._rendered = frozenset(_key(scope) for scope in own if self._render_brief(scope, now))

    def _render_brief(self, scope: Scope, now: datetime) -> bool:
        """Render the brief of a scope, and return whether there is anything to say."""
        with self._ledger.read() as conn:
            sources = read_sources(self._ledger, conn, scope, now, self._embedder)
        brief = session_brief(sources, scope.project)
        self._files.write_brief(_key(scope), brief, iso(now))
        return bool(brief.text)

    def _render_instructions(self) -> None:
        """Render the instructions for all ways to start a server that works in the same scope.

        A server in a project also writes those without one, for projects that no server has worked in yet. A server
        that finds its project by its folder has others for that folder, which are written last.
        """
        general, launch = replace(self.default_scope, project=""), self._launch
        of_all = () if launch is None else (launch.general,)
        if general != self.default_scope:
            self._write_instructions(general, of_all)
            of_all = ()
        own = () if launch is None else (launch.key,)
        self._write_instructions(self.default_scope, (*sorted(self._launches), *of_all, *own))
        if self._scope != self.default_scope:
            self._write_instructions(self._scope, () if launch is None else (launch.in_folder,))

    def _write_instructions(self, scope: Scope, own: Sequence[str]) -> None:
        """Write the instructions of a scope for all ways to start a server in it: those that are known, and `own`."""
        sign, text = _sign_of(scope), self.instructions(scope)
        for launch in dict.fromkeys((*self._files.launches_of(sign), *own)):
            self._files.write_instructions(launch, sign, text)


def _sign_of(scope: Scope) -> str:
    return instructions_sign(scope.user_id, scope.project, scope.agent_id, scope.run_id)


def _key(scope: Scope) -> str:
    return paths.hashed(scope.user_id, scope.project, scope.agent_id, scope.run_id)
