"""Bring the schema of a ledger up to date, after a backup. Alembic is imported only if the schema is behind."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, text

from palimpsest.core.errors import LedgerError, LedgerTooNewError
from palimpsest.store import contextual_keys
from palimpsest.store.database import Database
from palimpsest.store.schema import HEAD, KNOWN_REVISIONS, meta, metadata
from palimpsest.store.sqlite.ledger_files import Backups

if TYPE_CHECKING:
    from alembic.config import Config


MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Step:
    """A migration: the revision that the schema has afterwards, and what it is for."""

    revision: str
    purpose: str


@dataclass(frozen=True, slots=True)
class PendingMigration:
    """What has to be done to bring a ledger up to date: nothing if there are no `steps`.

    `revision` is that of the schema it has, or None if there is no ledger yet, and `dump_command` copies it.
    """

    location: str
    revision: str | None
    steps: tuple[Step, ...] = ()
    dump_command: str = ""


def upgrade(database: Database, backups: Backups, now: datetime, *, at_opening: bool = True) -> None:
    """Create the tables of an empty database, or migrate an older schema after a backup.

    Raises LedgerTooNewError for the schema of a newer version, and LedgerError for the database of another program and,
    `at_opening`, for an older schema that is not migrated by whoever opens it. Nothing is changed then.
    """
    revision = stored_revision(database)
    if at_opening and revision is not None and revision != HEAD and not database.migrates_when_opened:
        raise LedgerError(
            f"the ledger {database.location} has schema {revision}, and this version needs {HEAD}. Nothing was "
            f"changed. Stop all servers that use it, back it up ({database.dump_command}), and run palimpsest migrate."
        )
    if revision != HEAD:
        _migrate(database, backups, now)


def pending(database: Database) -> PendingMigration:
    """Return what `upgrade` would do. Raises as it."""
    revision = stored_revision(database)
    if revision in (None, HEAD):
        return PendingMigration(database.location, revision)
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - as in `_alembic`

    scripts = ScriptDirectory.from_config(_alembic())
    found = reversed([*scripts.iterate_revisions(HEAD, revision)])
    steps = tuple(Step(each.revision, (each.doc or "").strip()) for each in found)
    return PendingMigration(database.location, revision, steps, database.dump_command)


def stored_revision(database: Database) -> str | None:
    """Return the revision of the schema of a ledger, or None for an empty database. Raises as `upgrade`."""
    with database.read() as conn:
        tables = set(inspect(conn).get_table_names())
        if tables and "alembic_version" not in tables:
            raise LedgerError(
                f"{database.location} is a database of another program. Nothing was changed. "
                "Set data_dir or history_db_path to another place."
            )
        return refuse_newer(conn, database.location) if tables else None


def refuse_newer(conn: Connection, location: str) -> str | None:
    """Return the revision of the schema of a ledger. Raises LedgerTooNewError if a newer version has migrated it."""
    revision = conn.execute(_STORED_REVISION).scalar_one_or_none()
    if revision is not None and revision not in KNOWN_REVISIONS:
        raise LedgerTooNewError(
            f"the ledger {location} has schema {revision}, which this version does not know (it knows up to {HEAD}). "
            "Nothing was changed. Upgrade palimpsest-mcp and start its clients again, or choose another data_dir."
        )
    return revision


_STORED_REVISION = text("SELECT version_num FROM alembic_version")

# As Alembic makes it. It is no part of the schema, because Alembic itself reads and writes it.
_revisions = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def create_tables(conn: Connection, database: Database) -> None:
    """Create the tables of a new ledger in the schema of this version."""
    metadata.create_all(conn, checkfirst=False)  # looking for tables would take a fifth of the time
    database.full_text.create(conn)
    database.finish_schema(conn)
    _revisions.create(conn)
    conn.execute(_revisions.insert().values(version_num=HEAD))


def _migrate(database: Database, backups: Backups, now: datetime) -> None:
    with database.migrating():
        revision = stored_revision(database)
        if revision == HEAD:  # another process was quicker
            return
        if revision is not None and database.migrates_when_opened:
            backups.keep(f"schema-{revision}", now)
        with database.write() as conn, database.without_time_limit(conn):
            if revision is None:
                create_tables(conn, database)
                conn.execute(meta.insert().values(key="ledger_id", value=str(uuid.uuid4())))
            else:
                _run_migrations(conn, database)
                contextual_keys.rebuild_full_text(conn, database.full_text)


def _run_migrations(conn: Connection, database: Database) -> None:
    """Bring the tables of an older schema up to date. A migration that changes what keys are made of writes them."""
    import alembic.command  # noqa: PLC0415 - as in `_alembic`

    config = _alembic()
    config.attributes["connection"] = conn
    alembic.command.upgrade(config, HEAD)
    database.finish_schema(conn)


def _alembic() -> Config:
    from alembic.config import Config  # noqa: PLC0415 - half a second, which only a schema that is behind should cost

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config
