"""Bring the schema of a ledger up to date, after a backup. Alembic is imported only if the schema is behind."""

from __future__ import annotations

import uuid
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from palimpsest.core.errors import LedgerError, LedgerTooNewError
from palimpsest.store.database.protocols import Database
from palimpsest.store.schema import HEAD, KNOWN_REVISIONS, meta
from palimpsest.store.writes import entries, notices

MIGRATIONS = Path(__file__).parent


def upgrade(database: Database, now: datetime) -> None:
    """Create the tables of an empty database, or migrate an older schema after a backup.

    Raises LedgerTooNewError for the schema of a newer version and LedgerError for the database of another program.
    Nothing is changed then.
    """
    with database.read() as conn:
        revision = _revision(conn, database.location)
    _refuse_unknown(revision, database.location)
    if revision != HEAD:
        _migrate(database, now)


def refuse_newer(conn: Connection, location: str) -> None:
    """Raise LedgerTooNewError if a newer version has migrated the schema since the ledger was opened."""
    _refuse_unknown(conn.execute(_STORED_REVISION).scalar_one_or_none(), location)


_STORED_REVISION = text("SELECT version_num FROM alembic_version")


def _refuse_unknown(revision: str | None, location: str) -> None:
    if revision is not None and revision not in KNOWN_REVISIONS:
        raise LedgerTooNewError(
            f"the ledger {location} has schema {revision}, which this version does not know (it knows up to {HEAD}). "
            "Nothing was changed. Upgrade palimpsest-mcp and start its clients again, or choose another data_dir."
        )


def _revision(conn: Connection, location: str) -> str | None:
    """Return the revision of the schema, or None for an empty database. Raises LedgerError for a foreign one."""
    tables = set(inspect(conn).get_table_names())
    if "alembic_version" in tables:
        revision = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one_or_none()
        if revision is not None:
            return str(revision)
    elif tables:
        raise LedgerError(
            f"{location} is a database of another program. Nothing was changed. "
            "Set data_dir or history_db_path to another place."
        )
    return None


def _migrate(database: Database, now: datetime) -> None:
    import alembic.command  # noqa: PLC0415 - takes half a second, which only a schema that is behind should cost
    import alembic.config  # noqa: PLC0415 - likewise

    with database.migrating():
        with database.read() as conn:
            revision = _revision(conn, database.location)
        if revision == HEAD:  # another process was quicker
            return
        if revision is not None:
            database.backups.keep(f"schema-{revision}", now)
        config = alembic.config.Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.set_main_option("recursive_version_locations", "true")
        with database.write() as conn:
            config.attributes["connection"] = conn
            config.attributes["full_text"] = database.full_text
            alembic.command.upgrade(config, HEAD)
            database.finish_schema(conn)
            entries.rebuild(conn, database.full_text, now)
            if revision is None:
                conn.execute(meta.insert().values(key="ledger_id", value=str(uuid.uuid4())))
                for key in notices.IN_NEW_LEDGERS:
                    notices.mark_told(conn, key)
