"""Projects: which one a repository is, what they are called, and what they hold.

A project is a name in scopes. Its aliases are in a table, which is written here, too: the roots of its repositories,
their remotes, and its older names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    and_,
    exists,
    func,
    insert,
    literal,
    select,
    union,
    union_all,
    update,
)

from palimpsest.core.clock import exact_iso
from palimpsest.core.git_project import Alias, AliasKind, Move, Project, Repository
from palimpsest.core.validation import scope_part
from palimpsest.store.mapping import Query
from palimpsest.store.schema import memories, messages, project_aliases


@dataclass(frozen=True, slots=True)
class Identified:
    """The project of a repository, and the aliases to record for it."""

    project: str
    new_aliases: tuple[Alias, ...] = ()


def identify(conn: Connection, user_id: str, repository: Repository, missing: AbstractSet[str]) -> Identified:
    """Return the project of a repository. Nothing is written.

    `missing` are those of `claimed_paths` that do not exist any more. Raises InputError for a name that is not valid
    in a scope.
    """
    if not repository.path:
        paths = (_alias(conn, user_id, "path", path) for path in repository.gone)
        return Identified(next((alias.project for alias in paths if alias is not None), ""))
    here = _alias(conn, user_id, "path", repository.path)
    remote = _by_remote(conn, user_id, repository.remote)
    if remote is None:
        if here is None:
            return _unknown(conn, user_id, repository, missing)
        return _known_by_path(conn, user_id, repository, here)
    if here is None:
        return _identified(remote.project, (_path(repository, remote.project),), remote)
    if here.project == remote.project:
        is_current = here.repository_created == repository.created
        return _identified(remote.project, () if is_current else (_path(repository, here.project),), remote)
    return _contradictory(conn, user_id, repository, here, remote)


def claimed_paths(conn: Connection, user_id: str, repository: Repository) -> list[str]:
    """Return the paths of other repositories whose project has the name that this one would get."""
    query = select(project_aliases.c.alias).where(
        *_of_project(user_id, repository.project),
        project_aliases.c.kind == "path",
        project_aliases.c.alias != repository.path,
    )
    return list(conn.execute(query).scalars())


def current_name(conn: Connection, user_id: str, project: str) -> str:
    """Return the name that a project has now, if this is an older one, else the name as it is."""
    alias = _alias(conn, user_id, "name", project) if project else None
    return project if alias is None else alias.project


def unreported(conn: Connection, user_id: str, project: str) -> list[Alias]:
    """Return the aliases of a project that a reply should tell of, and that none has told of."""
    query = select(project_aliases).where(*_of_project(user_id, project), project_aliases.c.reported.is_(False))
    return [_to_alias(row) for row in conn.execute(query)]


def aliases(conn: Connection, user_id: str) -> list[Alias]:
    """Return all aliases of a user's projects."""
    table = project_aliases
    query = (
        select(table).where(table.c.user_id == user_id).order_by(table.c.project, table.c.kind.desc(), table.c.alias)
    )
    return [_to_alias(row) for row in conn.execute(query)]


def projects(conn: Connection, user_id: str) -> list[Project]:
    """Return the projects of a user that hold something or have aliases, by name."""
    of_project: dict[str, list[Alias]] = {}
    for alias in aliases(conn, user_id):
        of_project.setdefault(alias.project, []).append(alias)
    stored = union_all(_stored(memories, "updated_at", user_id), _stored(messages, "created_at", user_id)).subquery()
    counts = select(
        stored.c.project, func.sum(stored.c.memories), func.sum(stored.c.messages), func.max(stored.c.used_at)
    ).group_by(stored.c.project)
    found = {name: Project(name, tuple(own)) for name, own in of_project.items()}
    for name, *counted, used_at in conn.execute(counts):
        project = found.get(name) or Project(name, ())
        found[name] = replace(project, memories=counted[0], messages=counted[1], used_at=used_at)
    return [found[name] for name in sorted(found)]


