"""Identify projects, and move what is in one to another."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa

from palimpsest.core.git_project import Alias, AliasKind, Move, Project, Repository
from palimpsest.core.models import MOVE, Event, Fact, Memory, Provenance, Scope, name_key
from palimpsest.core.validation import scope_part
from palimpsest.store import contextual_keys, documents, entries, jobs, usage, writes
from palimpsest.store import summaries as summary_queries
from palimpsest.store.database import FullText
from palimpsest.store.entries import Transaction, next_edit_number
from palimpsest.store.graph.identity import merge, roots_of
from palimpsest.store.rows import Query, count, has_row, in_both, to_memory
from palimpsest.store.schema import (
    conversations,
    entities,
    entity_aliases,
    memories,
    memory_sources,
    messages,
    project_aliases,
    recalls,
    summaries,
    vectors,
)
from palimpsest.store.writes import record_message

# Projects: which one a repository is, what they are called, and what they hold.
#
# A project is a name in scopes. Its aliases are in a table, which is written here, too: the roots of its
# repositories, their remotes, and its older names.


# The project of a repository, and the aliases to record for it.
Identified: TypeAlias = tuple[str, tuple[Alias, ...]]


def identify(conn: sa.Connection, user_id: str, repository: Repository) -> Identified:
    """Return the project of a repository. Nothing is written. Raises InputError for a name that no scope can have."""
    if not repository.path:
        paths = (_alias(conn, user_id, "path", path) for path in repository.gone)
        return next((alias.project for alias in paths if alias is not None), ""), ()
    here = _alias(conn, user_id, "path", repository.path)
    if (remote := _by_remote(conn, user_id, repository.remote)) is not None:
        return _known_by_remote(conn, user_id, repository, here, remote)
    return _unknown(conn, user_id, repository) if here is None else _known_by_path(conn, user_id, repository, here)


def current_name(conn: sa.Connection, user_id: str, project: str) -> str:
    """Return the name that a project has now, if this is an older one, else the name as it is."""
    alias = _alias(conn, user_id, "name", project) if project else None
    return project if alias is None else alias.project


def current_scope(conn: sa.Connection, scope: Scope) -> Scope:
    """Return a scope with the name that its project has now."""
    return replace(scope, project=current_name(conn, scope.user_id, scope.project))


def unreported(conn: sa.Connection, user_id: str, project: str) -> list[Alias]:
    """Return the aliases of a project that a reply should tell of, and that none has told of."""
    query = sa.select(project_aliases).filter_by(user_id=user_id, project=project, reported=False)
    return [_to_alias(row) for row in conn.execute(query)]


def aliases(conn: sa.Connection, user_id: str) -> list[Alias]:
    """Return all aliases of a user's projects."""
    columns = project_aliases.c
    query = sa.select(project_aliases).filter_by(user_id=user_id)
    return [_to_alias(row) for row in conn.execute(query.order_by(columns.project, columns.kind.desc(), columns.alias))]


def projects(conn: sa.Connection, user_id: str) -> list[Project]:
    """Return the projects of a user that hold something or have aliases, by name."""
    found: dict[str, Project] = {}
    for alias in aliases(conn, user_id):
        project = found.get(alias.project) or Project(alias.project, ())
        found[project.name] = replace(project, aliases=(*project.aliases, alias))
    for table, used_at in ((memories, memories.c.updated_at), (messages, messages.c.created_at)):
        of_project = (table.c.user_id == user_id, table.c.project != "", table.c.deleted_at.is_(None))
        counts = sa.select(table.c.project, sa.func.count(), sa.func.max(used_at)).where(*of_project)
        for name, number, at in conn.execute(counts.group_by(table.c.project)):
            project = found.get(name) or Project(name, ())
            found[name] = replace(project, used_at=max(project.used_at or at, at), **{table.name: number})
    return [found[name] for name in sorted(found)]


def planned_move(conn: sa.Connection, user_id: str, old: str, new: str) -> Move:
    """Return what a move takes along."""
    counts = [count(conn, table.c.user_id == user_id, table.c.project == old) for table in (memories, messages)]
    same = [len(query(conn, user_id, old, new)) for query in (_same_memories, _same_messages)]
    return Move(old, new, counts[0], counts[1], same[0], same[1])


