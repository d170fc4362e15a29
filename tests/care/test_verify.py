"""The deep look: nothing is found where nothing is wrong, every kind of damage is, and what can be made anew is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import chromadb
import numpy as np
import pytest
from chromadb.config import Settings as ChromaSettings

from palimpsest.care.backup import back_up
from palimpsest.care.doctor import Finding
from palimpsest.care.verify import examine_deeply
from palimpsest.core.files import file_lock
from palimpsest.core.models import Scope
from palimpsest.core.settings import Settings, load_settings
from palimpsest.index.checkpoint import FILE_NAME, Checkpoint
from palimpsest.store.ledger import open_ledger
from palimpsest.store.queries import memories as memory_queries
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.ledger_files import (
    ignore_progress,
    ledger_faults,
    run_sql,
    run_writer,
    search_texts,
    store_memory,
    store_messages,
    table_rows,
)
from tests.support.memory import ALICE, StoppedClock, memory_in

BOB = Scope("bob")
AGREE = "memories, turns, history, full text, vectors and means agree"
WHOLE = "every vector is there, is the ledger's, and finds itself"
KEPT = ("messages", "memories", "memory_sources", "summaries")
"""What a memory says; no repair touches it."""

SEARCHED = "searched by something else than they say"
NOTHING = "rows of the search belong to nothing"
MEAN = "the mean of a user's vectors is not that of the vectors"
HISTORY = "differ from the last row of their history"
WORDS = "the full text does not find what its rows say"

EXACT = {"PALIMPSEST_VECTOR_STORE__PROVIDER": "exact"}
"""Where the index does not matter: the command is quicker without Chroma."""

UNIT = "(SELECT seq FROM vectors WHERE kind = 'memory' AND live ORDER BY seq LIMIT 1)"
"""The unit of a memory that came from a turn; in the statements below @unit stands for it."""

DAMAGES: dict[str, tuple[str, set[str]]] = {
    "a full-text row is missing": ("DELETE FROM lexical WHERE rowid = @unit", {SEARCHED}),
    "a full-text row is another": ("UPDATE lexical SET own = 'other words' WHERE rowid = @unit", {SEARCHED}),
    "the context of a row is another": ("UPDATE lexical SET context = 'other words' WHERE rowid = @unit", {SEARCHED}),
    "a full-text row is nobody's": (
        "INSERT INTO lexical(rowid, scope, own, context, facts) VALUES (999, 'a', 'b', 'c', 'd')",
        {NOTHING},
    ),
    "a row went without its words": ("DELETE FROM lexical_content WHERE id = @unit", {SEARCHED, WORDS}),
    "a row changed without its words": (
        "UPDATE lexical_content SET c1 = 'other words' WHERE id = @unit",
        {SEARCHED, WORDS},
    ),
    "the words are gone": ("DELETE FROM lexical_data WHERE id > 10", {WORDS}),
    "the words are unreadable": ("UPDATE lexical_data SET block = zeroblob(9) WHERE id > 10", {WORDS}),
    "a unit is missing": ("DELETE FROM vectors WHERE seq = @unit", {SEARCHED, NOTHING, MEAN}),
    "the last unit is missing": (
        "DELETE FROM vectors WHERE seq = (SELECT max(seq) FROM vectors)",
        {SEARCHED, NOTHING, MEAN},
    ),
    "a unit is nobody's": (
        "INSERT INTO vectors(kind, owner_id, user_id, live, embedder, key, vector) "
        "SELECT 'memory', '0', user_id, 1, embedder, key, vector FROM vectors WHERE seq = @unit",
        {NOTHING, MEAN},
    ),
    "a key is another's": (
        "UPDATE vectors SET key = (SELECT key FROM vectors WHERE user_id = 'bob') WHERE seq = @unit",
        {SEARCHED, MEAN},
    ),
    "a key is missing": ("UPDATE vectors SET key = NULL WHERE seq = @unit", {SEARCHED, MEAN}),
    "a key is too short": ("UPDATE vectors SET key = substr(key, 1, 8) WHERE seq = @unit", {SEARCHED, MEAN}),
    "a key is cut": ("UPDATE vectors SET key = substr(key, 1, 7) WHERE seq = @unit", {SEARCHED, MEAN}),
    "a living unit is dead": ("UPDATE vectors SET live = 0 WHERE seq = @unit", {SEARCHED}),
    "dead units are living": ("UPDATE vectors SET live = 1", {SEARCHED}),
    "a unit is in another project": ("UPDATE vectors SET project = 'web' WHERE seq = @unit", {SEARCHED}),
    "a unit is another user's": ("UPDATE vectors SET user_id = 'eve' WHERE seq = @unit", {SEARCHED, MEAN}),
    "a mean counts wrongly": ("UPDATE means SET units = units + 1", {MEAN}),
    "a mean is another": ("UPDATE means SET total = zeroblob(length(total))", {MEAN}),
    "a mean is cut": ("UPDATE means SET total = substr(total, 1, 7)", {MEAN}),
    "the means are gone": ("DELETE FROM means", {MEAN}),
    "history says something else": ("UPDATE history SET new_memory = '?' WHERE new_memory IS NOT NULL", {HISTORY}),
    "history believes what is deleted": ("UPDATE history SET is_deleted = 0, new_memory = '?'", {HISTORY}),
    "a turn has no history": ("DELETE FROM message_history WHERE seq = 1", {HISTORY}),
    "history knows nothing of a forgotten turn": ("DELETE FROM message_history WHERE event = 'DELETE'", {HISTORY}),
    "two things at once": (
        "UPDATE vectors SET key = substr(key, 1, 8) WHERE seq = @unit; DELETE FROM means; "
        "DELETE FROM lexical_data WHERE id > 10; DELETE FROM message_history WHERE seq = 1",
        {SEARCHED, MEAN, WORDS, HISTORY},
    ),
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a memory that has been through everything, with its index; it is only copied."""
    folder = tmp_path_factory.mktemp("healthy")

    async def make() -> None:
        async with memory_in(folder) as memory:
            asked, answered, _, cat = await store_messages(
                memory,
                ("user", "I drink green tea"),
                ("assistant", "Noted: green tea."),
                ("user", "Good morning"),
                ("user", "and my cat is Miso"),
            )
            store_memory(
                memory, "User drinks green tea", sources=[asked.id, answered.id], tags=("food",), metadata={"a": [1]}
            )
            store_memory(memory, "User has a cat named Miso", sources=[cat.id])
            nice, gone = (
                store_memory(memory, "User lives in Nice"),
                store_memory(memory, "User has a dog", sources=[cat.id]),
            )
            await memory.add_text(ALICE, "User lives in Lyon", replaces=[nice])
            await memory.delete(ALICE, [gone, answered.id])
            store_memory(memory, "The site is blue", scope=Scope("alice", project="web"))
            store_memory(memory, "Bob has a boat", scope=BOB)
            memory.projection.open()

    anyio.run(make)
    return folder