def planned_move(conn: Connection, user_id: str, old: str, new: str) -> Move:
    """Return what a move takes along."""
    counts = [
        conn.execute(select(func.count()).where(table.c.user_id == user_id, table.c.project == old)).scalar_one()
        for table in (memories, messages)
    ]
    same = [len(conn.execute(query(user_id, old, new)).all()) for query in (same_memories, same_messages)]
    return Move(old, new, counts[0], counts[1], same[0], same[1])


def same_memories(user_id: str, old: str, new: str) -> Query:
    """Return the query for living memories of two projects that say the same: the id in the old and in the new one."""
    ours, theirs = memories.alias(), memories.alias()
    living = (ours.c.deleted_at.is_(None), theirs.c.deleted_at.is_(None))
    return (
        select(ours.c.id, theirs.c.id)
        .join(theirs, and_(*(ours.c[name] == theirs.c[name] for name in (*_OWNER, "content_hash"))))
        .where(ours.c.user_id == user_id, ours.c.project == old, theirs.c.project == new, *living)
        .order_by(ours.c.seq)
    )


def same_messages(user_id: str, old: str, new: str) -> Query:
    """Return the query for messages that a caller stored in two projects: the id in the old and in the new one."""
    ours, theirs = messages.alias(), messages.alias()
    return (
        select(ours.c.id, theirs.c.id)
        .join(theirs, and_(*(ours.c[name] == theirs.c[name] for name in (*_OWNER, "external_id", "content_hash"))))
        .where(ours.c.user_id == user_id, ours.c.project == old, theirs.c.project == new, ours.c.external_id != "")
        .order_by(ours.c.seq)
    )


_OWNER = ("user_id", "agent_id", "run_id")


def has_content(conn: Connection, user_id: str, project: str) -> bool:
    """Return whether a project has memories or messages, living or deleted."""
    of_project = [
        select(literal(1)).where(table.c.user_id == user_id, table.c.project == project).limit(1)
        for table in (memories, messages)
    ]
    return any(conn.execute(query).first() is not None for query in of_project)


def project_names(conn: Connection, user_id: str) -> list[str]:
    """Return the projects in which a user has something living; "" stands for no project."""
    stored = [
        select(table.c.project).where(table.c.user_id == user_id, table.c.deleted_at.is_(None))
        for table in (memories, messages)
    ]
    return sorted(conn.execute(union(*stored)).scalars())


def exists_project(conn: Connection, user_id: str, project: str) -> bool:
    """Return whether a name is that of a project, or was."""
    table = project_aliases
    is_name = (table.c.kind == "name") & (table.c.alias == project)
    known = select(exists().where(table.c.user_id == user_id, (table.c.project == project) | is_name))
    return bool(conn.execute(known).scalar_one()) or has_content(conn, user_id, project)


ITEM = ("kind", "alias", "project", "repository_created")
"""The columns of an item of an export, besides the time."""


def record(conn: Connection, user_id: str, aliases: Sequence[Alias], now: datetime) -> None:
    """Store aliases. One that is known belongs to its new project from now on."""
    for alias in aliases:
        values = {
            "project": alias.project,
            "other_project": alias.other_project,
            "repository_created": alias.repository_created,
            "reported": alias.reported,
        }
        known = update(project_aliases).where(_is(user_id, alias)).values(**values)
        if not conn.execute(known).rowcount:
            key = {"user_id": user_id, "kind": alias.kind, "alias": alias.alias}
            conn.execute(insert(project_aliases).values(**key, **values, created_at=now))


def items_of_user(conn: Connection, user_id: str) -> list[dict[str, Any]]:
    """Return the aliases of a user's projects as items of an export."""
    table = project_aliases
    query = select(table).where(table.c.user_id == user_id).order_by(table.c.kind, table.c.alias)
    return [
        {
            "type": "alias",
            **dict.fromkeys(("agent_id", "run_id"), ""),
            **{name: getattr(row, name) for name in ITEM},
            "created_at": exact_iso(row.created_at),
        }
        for row in conn.execute(query)
    ]


