"""`doctor --deep`: a healthy memory has no findings, every kind of damage is found, and what can be rebuilt is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import chromadb
import numpy as np
import pytest
from chromadb.config import Settings as ChromaSettings

from palimpsest.admin.backup import back_up
from palimpsest.admin.doctor import verify
from palimpsest.core.files import file_lock
from palimpsest.core.models import Finding, Scope
from palimpsest.core.settings import Settings
from palimpsest.index.sync import FILE_NAME, Checkpoint
from palimpsest.store import memories
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.graph_rows import LIVES, change_stating, store_stating
from tests.support.ledger_access import ignore_progress, ledger_faults, ledger_in, store_memory, store_messages
from tests.support.ledger_files import run_sql, run_writer, search_texts, table_rows
from tests.support.memory import ALICE, StoppedClock, memory_in, settings_in
from tests.support.stores import Store, copy_memory

# The parts that a finding names; and for each damage the statements that do it, and the parts that are found then. In
# the statements, @entry is the entry of a memory that came from a message, and @named a memory that states a relation.
CASES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("damages.json").read_text("utf-8"))
ENTRY = "(SELECT seq FROM vectors WHERE kind = 'memory' AND live ORDER BY seq LIMIT 1)"
NAMED = "(SELECT id FROM memories WHERE CAST(relations AS text) LIKE '%lives in%')"


def damage(path: Path, statements: str) -> None:
    run_sql(path, statements.replace("@entry", ENTRY).replace("@named", NAMED))


BOB = Scope("bob")
AGREE = "memories, messages, entities, full text, vectors and means agree"
WHOLE = "every vector is present, equals the ledger's and is found by a query for itself"

# Tables that no repair changes.
KEPT = ("messages", "memories", "memory_sources", "summaries")

# For tests without an index: the command is faster without Chroma.
EXACT = {"PALIMPSEST_VECTOR_STORE__PROVIDER": "exact"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:  # noqa: ARG001 - where its ledger is
    """Return the folder of a memory with every kind of item and an index. Tests only copy it."""
    folder = tmp_path_factory.mktemp("healthy")

    async def make() -> None:
        async with memory_in(folder) as memory:
            question, answer, _, cat = await store_messages(
                memory,
                ("user", "I drink green tea"),
                ("assistant", "Noted: green tea."),
                ("user", "Good morning"),
                ("user", "and my cat is Miso"),
            )
            store_memory(
                memory, "User drinks green tea", sources=[question.id, answer.id], tags=("food",), metadata={"a": [1]}
            )
            store_memory(memory, "User has a cat named Miso", sources=[cat.id])
            nice, dog = (
                store_memory(memory, "User lives in Nice"),
                store_memory(memory, "User has a dog", sources=[cat.id]),
            )
            await memory.add_text(ALICE, "User lives in Lyon", replaces=[nice])
            await memory.delete(ALICE, [dog, answer.id])
            store_memory(memory, "The site is blue", scope=Scope("alice", project="web"))
            boat = store_stating(memory, "Bob's boat is the Ana", ("Ana", "product"), scope=BOB)
            change_stating(memory, boat, "Bob has a boat", ("boat", "product"), scope=BOB)
            store_stating(memory, "Ana lives in Lyon", ("Ana", "person"), relations=(LIVES,))
            memory.projection.open()

    anyio.run(make)
    return folder


@pytest.fixture
def settings(tmp_path: Path, healthy: Path) -> Settings:
    copy_memory(healthy, tmp_path / "data")
    return settings_in(tmp_path / "data")


def verified(settings: Settings, *, repair: bool = False) -> dict[str, Finding]:
    findings = verify(settings, ignore_progress, repair=repair, clock=StoppedClock())
    return {finding.part: finding for finding in findings}


def results(findings: dict[str, Finding]) -> dict[str, tuple[bool, str]]:
    return {part: (finding.ok, finding.text) for part, finding in findings.items()}


def test_a_healthy_memory_is_found_to_agree(tmp_path: Path, settings: Settings) -> None:
    """Guards against false alarms about messages, memories, deleted and replaced ones, other users and the index."""
    assert results(verified(settings_in(tmp_path / "empty"))) == {"rows": (True, AGREE)}
    before = table_rows(settings.ledger_path, "meta", "changes")
    for repair in (False, True):
        assert results(verified(settings, repair=repair)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}
    assert table_rows(settings.ledger_path, "meta", "changes") == before, "a healthy memory is not written to"


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES["everywhere"])
async def test_damage_in_the_ledger_is_found_and_repaired(settings: Settings, case: str) -> None:
    """Guards the comparison of the ledger with itself: search and the graph are repaired, stored texts stay."""
    await damage_is_found_and_repaired(settings, *CASES["everywhere"][case])


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@pytest.mark.only_on("sqlite", "PostgreSQL has tables of its own for the full text")
@pytest.mark.parametrize("case", CASES["sqlite"])
async def test_damage_in_the_full_text_of_sqlite(settings: Settings, case: str) -> None:
    await damage_is_found_and_repaired(settings, *CASES["sqlite"][case])


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@pytest.mark.only_on("postgres", "SQLite has tables of its own for the full text")
@pytest.mark.parametrize("case", CASES["postgresql"])
async def test_damage_in_the_full_text_of_postgresql(settings: Settings, case: str) -> None:
    await damage_is_found_and_repaired(settings, *CASES["postgresql"][case])


async def damage_is_found_and_repaired(settings: Settings, statements: str, parts: list[str]) -> None:
    damage(settings.ledger_path, statements)
    before = table_rows(settings.ledger_path)

    findings = verified(settings)
    assert not findings["rows"].ok
    assert "index 0" not in findings, "the index is compared only with a healthy ledger"
    assert sorted(name for name, text in CASES["parts"].items() if text in findings["rows"].text) == parts
    assert "palimpsest doctor --deep --repair" in findings["rows"].text
    assert table_rows(settings.ledger_path) == before, "without --repair nothing is written"

    repaired = verified(settings, repair=True)
    assert repaired["rows"].ok, repaired["rows"].text
    assert repaired["rows"].text.startswith("repaired: ")

    again = verified(settings)
    assert all(finding.ok for finding in again.values())
    assert again["rows"].text == AGREE
    after = table_rows(settings.ledger_path)
    assert {table: after[table] for table in KEPT} == {table: before[table] for table in KEPT}
    for table in ("history", "message_history"):
        assert after[table][: len(before[table])] == before[table], "no row of history is changed or deleted"
    assert all(row["embedder"] for row in after["vectors"]), "a rebuilt entry has a vector again"
    async with memory_in(settings.data_dir) as memory:
        for scope, question, answer in (
            (ALICE, "cat", "User has a cat named Miso"),
            (ALICE, "Which hot drink?", "User drinks green tea"),
            (BOB, "boat", "Bob has a boat"),
        ):
            assert (await search_texts(memory, question, scope))[0] == answer
        assert "User has a dog" not in await search_texts(memory, "dog")
        memory.projection.open()
    assert results(verified(settings)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        ("UPDATE memories SET updated_at = 'yesterday' WHERE seq = 1", "yesterday"),
        ("UPDATE vectors SET vector = substr(vector, 1, 7) WHERE seq = 1", "multiple"),
    ],
)
def test_damage_that_cannot_be_repaired_is_reported_with_the_newest_backup(
    settings: Settings, statements: str, fault: str
) -> None:
    """Guards damage that only a backup can undo: the finding says so, without a traceback or a false "repaired"."""
    damage_is_reported(settings, statements, fault)


@pytest.mark.only_on("sqlite", "PostgreSQL refuses the first, and has no such table")
@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        ("DELETE FROM messages WHERE seq = 1", "rows refer to missing rows"),
        ("DROP TABLE lexical_content", "no such table"),
    ],
)
def test_damage_that_only_sqlite_can_have_is_reported(settings: Settings, statements: str, fault: str) -> None:
    damage_is_reported(settings, statements, fault)


def damage_is_reported(settings: Settings, statements: str, fault: str) -> None:
    copy = back_up(settings, None, StoppedClock()).path
    for other in ("ledger", "work"):  # one that cannot be read, and one of another ledger
        (copy.parent / f"{other}-backup-20300101T000000Z.db").write_bytes(b"garbage")
    run_sql(settings.ledger_path, statements)
    for repair in (False, True, False):
        findings = verified(settings, repair=repair)
        assert not findings["rows"].ok
        assert fault in findings["rows"].text
    assert str(copy) in verified(settings, repair=True)["rows"].text


OTHER = np.full((1, 256), 1 / 16, dtype=np.float32)

# What is done to the collection with the most vectors, by what is found then. The last one has no database at all.
INDEX_DAMAGES: dict[str, list[Callable[[Any], object]]] = {
    "1 vectors are missing or wrong": [lambda found: found.update(ids=found.get()["ids"][:1], embeddings=OTHER)],
    "1 vectors too few": [lambda found: found.delete(ids=found.get()["ids"][:1])],
    "1 vectors too many": [lambda found: found.add(ids=["999"], embeddings=OTHER)],
    "could not be queried": [lambda found: found.add(ids=["somebody's"], embeddings=OTHER)],
    "could not be opened": [],
}


def damage_index(folder: Path, changes: list[Callable[[Any], object]]) -> None:
    if not changes:
        (folder / "chroma.sqlite3").write_bytes(b"garbage" * 1_000)
        return
    client: Any = chromadb.PersistentClient(path=str(folder), settings=ChromaSettings(anonymized_telemetry=False))
    try:
        for change in changes:
            change(max(client.list_collections(), key=lambda collection: collection.count()))
    finally:
        client.close()


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@pytest.mark.parametrize("found", INDEX_DAMAGES)
async def test_damage_in_an_index_is_found_and_the_index_is_rebuilt(settings: Settings, found: str) -> None:
    """Guards the index against damage that its own counts do not show. It is rebuilt from the ledger's vectors."""
    folder = settings.index_dir / "0"
    damage_index(folder, INDEX_DAMAGES[found])
    before = table_rows(settings.ledger_path, "meta", "changes")
    findings = verified(settings)
    assert findings["rows"].ok
    assert not findings["index 0"].ok
    assert found in findings["index 0"].text
    assert "palimpsest doctor --deep --repair" in findings["index 0"].text
    assert folder.is_dir()
    repaired = verified(settings, repair=True)
    assert repaired["index 0"].ok
    assert found in repaired["index 0"].text
    assert "the next client rebuilds it" in repaired["index 0"].text
    assert not folder.exists()
    assert table_rows(settings.ledger_path, "meta", "changes") == before
    assert results(verified(settings)) == {"rows": (True, AGREE)}
    async with memory_in(settings.data_dir) as memory:
        memory.projection.open()
        assert memory.projection.state == "ready"
    assert results(verified(settings)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}