@pytest.fixture
def settings(tmp_path: Path, healthy: Path) -> Settings:
    """Return the settings of a memory of the test's own, in good health."""
    shutil.copytree(healthy, tmp_path / "data")
    return load_settings(None, data_dir=tmp_path / "data", user_id="alice", llm={"provider": "none"})


def looked(settings: Settings, *, repair: bool = False) -> dict[str, Finding]:
    """Return what the deep look finds, by part."""
    findings = examine_deeply(settings, ignore_progress, repair=repair, clock=StoppedClock())
    return {finding.part: finding for finding in findings}


def told(findings: dict[str, Finding]) -> dict[str, tuple[bool, str]]:
    return {part: (finding.ok, finding.text) for part, finding in findings.items()}


async def reopened(settings: Settings) -> None:
    """Open the index as the next client does."""
    async with memory_in(settings.data_dir) as memory:
        memory.projection.open()
        assert memory.projection.state == "ready"


def test_a_healthy_memory_is_found_to_agree(settings: Settings) -> None:
    """Guards against alarms: turns, facts, forgotten, deleted and superseded ones, other users, and the index."""
    before = table_rows(settings.ledger_path, "meta", "changes")
    for repair in (False, True):
        assert told(looked(settings, repair=repair)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}
    assert table_rows(settings.ledger_path, "meta", "changes") == before, "where nothing is wrong, nothing is written"


