"""Failures of disk, files, locks and clock: errors say what happened, what was kept and what to do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
import pytest
import sqlalchemy.event
from mcp import Client

from palimpsest.admin.backup import back_up, restore
from palimpsest.admin.doctor import examine
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError, LedgerError, MemoryNotFoundError
from palimpsest.core.models import Edit, Outcome, Undo
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory
from tests.support.command_line import palimpsest
from tests.support.ledger_access import do_not_wait_for_locks, row_faults
from tests.support.mcp_client import TOOL_NAMES, error_text, reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, memory_in, messages_from
from tests.support.server_in_process import connect


@dataclass
class PageLimit:
    """How many pages a database may have."""

    NONE = 1_000_000_000
    pages: int = 1

    def hold(self, connection: sqlite3.Connection, *_: object) -> None:
        """Limit a connection that is about to be used. SQLite never goes below the present number of pages."""
        connection.execute(f"PRAGMA max_page_count={self.pages}")


@contextmanager
def limited_pages() -> Generator[PageLimit]:
    """Keep every database from growing until the limit is raised."""
    bound = PageLimit()
    sqlalchemy.event.listen(sqlalchemy.Engine, "checkout", bound.hold)
    try:
        yield bound
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "checkout", bound.hold)


pytestmark = pytest.mark.anyio

EXACT = {"provider": "exact"}
RETREAT = "The team retreat is in Lisbon"

Work: TypeAlias = Callable[[], Awaitable[object]]


async def first_hit(memory: Client, query: str, **arguments: Any) -> str:
    return reply_results(await memory.call_tool("search_memories", {"query": query, **arguments}))[0]["text"]


def long_text(number: int) -> str:
    return f"Shelf {number} holds " + " ".join(f"box{number}x{word}" for word in range(1_400))


def one(number: int) -> dict[str, Any]:
    """Return the arguments that store a long text as one memory. Without metadata it would be a document."""
    return {"text": long_text(number), "metadata": {"from": "a stocktaking"}}


class TestFullDisk:
    async def test_a_write_that_fills_the_disk_leaves_everything_as_it_was(self, tmp_path: Path) -> None:
        """If SQLite reports a full disk, every kind of write leaves everything as it was."""
        async with memory_in(tmp_path, vector_store=EXACT) as memory:
            first, second = [await added(memory, text) for text in (RETREAT, "User drinks tea")]
            (gone,) = (await memory.delete(ALICE, [second.memory.id])).outcomes
            before = await memory_state(memory)
            writes: list[Work] = [
                lambda: memory.add_text(ALICE, long_text(1)),
                lambda: memory.add_messages(messages_from(("user", long_text(3)), ("assistant", long_text(4)))),
                lambda: memory.update(ALICE, first.memory.id, text=long_text(5)),
                lambda: memory.add_text(ALICE, long_text(2), replaces=[first.memory.id]),
            ]
            with limited_pages() as bound:
                for write in writes:
                    with pytest.raises(LedgerError, match=r"is full\. Nothing was written\. Free some disk space"):
                        await write()
                    assert await memory_state(memory) == before
                    assert [hit.text for hit in (await memory.search(ALICE, "offsite in lisbon")).hits] == [RETREAT]
                bound.pages = bound.NONE
                for write in writes:
                    await write()
                await memory.restore(ALICE, gone.memory.id)
            assert await row_faults(memory) == []


async def added(memory: Memory, text: str) -> Outcome:
    (change,) = (await memory.add_text(ALICE, text)).outcomes
    return change


async def memory_state(memory: Memory) -> tuple[list[str], list[str], Sequence[Edit]]:
    living, gone = [await memory.list(ALICE, limit=100, deleted=deleted) for deleted in (False, True)]
    return [hit.text for hit in living.hits], [hit.text for hit in gone.hits], await memory.log(ALICE, limit=100)


class TestReadOnly:
    def test_a_place_that_nobody_can_write_is_reported(self, tmp_path: Path) -> None:
        """A data_dir that cannot be written ends a command with exit code 1 and an error that names it."""
        (tmp_path / "file").write_text("something else")
        for place, command in (("file/data", "list"), ("/proc/palimpsest", "summary")):
            printed = palimpsest(tmp_path, command, code=1, settings={"PALIMPSEST_DATA_DIR": place})
            reply = " ".join(printed.split())
            opened = f"{place}/ledger.db cannot be opened for writing"
            for part in (opened, "Nothing was written", "set data_dir to another place"):
                assert part in reply
        assert (tmp_path / "file").read_text() == "something else"


class TestLockedLedger:
    async def test_a_locked_ledger_is_reported_and_can_be_searched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While somebody else holds the write lock, writes fail in the end and reads do not wait."""
        do_not_wait_for_locks(monkeypatch)
        async with memory_in(tmp_path, vector_store=EXACT) as memory:
            first, second = [await added(memory, text) for text in (RETREAT, "User drinks tea")]
            await memory.delete(ALICE, [second.memory.id])
            before = await memory_state(memory)
            writes: list[Work] = [
                lambda: memory.add_text(ALICE, "User moved to Lyon"),
                lambda: memory.add_messages(messages_from(("user", "I moved to Lyon"))),
                lambda: memory.update(ALICE, first.memory.id, text="The team retreat is in Porto"),
                lambda: memory.restore(ALICE, second.memory.id),
                lambda: memory.undo(ALICE),
                lambda: memory.delete_all(ALICE),
                lambda: memory.care.purge(ALICE, None),
                memory.care.rebuild,
            ]
            with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                for write in writes:
                    with pytest.raises(LedgerError, match=r"is locked\. Nothing was written\. Another process is wri"):
                        await write()
                assert await memory_state(memory) == before
                assert [hit.text for hit in (await memory.search(ALICE, "the offsite")).hits] == [RETREAT]
                assert RETREAT in (await memory.summary(ALICE)).text
                assert len((await memory.history(ALICE, second.memory.id))[1]) == 2
                async with memory_in(tmp_path, vector_store=EXACT) as another:
                    assert await memory_state(another) == before, "to open a memory takes no turn at writing"
            for write in writes[:4]:
                await write()
            assert sorted((await memory_state(memory))[0]) == [
                "The team retreat is in Porto",
                "User drinks tea",
                "User moved to Lyon",
            ]


