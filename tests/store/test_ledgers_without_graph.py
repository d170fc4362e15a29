"""Ledgers of before schema 0011, which knew no entities: nothing else changes, and there is a way back."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from palimpsest.memory import Memory
from tests.support.exports import exported
from tests.support.graph_rows import LIVES, entity_names, run_statement, store_stating
from tests.support.ledger_access import row_faults, select_rows, store_messages
from tests.support.ledger_files import downgrade
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.only_on("sqlite", "ledgers of earlier versions are all in files"),
]

BEFORE_THE_GRAPH = "0010"
GRAPH = {"entities", "entity_aliases", "entity_history", "mentions", "relations"}
VIEWS = {"gists", "memory_links", "memory_uses", "recalled", "recalls", "summary_sources"}
NAMED = ("entities", "relations", "mentions", "context", "links")
STATED = "SELECT key FROM mentions WHERE current ORDER BY key"


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table of then, without what memories name and are linked with.

    An upgrade indexes the rows anew, so the index log and the full text are left out.
    """
    with closing(sqlite3.connect(path)) as conn:
        conn.row_factory = sqlite3.Row
        names = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        rows: dict[str, list[dict[str, Any]]] = {}
        for name in set(names) - GRAPH - VIEWS - {"alembic_version", "changes", "sqlite_sequence"}:
            if name.startswith("lexical"):
                continue
            stored = [dict(row) for row in conn.execute(f"SELECT * FROM {name}")]  # noqa: S608 - names of our own
            rows[name] = [{key: value for key, value in row.items() if key not in NAMED} for row in stored]
        return rows


async def without_names(memory: Memory) -> list[dict[str, Any]]:
    """Return the lines of an export that older versions had, as these had them."""
    lines = [json.loads(line) for line in (await exported(memory)).splitlines()]
    kept = [line for line in lines if line.get("type") != "entity"]
    return [{key: value for key, value in line.items() if key not in NAMED} for line in kept]


async def test_an_older_ledger_gets_an_empty_graph_and_keeps_everything_else(tmp_path: Path) -> None:
    """Guards the migration and its way back: all other rows and the export stay, and no memory was looked at yet."""
    data = tmp_path / "data"
    async with memory_in(data) as memory:
        (message, _) = await store_messages(memory, ("user", "Ana lives in Lyon"), ("assistant", "Does she?"))
        store_stating(memory, "Ana lives in Lyon", ("Ana", "person"), relations=(LIVES,))
        await memory.delete(ALICE, [message.id])
        lines = await without_names(memory)
    before = rows_of(data / "ledger.db")
    downgrade(data / "ledger.db", BEFORE_THE_GRAPH)
    assert rows_of(data / "ledger.db") == before
    with closing(sqlite3.connect(data / "ledger.db")) as conn:
        tables = {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        columns = {row[1] for row in conn.execute("PRAGMA table_info(memories)")}
    assert not tables & (GRAPH | VIEWS)
    assert not columns & set(NAMED)
    async with memory_in(data) as memory:
        assert select_rows(memory, "SELECT entities, relations FROM memories") == [(None, None)]
        assert entity_names(memory) == []
        assert await without_names(memory) == lines
        assert await row_faults(memory) == []
    assert rows_of(data / "ledger.db") == before


async def test_an_undo_to_a_text_of_before_names_it_again(tmp_path: Path) -> None:
    """Guards versions of before the graph, which do not say what they named: the background finds it out."""
    async with memory_in(tmp_path) as memory:
        memory_id = await add_text(memory, "Marta lives in Lyon.")
        run_statement(memory, "UPDATE history SET state = json_remove(state, '$.entities', '$.relations')")
        await memory.update(ALICE, memory_id, text="The kettle is blue.")
        await memory.undo(ALICE)
        assert select_rows(memory, "SELECT entities, relations FROM memories") == [(None, None)]
        assert select_rows(memory, STATED) == []
    async with memory_in(tmp_path, background=True) as memory:
        await memory.search(ALICE, "kettle")
        with anyio.fail_after(60):
            while select_rows(memory, STATED) != [("lyon",), ("marta",)]:
                await anyio.lowlevel.checkpoint()
        assert await row_faults(memory) == []