def test_a_new_memory_is_found_to_agree(tmp_path: Path) -> None:
    """Guards the first look, before anything was stored."""
    chosen = load_settings(None, data_dir=tmp_path / "data")
    assert told(looked(chosen)) == {"rows": (True, AGREE)}


@pytest.mark.anyio
@pytest.mark.parametrize("what", DAMAGES)
async def test_damage_in_the_ledger_is_found_named_and_mended(settings: Settings, what: str) -> None:
    """Guards the ledger against itself: what is searched and what was believed is put right, what is said stays."""
    statements, parts = DAMAGES[what]
    run_sql(settings.ledger_path, statements.replace("@unit", UNIT))
    before = table_rows(settings.ledger_path)

    seen = looked(settings)
    assert not seen["rows"].ok
    assert "index 0" not in seen, "an index is held against a ledger that agrees"
    assert {part for part in (SEARCHED, NOTHING, MEAN, HISTORY, WORDS) if part in seen["rows"].text} == parts
    assert "palimpsest doctor --deep --repair" in seen["rows"].text
    assert table_rows(settings.ledger_path) == before, "without --repair nothing is written"

    mended = looked(settings, repair=True)
    assert mended["rows"].ok, mended["rows"].text
    assert mended["rows"].text.startswith("mended: ")

    again = looked(settings)
    assert all(finding.ok for finding in again.values())
    assert again["rows"].text == AGREE
    after = table_rows(settings.ledger_path)
    assert {table: after[table] for table in KEPT} == {table: before[table] for table in KEPT}
    for table in ("history", "message_history"):
        assert after[table][: len(before[table])] == before[table], "history is added to, never taken from"
    assert all(row["embedder"] for row in after["vectors"]), "a unit that was made anew has its vector again"
    async with memory_in(settings.data_dir) as memory:
        for scope, question, answer in (
            (ALICE, "cat", "User has a cat named Miso"),
            (ALICE, "Which hot drink?", "User drinks green tea"),
            (BOB, "boat", "Bob has a boat"),
        ):
            assert (await search_texts(memory, question, scope))[0] == answer
        assert "User has a dog" not in await search_texts(memory, "dog")
        memory.projection.open()
    assert told(looked(settings)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        ("UPDATE history SET state = '{' WHERE seq = 1", "JSON"),
        ("UPDATE memories SET updated_at = 'yesterday' WHERE seq = 1", "yesterday"),
        ("UPDATE vectors SET vector = substr(vector, 1, 7) WHERE seq = 1", "multiple"),
        ("DELETE FROM messages WHERE seq = 1", "rows refer to missing rows"),
        ("DROP TABLE lexical_content", "no such table"),
    ],
)
def test_what_cannot_be_made_anew_is_told_with_the_backup_that_has_it(
    settings: Settings, statements: str, named: str
) -> None:
    """Guards what only a backup brings back: a sentence and the way out, no traceback, and no false 'mended'."""
    copy = back_up(settings, None, StoppedClock()).path
    run_sql(settings.ledger_path, statements)
    for repair in (False, True, False):
        seen = looked(settings, repair=repair)
        assert not seen["rows"].ok
        assert named in seen["rows"].text
    assert str(copy) in looked(settings, repair=True)["rows"].text


def spoilt(path: Path, page: int) -> None:
    """Overwrite a page of a ledger in the middle."""
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xa5" * 4096)


