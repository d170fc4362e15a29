"""Correct a hit where it stands in a list, and come back to that list."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from palimpsest.core.models import Memory, Scope
from palimpsest.page.sign_in import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.memory import ALICE
from tests.support.page import HOST, OWN, READER, OpenPage, page_in, undo_paths

pytestmark = pytest.mark.anyio

PART = {"hx-request": "true", "hx-current-url": f"{HOST}/?q=dentist&done=undone"}
"""What htmx says of a request for a part of a page."""


async def stored(page: OpenPage, memory_id: str) -> Memory:
    """Return a memory as it is stored."""
    memory = await page.memory.get(ALICE, memory_id)
    assert isinstance(memory, Memory)
    return memory


def back_of(shown: httpx.Response) -> list[str]:
    """Return where the undo of a page leads to."""
    return re.findall(r'name="back" value="([^"]*)"', shown.text)


async def test_text_tags_and_pin_are_one_edit(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice's dentist is Dr. Brandt")
        await page.memory.set_tags(ALICE, memory_id, ["health"])
        form = await browser.get(f"/memories/{memory_id}/edit", headers=PART)
        assert "<html" not in form.text
        assert "Dr. Brandt</textarea>" in form.text
        assert 'value="health"' in form.text
        new = {"text": "Alice's dentist is Dr. Meyer", "tags": "health, people", "pinned": "on"}
        hit = await browser.post(f"/memories/{memory_id}/edit", data=new, headers=OWN | PART)
        memory = await stored(page, memory_id)
        assert (memory.text, memory.tags, memory.metadata) == (new["text"], ("health", "people"), {"pinned": True})
        assert hit.text.strip().startswith("<article>")
        assert "Dr. Meyer" in hit.text
        assert back_of(hit) == ["/?q=dentist"]
        undone = await browser.post(undo_paths(hit)[0], data={"back": back_of(hit)[0]}, headers=OWN)
        assert undone.headers["location"] == "/?q=dentist&done=undone"
        memory = await stored(page, memory_id)
        assert (memory.text, memory.tags, memory.metadata) == ("Alice's dentist is Dr. Brandt", ("health",), {})


async def test_nothing_new_is_no_edit(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice has a boat")
        edits = len(await page.memory.log(ALICE))
        hit = await browser.post(
            f"/memories/{memory_id}/edit", data={"text": "Alice has a boat", "tags": ""}, headers=OWN | PART
        )
        assert ("Nothing had to change." in hit.text, undo_paths(hit)) == (True, [])
        assert len(await page.memory.log(ALICE)) == edits


async def test_a_form_that_does_not_fit_says_why_and_keeps_what_was_typed(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice has a boat")
        sent = {"text": "Alice has <b>two</b> boats", "tags": "x" * 61}
        form = await browser.post(f"/memories/{memory_id}/edit", data=sent, headers=OWN | PART)
        assert (form.status_code, "at most 20 tags" in form.text) == (200, True)
        assert "Alice has &lt;b&gt;two&lt;/b&gt; boats</textarea>" in form.text
        assert (await stored(page, memory_id)).text == "Alice has a boat"


async def test_a_text_that_another_memory_has_leads_to_that_one(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        boat, ship = await page.add("Alice has a boat", "Alice has a ship")
        hit = await browser.post(
            f"/memories/{boat}/edit", data={"text": "Alice has a ship", "tags": ""}, headers=OWN | PART
        )
        assert f'href="/memories/{ship}"' in hit.text
        assert (await stored(page, boat)).superseded_by == ship
        await browser.post(undo_paths(hit)[0], headers=OWN)
        assert (await stored(page, boat)).deleted_at is None


async def test_a_form_is_closed_without_a_change(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice has a boat")
        hit = await browser.get(f"/memories/{memory_id}/hit", headers=PART)
        assert "Alice has a boat" in hit.text
        assert "<textarea" not in hit.text


async def test_without_a_script_the_page_of_the_memory_opens(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        garden = Scope("alice", "garden")
        (memory_id,) = await page.add("Alice grows beans", scope=garden)
        listed = await browser.get("/", params={"project": "garden"})
        assert f'action="/memories/{memory_id}/edit"' in listed.text
        opened = await browser.get(f"/memories/{memory_id}/edit", params={"project": "garden"})
        assert opened.headers["location"] == f"/memories/{memory_id}?project=garden"


async def test_who_may_not_write_or_see_gets_no_form(tmp_path: Path) -> None:
    bound = Visitor(Grant("alice", project="garden"))
    async with page_in(tmp_path) as page, page.browser(READER) as reader, page.browser(bound) as gardener:
        (memory_id,) = await page.add("Alice has a boat")
        (elsewhere,) = await page.add("Alice grows beans", scope=Scope("alice", "kitchen"))
        sent = {"text": "Alice has no boat", "tags": ""}
        assert (await reader.get(f"/memories/{memory_id}/edit", headers=PART)).status_code == 403
        assert (await reader.post(f"/memories/{memory_id}/edit", data=sent, headers=OWN | PART)).status_code == 403
        assert "/edit" not in (await reader.get("/")).text.replace("/edits", "")
        for path in (f"/memories/{elsewhere}/edit", f"/memories/{elsewhere}/hit"):
            assert (await gardener.get(path, headers=PART)).status_code == 404
        assert (await gardener.post(f"/memories/{elsewhere}/edit", data=sent, headers=OWN | PART)).status_code == 404
        assert (await stored(page, memory_id)).text == "Alice has a boat"


async def test_an_address_elsewhere_is_no_place_to_come_back_to(tmp_path: Path) -> None:
    """A request for a part says where its page is. Only the path of that is used."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice has a boat")
        headers = OWN | {"hx-request": "true", "hx-current-url": "https://evil.example//evil.example/x"}
        hit = await browser.post(
            f"/memories/{memory_id}/edit", data={"text": "Alice has a ship", "tags": ""}, headers=headers
        )
        assert "evil" not in hit.text