@dataclass
class Rows:
    """The bytes of a ledger with rows in every table, and the first page of each table and index."""

    raw: bytes
    page_size: int
    pages: dict[str, int]
    ids: list[str] = field(default_factory=list[str])

    def put(self, folder: Path, damaged: str = "", filling: bytes = b"\x00") -> None:
        """Write the ledger into an empty folder, with the first page of a table or index overwritten."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        raw = bytearray(self.raw)
        if damaged:
            end = self.pages[damaged] * self.page_size
            raw[end - self.page_size : end] = filling * self.page_size
        (folder / "ledger.db").write_bytes(bytes(raw))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("rows")
    ids: list[str] = []

    async def fill() -> None:
        async with memory_in(folder, vector_store=EXACT) as memory:
            ids.extend([(await added(memory, text)).memory.id for text in (RETREAT, "User drinks tea", "User is tall")])
            await memory.add_messages(messages_from(("user", "We sail to Porto"), ("assistant", "When?")))
            await memory.update(ALICE, ids[1], text="User drinks green tea", metadata={"topic": "food"})
            await memory.delete(ALICE, [ids[2]])

    anyio.run(fill)
    with closing(sqlite3.connect(folder / "ledger.db", isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode=DELETE")
        (size,) = conn.execute("PRAGMA page_size").fetchone()
        pages = dict(conn.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall())
    return Rows((folder / "ledger.db").read_bytes(), size, pages, ids)


DAMAGED = (
    r"(could not be used: .*Nothing was written|the full text is damaged).*palimpsest (doctor --deep|rebuild|restore)"
)

FULL_TEXT = ["lexical_data", "lexical_idx", "lexical_docsize", "lexical_config"]


class TestDamagedLedger:
    async def test_with_a_damaged_full_text_a_search_answers_by_meaning(self, tmp_path: Path, rows: Rows) -> None:
        """It says so, and the advice works: after `rebuild`, a search finds words again."""
        for damaged in FULL_TEXT:
            rows.put(tmp_path / "data", damaged)
            async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
                for _ in range(2):
                    answer = await memory.search(ALICE, "the offsite in Lisbon")
                    assert answer.hits[0].text == RETREAT
                    (note,) = answer.notes
                    assert "searched by meaning only" in note
                    assert "Rebuild it with palimpsest rebuild" in note
        rows.put(tmp_path / "data")
        with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as conn, conn:
            conn.execute("DELETE FROM lexical_docsize")
        async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
            assert "palimpsest rebuild" in (await memory.search(ALICE, "Lisbon")).notes[0]
            assert (await memory.care.rebuild())[0] == 4
            answer = await memory.search(ALICE, "Lisbon")
            assert (answer.hits[0].text, answer.notes) == (RETREAT, ())
            assert await row_faults(memory) == []

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE memories SET created_at = 'rubbish' WHERE seq = 1",
            "UPDATE memories SET metadata = '{' WHERE seq = 1",
            "UPDATE memories SET text = CAST(x'ff61626364' AS TEXT) WHERE seq = 1",
            "UPDATE memories SET id = 'x' || id WHERE seq = 1",
            "UPDATE vectors SET key = x'0102' WHERE seq = 1",
            "UPDATE means SET total = x'00'",
            "UPDATE history SET state = '[' WHERE seq = 1",
            "DELETE FROM memories WHERE seq = 1",
        ],
    )
    async def test_an_unreadable_row_is_reported_and_the_rest_works(
        self, tmp_path: Path, rows: Rows, damage: str
    ) -> None:
        """Damage that SQLite does not notice is reported, and every stored memory was acknowledged."""
        rows.put(tmp_path / "data")
        with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as conn, conn:
            conn.execute(damage)
        errors: list[str] = []
        acknowledged = 0
        async with memory_in(tmp_path / "data", background=True) as memory:
            for number in range(3):
                for work in (
                    lambda: memory.search(ALICE, "offsite in Lisbon"),
                    lambda: memory.list(ALICE),
                    lambda: memory.history(ALICE, rows.ids[0]),
                    lambda: memory.undo(ALICE, Undo(1)),
                ):
                    with contextlib.suppress(InputError):
                        await attempt(work, errors)
                if await attempt(lambda number=number: memory.add_text(ALICE, f"User owns boat {number}"), errors):
                    acknowledged += 1
        assert errors, "the damage was met"
        assert [text for text in errors if not re.search(DAMAGED, text, re.DOTALL)] == []
        assert max(map(len, errors)) < 700, "not the text of a memory"
        with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as conn:
            (stored,) = conn.execute("SELECT count(*) FROM memories WHERE text LIKE 'User owns boat%'").fetchone()
        assert stored == acknowledged

    async def test_a_lost_table_affects_only_the_calls_that_read_it(self, tmp_path: Path, rows: Rows) -> None:
        """The other tools work. If the file is no database, every call gives advice that works without a restart."""
        data = tmp_path / "data"
        rows.put(data)
        settings = load_settings(None, data_dir=data)
        back_up(settings, tmp_path / "copy.db", now)
        rows.put(data, "history", b"\xff")
        damaged = "Nothing was written. The file is damaged."
        async with connect(tmp_path) as memory:
            for _ in range(2):
                reply = error_text(await memory.call_tool("get_history", {"memory_id": rows.ids[0]}))
                assert f"malformed. {damaged} See how badly with palimpsest doctor --deep" in reply
                assert await first_hit(memory, "where is the offsite?") == RETREAT
                listed = reply_results(await memory.call_tool("list_memories", {}))
                assert [hit["text"] for hit in listed] == ["User drinks green tea", RETREAT]
                assert "malformed" in error_text(await memory.call_tool("add_memory", {"text": "User sails"}))
        assert "palimpsest restore" in palimpsest(tmp_path, "doctor", "--deep", "--json", code=1)
        (data / "ledger.db").write_bytes(b"no database at all" * 1_000)
        async with connect(tmp_path) as memory:
            for _ in range(2):
                reply = error_text(await memory.call_tool("search_memories", {"query": "offsite"}))
                assert f"not a database. {damaged} Restore a backup with palimpsest restore" in reply
            await anyio.to_thread.run_sync(restore, settings, tmp_path / "copy.db", now)
            assert await first_hit(memory, "offsite") == RETREAT


async def attempt(work: Work, errors: list[str]) -> bool:
    """Return whether a call works. The text of one of our errors is added to `errors`; others are raised."""
    try:
        await work()
    except LedgerError as error:
        errors.append(str(error))
        return False
    return True


class TestClockThatJumpsBack:
    async def test_writes_keep_their_order_and_say_so_once(self, tmp_path: Path) -> None:
        """After the clock was set back, the order of the writes stays, and one note says that dates will be wrong."""
        clock = StoppedClock()
        noon = clock()
        async with memory_in(tmp_path, clock, vector_store=EXACT) as memory:
            first = await memory.add_text(ALICE, "User lives in Nice")
            clock.forward(days=-2)
            second = await memory.add_text(ALICE, "User works as a pilot")
            third = await memory.update(ALICE, first.outcomes[0].memory.id, text="User lives in Lyon")
            (odd,) = second.notes
            behind = "this machine's clock is behind the last change (2026-05-08T12:00:00Z)"
            assert odd.startswith(f"{behind}, so new rows get a wrong date")
            assert (first.notes, third.notes) == ((), ())
            clock.forward(seconds=-59)
            corrected = await memory.add_text(ALICE, "User is tall")
            assert corrected.notes == (), "clocks are often corrected by less than a minute"
            newest_first = ["User is tall", "User works as a pilot", "User lives in Lyon"]
            assert [hit.text for hit in (await memory.list(ALICE)).hits] == newest_first
            edits = await memory.log(ALICE)
            assert [edit.number for edit in edits] == [4, 3, 2, 1]
            entries = (await memory.history(ALICE, first.outcomes[0].memory.id))[1]
            assert [entry.new_memory for entry in entries] == ["User lives in Nice", "User lives in Lyon"]
            assert await texts_at(memory, as_of=noon) == set(newest_first)
            assert await texts_at(memory, as_of=noon - timedelta(days=3)) == set()

    async def test_the_newest_edit_is_the_last_one_made(self, tmp_path: Path) -> None:
        """Undo goes by number, whatever the dates say: it undoes the edit made last."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, vector_store=EXACT) as memory:
            (one,) = (await memory.add_text(ALICE, "User lives in Nice")).outcomes
            clock.forward(days=-30)
            await memory.update(ALICE, one.memory.id, text="User lives in Lyon")
            clock.forward(days=-30)
            await memory.delete(ALICE, [one.memory.id])
            for expected in ({"User lives in Lyon"}, {"User lives in Nice"}, set[str]()):
                clock.forward(hours=-1)
                await memory.undo(ALICE)
                assert await texts_at(memory) == expected
                assert {hit.text for hit in (await memory.search(ALICE, "where does the user live?")).hits} == expected
            with pytest.raises(MemoryNotFoundError):
                await memory.update(ALICE, one.memory.id, text="User lives in Metz")


