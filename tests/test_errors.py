"""Trouble told plainly: what happened, what was kept, what to do; nothing half-written, and the rest goes on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
import pytest
import sqlalchemy
import sqlalchemy.event
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters

from palimpsest.care.backup import back_up, restore
from palimpsest.care.doctor import examine
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError, LedgerError, MemoryNotFoundError
from palimpsest.core.models import Edit, Outcome, Undo
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory
from tests.support import restricted_process
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.environment import clean_environment
from tests.support.examples import examples
from tests.support.ledger_access import copy_database, do_not_wait_for_locks, row_faults
from tests.support.mcp_client import TOOL_NAMES, connect_stdio, error_text, reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, memory_in, messages_from

pytestmark = pytest.mark.anyio

LAUNCHER = str(Path(restricted_process.__file__))
ROOM = 700_000
"""Bytes a file may hold where the disk is to be full: enough for a new memory, and for some tens of long texts."""

LITTLE = "40000"
"""Enough to open the file and read it, and for no text of the long ones."""

EXACT = {"provider": "exact"}
RETREAT = "The team retreat is in Lisbon"

HOLD_THE_WRITE_LOCK = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
conn.execute("ROLLBACK")
"""

Work: TypeAlias = Callable[[], Awaitable[object]]


@asynccontextmanager
async def launched(folder: Path, lacking: dict[str, Any], **settings: str) -> AsyncGenerator[Client]:
    """Start a server in a process that lacks something, and connect a client to it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=[LAUNCHER, json.dumps(lacking)],
        env=clean_environment(folder, **settings),
        cwd=folder,
    )
    async with Client(server) as connected:
        yield connected


def command(folder: Path, lacking: dict[str, Any], *arguments: str) -> str:
    """Run a command in a process that lacks something; it has to fail plainly. Return what it said."""
    done = subprocess.run(
        [sys.executable, LAUNCHER, json.dumps(lacking), *arguments],
        env=clean_environment(folder, COLUMNS="1000"),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


async def everything(memory: Client) -> list[str]:
    """Return the texts of all memories, page by page, newest first."""
    texts: list[str] = []
    cursor = ""
    while True:
        page = await memory.call_tool("list_memories", {"limit": 100, "cursor": cursor})
        texts += [hit["text"] for hit in reply_results(page)]
        content: Any = page.structured_content
        cursor = content["cursor"] or ""
        if not cursor:
            return texts


async def first_hit(memory: Client, query: str, **arguments: Any) -> str:
    return reply_results(await memory.call_tool("search_memories", {"query": query, **arguments}))[0]["text"]


def long_text(number: int) -> str:
    """Return a text of about 15,000 characters that no other number has."""
    return f"Shelf {number} holds " + " ".join(f"box{number}x{word}" for word in range(1_400))


class TestFullDisk:
    async def test_a_write_without_room_is_told_and_all_that_was_acknowledged_stays(self, tmp_path: Path) -> None:
        """Guards the user's memory on a full disk: no acknowledged write is lost, no refused one is half there."""
        os.mkfifo(tmp_path / "more")
        acknowledged: list[str] = [RETREAT]
        async with launched(tmp_path, {"room": ROOM, "told": str(tmp_path / "more")}) as memory:
            (kept,) = reply_results(await memory.call_tool("add_memory", {"text": RETREAT}))
            while not (added := await memory.call_tool("add_memory", {"text": long_text(len(acknowledged))})).is_error:
                acknowledged.append(long_text(len(acknowledged)))
                assert len(acknowledged) < 200, "the disk never gets full"
            told = error_text(added)
            # A checkpoint between two calls could make room in the write-ahead log again; the rest meets none.
            await anyio.to_thread.run_sync(bound, tmp_path / "more", LITTLE)
            assert "Nothing was written" in told
            assert "it may be full" in told
            assert "try again" in told
            long = [{"role": "user", "content": long_text(number)} for number in range(500, 510)]
            assert "Nothing was written" in error_text(await memory.call_tool("add_memory", {"messages": long}))
            update = {"memory_id": kept["id"], "text": long_text(999)}
            assert "Nothing was written" in error_text(await memory.call_tool("update_memory", update))
            assert await everything(memory) == acknowledged[::-1]
            assert await first_hit(memory, "where is the offsite?") == RETREAT
            assert RETREAT in reply_text(await memory.call_tool("get_history", {"memory_id": kept["id"]}))
            await anyio.to_thread.run_sync(bound, tmp_path / "more", "lift")
            reply_text(await memory.call_tool("update_memory", update))
            reply_text(await memory.call_tool("add_memory", {"text": "There is room again"}))
        wanted = ["There is room again", *acknowledged[:0:-1], long_text(999)]
        async with connect_stdio(tmp_path) as memory:
            assert await everything(memory) == wanted
            assert await first_hit(memory, "box999x7", max_tokens=20_000) == long_text(999)
            reply_text(await memory.call_tool("add_memory", {"text": "The next process writes too"}))
            counted = reply_results(await memory.call_tool("search_memories", {"query": "shelf 505", "limit": 100}))
            assert [hit for hit in counted if hit["kind"] == "message"] == []
        assert palimpsest_json(tmp_path, "doctor", "--deep")["ok"]

    async def test_a_memory_that_has_no_room_to_begin_opens_as_soon_as_there_is(self, tmp_path: Path) -> None:
        """Guards the first start on a full disk: the server stays, says so, and needs no restart."""
        os.mkfifo(tmp_path / "more")
        async with launched(tmp_path, {"room": 20_000, "told": str(tmp_path / "more")}) as memory:
            for _ in range(2):
                told = error_text(await memory.call_tool("add_memory", {"text": RETREAT}))
                assert "it may be full" in told
            await anyio.to_thread.run_sync(bound, tmp_path / "more", "lift")
            reply_text(await memory.call_tool("add_memory", {"text": RETREAT}))
            assert await everything(memory) == [RETREAT]

    async def test_whatever_write_meets_the_end_of_the_disk_leaves_everything_as_it_was(self, tmp_path: Path) -> None:
        """Guards every kind of write against half of it, where SQLite itself says that the disk is full."""
        async with memory_in(tmp_path, vector_store=EXACT) as memory:
            first, second = [await added(memory, text) for text in (RETREAT, "User drinks tea")]
            (gone,) = (await memory.delete(ALICE, [second.memory.id])).outcomes
            before = await picture(memory)
            writes: list[Work] = [
                lambda: memory.add_text(ALICE, long_text(1)),
                lambda: memory.add_messages(messages_from(("user", long_text(3)), ("assistant", long_text(4)))),
                lambda: memory.update(ALICE, first.memory.id, text=long_text(5)),
                lambda: memory.add_text(ALICE, long_text(2), replaces=[first.memory.id]),
            ]
            with bounded_pages() as bound:
                for write in writes:
                    with pytest.raises(LedgerError, match=r"is full\. Nothing was written\. Free some disk space"):
                        await write()
                    assert await picture(memory) == before
                    assert [hit.text for hit in (await memory.search(ALICE, "offsite in lisbon")).hits] == [RETREAT]
                bound.pages = bound.NONE
                for write in writes:
                    await write()
                await memory.restore(ALICE, gone.memory.id)
            assert await row_faults(memory) == []

    async def test_a_copy_without_room_is_told_and_leaves_no_half_of_itself(self, tmp_path: Path) -> None:
        """Guards exports, backups and restores: the name of one is only ever given to a whole one."""
        async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
            await memory.add_text(ALICE, RETREAT)
            copy_database(tmp_path / "data" / "ledger.db", tmp_path / "copy.db")
            for number in range(4):
                await memory.add_text(ALICE, long_text(number))
        there = files(tmp_path)
        for arguments, told in (
            (("export", "out.jsonl"), "out.jsonl cannot be written: "),
            (("backup",), "could not be made: "),
            (("backup", "out.db"), "could not be made: "),
            (("restore", "copy.db", "--yes"), "could not be made: "),
        ):
            assert told in await anyio.to_thread.run_sync(command, tmp_path, {"room": 50_000}, *arguments)
            assert files(tmp_path) == there
        async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
            assert len((await memory.list(ALICE)).hits) == 5


