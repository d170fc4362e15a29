"""Backups and exports on the page: made, listed, downloaded and restored, while its own memory stays open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from palimpsest.core.models import Scope
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.memory import StoppedClock
from tests.support.page import Browser, OpenPage, done, page_in

pytestmark = pytest.mark.anyio


def names(text: str) -> list[str]:
    return re.findall(r'href="/care/backups/restore\?file=([^"]+)"', text)


async def found(page: OpenPage) -> list[str]:
    listed = await page.memory.list(page.memory.scope)
    hits = (await page.memory.search(page.memory.scope, "what does Alice have", limit=10)).hits
    assert {hit.id for hit in hits} == {hit.id for hit in listed.hits}
    return sorted(hit.text for hit in hits)


async def test_a_backup_is_restored_and_the_page_goes_on(tmp_path: Path) -> None:
    async with page_in(tmp_path, StoppedClock()) as page, page.browser() as browser:
        assert names((await browser.get("/care/backups")).text) == []
        await page.add("Alice has a boat")
        made = await done(browser, "/care/backups")
        assert "A backup was made" in made.text
        assert "ledger-backup-" in made.text
        (backup,) = names(made.text)
        await page.add("Alice has a kayak")
        asked = (await browser.get("/care/backups/restore", params={"file": backup})).text
        assert "memories: 1" in asked
        assert "for all users and projects" in asked
        assert "a backup of the present state is made" in asked
        refused = await browser.post("/care/backups/restore", data={"file": backup})
        assert (refused.status_code, await found(page)) == (400, ["Alice has a boat", "Alice has a kayak"])

        form = {"file": backup, "confirmed": "on"}
        restored = (await done(browser, "/care/backups/restore", form)).text
        assert await found(page) == ["Alice has a boat"]
        await page.add("Alice has a canoe")
        assert await found(page) == ["Alice has a boat", "Alice has a canoe"]
        assert "Alice has a canoe" in (await browser.get("/", params={"q": "canoe"})).text

        before = names(restored)[0]
        assert f"<code>{before}</code>" in restored
        assert before.startswith("ledger-before-restore-")
        listed = (await browser.get("/care/backups")).text
        assert names(listed)[0] == before
        await browser.post("/care/backups/restore", data={"file": before, "confirmed": "on"})
        assert await found(page) == ["Alice has a boat", "Alice has a kayak"]


async def test_only_a_backup_is_restored(page: OpenPage, browser: Browser) -> None:
    """Guards against names that lead out of the folder of backups."""
    await page.add("Alice has a boat")
    for name in ("../ledger.db", "ledger.db", "/etc/passwd", "", "ledger-backup-../x.db"):
        assert (await browser.get(f"/care/backups/restore?file={quote(name)}")).status_code == 400, name
        form = {"file": name, "confirmed": "on"}
        assert (await browser.post("/care/backups/restore", data=form)).status_code == 400, name
    assert await found(page) == ["Alice has a boat"]


async def fill(page: OpenPage) -> None:
    await page.add("Alice has a boat")
    await page.add("The shop sells tea", scope=Scope("alice", "shop"))
    await page.add("The blog is about tea", scope=Scope("alice", "blog"))
    await page.add("Bob has a car", scope=Scope("bob"))


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_everything_is_downloaded_without_loss(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    """Guards the export: it is the file that the command writes, and leaves nothing on the disk."""
    await fill(page)
    files = names_in(tmp_path)
    answer = await browser.get("/care/export")
    assert answer.headers["content-disposition"].startswith('attachment; filename="palimpsest-')
    assert int(answer.headers["content-length"]) == len(answer.content)
    await page.memory.care.export(tmp_path / "command.jsonl", lambda _done, _total: None)
    header, *items = [json.loads(line) for line in answer.text.splitlines()]
    assert items == [json.loads(line) for line in (tmp_path / "command.jsonl").read_text("utf-8").splitlines()][1:]
    assert header["user_id"] == "alice"
    assert names_in(tmp_path) - {"command.jsonl"} == files
    assert "Bob" not in answer.text


async def test_each_visitor_gets_what_they_may_see(page: OpenPage) -> None:
    """Guards projects and users from each other."""
    bob, shop = Visitor(Grant("bob", read_only=True)), Visitor(Grant("alice", project="shop"))
    async with page.browser(bob) as of_bob, page.browser(shop) as of_shop:
        await fill(page)
        text = (await of_bob.get("/care/export")).text
        assert ("Bob has a car" in text, "Alice" in text, "tea" in text) == (True, False, False)
        assert (await of_shop.get("/care/export")).status_code == 404
