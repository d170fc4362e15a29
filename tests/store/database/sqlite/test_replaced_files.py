"""Files of a ledger that are replaced or deleted while processes use it: it is noticed, and nothing is lost."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from mcp import Client

from palimpsest.core.errors import LedgerError
from palimpsest.store.sqlite.ledger_files import Backups
from tests.support.ledger_access import ledger_faults, second_writer
from tests.support.ledger_process import ledger_process
from tests.support.mcp_client import connect_stdio, error_text, reply_results, reply_text


async def found(client: Client, word: str) -> set[str]:
    """Return the texts with a word that a search for it finds."""
    texts = {hit["text"] for hit in reply_results(await client.call_tool("search_memories", {"query": word}))}
    return {text for text in texts if word in text}


COPIED = re.compile(r"Everything acknowledged until then was copied to (\S+\.db)")
ENDINGS = ("", "-wal", "-shm")
DELETED_LOGS = pytest.mark.parametrize("deleted", [("-wal",), ("-wal", "-shm"), ("-shm",)], ids="".join)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "ledger.db"


def beside(path: Path, ending: str) -> Path:
    """Return the path of another file of a ledger."""
    return path.with_name(f"{path.name}{ending}")


def texts_in(path: Path) -> list[str]:
    """Return the texts in a ledger that no process uses, sorted."""
    with closing(sqlite3.connect(path)) as conn:
        return sorted(text for (text,) in conn.execute("SELECT text FROM memories"))


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(LedgerError) as raised:
        call()
    return str(raised.value)


def rescued(error: str) -> list[str]:
    """Return the texts in the copy that an error names."""
    (copy,) = COPIED.findall(error)
    return texts_in(Path(copy))


def put_another_ledger_in_place(path: Path, texts: Sequence[str]) -> None:
    """Replace all files of a ledger by those of another one, whose last memories are in its log."""
    other = path.parent.parent / "other"
    with second_writer(other) as store:
        for text in texts:
            store(text)
        for ending in ENDINGS:
            shutil.copyfile(other / f"ledger.db{ending}", other / f"copy.db{ending}")
    for ending in ENDINGS:
        (other / f"copy.db{ending}").replace(beside(path, ending))


@pytest.mark.nightly
def test_a_process_that_never_notices_does_not_delete_the_log_of_another_ledger(path: Path) -> None:
    """Guards the new ledger from a process that is closed without a further call."""
    with ledger_process(path) as old:
        old.add("The harp was sold")
        put_another_ledger_in_place(path, ["A memory of the new ledger"])
        old.close()
    assert texts_in(path) == ["A memory of the new ledger"]
    (copy,) = (path.parent / "backups").iterdir()
    assert texts_in(copy) == ["The harp was sold"]


@pytest.mark.nightly
def test_a_deleted_ledger_is_copied_and_works_again_when_it_is_put_back(path: Path) -> None:
    """Guards what only the open file still holds."""
    with ledger_process(path) as process:
        process.add("The harp was sold")
        moved = path.rename(path.with_name("moved.db"))
        error = error_of(process.list)
        assert "was deleted or moved" in error
        assert rescued(error) == ["The harp was sold"]
        assert not path.exists(), "no empty ledger takes its place"
        moved.rename(path)
        process.add("The cello was sold")
        path.rename(moved)
        assert rescued(error_of(process.list)) == ["The cello was sold", "The harp was sold"]
        moved.rename(path)
        process.close()
    assert texts_in(path) == ["The cello was sold", "The harp was sold"]


@pytest.mark.nightly
@DELETED_LOGS
def test_a_deleted_log_is_written_back(path: Path, deleted: Sequence[str]) -> None:
    """Guards acknowledged writes that were only in the log, and the writes of processes that start afterwards."""
    with ledger_process(path) as first, ledger_process(path) as second:
        first.add("The harp was sold")
        second.add("The cello was sold")
        for ending in deleted:
            beside(path, ending).unlink()
        for process in (second, first):
            error = error_of(lambda process=process: process.add("It is never stored"))
            assert "the log of the ledger" in error
            assert "The ledger is complete" in error
            assert rescued(error) == ["The cello was sold", "The harp was sold"]
        with ledger_process(path) as third:
            assert third.list() == ["The cello was sold", "The harp was sold"]
            third.add("The viola was sold")
            assert "Start its client again" in error_of(first.list)
            first.close()
            second.close()
            assert third.add("The lute was sold")[-1] == "The viola was sold"
            third.close()
    assert texts_in(path) == ["The cello was sold", "The harp was sold", "The lute was sold", "The viola was sold"]
    assert ledger_faults(path) == []


@pytest.mark.few_by_day(1)
@DELETED_LOGS
def test_a_process_that_is_closed_writes_a_deleted_log_back(path: Path, deleted: Sequence[str]) -> None:
    """Guards acknowledged writes of a process that has no further call."""
    with ledger_process(path) as process:
        process.add("The harp was sold")
        for ending in deleted:
            beside(path, ending).unlink()
        process.close()
    assert texts_in(path) == ["The harp was sold"]


@pytest.mark.nightly
def test_a_log_is_not_written_back_over_the_writes_of_another_process(path: Path) -> None:
    """Guards a process that began after the log was deleted. What the old process has is in a copy."""
    with ledger_process(path) as old:
        old.add("The harp was sold")
        beside(path, "-wal").unlink()
        beside(path, "-shm").unlink()
        with ledger_process(path) as new:
            new.add("The cello was sold")
            error = error_of(lambda: old.add("It is never stored"))
            assert "Close all clients" in error
            assert rescued(error) == ["The harp was sold"]
            old.close()
            assert new.add("The viola was sold") == ["The cello was sold", "The viola was sold"]
            new.close()
    assert texts_in(path) == ["The cello was sold", "The viola was sold"]
    assert ledger_faults(path) == []


async def add(client: Client, text: str) -> None:
    reply_text(await client.call_tool("add_memory", {"text": text}))


@pytest.mark.nightly
@pytest.mark.anyio
async def test_a_backup_put_in_place_of_the_ledger_is_used_after_a_restart(tmp_path: Path, path: Path) -> None:
    """Guards both ledgers: what was acknowledged before is in a copy, and the new one is searched and written."""
    async with connect_stdio(tmp_path) as client:
        await add(client, "The note is blue")
        Backups(path).copy(tmp_path / "backup.db")
        await add(client, "The harp was sold")
        (tmp_path / "backup.db").replace(path)
        error = error_text(await client.call_tool("add_memory", {"text": "It is never stored"}))
        assert "was replaced by another file" in error
        assert rescued(error) == ["The harp was sold", "The note is blue"]
    async with connect_stdio(tmp_path) as client:
        assert await found(client, "sold") == set(), "vectors and words are those of the new ledger"
        await add(client, "The viola was sold")
        assert await found(client, "sold") == {"The viola was sold"}
    assert texts_in(path) == ["The note is blue", "The viola was sold"]
    assert ledger_faults(path) == []