def bound(pipe: Path, size: str) -> None:
    """Tell a launched process how many bytes its files may hold ("lift": any number), and wait until that holds."""
    pipe.write_text(size)
    assert pipe.read_text() == "done"


def files(folder: Path) -> set[str]:
    """Return the files in a folder, but for what SQLite comes and goes with, and for locks, which are empty."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(folder)) for path in found if path.stat().st_size or "half" in path.name}


async def added(memory: Memory, text: str) -> Outcome:
    (change,) = (await memory.add_text(ALICE, text)).outcomes
    return change


async def picture(memory: Memory) -> tuple[list[str], list[str], Sequence[Edit]]:
    """Return what is believed, what was deleted, and every change there ever was."""
    living, gone = [await memory.list(ALICE, limit=100, deleted=deleted) for deleted in (False, True)]
    return [hit.text for hit in living.hits], [hit.text for hit in gone.hits], await memory.log(ALICE, limit=100)


@dataclass
class Bound:
    """Say how many pages the database may have."""

    NONE = 1_000_000_000
    pages: int = 1

    def hold(self, connection: sqlite3.Connection, *_: object) -> None:
        """Bound a connection that is about to be used; SQLite takes no fewer pages than there are."""
        connection.execute(f"PRAGMA max_page_count={self.pages}")


@contextmanager
def bounded_pages() -> Generator[Bound]:
    """Let no database grow, until the bound is lifted."""
    bound = Bound()
    sqlalchemy.event.listen(sqlalchemy.Engine, "checkout", bound.hold)
    try:
        yield bound
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "checkout", bound.hold)


class TestReadOnly:
    @pytest.mark.parametrize("closed", ["an empty folder", "the folder of a memory", "the file of a memory"])
    async def test_a_place_that_may_not_be_written_is_told_until_it_may(self, tmp_path: Path, closed: str) -> None:
        """Guards against a memory on a disk mounted for reading, and against one made writable behind its owner."""
        data = tmp_path / "data"
        if closed == "an empty folder":
            data.mkdir()
        else:
            await opening(data)
        place = data / "ledger.db" if closed == "the file of a memory" else data
        mode = place.stat().st_mode & 0o777
        place.chmod(mode & 0o555)
        async with launched(tmp_path, {"unprivileged": True}) as memory:
            for tool, arguments in (("add_memory", {"text": "x"}), ("search_memories", {"query": "x"})):
                told = error_text(await memory.call_tool(tool, arguments))
                assert "Nothing was written" in told
                assert "writable for this user" in told
                assert str(data) in told
            assert place.stat().st_mode & 0o222 == 0, "who may write there is the owner's to say"
            place.chmod(mode)
            reply_text(await memory.call_tool("add_memory", {"text": "User drinks tea"}))
            there = await everything(memory)
        assert there == (["User drinks tea"] if closed == "an empty folder" else ["User drinks tea", RETREAT])

    @pytest.mark.parametrize(("place", "command"), [("file/data", "list"), ("/proc/palimpsest", "summary")])
    def test_a_place_that_nobody_can_write_is_told(self, tmp_path: Path, place: str, command: str) -> None:
        """Guards a mistaken setting: one line that names the place and what to do, and exit code 1."""
        (tmp_path / "file").write_text("something else")
        printed = palimpsest(tmp_path, command, code=1, settings={"PALIMPSEST_DATA_DIR": place})
        told = " ".join(printed.split())
        assert f"{place}/ledger.db cannot be opened for writing" in told
        assert "Nothing was written" in told
        assert "set data_dir to another place" in told
        assert (tmp_path / "file").read_text() == "something else"

    async def test_an_index_that_may_not_be_written_costs_no_answer(self, tmp_path: Path) -> None:
        """Guards the search: the index is a convenience, and the memory does without it."""
        await indexed(tmp_path / "data")
        index = tmp_path / "data" / "index"
        for path in (*index.rglob("*"), index):
            path.chmod(path.stat().st_mode & 0o555)
        async with launched(tmp_path, {"unprivileged": True}) as memory:
            for number in range(5):
                reply_text(await memory.call_tool("add_memory", {"text": f"Box {number} holds {'abcde'[number] * 5}"}))
                assert await first_hit(memory, "abcde"[number] * 5) == f"Box {number} holds {'abcde'[number] * 5}"
                assert await first_hit(memory, "where is the company offsite?") == RETREAT


class TestLockedLedger:
    async def test_a_ledger_that_another_process_holds_is_told_and_searched_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards every write against waiting for ever, and every read against waiting at all."""
        do_not_wait_for_locks(monkeypatch)
        async with memory_in(tmp_path, vector_store=EXACT) as memory:
            first, second = [await added(memory, text) for text in (RETREAT, "User drinks tea")]
            await memory.delete(ALICE, [second.memory.id])
            before = await picture(memory)
            writes: list[Work] = [
                lambda: memory.add_text(ALICE, "User moved to Lyon"),
                lambda: memory.add_messages(messages_from(("user", "I moved to Lyon"))),
                lambda: memory.update(ALICE, first.memory.id, text="The team retreat is in Porto"),
                lambda: memory.restore(ALICE, second.memory.id),
                lambda: memory.undo(ALICE),
                lambda: memory.delete_all(ALICE),
                lambda: memory.purge(ALICE, None),
                memory.rebuild,
            ]
            with holding_the_write_lock(tmp_path / "ledger.db"):
                for write in writes:
                    with pytest.raises(LedgerError, match=r"is locked\. Nothing was written\. Another process is wri"):
                        await write()
                assert await picture(memory) == before
                assert [hit.text for hit in (await memory.search(ALICE, "the offsite")).hits] == [RETREAT]
                assert RETREAT in (await memory.summary(ALICE)).text
                assert len((await memory.history(ALICE, second.memory.id))[1]) == 2
                async with memory_in(tmp_path, vector_store=EXACT) as another:
                    assert await picture(another) == before, "to open a memory takes no turn at writing"
            for write in writes[:4]:
                await write()
            assert sorted((await picture(memory))[0]) == [
                "The team retreat is in Porto",
                "User drinks tea",
                "User moved to Lyon",
            ]


