"""Documents: learned, found, changed, undone, merged and exported, also by processes that are killed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import PAGE, Scope
from palimpsest.memory import Memory
from tests.support.documents import HUT, book, write_pdf
from tests.support.exports import exported
from tests.support.ledger_access import ignore_progress, row_faults
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, memory_texts
from tests.support.memory_process import start
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

KEY = "sk-proj-4f9Kq2ZtR8vWx1LmN7bYc3HdS6gJ5pTa"


async def learn(memory: Memory, file: Path, text: str) -> Any:
    await anyio.Path(file).write_text(text, "utf-8")
    return await memory.documents.learn_file(memory.scope, file)


async def pages_of(memory: Memory) -> list[Any]:
    """Return the pages of the only document."""
    (document,) = await memory.documents.list(memory.scope)
    return list((await memory.documents.pages(memory.scope, document.id))[1])


async def page_texts(memory: Memory) -> list[str]:
    return [page.message.content for page in await pages_of(memory)]


async def test_a_hit_names_the_page_and_its_document(tmp_path: Path, memory: Memory) -> None:
    learned = await learn(memory, tmp_path / "hut.md", HUT)
    assert (learned.pages, learned.added, learned.is_unchanged) == (1, 1, False)
    (hit,) = (await memory.search(ALICE, "where do we get water if the spring is dry?")).hits
    assert hit.document is not None
    assert (hit.kind, hit.role, str(hit.document)) == ("message", PAGE, "hut.md, page 1")
    assert hit.document.id == learned.id
    document, page = await memory.documents.page(ALICE, learned.id[:8], 1)
    assert page.message.content == HUT.strip()
    assert (document.title, document.pages) == ("hut.md", 1)
    with pytest.raises(MemoryNotFoundError, match="has 1 pages, and no page 2"):
        await memory.documents.page(ALICE, learned.id, 2)
    edits = await memory.log(ALICE)
    again = await learn(memory, tmp_path / "hut.md", HUT)
    assert (again.id, again.is_unchanged) == (learned.id, True)
    assert await memory.log(ALICE) == edits


async def test_a_changed_file_replaces_its_pages_and_an_undo_takes_it_back(tmp_path: Path, memory: Memory) -> None:
    file = tmp_path / "book.md"
    await learn(memory, file, book("kitchen", "cellar", "attic"))
    before = await page_texts(memory)
    assert len(before) == 3
    changed = await learn(memory, file, book("kitchen", "barn", "attic"))
    assert (changed.pages, changed.added, changed.removed) == (3, 1, 1)
    after = await page_texts(memory)
    assert [page == old for page, old in zip(after, before, strict=True)] == [True, False, True]
    await memory.undo(ALICE)
    assert await page_texts(memory) == before
    assert (await learn(memory, file, book("kitchen", "barn", "attic"))).added == 1
    assert await page_texts(memory) == after
    await learn(memory, file, book("kitchen", "attic", "barn"))  # what moves keeps its gist
    gists = [page.gist.split(":")[0] for page in await pages_of(memory)]
    assert gists == ["Book › kitchen", "Book › attic", "Book › barn"]  # noqa: RUF001
    assert await row_faults(memory) == []
    for _ in range(3):
        await memory.undo(ALICE)
    assert await memory.documents.list(ALICE) == []


async def test_a_long_text_becomes_a_document(memory: Memory) -> None:
    text = book("kitchen", "cellar")
    first, again = await memory.add_text(ALICE, text), await memory.add_text(ALICE, text)
    assert first.document is not None
    assert (first.document.title, first.document.pages, first.outcomes) == ("Book", 2, ())
    assert again.document is not None
    assert again.document.is_unchanged
    assert await memory_texts(memory) == []
    kept = await memory.add_text(ALICE, text, metadata={"source": "letter"})
    assert (kept.document, len(kept.outcomes)) == (None, 1)


async def test_a_folder_says_what_it_skips(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "sub").mkdir(parents=True)
    write_pdf(folder / "policy.pdf", ["The deductible is 150 euros."])
    for name, content in {
        "hut.md": HUT,
        "sub/bus.html": "<h1>Bus</h1><p>The last bus leaves at 18:40.</p>",
        "draft.txt": "not yet",
        ".gitignore": "draft*\n",
        ".secret.md": "hidden",
        "photo.png": "\x89PNG",
        "broken.pdf": "no",
        "chat.json": "[]",
    }.items():
        (folder / name).write_text(content, "utf-8")
    (folder / "sub" / "loop").symlink_to(folder)
    async with memory_in(tmp_path / "data") as memory:
        first = await memory.documents.learn_folder(ALICE, folder, ignore_progress)
        assert [learned.title for learned in first.learned] == ["hut.md", "policy.pdf", "sub/bus.html"]
        assert {skipped.path: skipped.reason.split(" ")[0] for skipped in first.skipped} == {
            "broken.pdf": "it",
            "chat.json": "may",
            "draft.txt": "ignored",
            "photo.png": "not",
            "sub/loop": "a",
        }
        (folder / "policy.pdf").unlink()
        second = await memory.documents.learn_folder(ALICE, folder, ignore_progress)
        assert all(learned.is_unchanged for learned in second.learned)
        (gone,) = (each for each in await memory.documents.list(ALICE) if each.title == "policy.pdf")
        assert len(await memory.documents.list(ALICE)) == 3
        found, _ = await memory.documents.delete(ALICE, gone.id)
        assert found.title == "policy.pdf"
        assert len(await memory.documents.list(ALICE)) == 2
        await memory.undo(ALICE)
        assert len(await memory.documents.list(ALICE)) == 3


async def test_a_file_that_cannot_be_read_is_an_error_and_secrets_are_replaced(tmp_path: Path, memory: Memory) -> None:
    with pytest.raises(InputError, match="Nothing of it was stored"):
        await memory.documents.learn_file(ALICE, tmp_path / "missing.md")
    with pytest.raises(InputError, match="no text"):
        await learn(memory, tmp_path / "empty.md", " \n\n")
    assert await memory.documents.list(ALICE) == []
    learned = await learn(memory, tmp_path / "keys.md", f"# Keys\n\nThe key is {KEY} and nothing else.\n")
    assert any("secret" in note for note in learned.notes)
    (page,) = await pages_of(memory)
    assert KEY not in page.message.content + page.gist


async def test_an_export_brings_pages_and_gists(tmp_path: Path) -> None:
    file, found = tmp_path / "hut.md", list[Any]()
    for folder in ("old", "new"):
        async with memory_in(tmp_path / folder) as memory:
            if found:
                await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
            else:
                await learn(memory, file, HUT)
            (document,) = await memory.documents.list(ALICE)
            pages = [(page.number, page.message.content, page.gist) for page in await pages_of(memory)]
            found.append((document.title, document.uri, document.id, pages))
            assert (await learn(memory, file, HUT)).is_unchanged
            assert await row_faults(memory) == []
            (tmp_path / "export.jsonl").write_bytes(await exported(memory))
    assert found[0] == found[1]


async def test_projects_that_are_merged_have_one_version_of_a_document(
    tmp_path: Path, memory: Memory, clock: StoppedClock
) -> None:
    async def headings() -> list[str]:
        (document,) = await memory.documents.list(new)
        _, pages = await memory.documents.pages(new, document.id)
        return [page.gist.split(":")[0].rpartition(" ")[2] for page in pages]

    file, old, new = tmp_path / "book.md", Scope("alice", "old"), Scope("alice", "new")
    for scope, room in ((new, "hall"), (old, "barn")):
        file.write_text(book("kitchen", room, "attic"), "utf-8")
        await memory.documents.learn_file(scope, file)
        clock.forward(hours=1)
    before = clock.at
    clock.forward(hours=1)
    await memory.projects.merge("old", "new")
    assert await headings() == ["kitchen", "barn", "attic"]
    assert await row_faults(memory) == []
    assert (await memory.documents.learn_file(new, file)).is_unchanged
    file.write_text(book("kitchen", "hall"), "utf-8")
    await memory.documents.learn_file(new, file)
    assert await headings() == ["kitchen", "hall"]
    past = await memory.search(new, "When is the barn painted?", as_of=before)
    assert any("barn" in hit.text for hit in past.hits)
    assert await row_faults(memory) == []


@pytest.mark.nightly
async def test_a_large_document_does_not_hide_what_somebody_said(tmp_path: Path) -> None:
    """Guards that pages do not take all places of a search: each of them has more words of the question."""
    (tmp_path / "rooms.md").write_text(book(*(f"room {number}" for number in range(150))), "utf-8")
    async with memory_in(tmp_path / "data") as memory:
        said = await add_text(memory, "Every spring the shed gets a new colour")
        await memory.documents.learn_file(ALICE, tmp_path / "rooms.md")
        result = await memory.search(ALICE, "What is painted again every spring?", max_tokens=8_000)
        assert said in [hit.id for hit in result.hits[:5]]
        assert any(hit.document is not None for hit in result.hits[:5])


@pytest.mark.nightly
async def test_two_processes_leave_one_version_of_each_page(tmp_path: Path) -> None:
    """Guards the transaction: a page that was planned before another process wrote is not added beside the other's."""
    file = tmp_path / "book.md"
    async with memory_in(tmp_path / "data") as first, memory_in(tmp_path / "data") as second:
        await learn(first, file, book("kitchen", "hall", "attic"))
        interruptions = iter([book("kitchen", "barn", "loft")])

        def interrupt() -> None:
            """Change the file, and let the other process learn it, once."""
            if (text := next(interruptions, None)) is not None:
                anyio.from_thread.run(learn, second, file, text)

        slow, _ = watched(first, interrupt)
        with pytest.raises(InputError, match="at the same moment; learn it again"):
            await learn(slow, file, book("kitchen", "cellar", "attic"))
        learned = await first.documents.learn_file(ALICE, file)
        assert (learned.pages, learned.is_unchanged) == (3, True)
        assert [page.number for page in await pages_of(first)] == [1, 2, 3]
        _, page = await first.documents.page(ALICE, learned.id, 2)
        assert "The barn is painted" in page.message.content
        assert await row_faults(first) == []


@pytest.mark.nightly
@pytest.mark.parametrize("statement", ["INSERT INTO gists", "INSERT INTO lexical"])
async def test_a_killed_learner_leaves_whole_documents_or_none(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "book.md"
    for rooms, before in ((("kitchen", "cellar"), []), (("kitchen", "barn", "attic"), [1, 2])):
        file.write_text(book(*rooms), "utf-8")
        process = start(tmp_path / "data", "learn", statement, str(file))
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        async with memory_in(tmp_path / "data") as memory:
            documents = await memory.documents.list(ALICE)
            assert [page.number for _ in documents for page in await pages_of(memory)] == before
            learned = await memory.documents.learn_file(ALICE, file)
            assert (learned.pages, learned.added) == (len(rooms), 2)
            assert await row_faults(memory) == []