@pytest.mark.anyio
async def test_a_damaged_page_is_told_with_the_newest_backup_that_reads_back(tmp_path: Path) -> None:
    """Guards the way out of real damage: which copy is good, how much it has; and no repair is tried."""
    data = tmp_path / "data"
    async with memory_in(data) as memory:
        for number in range(30):
            store_memory(memory, f"fact {number}: {'long ' * 300}")
        older = back_up(memory.settings, None, memory.engine.clock).path
        store_memory(memory, "User drinks green tea")
        newer = back_up(memory.settings, None, memory.engine.clock).path
    (data / "backups" / "work-backup-20300101T000000Z.db").write_bytes(newer.read_bytes())
    spoilt(newer, 40)
    for page in range(30, 45):
        spoilt(data / "ledger.db", page)
    was = (data / "ledger.db").read_bytes()
    findings = {
        each["part"]: each for each in palimpsest_json(tmp_path, "doctor", "--deep", code=1, settings=EXACT)["findings"]
    }
    assert not findings["ledger"]["ok"]
    assert not findings["rows"]["ok"]
    chosen = load_settings(None, data_dir=data)
    for text in (findings["rows"]["text"], looked(chosen, repair=True)["rows"].text):
        assert f"The newest copy that reads back is {older} (30 memories)" in text
    assert (data / "ledger.db").read_bytes() == was
    older.unlink()
    text = looked(chosen)["rows"].text
    assert "no copy of it in the backups" in text, "another ledger's copies, in the same folder, are not its own"


def collections(folder: Path) -> Any:
    """Return Chroma's own client for an index folder."""
    return chromadb.PersistentClient(path=str(folder), settings=ChromaSettings(anonymized_telemetry=False))


@contextmanager
def collection_of_alice(folder: Path) -> Generator[Any]:
    """Give the collection that holds most."""
    client = collections(folder)
    try:
        yield max(client.list_collections(), key=lambda each: each.count())
    finally:
        client.close()


def another_vector(folder: Path) -> None:
    with collection_of_alice(folder) as held:
        (first, *_) = held.get()["ids"]
        held.update(ids=[first], embeddings=np.full((1, 256), 1 / 16, dtype=np.float32))


def one_missing(folder: Path) -> None:
    with collection_of_alice(folder) as held:
        held.delete(ids=held.get()["ids"][:1])


def one_too_many(folder: Path) -> None:
    with collection_of_alice(folder) as held:
        held.add(ids=["999"], embeddings=np.full((1, 256), 1 / 16, dtype=np.float32))


def two_exchanged(folder: Path) -> None:
    with collection_of_alice(folder) as held:
        got = held.get(limit=2, include=["embeddings"])
        held.update(ids=got["ids"][::-1], embeddings=got["embeddings"])


def no_number(folder: Path) -> None:
    with collection_of_alice(folder) as held:
        held.add(ids=["somebody's"], embeddings=held.get(limit=1, include=["embeddings"])["embeddings"])


def garbage(folder: Path) -> None:
    (folder / "chroma.sqlite3").write_bytes(b"garbage" * 1_000)


def emptied(folder: Path) -> None:
    with collection_of_alice(folder) as held:
        held.delete(ids=held.get()["ids"])


SPOILERS: dict[Callable[[Path], None], str] = {
    another_vector: "1 vectors are missing or another's",
    two_exchanged: "2 vectors are missing or another's",
    one_missing: "1 too few",
    one_too_many: "1 too many",
    emptied: "too few",
    no_number: "could not be queried",
    garbage: "could not be opened",
}


@pytest.mark.anyio
@pytest.mark.parametrize("spoil", SPOILERS)
async def test_damage_in_an_index_is_found_named_and_the_index_made_anew(
    settings: Settings, spoil: Callable[[Path], None]
) -> None:
    """Guards the index against what its own counts do not show; it is thrown away, for the ledger has every vector."""
    folder = settings.index_dir / "0"
    spoil(folder)
    before = table_rows(settings.ledger_path, "meta", "changes")
    seen = looked(settings)
    assert seen["rows"].ok
    assert not seen["index 0"].ok
    assert SPOILERS[spoil] in seen["index 0"].text
    assert "palimpsest doctor --deep --repair" in seen["index 0"].text
    assert folder.is_dir()
    mended = looked(settings, repair=True)
    assert mended["index 0"].ok
    assert SPOILERS[spoil] in mended["index 0"].text
    assert "the next client makes it anew" in mended["index 0"].text
    assert not folder.exists()
    assert table_rows(settings.ledger_path, "meta", "changes") == before
    assert told(looked(settings)) == {"rows": (True, AGREE)}
    await reopened(settings)
    assert told(looked(settings)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}