@contextmanager
def holding_the_write_lock(ledger: Path) -> Generator[None]:
    """Have another process hold the turn at writing."""
    arguments = [sys.executable, "-c", HOLD_THE_WRITE_LOCK, str(ledger)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.communicate()


@dataclass
class Rows:
    """Hold a memory with something in every table, as the bytes of its ledger, and the pages of its tables."""

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

TABLES = ["memories", "messages", "history", "message_history", "vectors", "means", "changes", "summaries"]
INDEXES = ["sqlite_autoindex_memories_1", "memories_by_user", "memories_once", "vectors_by_user", "history_by_memory"]


class TestDamagedLedger:
    @pytest.mark.parametrize("damaged", [*TABLES, *INDEXES, *FULL_TEXT])
    async def test_a_damaged_page_is_told_with_advice_by_whatever_meets_it(
        self, tmp_path: Path, rows: Rows, damaged: str
    ) -> None:
        """Guards the process and what is whole: a call either works or says what is damaged and what to do."""
        rows.put(tmp_path / "data", damaged)
        told: list[str] = []
        async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
            calls: list[Work] = [
                lambda: memory.search(ALICE, "sailing"),
                lambda: memory.search(ALICE, "sailing", as_of=memory.engine.clock()),
                lambda: memory.search(ALICE, "tea", filters={"topic": "food"}),
                lambda: memory.list(ALICE),
                lambda: memory.history(ALICE, rows.ids[1]),
                lambda: memory.summary(ALICE),
                lambda: memory.log(ALICE),
                lambda: memory.add_text(ALICE, "User sails"),
                lambda: memory.add_messages(messages_from(("user", "I sail"))),
                lambda: memory.update(ALICE, rows.ids[1], text="User drinks coffee"),
                lambda: memory.delete(ALICE, [rows.ids[0]]),
                lambda: memory.undo(ALICE),
                lambda: memory.restore(ALICE, rows.ids[2]),
                lambda: memory.engine.run(memory.projection.open),
            ]
            worked = [await attempt(work, told) for work in calls]
        assert any(worked), "something goes on"
        assert [text for text in told if not re.search(DAMAGED, text, re.DOTALL)] == []
        assert told or damaged in ("means", "summaries"), "the damage was met"

    @pytest.mark.parametrize("damaged", FULL_TEXT)
    async def test_with_a_damaged_full_text_a_search_answers_by_meaning_and_says_so(
        self, tmp_path: Path, rows: Rows, damaged: str
    ) -> None:
        """Guards the search: one of its two halves goes on without the other."""
        rows.put(tmp_path / "data", damaged)
        async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
            for _ in range(2):
                answer = await memory.search(ALICE, "the offsite in Lisbon")
                assert answer.hits[0].text == RETREAT
                (note,) = answer.notes
                assert "searched by meaning only" in note
                assert "Rebuild it with palimpsest rebuild" in note

    async def test_a_rebuild_mends_a_full_text_whose_rows_are_lost(self, tmp_path: Path, rows: Rows) -> None:
        """Guards the advice that is given: after it, words are found again."""
        rows.put(tmp_path / "data")
        with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as conn, conn:
            conn.execute("DELETE FROM lexical_docsize")
        async with memory_in(tmp_path / "data", vector_store=EXACT) as memory:
            assert "palimpsest rebuild" in (await memory.search(ALICE, "Lisbon")).notes[0]
            assert (await memory.rebuild())[0] == 4
            answer = await memory.search(ALICE, "Lisbon")
            assert (answer.hits[0].text, answer.notes) == (RETREAT, ())
            assert await row_faults(memory) == []

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
    async def test_a_row_that_does_not_read_back_is_told_and_the_rest_goes_on(
        self, tmp_path: Path, rows: Rows, damage: str
    ) -> None:
        """Guards against damage that SQLite does not see: it is named, and what was written is acknowledged."""
        rows.put(tmp_path / "data")
        with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as conn, conn:
            conn.execute(damage)
        told: list[str] = []
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
                        await attempt(work, told)
                if await attempt(lambda number=number: memory.add_text(ALICE, f"User owns boat {number}"), told):
                    acknowledged += 1
        assert told, "the damage was met"
        assert [text for text in told if not re.search(DAMAGED, text, re.DOTALL)] == []
        assert max(map(len, told)) < 700, "not the text of a memory"
        with closing(sqlite3.connect(tmp_path / "data" / "ledger.db")) as conn:
            (stored,) = conn.execute("SELECT count(*) FROM memories WHERE text LIKE 'User owns boat%'").fetchone()
        assert stored == acknowledged

    async def test_a_table_that_is_lost_costs_its_own_calls_only(self, tmp_path: Path, rows: Rows) -> None:
        """Guards the server over a damaged page: one tool says so, the others go on."""
        rows.put(tmp_path / "data", "history", b"\xff")
        async with connect_stdio(tmp_path) as memory:
            for _ in range(2):
                told = error_text(await memory.call_tool("get_history", {"memory_id": rows.ids[0]}))
                assert (
                    "malformed. Nothing was written. The file is damaged. See how badly with palimpsest doctor --deep"
                    in told
                )
                assert await first_hit(memory, "where is the offsite?") == RETREAT
                assert await everything(memory) == ["User drinks green tea", RETREAT]
                assert "malformed" in error_text(await memory.call_tool("add_memory", {"text": "User sails"}))
        assert "palimpsest restore" in palimpsest(tmp_path, "doctor", "--deep", "--json", code=1)

    async def test_a_file_that_is_no_database_is_told_and_a_backup_puts_it_right(self, tmp_path: Path) -> None:
        """Guards the worst case: the advice is given to each call, works, and the server needs no restart."""
        await opening(tmp_path / "data")
        settings = load_settings(None, data_dir=tmp_path / "data")
        back_up(settings, tmp_path / "copy.db", now)
        (tmp_path / "data" / "ledger.db").write_bytes(b"no database at all" * 1_000)
        async with connect_stdio(tmp_path) as memory:
            for _ in range(2):
                told = error_text(await memory.call_tool("search_memories", {"query": "offsite"}))
                assert (
                    "not a database. Nothing was written. The file is damaged. Restore a backup with palimpsest restore"
                    in told
                )
            await anyio.to_thread.run_sync(restore, settings, tmp_path / "copy.db", now)
            assert await first_hit(memory, "offsite") == RETREAT


async def attempt(work: Work, told: list[str]) -> bool:
    """Do something and say whether it worked; what our error says is added to `told`, any other error is raised."""
    try:
        await work()
    except LedgerError as error:
        told.append(str(error))
        return False
    return True


class TestClockThatJumpsBack:
    async def test_writes_go_through_in_their_order_and_say_so_once(self, tmp_path: Path) -> None:
        """Guards a machine whose clock was wrong: order is that of the writes, and the dates are told to be odd."""
        clock = StoppedClock()
        noon = clock()
        async with memory_in(tmp_path, clock, vector_store=EXACT) as memory:
            first = await memory.add_text(ALICE, "User lives in Nice")
            clock.forward(days=-2)
            second = await memory.add_text(ALICE, "User works as a pilot")
            third = await memory.update(ALICE, first.outcomes[0].memory.id, text="User lives in Lyon")
            (odd,) = second.notes
            assert odd.startswith(
                "this machine's clock is behind the last change (2026-05-08T12:00:00Z); new rows get the wrong date"
            )
            assert (first.notes, third.notes) == ((), ())
            clock.forward(seconds=-59)
            assert (await memory.add_text(ALICE, "User is tall")).notes == (), "clocks are set right all the time"
            assert [hit.text for hit in (await memory.list(ALICE)).hits] == [
                "User is tall",
                "User works as a pilot",
                "User lives in Lyon",
            ]
            edits = await memory.log(ALICE)
            assert [edit.number for edit in edits] == [4, 3, 2, 1]
            entries = (await memory.history(ALICE, first.outcomes[0].memory.id))[1]
            assert [entry.new_memory for entry in entries] == ["User lives in Nice", "User lives in Lyon"]
            after, before = noon, noon - timedelta(days=3)
            assert await believed(memory, as_of=after) == {
                "User is tall",
                "User works as a pilot",
                "User lives in Lyon",
            }
            assert await believed(memory, as_of=before) == set()

    async def test_the_newest_change_is_the_last_one_made(self, tmp_path: Path) -> None:
        """Guards undo: by number, whatever the dates say; and what is taken back is just what was done last."""
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
                assert await believed(memory) == expected
                assert {hit.text for hit in (await memory.search(ALICE, "where does the user live?")).hits} == expected
            with pytest.raises(MemoryNotFoundError):
                await memory.update(ALICE, one.memory.id, text="User lives in Metz")

    @examples(12)
    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from(["add", "update", "delete", "say"]),
                st.integers(-3_000_000, 3_000_000),
                st.integers(0, 5),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def test_whatever_the_clock_does_numbers_rise_and_undo_goes_back_step_by_step(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
    ) -> None:
        """Guards order, ids and undo against any sequence of jumps: each undo gives the state before the last step."""
        folder = tmp_path_factory.mktemp("clock")

        async def run() -> None:
            clock = StoppedClock()
            async with memory_in(folder, clock, vector_store=EXACT) as memory:
                states = [await believed(memory)]
                ids: list[str] = []
                for number, (what, seconds, which) in enumerate(steps):
                    clock.forward(seconds=seconds)
                    living = [hit.id for hit in (await memory.list(ALICE)).hits]
                    if what == "say":
                        said_at = messages_from(("user", f"I said {number}"), at=clock())
                        ids += [message.id for message in said_at]
                        await memory.add_messages(said_at)
                        continue
                    if what == "add" or not living:
                        done = await memory.add_text(ALICE, f"Fact {number}")
                        ids.append(done.outcomes[0].memory.id)
                    elif what == "update":
                        await memory.update(ALICE, living[which % len(living)], text=f"Other fact {number}")
                    else:
                        await memory.delete(ALICE, [living[which % len(living)]])
                    states.append(await believed(memory))
                    newest = [hit.id for hit in (await memory.list(ALICE)).hits]
                    assert newest == [each for each in ids[::-1] if each in newest], "newest first is by number"
                assert len(set(ids)) == len(ids)
                numbers = [edit.number for edit in await memory.log(ALICE, limit=100)]
                assert numbers == list(range(len(steps), 0, -1))
                for edit in await memory.log(ALICE, limit=100):
                    await memory.undo(ALICE, Undo(edit.number))
                    if edit.steps[0].kind == "memory":
                        states.pop()
                    assert await believed(memory) == states[-1]

        anyio.run(run)


async def believed(memory: Memory, **when: Any) -> set[str]:
    """Return the texts of all memories, now or as of an instant."""
    if not when:
        return {hit.text for hit in (await memory.list(ALICE, limit=100)).hits}
    answer = await memory.search(ALICE, "user", limit=100, max_tokens=20_000, **when)
    return {hit.text for hit in answer.hits}


def _no_lock(_fd: int, _how: int) -> None:
    """Let everybody in, as some network file systems do."""


def _failing(number: int) -> Callable[[int, int], None]:
    def fail(_fd: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


WITHOUT_LOCKS = {
    "the same lock was granted twice at once": _no_lock,
    os.strerror(errno.ENOLCK): _failing(errno.ENOLCK),
    os.strerror(errno.ENOSYS): _failing(errno.ENOSYS),
    os.strerror(errno.EOPNOTSUPP): _failing(errno.EOPNOTSUPP),
}


class TestFolderWithoutLocks:
    @pytest.mark.parametrize("told", WITHOUT_LOCKS)
    async def test_a_folder_on_which_locks_do_not_work_is_refused_before_anything_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
    ) -> None:
        """Guards against two clients that destroy each other's writes on a network folder."""
        data = tmp_path / "data"
        for existing in (False, True):
            before = {path.name: path.read_bytes() for path in data.glob("ledger.*")}
            with monkeypatch.context() as patched:
                patched.setattr(fcntl, "flock", WITHOUT_LOCKS[told])
                for _ in range(2):
                    with pytest.raises(LedgerError, match=r"Nothing was written\. Set data_dir to a folder on"):
                        await opening(data)
                with pytest.raises(LedgerError, match=told):
                    await opening(data)
            assert {path.name: path.read_bytes() for path in data.glob("ledger.*")} == before
            assert existing == bool(before)
            await opening(data)

    async def test_a_folder_whose_locks_hold_is_opened_by_any_number_at_once(self, tmp_path: Path) -> None:
        """Guards the check itself against seeing another one of its kind."""
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(opening, tmp_path)


async def opening(folder: Path) -> None:
    """Open a memory and write into it."""
    async with memory_in(folder, vector_store=EXACT) as memory:
        await memory.add_text(ALICE, RETREAT)


OTHER_VERSIONS = {
    "a migration to come": "INSERT INTO migrations VALUES ('sysdb', 99, '00099-later.sqlite.sql', 'SELECT 1', 'abc')",
    "another migration": "UPDATE migrations SET hash = 'abc' WHERE dir = 'sysdb' AND version = 1",
    "no migrations": "DELETE FROM migrations",
    "a table more": "CREATE TABLE later (x)",
    "a table less": "DROP TABLE collections",
    "a column of another name": "ALTER TABLE collections RENAME COLUMN name TO label",
    "another configuration": "UPDATE collections SET config_json_str = '{\"later\": 1}'",
    "another kind of segment": "UPDATE segments SET type = 'urn:chroma:segment/vector/later'",
    "collections of other dimensions": "UPDATE collections SET dimension = 7",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a memory and its index."""
    folder = tmp_path_factory.mktemp("built")
    anyio.run(indexed, folder)
    return folder


class TestIndexOfAnotherVersion:
    @pytest.mark.parametrize("version", OTHER_VERSIONS)
    async def test_a_chroma_folder_of_another_version_is_used_or_made_anew(
        self, tmp_path: Path, built: Path, version: str
    ) -> None:
        """Guards the search through an upgrade or a downgrade of Chroma: right answers, and an index that follows."""
        data = tmp_path / "data"
        shutil.copytree(built, data)
        with closing(sqlite3.connect(data / "index" / "0" / "chroma.sqlite3")) as conn, conn:
            conn.execute(OTHER_VERSIONS[version])
        await answers_and_follows(data)

    @pytest.mark.parametrize(
        "checkpoint",
        ['{"format": "chroma-2-palimpsest"}', '{"format": "chroma-0-palimpsest", "more": 1}', "[]", "", "\x00" * 100],
    )
    async def test_a_checkpoint_of_another_version_is_made_anew(
        self, tmp_path: Path, built: Path, checkpoint: str
    ) -> None:
        """Guards the layout of the index: what another version of ours has built is not taken for this one's."""
        data = tmp_path / "data"
        shutil.copytree(built, data)
        file = data / "index" / "0" / "checkpoint.json"
        there = json.loads(file.read_text("utf-8"))
        given: Any = json.loads(checkpoint) if checkpoint.startswith("{") else None
        file.write_text(json.dumps({**there, **given}) if given else checkpoint, "utf-8")
        (finding,) = await index_findings(data)
        assert not finding[0]
        assert (
            "belongs to another ledger or embedder, or is damaged; the next server that uses it rebuilds it"
            in finding[1]
        )
        await answers_and_follows(data)

    @pytest.mark.parametrize("left", ["garbage", "an empty file", "a folder"])
    async def test_a_chroma_database_that_is_none_is_made_anew(self, tmp_path: Path, built: Path, left: str) -> None:
        """Guards the index against whatever lies in its place; the doctor names it before."""
        data = tmp_path / "data"
        shutil.copytree(built, data)
        database = data / "index" / "0" / "chroma.sqlite3"
        database.unlink()
        if left == "a folder":
            database.mkdir()
        else:
            database.write_bytes(b"" if left == "an empty file" else os.urandom(10_000))
        ((well, _),) = await index_findings(data)
        assert not well
        await answers_and_follows(data)


async def indexed(folder: Path) -> None:
    async with memory_in(folder) as memory:
        await memory.add_text(ALICE, RETREAT)
        await memory.add_text(ALICE, "User drinks tea")
        await memory.rebuild()


async def index_findings(data: Path) -> list[tuple[bool, str]]:
    """Return what the doctor finds of the index."""
    settings = load_settings(None, data_dir=data, user_id="alice", llm={"provider": "none"})
    return [(finding.ok, finding.text) for finding in await examine(settings) if finding.part == "index"]


async def answers_and_follows(data: Path) -> None:
    """Expect right answers before, while and after the index is opened; then an index that is whole."""
    async with memory_in(data) as memory:
        for work in (None, memory.projection.open, memory.projection.catch_up):
            if work is not None:
                await memory.engine.run(work)
            await memory.add_text(ALICE, f"User owns a boat, {work}")
            assert (await memory.search(ALICE, "where is the offsite?")).hits[0].text == RETREAT
            assert "boat" in (await memory.search(ALICE, "a sailing boat")).hits[0].text
        await memory.engine.run(memory.projection.catch_up)
        assert (memory.projection.state, memory.projection.count()) == ("ready", 5)
    assert await index_findings(data) == [(True, f"{data}/index: folder 0 is free, 5 vectors, 0 changes behind")]


Cause: TypeAlias = Literal["a file in place of the folder", "wrong settings", "a newer ledger"]
CAUSES: dict[Cause, tuple[str, dict[str, str]]] = {
    "a file in place of the folder": ("cannot be opened for writing", {}),
    "wrong settings": ("did you mean 'embedder'?", {"PALIMPSEST_CONFIG": "config.toml"}),
    "a newer ledger": ("Upgrade palimpsest-mcp", {}),
}


class TestServerThatCannotOpen:
    @pytest.mark.parametrize("cause", CAUSES)
    async def test_it_says_why_to_each_call_and_works_once_the_cause_is_gone(
        self, tmp_path: Path, cause: Cause
    ) -> None:
        """Guards whoever has to put it right: the agent is told why, and no client has to be restarted."""
        told, settings = CAUSES[cause]
        put_in_the_way(tmp_path, cause)
        async with connect_stdio(tmp_path, **settings) as memory:
            assert {tool.name for tool in (await memory.list_tools()).tools} == TOOL_NAMES
            for tool, arguments in EACH_TOOL.items():
                assert told in error_text(await memory.call_tool(tool, arguments))
            answers: list[str] = []

            async def ask() -> None:
                answers.append(error_text(await memory.call_tool("list_memories", {})))

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(ask)
            assert [answer for answer in answers if told not in answer] == []
            take_away(tmp_path, cause)
            reply_text(await memory.call_tool("add_memory", {"text": RETREAT}))
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


def put_in_the_way(folder: Path, cause: Cause) -> None:
    match cause:
        case "a file in place of the folder":
            (folder / "data").write_text("a file")
        case "wrong settings":
            (folder / "config.toml").write_text("[embeder]\nprovider = 'local'\n", "utf-8")
        case "a newer ledger":
            (folder / "data").mkdir()
            with closing(sqlite3.connect(folder / "data" / "ledger.db")) as conn, conn:
                conn.execute("CREATE TABLE alembic_version (version_num TEXT)")
                conn.execute("INSERT INTO alembic_version VALUES ('9999')")


def take_away(folder: Path, cause: Cause) -> None:
    match cause:
        case "a file in place of the folder":
            (folder / "data").unlink()
        case "wrong settings":
            (folder / "config.toml").write_text("[embedder]\nprovider = 'local'\n", "utf-8")
        case "a newer ledger":
            (folder / "data" / "ledger.db").unlink()
