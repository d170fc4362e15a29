"""Correct several memories at once, and restore several."""

from __future__ import annotations

import re

import pytest

from palimpsest.core.models import CAPTURED, ORIGIN, Memory, Scope
from tests.support.memory import ALICE, messages_from
from tests.support.page import Browser, OpenPage, done, undo_paths

pytestmark = pytest.mark.anyio

TEXTS = ("Alice has a boat", "Alice plays the violin", "Alice's rent is due on the 3rd")


async def stored(page: OpenPage, ids: list[str], scope: Scope = ALICE) -> list[Memory]:
    found = [await page.memory.get(scope, memory_id) for memory_id in ids]
    return [memory for memory in found if isinstance(memory, Memory)]


async def test_a_tag_is_given_to_many_and_taken_from_many(page: OpenPage, browser: Browser) -> None:
    """Each is one edit, whose undo leads back to the list that the form was on."""
    ids = await page.add(*TEXTS)
    await page.memory.update(ALICE, ids[0], tags=["leisure", "water"])
    form = {"id": ids[:2], "tag": " home ", "back": "/?kind=memory"}
    tagged = await done(browser, "/memories/tag", form)
    assert [memory.tags for memory in await stored(page, ids)] == [("leisure", "water", "home"), ("home",), ()]
    undone = await browser.post(undo_paths(tagged)[0], data={"back": "/?kind=memory"})
    assert undone.headers["location"] == "/?kind=memory&done=undone"
    assert "Undone." in (await browser.get(undone.headers["location"])).text
    assert [memory.tags for memory in await stored(page, ids)] == [("leisure", "water"), (), ()]
    untagged = await done(browser, "/memories/untag", {"id": ids, "tag": "leisure"})
    assert [memory.tags for memory in await stored(page, ids)] == [("water",), (), ()]
    await browser.post(undo_paths(untagged)[0])
    assert (await stored(page, ids))[0].tags == ("leisure", "water")


async def test_all_that_are_shown_or_some_are_pinned_and_unpinned(page: OpenPage, browser: Browser) -> None:
    """All are chosen without a script: a form holds what it shows."""
    ids = await page.add(*TEXTS)
    pinned = await done(browser, "/memories/pin", {"id": ids[:2]})
    assert ["pinned" in memory.metadata for memory in await stored(page, ids)] == [True, True, False]
    await browser.post(undo_paths(pinned)[0])
    assert ["pinned" in memory.metadata for memory in await stored(page, ids)] == [False, False, False]
    unchanged = await done(browser, "/memories/unpin", {"id": ids})
    assert ("Nothing had to change." in unchanged.text, undo_paths(unchanged)) == (True, [])
    shown = re.findall(r'name="shown" value="([^"]+)"', (await browser.get("/")).text)
    assert sorted(shown) == sorted(ids)
    await browser.post("/memories/delete", data={"shown": shown, "all": "on"})
    assert None not in [memory.deleted_at for memory in await stored(page, ids)]


async def test_what_was_captured_is_confirmed_or_dropped(page: OpenPage, browser: Browser) -> None:
    """The page lists what waits; confirming and dropping can be undone."""
    ids = [
        (await page.memory.add_text(ALICE, text, metadata={ORIGIN: CAPTURED}, infer=False)).outcomes[0].memory.id
        for text in TEXTS
    ]
    listed = (await browser.get("/captured")).text
    assert all(memory_id in listed for memory_id in ids)
    back = {"back": "/captured"}
    confirmed = await done(browser, "/memories/confirm", {"id": ids[:1], **back})
    await browser.post("/memories/delete", data={"id": ids[1:2], **back})
    listed = (await browser.get("/captured")).text
    assert [memory_id in listed for memory_id in ids] == [False, False, True]
    assert [ORIGIN in memory.metadata for memory in await stored(page, ids)] == [False, True, True]
    await browser.post(undo_paths(confirmed)[0])
    assert ids[0] in (await browser.get("/captured")).text


async def test_deleted_ones_are_listed_and_restored_as_one_edit(page: OpenPage, browser: Browser) -> None:
    ids = await page.add(*TEXTS)
    await page.memory.delete(ALICE, ids[:2])
    listed = await browser.get("/deleted")
    assert TEXTS[0] in listed.text
    assert "due on the 3rd" not in listed.text
    restored = await done(browser, "/memories/restore", {"id": ids[:2], "back": "/deleted"})
    assert [memory.deleted_at for memory in await stored(page, ids)] == [None, None, None]
    assert 'href="/deleted"' in restored.text
    await browser.post(undo_paths(restored)[0])
    assert [memory.deleted_at is None for memory in await stored(page, ids)] == [False, False, True]


async def test_messages_have_no_tags_and_are_listed_once_deleted(page: OpenPage, browser: Browser) -> None:
    (memory_id,) = await page.add(TEXTS[0])
    await page.memory.add_messages(messages_from({"role": "user", "content": "I sold the boat."}), infer=False)
    (hit,) = (await page.memory.list(ALICE, filters={"kind": "message"})).hits
    form = {"id": [memory_id, hit.id], "tag": "home"}
    answer = await done(browser, "/memories/tag", form)
    assert "1 message stayed as they are" in answer.text
    assert (await stored(page, [memory_id]))[0].tags == ("home",)
    await page.memory.delete(ALICE, [hit.id])
    assert "I sold the boat." in (await browser.get("/deleted", params={"kind": "message"})).text
    await browser.post("/memories/restore", data={"id": [hit.id]})
    assert "I sold the boat." not in (await browser.get("/deleted", params={"kind": "message"})).text


# What is no place of the page to come back to.
ELSEWHERE = (
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "/\t/evil.example",
    "javascript:alert(1)",
    "http://[",
    "\\\\evil.example",
    "",
)


async def test_an_undo_leads_nowhere_else(page: OpenPage, browser: Browser) -> None:
    (memory_id,) = await page.add(TEXTS[0])
    for back in ELSEWHERE:
        form = {"id": [memory_id], "back": back}
        deleted = await done(browser, "/memories/delete", form)
        assert "evil" not in deleted.text, back
        undone = await browser.post(undo_paths(deleted)[0], data={"back": back})
        assert undone.headers["location"] in ("/edits?done=undone", "/?done=undone"), back
