"""Documents: learned, found, changed, undone, and kept apart from what people say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import PAGE
from palimpsest.memory import Memory
from tests.support.documents import HUT, book, chapter, write_pdf
from tests.support.exports import exported
from tests.support.learning_jobs import TIMEOUT, HastyClock
from tests.support.ledger_access import ignore_progress, row_faults, select_rows
from tests.support.memory import ALICE, add_text, llm_settings, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio

KEY = "sk-proj-4f9Kq2ZtR8vWx1LmN7bYc3HdS6gJ5pTa"


async def learn(memory: Memory, file: Path, text: str) -> Any:
    await anyio.Path(file).write_text(text, "utf-8")
    return await memory.documents.learn_file(ALICE, file)


async def page_texts(memory: Memory) -> list[str]:
    (document,) = await memory.documents.list(ALICE)
    _, pages = await memory.documents.pages(ALICE, document.id)
    return [page.message.content for page in pages]


async def test_a_hit_names_the_page_and_its_document(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        learned = await learn(memory, tmp_path / "hut.md", HUT)
        (hit,) = (await memory.search(ALICE, "where do we get water if the spring is dry?")).hits
        assert hit.document is not None
        assert (hit.kind, hit.role, str(hit.document), hit.document.id) == (
            "message",
            PAGE,
            "hut.md, page 1",
            learned.id,
        )
        document, page = await memory.documents.page(ALICE, learned.id[:8], 1)
        assert page.message.content == HUT.strip()
        assert (document.title, document.pages) == ("hut.md", 1)
        with pytest.raises(MemoryNotFoundError, match="has 1 pages, and no page 2"):
            await memory.documents.page(ALICE, learned.id, 2)


async def test_a_long_page_shows_the_passage_that_answers(tmp_path: Path) -> None:
    """Guards that a hit is not the beginning of a page whose end answers."""
    filler = chapter("Paint", "The shutters are painted green again in May", 60)
    async with memory_in(tmp_path) as memory:
        await learn(memory, tmp_path / "hut.md", filler + "The key to the cellar hangs behind the barometer.\n")
        hit = (await memory.search(ALICE, "where is the cellar key?")).hits[0]
        assert "behind the barometer" in hit.text
        assert hit.length is not None
        assert len(hit.text) < 1_000
        (whole,) = (await memory.search(ALICE, "where is the cellar key?", max_tokens=8_000)).hits
        assert whole.length is None


async def test_the_same_file_again_changes_nothing(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        first = await learn(memory, tmp_path / "hut.md", HUT)
        assert (first.pages, first.added, first.is_unchanged) == (1, 1, False)
        edits = await memory.log(ALICE)
        again = await learn(memory, tmp_path / "hut.md", HUT)
        assert (again.id, again.is_unchanged) == (first.id, True)
        assert await memory.log(ALICE) == edits


async def test_a_changed_file_replaces_its_pages_and_an_undo_takes_it_back(tmp_path: Path) -> None:
    """Guards history: pages that are the same stay, the others change in one edit."""
    file = tmp_path / "book.md"
    async with memory_in(tmp_path) as memory:
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
        await memory.undo(ALICE)
        await memory.undo(ALICE)
        assert await memory.documents.list(ALICE) == []


async def test_a_page_that_moves_keeps_its_gist(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await learn(memory, tmp_path / "book.md", book("kitchen", "cellar"))
        await learn(memory, tmp_path / "book.md", book("kitchen", "attic", "cellar"))
        (document,) = await memory.documents.list(ALICE)
        _, pages = await memory.documents.pages(ALICE, document.id)
        assert [page.gist.split(":")[0] for page in pages] == ["Book › kitchen", "Book › attic", "Book › cellar"]  # noqa: RUF001
        assert await row_faults(memory) == []


async def test_a_long_text_becomes_a_document(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        text = book("kitchen", "cellar")
        result = await memory.add_text(ALICE, text)
        assert result.document is not None
        assert (result.document.title, result.document.pages, result.outcomes) == ("Book", 2, ())
        again = await memory.add_text(ALICE, text)
        assert again.document is not None
        assert again.document.is_unchanged
        assert await memory_texts(memory) == []
        kept = await memory.add_text(ALICE, text, metadata={"source": "letter"})
        assert kept.document is None
        assert len(kept.outcomes) == 1


async def test_secrets_in_a_document_are_replaced(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        learned = await learn(memory, tmp_path / "keys.md", f"# Keys\n\nThe key is {KEY} and nothing else.\n")
        assert any("secret" in note for note in learned.notes)
        (text,) = await page_texts(memory)
        assert KEY not in text
        _, pages = await memory.documents.pages(ALICE, learned.id)
        assert KEY not in pages[0].gist


async def test_pages_are_not_what_people_said(tmp_path: Path) -> None:
    """Guards lists, briefs and summaries: nobody said a page."""
    async with memory_in(tmp_path) as memory:
        await memory.add_messages(messages_from(("user", "The boat is blue"), ("assistant", "A fine colour")))
        await learn(memory, tmp_path / "hut.md", HUT)
        (row,) = (await memory.conversations.list(ALICE)).conversations
        assert row.messages == 2
        assert "zinc bucket" not in (await memory.summary(ALICE, "recent")).text
        pages = await memory.list(ALICE, filters={"kind": "message", "role": PAGE})
        assert [str(hit.document) for hit in pages.hits] == ["hut.md, page 1"]


async def test_a_folder_says_what_it_skips_and_what_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "hut.md").write_text(HUT, "utf-8")
    (folder / "sub" / "bus.html").write_text("<h1>Bus</h1><p>The last bus leaves at 18:40.</p>", "utf-8")
    write_pdf(folder / "policy.pdf", ["The deductible is 150 euros."])
    (folder / "draft.txt").write_text("not yet", "utf-8")
    (folder / ".gitignore").write_text("draft*\n", "utf-8")
    (folder / ".secret.md").write_text("hidden", "utf-8")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    (folder / "broken.pdf").write_bytes(b"no")
    (folder / "chat.json").write_text("[]", "utf-8")
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
        assert [document.title for document in second.gone] == ["policy.pdf"]
        assert len(await memory.documents.list(ALICE)) == 3
        found, _ = await memory.documents.delete(ALICE, second.gone[0].id)
        assert found.title == "policy.pdf"
        assert len(await memory.documents.list(ALICE)) == 2
        await memory.undo(ALICE)
        assert len(await memory.documents.list(ALICE)) == 3


async def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match="Nothing of it was stored"):
            await memory.documents.learn_file(ALICE, tmp_path / "missing.md")
        with pytest.raises(InputError, match="no text"):
            await learn(memory, tmp_path / "empty.md", " \n\n")
        assert await memory.documents.list(ALICE) == []


async def test_an_export_brings_pages_and_gists(tmp_path: Path) -> None:
    """Guards moving: in another memory the document is the same, and learning it again changes nothing."""
    file = tmp_path / "hut.md"
    async with memory_in(tmp_path / "old") as memory:
        await learn(memory, file, HUT)
        (document,) = await memory.documents.list(ALICE)
        _, pages = await memory.documents.pages(ALICE, document.id)
        (tmp_path / "export.jsonl").write_bytes(await exported(memory))
    async with memory_in(tmp_path / "new") as memory:
        await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
        (copied,) = await memory.documents.list(ALICE)
        _, copies = await memory.documents.pages(ALICE, copied.id)
        assert (copied.title, copied.uri, copied.id) == (document.title, document.uri, document.id)
        assert [(page.number, page.message.content, page.gist) for page in copies] == [
            (page.number, page.message.content, page.gist) for page in pages
        ]
        assert (await learn(memory, file, HUT)).is_unchanged
        assert await row_faults(memory) == []


async def test_a_purge_erases_pages_and_gists(tmp_path: Path) -> None:
    async with memory_in(tmp_path / "data") as memory:
        await learn(memory, tmp_path / "hut.md", HUT)
        (document,) = await memory.documents.list(ALICE)
        _, pages = await memory.documents.pages(ALICE, document.id)
        await memory.care.purge(ALICE, [pages[0].message.id])
        assert await memory.documents.list(ALICE) == []
        assert await row_faults(memory) == []
    assert not any(b"zinc bucket" in path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())


async def test_a_document_moves_with_its_project(tmp_path: Path) -> None:
    async with memory_in(tmp_path, project="hut") as memory:
        file = tmp_path / "hut.md"
        file.write_text(HUT, "utf-8")
        await memory.documents.learn_file(memory.scope, file)
        await memory.projects.move("hut", "cabin")
    async with memory_in(tmp_path, project="cabin") as memory:
        (document,) = await memory.documents.list(memory.scope)
        _, pages = await memory.documents.pages(memory.scope, document.id)
        assert (document.project, len(pages), pages[0].gist != "") == ("cabin", 1, True)
        assert (await memory.documents.learn_file(memory.scope, file)).is_unchanged
        assert await row_faults(memory) == []


class GistModel:
    """A model that writes one gist for every page."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: dict[str, Any]) -> str:
        """Answer one request."""
        prompt = request["messages"][1]["content"]
        assert prompt.startswith("Document: ")
        self.asked += 1
        return json.dumps({"gist": "How mountaineers find something to drink."})


