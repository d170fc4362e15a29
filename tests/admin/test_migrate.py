"""Migrating the schema: a file when it is opened, a shared database only by a person who has stopped its servers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from palimpsest.core.errors import LedgerError
from palimpsest.store.ledger import open_ledger
from palimpsest.store.schema import HEAD
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.memory import StoppedClock
from tests.support.next_version import NEXT, PURPOSE, become_the_next_version

pytestmark = [pytest.mark.postgres, pytest.mark.only_on("sqlite", "they name their databases themselves")]


def test_a_shared_database_is_migrated_by_command_alone(
    tmp_path: Path, database: SecretStr, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards servers of the old version: no server migrates what they use, and the error says what to do."""
    there = {"PALIMPSEST_LEDGER_URL": database.get_secret_value()}
    palimpsest(tmp_path, "add", "User plays the cello", settings=there)
    become_the_next_version(monkeypatch, tmp_path)
    with pytest.raises(LedgerError, match=rf"has schema {HEAD}.*pg_dump --format=custom.*palimpsest migrate"):
        open_ledger(database, StoppedClock())
    planned = palimpsest(tmp_path, "migrate", "--dry-run", settings=there)
    assert NEXT in planned
    assert PURPOSE.rstrip(".") in planned
    with pytest.raises(LedgerError, match=f"has schema {HEAD}"):
        open_ledger(database, StoppedClock())
    asked = palimpsest(tmp_path, "migrate", code=1, answer="n\n", settings=there)
    assert "pg_dump" in asked
    password = database.get_secret_value().split(":")[2].split("@")[0]
    assert password not in planned + asked
    assert palimpsest_json(tmp_path, "migrate", "--yes", settings=there)["done"]
    with closing(open_ledger(database, StoppedClock())) as ledger, ledger.read() as conn:
        assert conn.exec_driver_sql("SELECT mood FROM memories").scalars().all() == ["calm"]
    assert "up to date" in palimpsest(tmp_path, "migrate", settings=there)
    palimpsest(tmp_path, "add", "User bakes bread", settings=there)
    assert "User bakes bread" in palimpsest(tmp_path, "search", "bread", settings=there)
    assert "User plays the cello" in palimpsest(tmp_path, "search", "cello", settings=there)


def test_a_file_is_migrated_after_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the same command on a file: it shows the steps, and makes the backup itself."""
    palimpsest(tmp_path, "add", "User bakes bread")
    become_the_next_version(monkeypatch, tmp_path)
    steps = palimpsest_json(tmp_path, "migrate", "--dry-run")["steps"]
    assert [step["to"] for step in steps] == [NEXT]
    assert "migrated" in palimpsest(tmp_path, "migrate")
    assert list((tmp_path / "data" / "backups").glob(f"ledger-schema-{HEAD}-*.db"))
    assert "User bakes bread" in palimpsest(tmp_path, "search", "bread")
