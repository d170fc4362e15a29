"""Exports and imports of entities: the same everywhere, nothing merged that is not the same, nothing purged brought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from tests.support.exports import exporting
from tests.support.graph_rows import (
    entity_ids,
    entity_names,
    merge_entities,
    store_stating,
)
from tests.support.ledger_access import ignore_progress, row_faults
from tests.support.ledger_files import files_with
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
ANA, TOM = ("Ana", "person"), ("Tom", "person")


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def write_lines(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


async def test_an_export_of_before_does_not_bring_back_a_purged_person(tmp_path: Path) -> None:
    """Guards a purge: the entities that only what was purged mentions stay away, too."""
    file = tmp_path / "alice.jsonl"
    async with memory_in(tmp_path / "data") as memory:
        secret = store_stating(memory, "Zorvexa Quillfen is coming", ("Zorvexa Quillfen", "person"), ANA)
        store_stating(memory, "Ana bakes", ANA)
        merge_entities(memory, "Zorvexa Quillfen", "Ana")
        await exporting(memory, file)
        await memory.care.purge(ALICE, [secret], and_backups=False)
        would = await memory.care.import_file(ALICE, file, ignore_progress, dry_run=True)
        done = await memory.care.import_file(ALICE, file, ignore_progress)
        assert (done.new["entity"], would.new["entity"]) == (0, 0)
        assert entity_names(memory) == [("", "Ana")]
        assert files_with(tmp_path / "data", "Zorvexa") == set()
        assert await row_faults(memory) == []


EDIT: dict[str, Any] = {
    "event": "rename",
    "before": [],
    "after": [],
    "updated_at": "2026-05-08T12:00:00+00:00",
    "stage": "",
    "caller": "",
    "text": "",
    "change": 1,
}


async def test_an_entity_of_another_user_is_refused(tmp_path: Path) -> None:
    """Guards users against each other: an id that is another user's entity cannot be imported."""
    file = tmp_path / "alice.jsonl"
    async with memory_in(tmp_path / "here") as memory:
        store_stating(memory, "Ana lives in Lyon", ANA)
        await exporting(memory, file)
    header, entity, _ = lines_of(file)
    async with memory_in(tmp_path / "there") as memory:
        store_stating(memory, "Bob's Ana sings", ANA, scope=BOB)
        (bobs,) = entity_ids(memory, "Ana")
        write_lines(file, [header, {**entity, "id": bobs}])
        with pytest.raises(InputError, match="another user"):
            await memory.care.import_file(ALICE, file, ignore_progress)
        bobs_memory = (await memory.list(BOB)).hits[0].id
        state = [["mention", "memory", bobs_memory, "ana", entity["id"]]]
        write_lines(file, [header, {**entity, "history": [{**EDIT, "before": state}]}])
        with pytest.raises(InputError, match="another user"):
            await memory.care.import_file(ALICE, file, ignore_progress)
