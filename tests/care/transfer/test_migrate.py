"""Migrating the schema: a file when it is opened, a shared database only by a person who has stopped its servers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import alembic.command
import alembic.config
import pytest
from pydantic import SecretStr

from palimpsest.core.errors import LedgerError
from palimpsest.store.ledger import open_database, open_ledger
from palimpsest.store.schema import HEAD
from palimpsest.store.upgrade import MIGRATIONS
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.ledger_files import downgrade
from tests.support.memory import StoppedClock

OLDER = "0012"

pytestmark = [pytest.mark.postgres, pytest.mark.only_on("sqlite", "they name their databases themselves")]


@pytest.fixture
def older(database: SecretStr) -> SecretStr:
    """Give a database with an older schema."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("recursive_version_locations", "true")
    with closing(open_database(database)) as opened, opened.write() as conn:
        config.attributes["connection"] = conn
        config.attributes["full_text"] = opened.full_text
        alembic.command.upgrade(config, OLDER)
        opened.finish_schema(conn)
        conn.exec_driver_sql("INSERT INTO meta VALUES ('ledger_id', 'an older ledger')")
    return database


@pytest.mark.nightly
def test_a_shared_database_is_migrated_by_command_alone(tmp_path: Path, older: SecretStr) -> None:
    """Guards servers of the old version: no server migrates what they use, and the error says what to do."""
    there = {"PALIMPSEST_LEDGER_URL": older.get_secret_value()}
    with pytest.raises(LedgerError, match=r"has schema 0012.*pg_dump --format=custom.*palimpsest migrate"):
        open_ledger(older, StoppedClock())
    planned = palimpsest(tmp_path, "migrate", "--dry-run", settings=there)
    assert HEAD in planned
    assert "CREATE TABLE recalls" in planned
    assert "BIGSERIAL" in planned
    with pytest.raises(LedgerError, match="has schema 0012"):
        open_ledger(older, StoppedClock())
    asked = palimpsest(tmp_path, "migrate", code=1, answer="n\n", settings=there)
    assert "pg_dump" in asked
    password = older.get_secret_value().split(":")[2].split("@")[0]
    assert password not in planned + asked
    assert palimpsest_json(tmp_path, "migrate", "--yes", settings=there)["done"]
    open_ledger(older, StoppedClock()).close()
    assert "up to date" in palimpsest(tmp_path, "migrate", settings=there)
    palimpsest(tmp_path, "add", "User bakes bread", settings=there)
    assert "User bakes bread" in palimpsest(tmp_path, "search", "bread", settings=there)


def test_a_file_is_migrated_after_a_backup(tmp_path: Path) -> None:
    """Guards the same command on a file: it shows the steps, and makes the backup itself."""
    palimpsest(tmp_path, "add", "User bakes bread")
    downgrade(tmp_path / "data" / "ledger.db", OLDER)
    steps = palimpsest_json(tmp_path, "migrate", "--dry-run")["steps"]
    assert [step["to"] for step in steps] == [HEAD]
    assert "migrated" in palimpsest(tmp_path, "migrate")
    assert list((tmp_path / "data" / "backups").glob("ledger-schema-0012-*.db"))
    assert "User bakes bread" in palimpsest(tmp_path, "list")