def _same_memories(conn: sa.Connection, user_id: str, old: str, new: str) -> Sequence[Any]:
    """Return the living memories of two projects that say the same: the id in the old and in the new one."""
    ours, theirs, is_same = in_both(memories, ("content_hash",), user_id, old, new)
    query = sa.select(ours.c.id, theirs.c.id).where(is_same, ours.c.deleted_at.is_(None), theirs.c.deleted_at.is_(None))
    return conn.execute(query.order_by(ours.c.seq)).all()


def _same_messages(conn: sa.Connection, user_id: str, old: str, new: str) -> Sequence[Any]:
    """Return the messages that a caller stored in two projects: the id in the old and in the new one."""
    ours, theirs, is_same = in_both(messages, ("external_id", "content_hash"), user_id, old, new)
    query = sa.select(ours.c.id, theirs.c.id).where(is_same, ours.c.external_id != "")
    return conn.execute(query.order_by(ours.c.seq)).all()


def has_content(conn: sa.Connection, user_id: str, project: str) -> bool:
    """Return whether a project has memories or messages, living or deleted."""
    stored = (sa.select(table.c.seq).filter_by(user_id=user_id, project=project) for table in (memories, messages))
    return any(has_row(conn, query) for query in stored)


def project_names(conn: sa.Connection, user_id: str) -> list[str]:
    """Return the projects in which a user has something living; "" stands for no project."""
    stored = (sa.select(table.c.project).filter_by(user_id=user_id, deleted_at=None) for table in (memories, messages))
    return sorted(conn.execute(sa.union(*stored)).scalars())


def exists_project(conn: sa.Connection, user_id: str, project: str) -> bool:
    """Return whether a name is that of a project, or was."""
    columns = project_aliases.c
    is_name = sa.or_(columns.project == project, sa.and_(columns.kind == "name", columns.alias == project))
    known = sa.select(columns.alias).where(columns.user_id == user_id, is_name)
    return has_row(conn, known) or has_content(conn, user_id, project)


# The columns of an item of an export, besides the time.
ITEM = ("kind", "alias", "project", "repository_created")


def record(conn: sa.Connection, user_id: str, aliases: Sequence[Alias], now: datetime) -> None:
    """Store aliases. One that is known belongs to its new project from now on."""
    for alias in aliases:
        known = sa.update(project_aliases).filter_by(user_id=user_id, kind=alias.kind, alias=alias.alias)
        if not conn.execute(known.values(**asdict(alias))).rowcount:
            conn.execute(sa.insert(project_aliases).values(user_id=user_id, **asdict(alias), created_at=now))


def is_known(conn: sa.Connection, user_id: str, item: Mapping[str, Any]) -> bool:
    """Return whether the ledger has the alias of an item of an export.

    One of another project in which nothing is stored does not count: a folder was opened before its memory came. A
    project that has content here is not an older name of another one: its memories would be found nowhere.
    """
    if item["kind"] == "name" and has_content(conn, user_id, item["alias"]):
        return True
    known = _alias(conn, user_id, item["kind"], item["alias"])
    return known is not None and (known.project == item["project"] or has_content(conn, user_id, known.project))


def store_item(conn: sa.Connection, user_id: str, item: Mapping[str, Any]) -> bool:
    """Store the alias of an item of an export, unless it is known. Return whether it is new."""
    if is_known(conn, user_id, item):
        return False
    kind, alias, project, created = (item[name] for name in ITEM)
    record(conn, user_id, [Alias(kind, alias, project, repository_created=created)], item["created_at"])
    return True


def mark_reported(conn: sa.Connection, user_id: str, aliases: Sequence[Alias]) -> None:
    """Record that a reply has told of aliases, unless they belong to another project since."""
    for alias in aliases:
        same = {"user_id": user_id, **{name: getattr(alias, name) for name in ("kind", "alias", "project")}}
        conn.execute(sa.update(project_aliases).filter_by(**same).values(reported=True))


def _unknown(conn: sa.Connection, user_id: str, repository: Repository) -> Identified:
    """Return the project of a repository of which neither the path nor the remote is known."""
    folder, remote = repository.names[0], repository.remote
    # Somebody may have named the project by its folder before the folder was opened.
    unclaimed = _unclaimed(conn, user_id, folder) or _unclaimed(conn, user_id, repository.checkout)
    if remote:
        here = _path(repository, remote, unclaimed, reported=not unclaimed)
        return scope_part("project", remote), (here, Alias("remote", remote, remote))
    if unclaimed:
        return scope_part("project", unclaimed), (_path(repository, unclaimed),)
    free = (name for name in repository.names if not exists_project(conn, user_id, name))
    name = scope_part("project", next(free, repository.path))
    taken = folder if name != folder and has_content(conn, user_id, folder) else ""
    return name, (_path(repository, name, taken, reported=not taken),)