@pytest.mark.anyio
async def test_an_index_that_cannot_be_compared_is_not_reported_as_damaged(settings: Settings) -> None:
    """Guards against false alarms: an index may be in use, behind, unfinished or of another ledger."""
    folder = settings.index_dir / "0"
    with file_lock(folder.with_suffix(".lock")):
        assert results(verified(settings, repair=True))["index 0"] == (
            True,
            "not compared, because a client is using it; close the client to compare it",
        )
    async with memory_in(settings.data_dir) as memory:
        store_memory(memory, "User plays the cello")
    assert results(verified(settings, repair=True))["index 0"][1].startswith("1 changes behind")
    checkpoint = Checkpoint.read(folder)
    assert checkpoint is not None
    (folder / FILE_NAME).write_text("{}")
    assert "unfinished, or of another ledger, embedder or state" in verified(settings, repair=True)["index 0"].text
    (folder / FILE_NAME).unlink()
    findings = verified(settings, repair=True)
    assert "unfinished" in findings["index 0"].text
    assert all(finding.ok for finding in findings.values())
    assert folder.is_dir()


@pytest.mark.anyio
async def test_an_index_that_was_reused_after_a_purge_is_whole(settings: Settings) -> None:
    """Guards entry numbers, which are reused after a purge: the index then has the vectors of the new owners."""
    async with memory_in(settings.data_dir) as memory:
        memory.projection.open()
        newest = (await memory.list(BOB)).hits[0].id
        await memory.care.purge(BOB, [newest], and_backups=False)
        store_memory(memory, "Bob has a bicycle", scope=BOB)
        memory.projection.catch_up()
    assert results(verified(settings)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}


