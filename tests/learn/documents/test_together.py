"""Documents that several processes learn at once, or that a process was killed in the middle of."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio.from_thread
import pytest

from palimpsest.memory import Memory
from tests.support.documents import book
from tests.support.ledger_access import row_faults
from tests.support.memory import ALICE, memory_in
from tests.support.memory_process import start
from tests.support.watched_embedder import watched

pytestmark = [pytest.mark.nightly, pytest.mark.anyio]


async def page_numbers(memory: Memory) -> list[int]:
    """Return the numbers of the living pages of the only document."""
    (document,) = await memory.documents.list(ALICE)
    _, pages = await memory.documents.pages(ALICE, document.id)
    return [page.number for page in pages]


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "changed"])
async def test_two_processes_leave_one_version_of_each_page(tmp_path: Path, *, is_known: bool) -> None:
    """Guards the transaction: a page that was planned before another process wrote is not added beside the other's."""
    file = tmp_path / "book.md"
    async with memory_in(tmp_path / "data") as first, memory_in(tmp_path / "data") as second:
        if is_known:
            file.write_text(book("kitchen", "hall", "attic"), "utf-8")
            await first.documents.learn_file(ALICE, file)
        file.write_text(book("kitchen", "cellar", "attic"), "utf-8")
        interruptions = iter([book("kitchen", "barn", "loft")])

        def interrupt() -> None:
            """Change the file, and let the other process learn it, once."""
            if (text := next(interruptions, None)) is not None:
                file.write_text(text, "utf-8")
                anyio.from_thread.run(second.documents.learn_file, ALICE, file)

        slow, _ = watched(first, interrupt)
        learned = await slow.documents.learn_file(ALICE, file)
        assert (learned.pages, learned.is_unchanged) == (3, True)
        assert await page_numbers(first) == [1, 2, 3]
        _, page = await first.documents.page(ALICE, learned.id, 2)
        assert "The barn is painted" in page.message.content
        assert await row_faults(first) == []


def killed_at(folder: Path, file: Path, statement: str) -> None:
    """Learn a file in a process that is killed in the midst of writing."""
    process = start(folder, "learn", str(file), statement)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("statement", ["INSERT INTO gists", "INSERT INTO lexical"])
async def test_a_killed_learner_leaves_whole_documents_or_none(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "book.md"
    file.write_text(book("kitchen", "cellar"), "utf-8")
    killed_at(tmp_path / "data", file, statement)
    async with memory_in(tmp_path / "data") as memory:
        assert await memory.documents.list(ALICE) == []
        assert (await memory.documents.learn_file(ALICE, file)).added == 2
    file.write_text(book("kitchen", "barn", "attic"), "utf-8")
    killed_at(tmp_path / "data", file, statement)
    async with memory_in(tmp_path / "data") as memory:
        assert await page_numbers(memory) == [1, 2]
        learned = await memory.documents.learn_file(ALICE, file)
        assert (learned.pages, learned.added, learned.removed) == (3, 2, 1)
        assert await page_numbers(memory) == [1, 2, 3]
        assert await row_faults(memory) == []