def _known_by_path(conn: sa.Connection, user_id: str, repository: Repository, here: Alias) -> Identified:
    """Return the project of a repository at a known path, whose remote, if it has one, is new."""
    if not (remote := repository.remote):
        return here.project, ()
    if _is_another(here, repository) and _has_alias(conn, user_id, here.project, "remote"):
        return scope_part("project", remote), (_path(repository, remote), Alias("remote", remote, remote))
    return here.project, (Alias("remote", remote, here.project, reported=False),)


def _known_by_remote(
    conn: sa.Connection, user_id: str, repository: Repository, here: Alias | None, remote: Alias
) -> Identified:
    """Return the project of a repository whose remote is known, also if its path belongs to another project.

    Only if nothing is stored in the project of the remote, the remote goes to that of the path. A remote that was
    recognized by the project's name only is recorded too.
    """
    new: tuple[Alias, ...] = (_path(repository, remote.project),)
    if here is not None and here.project == remote.project:
        new = () if here.repository_created == repository.created else new
    elif here is not None and not _is_another(here, repository) and has_content(conn, user_id, here.project):
        if not has_content(conn, user_id, remote.project):
            return here.project, (Alias("remote", repository.remote, here.project, reported=False),)
        new = (_path(repository, remote.project, here.project, reported=False),)
    return remote.project, new if remote.kind == "remote" else (*new, replace(remote, kind="remote"))


def _by_remote(conn: sa.Connection, user_id: str, remote: str) -> Alias | None:
    """Return the alias of a remote. A project that is named like the remote has it too."""
    if not remote:
        return None
    known = _alias(conn, user_id, "remote", remote) or _alias(conn, user_id, "name", remote)
    return Alias("name", remote, remote) if known is None and has_content(conn, user_id, remote) else known


def _is_another(here: Alias, repository: Repository) -> bool:
    """Return whether another repository was at a path before, as the times of their creation tell."""
    created = (here.repository_created, repository.created)
    return all(created) and created[0] != created[1]


def _unclaimed(conn: sa.Connection, user_id: str, name: str) -> str:
    """Return the project of a name if something is stored in it and it belongs to no repository yet, else ""."""
    project = current_name(conn, user_id, name)
    is_claimed = _has_alias(conn, user_id, project, "path", "remote")
    return project if not is_claimed and has_content(conn, user_id, project) else ""


def _has_alias(conn: sa.Connection, user_id: str, project: str, *kinds: AliasKind) -> bool:
    of_project = sa.select(project_aliases.c.alias).filter_by(user_id=user_id, project=project)
    return has_row(conn, of_project.where(project_aliases.c.kind.in_(kinds)))


def _path(repository: Repository, project: str, other_project: str = "", *, reported: bool = True) -> Alias:
    return Alias("path", repository.path, project, other_project, repository.created, reported)


def _alias(conn: sa.Connection, user_id: str, kind: AliasKind, alias: str) -> Alias | None:
    query = sa.select(project_aliases).filter_by(user_id=user_id, kind=kind, alias=alias)
    row = conn.execute(query).one_or_none()
    return None if row is None else _to_alias(row)


def _to_alias(row: sa.Row[Any]) -> Alias:
    return Alias(row.kind, row.alias, row.project, row.other_project, row.repository_created, row.reported)


# Find entities of a user's project by their name and type: those that an import or a move takes for the same.


def namesakes(conn: sa.Connection, user_id: str, project: str, name: str, entity_type: str) -> list[sa.Row[Any]]:
    """Return the entities of exactly this project that have a name and a type that fits, oldest first.

    "other" fits every type, because it is not known then. Entities that were merged are left out, and the user's own.
    """
    rows = conn.execute(_BY_NAME, {"user_id": user_id, "project": project, "key": name_key(name)})
    return [row for row in rows if row.type == entity_type or "other" in (row.type, entity_type)]


_BY_NAME: Query = (
    sa.select(entities.c.id, entities.c.type)
    .join(entity_aliases, entity_aliases.c.entity_id == entities.c.id)
    .where(
        *(entity_aliases.c[name] == sa.bindparam(name) for name in ("user_id", "key")),
        entities.c.project == sa.bindparam("project"),
        entities.c.merged_into.is_(None),
        entities.c.is_user.is_(False),
    )
    .order_by(entities.c.seq)
)


