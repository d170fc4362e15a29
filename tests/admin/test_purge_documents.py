"""Purge of a page: what other pages and the title say of it goes too, and the rest of the document stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ledger_access import ledger_faults
from tests.support.ledger_files import files_with
from tests.support.memory import ALICE, memory_in

pytestmark = pytest.mark.anyio

HEADING = "The lantern of Zorvexa"
FILLER = "\n\n".join(f"The keeper wrote sentence number {number} about harbours and tides." for number in range(60))
STORY = f"# {HEADING}\n\nZorvexa hid the lantern.\n\n{FILLER}\n\n"
TEXT = f"{STORY}## Tides\n\n{FILLER}\n\n## Ropes\n\nRopes are of hemp. {FILLER}"


async def test_no_other_page_and_no_title_names_what_a_purged_page_said(tmp_path: Path) -> None:
    """Guards the headings of a page in the gists of those below it, and a title that was its first line."""
    file = tmp_path / "harbour.md"
    file.write_text(TEXT)
    async with memory_in(tmp_path / "data") as memory:
        learned = await memory.documents.learn_file(ALICE, file, title=HEADING)
        document, pages = await memory.documents.pages(ALICE, learned.id)
        assert (document.title, len(pages) > 2) == (HEADING, True)
        assert any("Zorvexa" in page.gist for page in pages[1:]), "a heading is named below it"
        first = next(page for page in pages if "Zorvexa hid" in page.message.content).message
        done = await memory.care.purge(ALICE, [first.id])
        assert done.clean
        document, left = await memory.documents.pages(ALICE, learned.id)
        kept = [page.message.content for page in pages if page.message.id != first.id]
        assert [page.message.content for page in left] == kept
        assert document.title == document.uri
        hits = (await memory.search(ALICE, "Which ropes are of hemp?")).hits
        assert any("hemp" in hit.text for hit in hits)
    assert files_with(tmp_path / "data", "zorvexa", ignore=[]) == set()
    assert ledger_faults(tmp_path / "data" / "ledger.db") == []
