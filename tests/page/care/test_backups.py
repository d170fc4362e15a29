"""Backups, exports and imports on the page: what they hold, what they would add, and the way back."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from palimpsest.admin import import_file
from palimpsest.core.models import Scope
from palimpsest.page import administration
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from palimpsest.store import transfer
from tests.support.memory import ALICE, memory_texts
from tests.support.page import READER, Browser, OpenPage, done, page_in

pytestmark = pytest.mark.anyio


def names(text: str) -> list[str]:
    return re.findall(r'href="/care/backups/restore\?file=([^"]+)"', text)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_everything_of_a_visitor_is_downloaded_without_loss(
    tmp_path: Path, page: OpenPage, browser: Browser
) -> None:
    """Guards the export: it is the file that the command writes, leaves nothing on the disk, and nobody else's."""
    await page.add("Alice has a boat")
    await page.add("The shop sells tea", scope=Scope("alice", "shop"))
    await page.add("Bob has a car", scope=Scope("bob"))
    files = names_in(tmp_path)
    answer = await browser.get("/care/export")
    assert answer.headers["content-disposition"].startswith('attachment; filename="palimpsest-')
    assert int(answer.headers["content-length"]) == len(answer.content)
    await page.memory.care.export(tmp_path / "command.jsonl", lambda _done, _total: None)
    header, *items = [json.loads(line) for line in answer.text.splitlines()]
    assert items == [json.loads(line) for line in (tmp_path / "command.jsonl").read_text("utf-8").splitlines()][1:]
    assert header["user_id"] == "alice"
    assert names_in(tmp_path) - {"command.jsonl"} == files
    bob, shop = Visitor(Grant("bob", read_only=True)), Visitor(Grant("alice", project="shop"))
    async with page.browser(bob) as of_bob, page.browser(shop) as of_shop:
        text = (await of_bob.get("/care/export")).text
        assert ("Bob has a car" in text, "Alice" in text, "tea" in text) == (True, False, False)
        assert (await of_shop.get("/care/export")).status_code == 404


MEM0 = [
    {"id": "m1", "memory": "Ana drinks green tea", "created_at": "2024-03-01T10:00:00Z"},
    {"id": "m2", "memory": "Ana keeps a parrot <b>", "created_at": "2024-04-01T10:00:00Z"},
]


def form(content: Any = MEM0, name: str = "mem0.json") -> dict[str, Any]:
    return {"file": (name, content if isinstance(content, bytes) else json.dumps(content).encode())}


async def settled(browser: Browser) -> str:
    return await shown(browser, lambda text: 'hx-trigger="every 1s"' not in text)


async def shown(browser: Browser, is_it: Callable[[str], bool]) -> str:
    with anyio.fail_after(60):
        while not is_it(text := (await browser.get("/care/import")).text):  # noqa: ASYNC110 - as a browser does
            await anyio.sleep(0.02)
    return text


async def sent(browser: Browser, **of_form: Any) -> str:
    """Send a file, and return the page that says what it would bring."""
    answer = await browser.post("/care/import", files=form(**of_form))
    assert (answer.status_code, answer.headers.get("location")) == (303, "/care/import"), answer.text
    return await settled(browser)


def uploads(folder: Path) -> list[Path]:
    return list((folder / "uploads").glob("*"))


