"""Download a memory, and no more of it than the visitor may see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.core.models import Scope
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.page import Browser, OpenPage

pytestmark = pytest.mark.anyio


async def fill(page: OpenPage) -> None:
    """Store memories of two users and two projects."""
    await page.add("Alice has a boat")
    await page.add("The shop sells tea", scope=Scope("alice", "shop"))
    await page.add("The blog is about tea", scope=Scope("alice", "blog"))
    await page.add("Bob has a car", scope=Scope("bob"))


def names_in(folder: Path) -> set[str]:
    """Return the names of what lies in a folder."""
    return {path.name for path in folder.iterdir()}


async def test_everything_is_downloaded_without_loss(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    """Guards the export: it is the file that the command writes, and leaves nothing on the disk."""
    await fill(page)
    files = names_in(tmp_path)
    answer = await browser.get("/care/export/jsonl")
    assert answer.headers["content-disposition"].startswith('attachment; filename="palimpsest-')
    assert int(answer.headers["content-length"]) == len(answer.content)
    await page.memory.care.export(tmp_path / "command.jsonl", "jsonl", lambda _done, _total: None)
    header, *items = [json.loads(line) for line in answer.text.splitlines()]
    assert items == [json.loads(line) for line in (tmp_path / "command.jsonl").read_text("utf-8").splitlines()][1:]
    assert header["user_id"] == "alice"
    assert names_in(tmp_path) - {"command.jsonl"} == files
    markdown = (await browser.get("/care/export/markdown")).text
    assert all(text in markdown for text in ("# Memories of alice", "boat", "## Project shop", "## Project blog"))
    assert "Bob" not in answer.text + markdown


async def test_each_visitor_gets_what_they_may_see(page: OpenPage) -> None:
    """Guards projects and users from each other."""
    bob, shop = Visitor(Grant("bob", read_only=True)), Visitor(Grant("alice", project="shop"))
    async with page.browser(bob) as of_bob, page.browser(shop) as of_shop:
        await fill(page)
        for form in ("jsonl", "markdown"):
            text = (await of_bob.get(f"/care/export/{form}")).text
            assert ("Bob has a car" in text, "Alice" in text, "tea" in text) == (True, False, False)
        text = (await of_shop.get("/care/export/markdown")).text
        assert ("boat" in text, "shop sells" in text, "blog" in text, "Bob" in text) == (True, True, False, False)
        assert (await of_shop.get("/care/export/jsonl")).status_code == 404
        assert (await of_bob.get("/care/export/html")).status_code == 404