async def test_a_model_writes_gists_in_the_background(tmp_path: Path) -> None:
    """ReadAgent: each page has a gist, which search reads beside the page."""
    model = GistModel()
    with OpenAIServer(model) as server:
        settings: dict[str, Any] = {"llm": llm_settings(server.base_url, timeout=TIMEOUT)}
        async with memory_in(tmp_path, HastyClock(), background=True, **settings) as memory:
            learned = await learn(memory, tmp_path / "book.md", book("kitchen", "cellar"))
            with anyio.fail_after(TIMEOUT):
                while True:
                    _, pages = await memory.documents.pages(ALICE, learned.id)
                    if all(page.gist.startswith("How mountaineers") for page in pages):
                        break
                    await anyio.lowlevel.checkpoint()
            assert model.asked == 2
            hits = (await memory.search(ALICE, "mountaineers")).hits
            assert {str(hit.document) for hit in hits} == {"book.md, page 1", "book.md, page 2"}
            assert (await learn(memory, tmp_path / "book.md", book("kitchen", "cellar"))).is_unchanged
            assert gist_embedders(memory) == [memory.engine.embedder.fingerprint] * 2
            assert await row_faults(memory) == []
            (tmp_path / "export.jsonl").write_bytes(await exported(memory))
    async with memory_in(tmp_path / "new", background=True) as memory:
        await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
        assert gist_embedders(memory) == ["", ""]
        await add_text(memory, "Mara climbs on Mondays")
        with anyio.fail_after(TIMEOUT):
            while gist_embedders(memory) != [memory.engine.embedder.fingerprint] * 2:
                await anyio.lowlevel.checkpoint()
        assert await row_faults(memory) == []


def gist_embedders(memory: Memory) -> list[str]:
    """Return the embedder of the vector of each gist, "" without one."""
    return [embedder for (embedder,) in select_rows(memory, "SELECT embedder FROM gists")]


async def test_what_a_person_said_stays_findable_beside_a_handbook(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "Mara's locker at the pool is number 41")
        topics = ["pumps", "filters", "tiles", "lamps", "ladders", "pool nets", "heaters", "lockers of the staff"]
        for topic in topics:
            file = tmp_path / f"{topic}.md"
            await learn(memory, file, chapter(topic, f"The {topic} are checked by the attendant and written down", 60))
        hits = (await memory.search(ALICE, "Which locker does Mara have at the pool?")).hits
        assert hits[0].text == "Mara's locker at the pool is number 41"