# Move the entities of a project to another one, where those of one name and a type that fits become one.


def move_entities(tx: Transaction, old: str) -> None:
    """Give the entities of a project to the project of the tx. Those that are the same there become one.

    Global entities, such as the user's own, belong to no project and stay.
    """
    of_project = {"user_id": tx.scope.user_id, "project": old}
    for row in tx.conn.execute(sa.select(entities).filter_by(**of_project).order_by(entities.c.seq)).all():
        if row.merged_into is None:
            _merge_with_namesake(tx, row)
    tx.conn.execute(sa.update(entities).filter_by(**of_project).values(project=tx.scope.project))


def _merge_with_namesake(tx: Transaction, row: sa.Row[Any]) -> None:
    """Merge an entity into the one of the new project that is the same, unless two of either project may be meant."""
    ours, theirs = (
        namesakes(tx.conn, row.user_id, project, row.name, row.type) for project in (row.project, tx.scope.project)
    )
    if len(theirs) == 1 and all(other.id == row.id for other in ours):
        roots = roots_of(tx.conn, [row.id, theirs[0].id])
        merge(tx, roots[row.id], roots[theirs[0].id])


# How projects change inside a transaction: aliases are recorded, and everything in a project moves to another.
#
# A move changes scopes, which the history does not keep, so an undo cannot take it back. The caller makes a backup
# first.

# The tables with scopes, apart from that of the jobs, of which a scope may have only one that is not done.
SCOPED_TABLES = (memories, messages, vectors, summaries, conversations, recalls)


def move(
    conn: sa.Connection, full_text: FullText, user_id: str, old: str, new: str, caller: str, now: datetime
) -> Move:
    """Move everything in a project to another, which also gets its aliases and its name as an older name."""
    planned = planned_move(conn, user_id, old, new)
    is_merge = has_content(conn, user_id, new)
    touched = entries.TouchedEntries()
    provenance = Provenance(MOVE, caller=caller)
    tx = Transaction(conn, Scope(user_id, new), provenance, now, next_edit_number(conn), touched)
    _merge_messages(tx, old, new)
    _merge_memories(tx, old, new)
    _merge_documents(tx, old, new)
    _merge_conversations(conn, user_id, old, new)
    if is_merge:  # each would be taken for one of both projects
        of_old = sa.select(summaries.c.id).filter_by(user_id=user_id, project=old)
        summary_queries.erase_of(conn, conn.execute(of_old).scalars().all())
    for table, ids in ((memories, touched.memories), (messages, touched.messages)):
        ids.update(conn.execute(sa.select(table.c.id).filter_by(user_id=user_id, project=old)).scalars())
    for table in SCOPED_TABLES:
        conn.execute(sa.update(table).filter_by(user_id=user_id, project=old).values(project=new))
    move_entities(tx, old)
    jobs.move(conn, user_id, old, new)
    _move_aliases(conn, user_id, old, new, now)
    contextual_keys.index(conn, full_text, touched, now)
    return planned


def _move_aliases(conn: sa.Connection, user_id: str, old: str, new: str, now: datetime) -> None:
    columns = project_aliases.c
    of_user = columns.user_id == user_id
    conn.execute(sa.update(project_aliases).where(of_user, columns.project == old).values(project=new))
    # What a note would say of these two has been decided.
    settled = sa.and_(columns.project == new, columns.other_project.in_((old, new)))
    conn.execute(sa.update(project_aliases).where(of_user, settled).values(other_project="", reported=True))
    conn.execute(sa.update(project_aliases).where(of_user, columns.other_project == old).values(other_project=new))
    record(conn, user_id, [Alias("name", old, new)], now)
    conn.execute(sa.delete(project_aliases).where(of_user, columns.kind == "name", columns.alias == new))


def _merge_messages(tx: Transaction, old: str, new: str) -> None:
    """Keep one of two messages that a caller stored in both projects: the one that is not deleted."""
    for pair in _same_messages(tx.conn, tx.scope.user_id, old, new):
        rows = {row.id: row for row in tx.conn.execute(sa.select(messages).where(messages.c.id.in_(pair)))}
        ours, theirs = (rows[message_id] for message_id in pair)
        kept, other = (ours, theirs) if theirs.deleted_at is not None and ours.deleted_at is None else (theirs, ours)
        _cite_instead(tx, other.id, kept.id)
        learnt = kept.learnt or other.learnt
        tx.conn.execute(sa.update(messages).where(messages.c.id == kept.id).values(learnt=learnt))
        # Of messages with the same id of their caller, a scope has one.
        values = {"external_id": "", "deleted_at": other.deleted_at or tx.now}
        tx.conn.execute(sa.update(messages).where(messages.c.id == other.id).values(**values))
        if other.deleted_at is None:
            record_message(tx, Event.DELETE, other.id)
        jobs.replace_owner(tx.conn, tx.scope.user_id, other.id, kept.id)