def is_known(conn: Connection, user_id: str, item: Mapping[str, Any]) -> bool:
    """Return whether the ledger has the alias of an item of an export.

    One of another project in which nothing is stored does not count: a folder was opened before its memory came. A
    project that has content here is not an older name of another one: its memories would be found nowhere.
    """
    if item["kind"] == "name" and has_content(conn, user_id, item["alias"]):
        return True
    key = (project_aliases.c.kind == item["kind"], project_aliases.c.alias == item["alias"])
    query = select(project_aliases.c.project).where(project_aliases.c.user_id == user_id, *key)
    project = conn.execute(query).scalar()
    return project is not None and (project == item["project"] or has_content(conn, user_id, project))


def store_item(conn: Connection, user_id: str, item: Mapping[str, Any]) -> bool:
    """Store the alias of an item of an export, unless it is known. Return whether it is new."""
    if is_known(conn, user_id, item):
        return False
    kind, alias, project, created = (item[name] for name in ITEM)
    record(conn, user_id, [Alias(kind, alias, project, repository_created=created)], item["created_at"])
    return True


def mark_reported(conn: Connection, user_id: str, aliases: Sequence[Alias]) -> None:
    """Record that a reply has told of aliases, unless they belong to another project since."""
    for alias in aliases:
        is_same = and_(_is(user_id, alias), project_aliases.c.project == alias.project)
        conn.execute(update(project_aliases).where(is_same).values(reported=True))


def _unknown(conn: Connection, user_id: str, repository: Repository, missing: AbstractSet[str]) -> Identified:
    """Return the project of a repository of which neither the path nor the remote is known."""
    folder, remote = repository.names[0], repository.remote
    # Before there were aliases, the name of the folder was the project if there was no remote.
    unclaimed = _unclaimed(conn, user_id, folder) or _unclaimed(conn, user_id, repository.checkout)
    if remote:
        here = _path(repository, remote, unclaimed, reported=not unclaimed)
        return Identified(scope_part("project", remote), (here, Alias("remote", remote, remote)))
    if unclaimed:
        return Identified(scope_part("project", unclaimed), (_path(repository, unclaimed),))
    moved_from = _moved_from(conn, user_id, repository, missing)
    if moved_from is not None:
        return Identified(moved_from.project, (_path(repository, moved_from.project, reported=False),))
    free = (name for name in repository.names if not exists_project(conn, user_id, name))
    name = scope_part("project", next(free, repository.path))
    taken = folder if name != folder and has_content(conn, user_id, folder) else ""
    return Identified(name, (_path(repository, name, taken, reported=not taken),))


def _known_by_path(conn: Connection, user_id: str, repository: Repository, here: Alias) -> Identified:
    """Return the project of a repository at a known path, whose remote, if it has one, is new."""
    remote = repository.remote
    if not remote:
        return Identified(here.project)
    if _is_another(here, repository) and _has_remote(conn, user_id, here.project):
        return Identified(scope_part("project", remote), (_path(repository, remote), Alias("remote", remote, remote)))
    return Identified(here.project, (Alias("remote", remote, here.project, reported=False),))


def _contradictory(conn: Connection, user_id: str, repository: Repository, here: Alias, remote: Alias) -> Identified:
    """Return the project of a repository whose path and remote belong to two projects: that of the remote.

    Only if nothing is stored in that one, the remote goes to the project of the path.
    """
    if _is_another(here, repository) or not has_content(conn, user_id, here.project):
        return _identified(remote.project, (_path(repository, remote.project),), remote)
    if not has_content(conn, user_id, remote.project):
        return Identified(here.project, (Alias("remote", repository.remote, here.project, reported=False),))
    return _identified(remote.project, (_path(repository, remote.project, here.project, reported=False),), remote)


