"""The projects of a memory's user: which one a folder is, and moving what one holds to another."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from palimpsest.core.clock import Clock, in_zone
from palimpsest.core.errors import InputError
from palimpsest.core.git_project import Alias, Move, Project, Repository, repository_of
from palimpsest.core.models import Scope
from palimpsest.core.settings import AUTO, Settings
from palimpsest.core.validation import scope_part
from palimpsest.learn.engine import Engine
from palimpsest.store import projects
from palimpsest.store.ledger import Ledger, open_ledger


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What a move took along, and the backup that was made before it; None if it was only a preview."""

    move: Move
    backup: Path | None = None


class Projects:
    """The projects of one user, as `memory.projects`. Every method raises PalimpsestError."""

    def __init__(self, engine: Engine, user_id: str) -> None:
        self._engine = engine
        self._user_id = user_id

    async def list(self) -> Sequence[Project]:
        """Return the projects with their aliases and what they hold, by name."""

        def read() -> Sequence[Project]:
            zone = self._engine.ledger.zones.of(self._user_id)
            with self._engine.ledger.read() as conn:
                found = projects.projects(conn, self._user_id)
            return [replace(project, used_at=project.used_at and in_zone(project.used_at, zone)) for project in found]

        return await self._engine.run(read)

    async def of_folder(self, folder: Path) -> str:
        """Return the project of a folder, or "" outside of a repository, and record what it is known by."""
        return await self.of_repository(await self._engine.run(lambda: repository_of(folder)))

    async def of_repository(self, repository: Repository) -> str:
        """Return the project of a repository, and record what it is known by."""
        return await self._engine.run(lambda: self._engine.ledger.project_of(self._user_id, repository))

    async def current_name(self, project: str, *, user_id: str = "") -> str:
        """Return the name that a project has now, if it was moved, else the name as it is.

        `user_id` is whose project it is, by default the memory's user.
        """
        if not project:
            return ""
        return await self._engine.run(lambda: self._engine.ledger.current_project(user_id or self._user_id, project))

    async def unknown(self, project: str, *, user_id: str = "") -> str:
        """Return a sentence that says that a user has no such project, or "" if there is one."""
        return await self._engine.run(lambda: _unknown(self._engine.ledger, user_id or self._user_id, project))

    async def news(self, scope: Scope) -> tuple[str, ...]:
        """Return notes on what a project is known by from now on, each once."""
        if not scope.project:
            return ()

        def read() -> Sequence[Alias]:
            with self._engine.ledger.read() as conn:
                return projects.unreported(conn, scope.user_id, scope.project)

        aliases = await self._engine.run(read)
        if aliases:
            await self._engine.write(lambda: self._engine.ledger.mark_aliases_reported(scope.user_id, aliases))
        return tuple(map(_note, aliases))

    async def move(self, old: str, new: str, *, caller: str = "", dry_run: bool = False) -> MoveResult:
        """Give a project another name, and move everything in it, after a backup. With `dry_run` only say what.

        Raises InputError if there is a project of the new name.
        """
        old, new = await self._known(old), scope_part("the new name", new)
        if new in ("", AUTO):
            raise InputError(f"'{new}' cannot be the name of a project. Nothing was moved")
        if await self._holds(new):
            raise InputError(
                f"there is a project {new} already. Nothing was moved. palimpsest projects merge {old} {new} joins them"
            )
        return await self._move(old, new, caller, dry_run=dry_run)

    async def merge(self, old: str, new: str, *, caller: str = "", dry_run: bool = False) -> MoveResult:
        """Move everything in a project to another one, after a backup. With `dry_run` only say what.

        Of two memories that say the same, the one of the new project stays and takes over what the other one knows.
        """
        return await self._move(await self._known(old), await self._known(new), caller, dry_run=dry_run)

    async def _move(self, old: str, new: str, caller: str, *, dry_run: bool) -> MoveResult:
        if old == new:
            raise InputError(f"both names are {old}. Nothing was moved")
        ledger, user_id = self._engine.ledger, self._user_id

        def plan() -> MoveResult:
            with ledger.read() as conn:
                return MoveResult(projects.planned_move(conn, user_id, old, new))

        def work() -> MoveResult:
            backup = ledger.backups.keep("projects", self._engine.clock()).path
            return MoveResult(ledger.move_project(user_id, old, new, caller), backup)

        return await (self._engine.run(plan) if dry_run else self._engine.write(work))

    async def _known(self, project: str) -> str:
        """Return the name of a project. Raises InputError if there is none."""
        name = scope_part("the project", project)
        if await self._holds(name):
            return name
        names = [known.name for known in await self.list()]
        hint = _did_you_mean(name, names) or "palimpsest projects lists them"
        raise InputError(f"there is no project '{name}'. Nothing was moved. {hint}")

    async def _holds(self, project: str) -> bool:
        return any(known.name == project for known in await self.list())


def unknown_project(settings: Settings, clock: Clock, user_id: str, project: str) -> str:
    """Return what `Projects.unknown` does, of a memory that is not open. Raises PalimpsestError. Blocking."""
    if settings.ledger_url is None and not settings.ledger_path.exists():
        return _no_project(user_id, project, ())
    with closing(open_ledger(settings.ledger_place, clock, data_dir=settings.data_dir)) as ledger:
        return _unknown(ledger, user_id, project)


def _unknown(ledger: Ledger, user_id: str, project: str) -> str:
    with ledger.read() as conn:
        if projects.exists_project(conn, user_id, project):
            return ""
        return _no_project(user_id, project, [known.name for known in projects.projects(conn, user_id)])


def _no_project(user_id: str, project: str, names: Sequence[str]) -> str:
    return f"{user_id} has no project '{project}' yet. {_did_you_mean(project, names)}".strip()


def _did_you_mean(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]}?" if close else ""


def in_its_project(settings: Settings, ledger: Ledger) -> Settings:
    """Return settings with the project that the ledger knows: that of the repository, or the name that it has now."""
    repository = settings.repository
    if repository is not None:
        return settings.with_project(ledger.project_of(settings.user_id, repository))
    return settings.with_project(ledger.current_project(settings.user_id, settings.project))


def _note(alias: Alias) -> str:
    """Return the note on an alias."""
    if alias.kind == "remote":
        return f"the git remote of this folder is {alias.alias} now; it stays project {alias.project}"
    if not alias.other_project:
        return f"the folder {alias.alias} was taken for the moved folder of project {alias.project}"
    return (
        f"the folder {alias.alias} is project {alias.project}. It may have been project {alias.other_project} before, "
        "which has memories too. If they are one project, run: palimpsest projects merge "
        f'"{alias.other_project}" "{alias.project}"'
    )
