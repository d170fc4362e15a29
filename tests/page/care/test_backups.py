"""Backups on the page: made, listed and restored, while its own memory stays open."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.memory import StoppedClock
from tests.support.page import Browser, OpenPage, done, page_in

pytestmark = pytest.mark.anyio


def names(text: str) -> list[str]:
    """Return the backups that a page leads to."""
    return re.findall(r'href="/care/backups/restore\?file=([^"]+)"', text)


async def found(page: OpenPage) -> list[str]:
    """Return the texts that a search finds."""
    listed = await page.memory.list(page.memory.scope)
    hits = (await page.memory.search(page.memory.scope, "what does Alice have", limit=10)).hits
    assert {hit.id for hit in hits} == {hit.id for hit in listed.hits}
    return sorted(hit.text for hit in hits)


async def test_a_backup_is_restored_and_the_page_goes_on(tmp_path: Path) -> None:
    """Guards the whole way there and back: the open memory finds what the restored ledger has, and writes to it."""
    async with page_in(tmp_path, StoppedClock()) as page, page.browser() as browser:
        assert names((await browser.get("/care/backups")).text) == []
        await page.add("Alice has a boat")
        made = await done(browser, "/care/backups")
        assert "A backup was made" in made.text
        assert "somebody asked for it" in made.text
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

        (before,) = names(restored)
        assert before.startswith("ledger-before-restore-")
        listed = (await browser.get("/care/backups")).text
        assert names(listed)[0] == before
        assert "before another backup was restored" in listed
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


async def test_a_damaged_backup_is_refused(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    """Guards the ledger: what cannot be read through is named, and replaces nothing."""
    await page.add("Alice has a boat")
    await browser.post("/care/backups")
    (backup,) = (tmp_path / "backups").iterdir()
    backup.write_bytes(backup.read_bytes()[:5000])
    assert (await browser.get("/care/backups/restore", params={"file": backup.name})).status_code == 503
    form = {"file": backup.name, "confirmed": "on"}
    refused = await browser.post("/care/backups/restore", data=form)
    assert (refused.status_code, "nothing was changed" in refused.text) == (503, True)
    assert await found(page) == ["Alice has a boat"]
