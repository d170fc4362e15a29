"""Care of the graph: what a purge takes of a person and leaves, what moves, imports and killed writes leave."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import MOVE, Relation, Scope
from palimpsest.memory import Memory
from tests.support.exports import exported, exporting
from tests.support.graph_rows import (
    LIVES,
    aliases_of,
    change_stating,
    entity_ids,
    entity_names,
    merge_entities,
    rename_entity,
    run_statement,
    stated_relations,
    store_stating,
)
from tests.support.ledger_access import ignore_progress, row_faults, select_rows, store_memory, store_messages
from tests.support.ledger_files import files_with, table_rows
from tests.support.memory import ALICE, memory_in
from tests.support.memory_process import start

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
WEB = Scope("alice", project="web")
ANA, TOM = ("Ana", "person"), ("Tom", "person")
SECRET = ("Zorvexa Quillfen-Ärmel", "person")
ALIAS = ("Zorvi the Lamplighter", "person")

# Parts of the names, as they are and in lower case, as the keys of names have them.
PARTS = ("Zorv", "Quillfen", "rmel", "Lamplighter", "zorv", "quillfen", "lamplighter")
GRAPH = ("entities", "entity_aliases", "entity_history", "mentions", "relations")


def store_secret(memory: Memory) -> str:
    """Store a memory about somebody whose names are in no text, and return its id."""
    knows = (Relation(SECRET[0], "lights lamps for", "Ana"),)
    secret = store_stating(memory, "The keeper lights lamps for Ana", SECRET, ANA, relations=knows)
    change_stating(memory, secret, "The keeper moved away", ALIAS, SECRET)
    return secret


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("everything", [False, True], ids=["one memory", "the whole scope"])
async def test_a_purged_person_is_in_no_byte_of_any_file(tmp_path: Path, *, everything: bool) -> None:
    async with memory_in(tmp_path) as memory:
        secret = store_secret(memory)
        merge_entities(memory, ALIAS[0], SECRET[0])
        kept = store_stating(memory, "Ana bakes", ANA, scope=WEB if everything else ALICE)
        assert files_with(tmp_path, *PARTS) != set()
        done = await memory.care.purge(ALICE, None if everything else [secret])
        assert done.clean
        assert set(done.erased.names) == {SECRET[0], ALIAS[0]}
        assert entity_names(memory) == [("", "Ana")]
        assert stated_relations(memory) == []
        assert select_rows(memory, "SELECT owner_id FROM mentions") == [(kept,)]
        assert await row_faults(memory) == []
        copy = (await exported(memory)).decode()
        assert [part for part in PARTS if part in copy] == []
    assert files_with(tmp_path, *PARTS) == set()


async def test_the_short_form_of_a_name_goes_with_it(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        secret = store_stating(memory, "The diver arrived", ("Zuleikha (diver)", "person"))
        store_stating(memory, "The cook Ana arrived", ("Ana (cook)", "person"))
        again = store_stating(memory, "The cook Ana left", ("Ana (cook)", "person"))
        done = await memory.care.purge(ALICE, [secret, again])
        assert done.clean
        assert set(done.erased.names) == {"Zuleikha (diver)", "Zuleikha"}
        assert aliases_of(memory, "Ana (cook)") == ["Ana", "Ana (cook)"]
        assert "Zuleikha" not in (await exported(memory)).decode()
    assert files_with(tmp_path, "Zuleikha") == set()


async def test_a_name_that_a_person_gave_stays_with_what_is_left(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        secret = store_secret(memory)
        store_stating(memory, "Anna bakes", ("Anna", "person"))
        store_stating(memory, "Bea sings", ("Bea", "person"))
        merge_entities(memory, "Anna", "Ana")
        merge_entities(memory, ALIAS[0], "Bea")
        rename_entity(memory, "Ana", "Annabel")
        await memory.care.purge(ALICE, [secret])
        assert entity_names(memory) == [("", "Annabel"), ("", "Bea")], "she stands for Anna, whom a memory mentions"
        assert select_rows(memory, "SELECT text FROM entity_history") == [
            ("merged Anna into Ana",),
            ("renamed Ana to Annabel",),
        ]
        assert await row_faults(memory) == []
    assert files_with(tmp_path, *PARTS) == set()


async def test_everybody_else_stays_as_they_are(tmp_path: Path, memory: Memory) -> None:
    store_stating(memory, "Ana keeps bees", ANA, scope=BOB)
    store_stating(memory, "Ana lives in Lyon", ANA, relations=(Relation("Ana", "lives in", "Lyon"),))
    before = table_rows(tmp_path / "ledger.db")
    last = store_stating(memory, "Ana lives with Tom", ANA, TOM)
    (message,) = await store_messages(memory, ("user", "Ana says hello"))
    assert (await memory.care.purge(ALICE, [last, message.id])).clean
    after = table_rows(tmp_path / "ledger.db")
    assert {table: after[table] for table in GRAPH} == {table: before[table] for table in GRAPH}
    assert await row_faults(memory) == []


async def test_a_name_that_something_else_has_is_no_trace(memory: Memory) -> None:
    """Guards the proof against false alarms: a project, a speaker or another memory may have the same name."""
    names = ("Palimpsest", "Caroline", "Lighthouse")
    # Said before anybody knew of her: a message mentions only entities that are known when it is stored.
    await store_messages(memory, {"role": "user", "name": "Caroline", "content": "Hello"})
    secret = store_stating(memory, "They meet", *((name, "other") for name in names))
    store_memory(memory, "The site is blue", scope=Scope("alice", project="Palimpsest"))
    store_memory(memory, "It has a lamp", metadata={"of": "Lighthouse"})
    done = await memory.care.purge(ALICE, [secret])
    assert set(done.erased.names) == set(names)
    assert done.clean
    assert {trace.piece for trace in done.traces} == set(names)


async def test_a_name_that_only_the_purged_memory_had_is_replaced(tmp_path: Path) -> None:
    """Guards somebody who stays: under the names that other memories have, never under the erased one."""
    async with memory_in(tmp_path) as memory:
        secret = store_stating(memory, "The keeper arrived", SECRET)
        (keeper,) = entity_ids(memory, SECRET[0])
        other = store_stating(memory, "Zed lights lamps", ("Zed", "person"))
        run_statement(memory, "UPDATE mentions SET entity_id = :id WHERE owner_id = :owner", id=keeper, owner=other)
        run_statement(memory, "UPDATE entity_aliases SET entity_id = :id WHERE key = 'zed'", id=keeper)
        assert aliases_of(memory, SECRET[0]) == ["Zed", SECRET[0]]
        assert (await memory.care.purge(ALICE, [secret])).clean
        assert entity_ids(memory, "Zed")[0] == keeper
        assert aliases_of(memory, "Zed") == ["Zed"]
        assert await row_faults(memory) == []
    assert files_with(tmp_path, *PARTS) == set()


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


OLD, NEW, OTHER = (Scope("alice", project=name) for name in ("old", "new", "other"))


async def test_a_project_takes_its_entities_along(memory: Memory) -> None:
    store_stating(memory, "Ana lives in Lyon", ANA, relations=(LIVES,), scope=OLD)
    for scope in (OTHER, Scope("bob", project="old")):
        store_stating(memory, "Ana sails", ANA, scope=scope)
    store_stating(memory, "I like Ana", ("I", "person"), scope=OLD)
    relations = stated_relations(memory)
    await memory.projects.move("old", "new")
    assert entity_names(memory) == [("", "User"), ("new", "Ana"), ("new", "Lyon"), ("other", "Ana")]
    assert entity_names(memory, "bob") == [("old", "Ana")]
    assert stated_relations(memory) == relations
    store_stating(memory, "Ana bakes", ANA, scope=NEW)
    assert len(entity_names(memory)) == 4, "she is known there"
    assert await row_faults(memory) == []


async def test_entities_of_one_name_become_one_in_a_merge(memory: Memory) -> None:
    knows = Relation("Ana", "knows", "Mercury")
    store_stating(memory, "Ana knows Mercury", ANA, ("Mercury", "person"), relations=(knows,), scope=OLD)
    store_stating(memory, "Tom sails", TOM, scope=OLD)
    store_stating(memory, "Ana is here, and Mercury is a planet", ANA, ("Mercury", "place"), scope=NEW)
    store_stating(memory, "Tom bakes", TOM, ("Thomas", "person"), scope=NEW)
    run_statement(memory, "UPDATE entity_aliases SET key = 'tom' WHERE key = 'thomas'")
    await memory.projects.merge("old", "new")
    assert entity_names(memory).count(("new", "Ana")) == 1
    assert entity_names(memory).count(("new", "Mercury")) == 2
    assert entity_names(memory).count(("new", "Tom")) == 2
    merges = select_rows(memory, "SELECT event, stage, text FROM entity_history")
    assert merges == [("merge", MOVE, "merged Ana (in old) into Ana (in new)")]
    assert stated_relations(memory) == [("Ana", "knows", "Mercury")]
    assert await row_faults(memory) == []


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("table", ["relations", "memories", "entities", "entity_aliases", "mentions"])
async def test_a_killed_write_leaves_neither_the_memory_nor_its_relations(tmp_path: Path, table: str) -> None:
    async with memory_in(tmp_path):
        pass
    process = start(tmp_path, "add", f"INSERT INTO {table}")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    async with memory_in(tmp_path) as memory:
        counts = [select_rows(memory, f"SELECT count(*) FROM {each}") for each in ("memories", "entities", "mentions")]  # noqa: S608 - names of our own
        assert counts == [[(0,)]] * 3
        assert await row_faults(memory) == []