def _cite_instead(tx: Transaction, message_id: str, kept_id: str) -> None:
    """Let memories cite a message in place of another."""
    columns = memory_sources.c
    citing = set(tx.conn.execute(sa.select(columns.memory_id).where(columns.message_id == message_id)).scalars())
    known = set(tx.conn.execute(sa.select(columns.memory_id).where(columns.message_id == kept_id)).scalars())
    of_message = columns.message_id == message_id
    tx.conn.execute(sa.delete(memory_sources).where(of_message, columns.memory_id.in_(citing & known)))
    tx.conn.execute(sa.update(memory_sources).where(of_message).values(message_id=kept_id))
    tx.touched.memories.update(citing)
    tx.touched.messages.add(kept_id)


# What a memory gives to the one in whose favour it is closed, as it has it.
_GIVEN = ("happened_precision", "valid_from_precision", "keywords", "tags", "entities", "relations")


def _merge_memories(tx: Transaction, old: str, new: str) -> None:
    """Close memories in favour of those of the new project that say the same, which take over what these lack."""
    for old_id, new_id in _same_memories(tx.conn, tx.scope.user_id, old, new):
        ours, theirs = _memory(tx, old_id), _memory(tx, new_id)
        of_memory = memory_sources.c.memory_id == ours.id
        sources = tuple(tx.conn.execute(sa.select(memory_sources.c.message_id).where(of_memory)).scalars())
        lacking = Fact(
            theirs.text,
            sources,
            happened_at=None if theirs.happened_at else ours.happened_at,
            metadata={key: value for key, value in ours.metadata.items() if key not in theirs.metadata},
            said_at=ours.stated_at,
            valid_from=None if theirs.valid_from else ours.valid_from,
            **{name: getattr(ours, name) for name in _GIVEN},
        )
        writes.change(tx, theirs, lacking)
        usage.give(tx.conn, ours.id, theirs.id)
        writes.replace_by(tx, ours, _memory(tx, new_id))
        jobs.replace_owner(tx.conn, tx.scope.user_id, old_id, new_id)


def _merge_documents(tx: Transaction, old: str, new: str) -> None:
    """Make one document of two of the same source. Where both have a page, that of the older one is deleted."""
    for ours, theirs in documents.of_same_source(tx.conn, tx.scope.user_id, old, new):
        for page in documents.outdated_pages(tx.conn, tx.scope.user_id, (old, ours), (new, theirs)):
            tx.conn.execute(sa.update(messages).where(messages.c.id == page).values(deleted_at=tx.now))
            record_message(tx, Event.DELETE, page)
        of_user = (messages.c.user_id == tx.scope.user_id, messages.c.project.in_((old, new)))
        in_ours, in_theirs = messages.c.session_id == ours, messages.c.session_id == theirs
        tx.conn.execute(sa.update(messages).where(*of_user, in_ours).values(session_id=theirs))
        tx.touched.messages.update(tx.conn.execute(sa.select(messages.c.id).where(*of_user, in_theirs)).scalars())
        row = {"user_id": tx.scope.user_id, "project": old, "session_id": ours}
        tx.conn.execute(sa.delete(conversations).filter_by(**row))


def _merge_conversations(conn: sa.Connection, user_id: str, old: str, new: str) -> None:
    """Keep one row of a session that was held in both projects, with a title if one of them has it."""
    ours, theirs, is_same = in_both(conversations, ("session_id",), user_id, old, new)
    kept = (theirs.c.seq.label("kept"), theirs.c.title.label("kept_title"))
    query = sa.select(ours.c.seq, ours.c.title, *kept).where(is_same)
    for row in conn.execute(query).all():
        is_kept = conversations.c.seq == row.kept
        conn.execute(sa.update(conversations).where(is_kept).values(title=row.kept_title or row.title))
        conn.execute(sa.delete(conversations).where(conversations.c.seq == row.seq))


def _memory(tx: Transaction, memory_id: str) -> Memory:
    return to_memory(tx.conn.execute(sa.select(memories).where(memories.c.id == memory_id)).one())
