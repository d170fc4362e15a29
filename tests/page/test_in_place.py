"""Correct a hit where it stands in a list, and come back to that list."""

from __future__ import annotations

import re

import httpx
import pytest

from palimpsest.core.models import Scope
from tests.support.memory import ALICE
from tests.support.page import HOST, Browser, OpenPage, undo_paths

pytestmark = pytest.mark.anyio

PART = {"hx-request": "true", "hx-current-url": f"{HOST}/?q=dentist&done=undone"}
"""What htmx says of a request for a part of a page."""


def back_of(shown: httpx.Response) -> list[str]:
    """Return where the undo of a page leads to."""
    return re.findall(r'name="back" value="([^"]*)"', shown.text)


async def test_text_tags_and_pin_are_one_edit(page: OpenPage, browser: Browser) -> None:
    (memory_id,) = await page.add("Alice's dentist is Dr. Brandt")
    await page.memory.update(ALICE, memory_id, tags=["health"])
    form = await browser.get(f"/memories/{memory_id}/edit", headers=PART)
    assert "<html" not in form.text
    assert "Dr. Brandt</textarea>" in form.text
    assert 'value="health"' in form.text
    new = {"text": "Alice's dentist is Dr. Meyer", "tags": "health, people", "pinned": "on"}
    hit = await browser.post(f"/memories/{memory_id}/edit", data=new, headers=PART)
    memory = await page.stored(memory_id)
    assert (memory.text, memory.tags, memory.metadata) == (new["text"], ("health", "people"), {"pinned": True})
    assert hit.text.strip().startswith("<article>")
    assert "Dr. Meyer" in hit.text
    assert back_of(hit) == ["/?q=dentist"]
    undone = await browser.post(undo_paths(hit)[0], data={"back": back_of(hit)[0]})
    assert undone.headers["location"] == "/?q=dentist&done=undone"
    memory = await page.stored(memory_id)
    assert (memory.text, memory.tags, memory.metadata) == ("Alice's dentist is Dr. Brandt", ("health",), {})


async def test_a_text_that_another_memory_has_leads_to_that_one(page: OpenPage, browser: Browser) -> None:
    boat, ship = await page.add("Alice has a boat", "Alice has a ship")
    hit = await browser.post(f"/memories/{boat}/edit", data={"text": "Alice has a ship", "tags": ""}, headers=PART)
    assert f'href="/memories/{ship}"' in hit.text
    assert (await page.stored(boat)).superseded_by == ship
    await browser.post(undo_paths(hit)[0])
    assert (await page.stored(boat)).deleted_at is None


async def test_without_a_script_the_page_of_the_memory_opens(page: OpenPage, browser: Browser) -> None:
    garden = Scope("alice", "garden")
    (memory_id,) = await page.add("Alice grows beans", scope=garden)
    listed = await browser.get("/", params={"project": "garden"})
    assert f'action="/memories/{memory_id}/edit"' in listed.text
    opened = await browser.get(f"/memories/{memory_id}/edit", params={"project": "garden"})
    assert opened.headers["location"] == f"/memories/{memory_id}?project=garden"


async def test_a_form_that_changes_nothing_keeps_what_was_typed(page: OpenPage, browser: Browser) -> None:
    """What is the same is no edit, and what does not fit says why. Only the path of where a page is, is used."""
    (memory_id,) = await page.add("Alice has a boat")
    path, edits = f"/memories/{memory_id}/edit", len(await page.memory.log(ALICE))
    closed = (await browser.get(f"/memories/{memory_id}/hit", headers=PART)).text
    assert ("Alice has a boat" in closed, "<textarea" in closed) == (True, False)
    same = await browser.post(path, data={"text": "Alice has a boat", "tags": ""}, headers=PART)
    assert ("Nothing had to change." in same.text, undo_paths(same)) == (True, [])
    sent = {"text": "Alice has <b>two</b> boats", "tags": "x" * 61}
    form = await browser.post(path, data=sent, headers=PART)
    assert (form.status_code, "at most 20 tags" in form.text) == (200, True)
    assert "Alice has &lt;b&gt;two&lt;/b&gt; boats</textarea>" in form.text
    assert len(await page.memory.log(ALICE)) == edits
    elsewhere = PART | {"hx-current-url": "https://evil.example//evil.example/x"}
    hit = await browser.post(path, data={"text": "Alice has a ship", "tags": ""}, headers=elsewhere)
    assert "evil" not in hit.text