async def texts_at(memory: Memory, **when: Any) -> set[str]:
    if not when:
        return {hit.text for hit in (await memory.list(ALICE, limit=100)).hits}
    answer = await memory.search(ALICE, "user", limit=100, max_tokens=20_000, **when)
    return {hit.text for hit in answer.hits}


def _no_lock(_fd: int, _how: int) -> None:
    """Grant every lock, as some network file systems do."""


def _failing(number: int) -> Callable[[int, int], None]:
    def fail(_fd: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


WITHOUT_LOCKS = {
    "the same lock was granted twice at once": _no_lock,
    os.strerror(errno.ENOLCK): _failing(errno.ENOLCK),
    os.strerror(errno.EOPNOTSUPP): _failing(errno.EOPNOTSUPP),
}


class TestFolderWithoutLocks:
    async def test_a_folder_without_working_locks_is_refused_before_anything_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a network folder without locks, two clients would destroy each other's writes."""
        data = tmp_path / "data"
        for existing in (False, True):
            before = {path.name: path.read_bytes() for path in data.glob("ledger.*")}
            for fault, flock in WITHOUT_LOCKS.items():
                with monkeypatch.context() as patched:
                    patched.setattr(fcntl, "flock", flock)
                    with pytest.raises(
                        LedgerError, match=r"Nothing was written\. Set data_dir to a folder on"
                    ) as error:
                        await store_a_memory(data)
                    assert fault in str(error.value)
            assert {path.name: path.read_bytes() for path in data.glob("ledger.*")} == before
            assert existing == bool(before)
            await store_a_memory(data)

    async def test_a_folder_with_working_locks_can_be_opened_many_times_at_once(self, tmp_path: Path) -> None:
        """The check of locks is not confused by the same check in another process."""
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(store_a_memory, tmp_path)


async def store_a_memory(folder: Path) -> None:
    async with memory_in(folder, vector_store=EXACT) as memory:
        await memory.add_text(ALICE, RETREAT)


OTHER_VERSIONS = {
    "a migration to come": "INSERT INTO migrations VALUES ('sysdb', 99, '00099-later.sqlite.sql', 'SELECT 1', 'abc')",
    "no migrations": "DELETE FROM migrations",
    "a table less": "DROP TABLE collections",
    "another configuration": "UPDATE collections SET config_json_str = '{\"later\": 1}'",
    "another kind of segment": "UPDATE segments SET type = 'urn:chroma:segment/vector/later'",
    "collections of other dimensions": "UPDATE collections SET dimension = 7",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    anyio.run(indexed, folder)
    return folder


class TestIndexOfAnotherVersion:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("version", OTHER_VERSIONS)
    async def test_a_chroma_folder_of_another_version_is_used_or_rebuilt(
        self, tmp_path: Path, built: Path, version: str
    ) -> None:
        """After an upgrade or downgrade of Chroma, answers are right and the index follows the ledger again."""
        data = copied(built, tmp_path)
        with closing(sqlite3.connect(data / "index" / "0" / "chroma.sqlite3")) as conn, conn:
            conn.execute(OTHER_VERSIONS[version])
        await answers_and_follows(data)


def copied(built: Path, folder: Path) -> Path:
    shutil.copytree(built, folder / "data")
    return folder / "data"


async def indexed(folder: Path) -> None:
    async with memory_in(folder) as memory:
        await memory.add_text(ALICE, RETREAT)
        await memory.add_text(ALICE, "User drinks tea")
        await memory.care.rebuild()


async def index_findings(data: Path) -> list[tuple[bool, str]]:
    """Return what `doctor` reports about the index."""
    settings = load_settings(None, data_dir=data, user_id="alice", llm={"provider": "none"})
    return [(finding.ok, finding.text) for finding in await examine(settings) if finding.part == "index"]


async def answers_and_follows(data: Path) -> None:
    """Assert right answers before, while and after the index is opened, and a complete index afterwards."""
    async with memory_in(data) as memory:
        for work in (None, memory.projection.open, memory.projection.catch_up):
            if work is not None:
                await memory.engine.run(work)
            await memory.add_text(ALICE, f"User owns a boat, {work}")
            assert (await memory.search(ALICE, "where is the offsite?")).hits[0].text == RETREAT
            assert "boat" in (await memory.search(ALICE, "a sailing boat")).hits[0].text
        await memory.engine.run(memory.projection.catch_up)
        assert (memory.projection.state, memory.projection.count()) == ("ready", 5)
    assert await index_findings(data) == [(True, f"{data}/index: folder 0 is 0 changes behind")]


async def test_each_call_says_why_a_memory_cannot_be_opened_until_the_cause_is_gone(tmp_path: Path) -> None:
    """Once it is gone, calls work without a restart."""
    (tmp_path / "data").write_text("a file in place of the folder")
    async with connect(tmp_path) as memory:
        assert {tool.name for tool in (await memory.list_tools()).tools} == TOOL_NAMES
        for tool, arguments in EACH_TOOL.items():
            assert "cannot be opened for writing" in error_text(await memory.call_tool(tool, arguments)), tool
        (tmp_path / "data").unlink()
        reply_text(await memory.call_tool("add_memory", {"text": RETREAT, "infer": False}))
        assert await first_hit(memory, "offsite") == RETREAT


EACH_TOOL: dict[str, dict[str, Any]] = {
    "add_memory": {"text": "x"},
    "search_memories": {"query": "x"},
    "list_memories": {},
    "update_memory": {"memory_id": "0123456789", "text": "x"},
    "delete_memory": {"memory_ids": ["0123456789"]},
    "get_summary": {},
    "get_history": {"memory_id": "0123456789"},
}