async def test_a_file_is_previewed_imported_and_undone(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    """What a person deleted stays away when the file comes again, and it says why."""
    preview = await sent(browser)
    assert all(text in preview for text in ("memories: 2", "Ana drinks green tea", "Ana keeps a parrot &lt;b&gt;"))
    assert await memory_texts(page.memory) == []
    (waiting,) = uploads(tmp_path)
    assert (waiting.stat().st_mode & 0o777, waiting.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    await browser.post("/care/import/start")
    answer = await settled(browser)
    assert "The file is imported." in answer
    (undo_path,) = re.findall(r'action="(/edits/\d+/undo[^"]*)"', answer)
    assert (await memory_texts(page.memory), uploads(tmp_path)) == (
        ["Ana drinks green tea", "Ana keeps a parrot <b>"],
        [],
    )
    await browser.post(undo_path)
    assert await memory_texts(page.memory) == []
    await sent(browser)
    await browser.post("/care/import/start")
    await settled(browser)
    parrot = next(hit.id for hit in (await page.memory.list(ALICE)).hits if "parrot" in hit.text)
    await page.memory.delete(ALICE, [parrot])
    again = await sent(browser)
    assert "Nothing: all of it is already here." in again
    assert "deleted here after an earlier import: 1" in again.split("Skipped, because it is already here")[1]


async def test_the_name_of_a_file_is_only_shown(tmp_path: Path) -> None:
    """Guards against names that lead elsewhere or are HTML, also in the text of an error."""
    async with page_in(tmp_path / "data") as page, page.browser() as browser:
        for name in ("../../evil.json", "/etc/passwd", "..\\..\\evil.json", "<img src=x onerror=alert(1)>"):
            await sent(browser, name=name)
            assert len(uploads(tmp_path / "data")) == 1, name
            refused = await sent(browser, name=name, content=b"{ damaged")
            assert uploads(tmp_path / "data") == [], name
            assert names_in(tmp_path) == {"data"}, name
            assert ("<img" in refused, str(tmp_path) in refused) == (False, False), name
        assert await memory_texts(page.memory) == []


async def test_a_damaged_or_missing_file_is_refused_with_the_reason(
    tmp_path: Path, page: OpenPage, browser: Browser
) -> None:
    """Guards the memory: what cannot be read brings nothing, and is not kept."""
    no_files: list[dict[str, Any]] = [
        {"text": (None, "x")},
        {"file": ("", b"")},
        {"file": ("empty.json", b"")},
        {"other": ("a", b"[]")},
    ]
    for content in (b"{ damaged", b"\xff\xfe\x00", b'{"type": "palimpsest"', b"PK\x03\x04 damaged", b"[1, 2]"):
        refused = await sent(browser, content=content)
        assert "was not imported to its end" in refused, content
        assert 'action="/care/import/start"' not in refused, content
        started = await browser.post("/care/import/start")
        assert (started.status_code, "no file waits" in started.text) == (400, True), content
        assert uploads(tmp_path) == [], content
    for files in no_files:
        answer = await browser.post("/care/import", files=files)
        assert (answer.status_code, uploads(tmp_path)) == (400, []), files
    assert await memory_texts(page.memory) == []


async def test_a_file_that_is_not_wanted_is_forgotten(tmp_path: Path) -> None:
    """Guards the private folder: nothing stays in it, also when the page closes. An export has a way back, too."""
    async with page_in(tmp_path / "there") as page, page.browser() as browser:
        await page.add("Alice has a boat", "Alice has a kayak")
        content = (await browser.get("/care/export")).content
    here = tmp_path / "here"
    async with page_in(here) as page, page.browser() as browser:
        await sent(browser)
        forgotten = await done(browser, "/care/import/discard")
        assert ("mem0.json" in forgotten.text, uploads(here)) == (False, [])
        await page.add("Alice sings")
        assert "memories: 2" in await sent(browser, content=content, name="alice.jsonl")
        await browser.post("/care/import/start")
        assert "/care/backups/restore?file=ledger-before-import-" in await settled(browser)
        assert await memory_texts(page.memory) == ["Alice has a boat", "Alice has a kayak", "Alice sings"]
        for _ in range(2):
            await sent(browser)
            assert len(uploads(here)) == 1, "a new file replaces the one that waits"
    assert uploads(here) == []


async def test_too_large_a_file_is_refused_before_it_is_read(
    tmp_path: Path, page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the memory of the machine from visitors: their files are smaller, and so is what a ZIP holds."""
    monkeypatch.setattr(administration, "MAX_BYTES_OF_OTHERS", 1024)
    async with page.browser(Visitor(Grant("alice"))) as browser, page.browser() as owner:
        answer = await browser.post("/care/import", files=form(b" " * 2000))
        assert (answer.status_code, uploads(tmp_path)) == (400, [])
        elsewhere = await browser.post("/care/import/start", content=b" " * 300_000)
        assert elsewhere.status_code == 413
        assert "mem0.json" in await sent(owner)


async def test_an_import_goes_on_without_its_browser_and_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards one import at a time: it says how far it is, goes on when its browser is gone, and a second is refused."""
    monkeypatch.setattr(import_file, "BATCH", 1)
    async with page_in(tmp_path) as page:
        go_on = held_before_storing(monkeypatch)
        async with page.browser() as browser:
            await sent(browser)
            await browser.post("/care/import/start")
        async with page.browser() as browser:
            text = await shown(browser, lambda text: '<progress max="2" value="1">' in text)
            assert 'type="file"' not in text
            part = (await browser.get("/care/import", headers={"hx-request": "true"})).text
            assert part.lstrip().startswith("<section")
            for second in (
                browser.post("/care/import", files=form()),
                browser.post("/care/import/start"),
                browser.post("/care/import/discard"),
                browser.post("/care/backups/restore", data={"file": "x", "confirmed": "on"}),
            ):
                answer = await second
                assert (answer.status_code, "under way" in answer.text) == (400, True)
            go_on.set()
            assert "The file is imported." in await settled(browser)
        assert len(await memory_texts(page.memory)) == 2
    assert uploads(tmp_path) == []


def held_before_storing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have the second batch of an import wait for the event that is returned."""
    go_on = threading.Event()
    store, batches = transfer.import_items, list[int]()

    def held(*args: Any) -> None:
        batches.append(1)
        if len(batches) > 1:
            assert go_on.wait(30)
        store(*args)

    monkeypatch.setattr(transfer, "import_items", held)
    return go_on


async def test_each_user_has_an_import_of_their_own_if_they_may(page: OpenPage, browser: Browser) -> None:
    """Guards users from each other, and the memory from visitors who may only read or see one project."""
    for visitor, status in ((READER, 403), (Visitor(Grant("alice", project="shop")), 404)):
        async with page.browser(visitor) as other:
            assert (await other.get("/care/import")).status_code == status
            for path in ("", "/start", "/discard"):
                assert (await other.post(f"/care/import{path}", files=form())).status_code == status
    async with page.browser(Visitor(Grant("bob"))) as other:
        await sent(browser, name="of-alice.json")
        assert "of-alice" not in (await other.get("/care/import")).text
        assert (await other.post("/care/import/start")).status_code == 400
        await sent(other, content=MEM0[:1], name="of-bob.json")
        await other.post("/care/import/start")
        assert "restore?file" not in await settled(other)
        assert [hit.text for hit in (await page.memory.list(Scope("bob"))).hits] == ["Ana drinks green tea"]
        assert await memory_texts(page.memory) == []