def _identified(project: str, new_aliases: tuple[Alias, ...], remote: Alias) -> Identified:
    """Return the project of a remote, which is recorded too if it was recognized by the project's name only."""
    return Identified(
        project, new_aliases if remote.kind == "remote" else (*new_aliases, replace(remote, kind="remote"))
    )


def _by_remote(conn: Connection, user_id: str, remote: str) -> Alias | None:
    """Return the alias of a remote. Before there were aliases, the remote was the name of its project."""
    if not remote:
        return None
    known = _alias(conn, user_id, "remote", remote) or _alias(conn, user_id, "name", remote)
    if known is None and has_content(conn, user_id, remote):
        return Alias("name", remote, remote)
    return known


def _moved_from(conn: Connection, user_id: str, repository: Repository, missing: AbstractSet[str]) -> Alias | None:
    """Return the alias of a folder of the same name that is gone, if this is probably the same repository."""
    if not missing or _has_remote(conn, user_id, repository.project):
        return None
    paths = (_alias(conn, user_id, "path", path) for path in claimed_paths(conn, user_id, repository))
    claims = [alias for alias in paths if alias is not None]
    is_gone = all(alias.alias in missing and not _is_another(alias, repository) for alias in claims)
    return claims[0] if claims and is_gone else None


def _is_another(here: Alias, repository: Repository) -> bool:
    """Return whether another repository was at a path before, as the times of their creation tell."""
    created = (here.repository_created, repository.created)
    return all(created) and created[0] != created[1]


def _unclaimed(conn: Connection, user_id: str, name: str) -> str:
    """Return the project of a name if something is stored in it and it belongs to no repository yet, else ""."""
    project = current_name(conn, user_id, name)
    of_repository = project_aliases.c.kind.in_(("path", "remote"))
    claimed = select(literal(1)).where(*_of_project(user_id, project), of_repository).limit(1)
    is_free = conn.execute(claimed).first() is None and has_content(conn, user_id, project)
    return project if is_free else ""


def _has_remote(conn: Connection, user_id: str, project: str) -> bool:
    of_kind = project_aliases.c.kind == "remote"
    return conn.execute(select(literal(1)).where(*_of_project(user_id, project), of_kind).limit(1)).first() is not None


def _path(repository: Repository, project: str, other_project: str = "", *, reported: bool = True) -> Alias:
    return Alias("path", repository.path, project, other_project, repository.created, reported)


def _alias(conn: Connection, user_id: str, kind: AliasKind, alias: str) -> Alias | None:
    table = project_aliases
    query = select(table).where(table.c.user_id == user_id, table.c.kind == kind, table.c.alias == alias)
    row = conn.execute(query).one_or_none()
    return None if row is None else _to_alias(row)


def _to_alias(row: Row[Any]) -> Alias:
    return Alias(row.kind, row.alias, row.project, row.other_project, row.repository_created, row.reported)


def _of_project(user_id: str, project: str) -> tuple[ColumnElement[bool], ...]:
    return project_aliases.c.user_id == user_id, project_aliases.c.project == project


def _stored(table: Table, used_at: str, user_id: str) -> Query:
    """Return the query for how many living rows a table has in each project, and when the last one changed."""
    count, none = func.count(), literal(0)
    return (
        select(
            table.c.project,
            (count if table is memories else none).label("memories"),
            (count if table is messages else none).label("messages"),
            func.max(table.c[used_at]).label("used_at"),
        )
        .where(table.c.user_id == user_id, table.c.project != "", table.c.deleted_at.is_(None))
        .group_by(table.c.project)
    )


def _is(user_id: str, alias: Alias) -> Any:
    columns = project_aliases.c
    return and_(columns.user_id == user_id, columns.kind == alias.kind, columns.alias == alias.alias)