def test_the_command_exits_with_1_until_the_damage_is_repaired(tmp_path: Path, settings: Settings) -> None:
    """Guards scripts that use the exit code, and names the degraded part."""
    damage(settings.ledger_path, CASES["everywhere"]["a mean has a wrong sum"][0])
    report = palimpsest_json(tmp_path, "doctor", "--deep", code=1, settings=EXACT)
    assert [finding["part"] for finding in report["findings"] if not finding["ok"]] == ["rows"]
    assert f"repaired: {CASES['parts']['mean']}" in palimpsest(tmp_path, "doctor", "--deep", "--repair", settings=EXACT)
    assert AGREE in palimpsest(tmp_path, "doctor", "--deep", settings=EXACT)


@pytest.mark.nightly
def test_a_memory_in_use_is_verified_and_repaired_without_losing_a_write(settings: Settings) -> None:
    """Guards clients at work: `verify` sees one state, and a repair does not take a new row for a wrong one."""
    settings = settings_in(settings.data_dir, vector_store={"provider": "exact"})
    with run_writer(settings.ledger_path) as writer:
        writer.wait_for(5)
        assert verified(settings)["rows"].text == AGREE
        damage(settings.ledger_path, CASES["everywhere"]["the last entry is missing"][0])
        repaired = verified(settings, repair=True)["rows"]
        assert repaired.ok, repaired.text
        writer.wait_for(5)
    assert ledger_faults(settings.ledger_path) == []
    with ledger_in(settings.data_dir) as ledger, ledger.read() as conn:
        texts = {memory.text for _, memory in memories.list_memories(conn, ALICE, 100_000)}
    assert set(writer.acknowledged) <= texts