@pytest.mark.anyio
async def test_an_index_that_cannot_be_compared_is_no_damage_and_says_why(settings: Settings) -> None:
    """Guards what is only not there yet: in use, behind, unfinished, of another ledger."""
    folder = settings.index_dir / "0"
    with file_lock(folder.with_suffix(".lock")):
        assert told(looked(settings, repair=True))["index 0"] == (
            True,
            "in use by a client, not compared; close the client to compare it",
        )
    async with memory_in(settings.data_dir) as memory:
        store_memory(memory, "User plays the cello")
    assert told(looked(settings, repair=True))["index 0"][1].startswith("1 changes behind")
    checkpoint = Checkpoint.read(folder)
    assert checkpoint is not None
    (folder / FILE_NAME).write_text("{}")
    assert "of another ledger, embedder or time" in looked(settings, repair=True)["index 0"].text
    (folder / FILE_NAME).unlink()
    seen = looked(settings, repair=True)
    assert "unfinished" in seen["index 0"].text
    assert all(finding.ok for finding in seen.values())
    assert folder.is_dir()


@pytest.mark.anyio
async def test_an_index_that_was_reused_after_a_purge_is_whole(settings: Settings) -> None:
    """Guards unit numbers, which are given again after a purge: the index has the new owners' vectors under them."""
    async with memory_in(settings.data_dir) as memory:
        memory.projection.open()
        newest = (await memory.list(BOB)).hits[0].id
        await memory.purge(BOB, [newest], and_backups=False)
        store_memory(memory, "Bob has a bicycle", scope=BOB)
        memory.projection.catch_up()
    assert told(looked(settings)) == {"rows": (True, AGREE), "index 0": (True, WHOLE)}


def test_a_memory_in_use_is_looked_at_and_mended_without_a_write_being_lost(settings: Settings) -> None:
    """Guards clients at work: a look sees one state, and a repair takes no new row for a wrong one."""
    settings = load_settings(None, data_dir=settings.data_dir, vector_store={"provider": "exact"})
    with run_writer(settings.ledger_path) as writer:
        writer.wait_for(5)
        assert looked(settings)["rows"].text == AGREE
        run_sql(settings.ledger_path, DAMAGES["the last unit is missing"][0])
        mended = looked(settings, repair=True)["rows"]
        assert mended.ok, mended.text
        writer.wait_for(5)
    assert ledger_faults(settings.ledger_path) == []
    ledger = open_ledger(settings.ledger_path, StoppedClock())
    try:
        with ledger.read() as conn:
            texts = {memory.text for _, memory in memory_queries.list_memories(conn, ALICE, 100_000)}
    finally:
        ledger.close()
    assert set(writer.acknowledged) <= texts


def test_the_command_exits_with_1_where_something_is_wrong_and_0_once_it_is_mended(
    tmp_path: Path, settings: Settings
) -> None:
    """Guards scripts: the exit code says it, and the part is named."""
    run_sql(settings.ledger_path, DAMAGES["a mean is another"][0])
    seen = palimpsest_json(tmp_path, "doctor", "--deep", code=1, settings=EXACT)
    assert [each["part"] for each in seen["findings"] if not each["ok"]] == ["rows"]
    assert f"mended: {MEAN}" in palimpsest(tmp_path, "doctor", "--deep", "--repair", settings=EXACT)
    assert AGREE in palimpsest(tmp_path, "doctor", "--deep", settings=EXACT)
