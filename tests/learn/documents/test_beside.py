"""Documents beside the rest: merged projects, forgetting, briefs, verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from tests.support.documents import book
from tests.support.ledger_access import row_faults
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

OLD, NEW = Scope("alice", "old"), Scope("alice", "new")


async def contents(memory: Memory, scope: Scope) -> list[tuple[int, str]]:
    """Return the numbers and the headings of the pages of the only document."""
    (document,) = await memory.documents.list(scope)
    _, pages = await memory.documents.pages(scope, document.id)
    return [(page.number, page.gist.split(":")[0]) for page in pages]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("later", [OLD, NEW], ids=["old", "new"])
async def test_projects_that_are_merged_have_one_version_of_a_document(tmp_path: Path, later: Scope) -> None:
    file, clock = tmp_path / "book.md", StoppedClock()
    async with memory_in(tmp_path / "data", clock) as memory:
        for scope, room in ((NEW if later is OLD else OLD, "hall"), (later, "barn")):
            file.write_text(book("kitchen", room, "attic"), "utf-8")
            await memory.documents.learn_file(scope, file)
            clock.forward(hours=1)
        before = clock.at
        clock.forward(hours=1)
        await memory.projects.merge("old", "new")
        merged = [(1, "Book › kitchen"), (2, "Book › barn"), (3, "Book › attic")]  # noqa: RUF001
        assert await contents(memory, NEW) == merged
        assert await row_faults(memory) == []
        assert (await memory.documents.learn_file(NEW, file)).is_unchanged
        file.write_text(book("kitchen", "hall"), "utf-8")
        await memory.documents.learn_file(NEW, file)
        assert await contents(memory, NEW) == [(1, "Book › kitchen"), (2, "Book › hall")]  # noqa: RUF001
        past = await memory.search(NEW, "When is the barn painted?", as_of=before)
        assert any("barn" in hit.text for hit in past.hits)
        assert await row_faults(memory) == []


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("pages", [150, 400])
async def test_a_large_document_does_not_hide_what_somebody_said(tmp_path: Path, pages: int) -> None:
    """Guards that pages do not take all places of a search: each of them has more words of the question."""
    (tmp_path / "rooms.md").write_text(book(*(f"room {number}" for number in range(pages))), "utf-8")
    async with memory_in(tmp_path / "data") as memory:
        said = await add_text(memory, "Every spring the shed gets a new colour")
        await memory.documents.learn_file(ALICE, tmp_path / "rooms.md")
        result = await memory.search(ALICE, "What is painted again every spring?", max_tokens=8_000)
        assert said in [hit.id for hit in result.hits[:5]]
        assert any(hit.document is not None for hit in result.hits[:5])
