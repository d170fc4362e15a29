"""Correct what is stored, on its page or in the list of hits, and undo it on the spot."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.support.memory import ALICE
from tests.support.page import HOST, OWN, Browser, OpenPage, done, undo_paths

pytestmark = pytest.mark.anyio


async def test_tags_and_pins(page: OpenPage, browser: Browser) -> None:
    """An edit of the labels alone names them, in the log and among the versions. Pins beyond the block are refused."""
    ids = await page.add(*(f"Alice likes {'very ' * 150}{thing}" for thing in ("tea", "rum")))
    memory = f"/memories/{ids[0]}"
    for tags, kept in ((" health ,people,, health", ("health", "people")), ("food", ("food",)), ("", ())):
        shown = await done(browser, f"{memory}/tags", {"tags": tags})
        assert (shown.status_code, (await page.stored(ids[0])).tags) == (200, kept)
    refused = await browser.post(f"{memory}/tags", data={"tags": ",".join(map(str, range(21)))})
    assert (refused.status_code, "at most 20 tags" in refused.text) == (400, True)
    await browser.post(f"{memory}/pinned", data={"pinned": "on"})
    assert (await page.stored(ids[0])).metadata["pinned"] is True
    for path in ("/edits", memory):
        shown = (await browser.get(path)).text
        said = ("<ins>tags: food</ins>", "<ins>pinned: True</ins>", "<del>Alice likes")
        assert [each in shown for each in said] == [True, True, False]
    refused = await browser.post(f"/memories/{ids[1]}/pinned", data={"pinned": "on"})
    assert (refused.status_code, "1,200" in refused.text) == (400, True)
    await browser.post(f"{memory}/pinned", data={"pinned": ""})
    assert ["pinned" in (await page.stored(each)).metadata for each in ids] == [False, False]


async def test_since_when_it_holds_and_when_it_ends(page: OpenPage, browser: Browser) -> None:
    """Both are as exact as they are given, and are taken away by an empty field."""
    (memory_id,) = await page.add("Alice rents a flat in Lyon")
    await page.memory.update(ALICE, memory_id, tags=["home"])
    path = f"/memories/{memory_id}/dates"
    shown = await done(browser, path, {"since": "2020-03", "until": "2999"})
    memory = await page.stored(memory_id)
    assert (memory.since, memory.metadata, memory.tags) == ("2020-03", {"expires_at": "2999"}, ("home",))
    await browser.post(undo_paths(shown)[0])
    assert ((await page.stored(memory_id)).since, (await page.stored(memory_id)).metadata) == ("", {})
    for wrong in ({"since": "soon", "until": ""}, {"since": "", "until": "x"}, {"since": "2030", "until": "2029"}):
        assert (await browser.post(path, data=wrong)).status_code == 400
    await page.memory.update(ALICE, memory_id, since="2020-03-04", until="2999")
    assert 'value="2999"' in (await browser.get(f"/memories/{memory_id}")).text
    await browser.post(path, data={"since": "", "until": ""})
    stored = await page.stored(memory_id)
    assert (stored.since, stored.until, stored.metadata) == ("", "", {})


async def test_one_or_many_are_deleted_and_restored(page: OpenPage, browser: Browser) -> None:
    ids = await page.add("Alice has a boat", "Alice has a canoe", "Alice has a kayak")
    deleted = await done(browser, f"/memories/{ids[0]}/delete")
    assert "This memory is deleted." in deleted.text
    assert (await page.stored(ids[0])).deleted_at is not None
    assert "Alice has a boat" not in (await browser.get("/")).text
    refused = await browser.post(f"/memories/{ids[0]}/text", data={"text": "Alice sails"})
    assert (refused.status_code, "is deleted" in refused.text) == (400, True)
    await browser.post(f"/memories/{ids[0]}/restore")
    assert (await page.stored(ids[0])).deleted_at is None
    answer = await done(browser, "/memories/delete", {"id": ids[:2]})
    assert [(await page.stored(each)).deleted_at is None for each in ids] == [False, False, True]
    await browser.post(undo_paths(answer)[0])
    assert [(await page.stored(each)).deleted_at is None for each in ids] == [True, True, True]


async def test_everything_since_an_edit_is_undone(page: OpenPage, browser: Browser) -> None:
    (boat,) = await page.add("Alice has a boat")
    (edit, *_) = await page.memory.log(ALICE)
    later = await page.add("Alice has a canoe", "Alice has a kayak")
    await browser.post(f"/edits/{edit.number + 1}/undo", data={"since": "on"})
    assert [(await page.stored(each)).deleted_at is None for each in (boat, *later)] == [True, False, False]
    nobody = "/memories/00000000-0000-0000-0000-000000000000"
    assert (await browser.get(nobody)).status_code == 404
    for action in ("text", "delete", "restore", "pinned"):
        assert (await browser.post(f"{nobody}/{action}", data={"text": "x"})).status_code == 404, action
    assert (await browser.post("/edits/999/undo")).status_code in (400, 404)


async def test_every_answer_to_a_write_can_be_reloaded_and_writes_nothing_then(
    page: OpenPage, browser: Browser
) -> None:
    async with page.browser() as other:
        ids = await page.add("Alice has a boat", "Alice has a canoe", "Alice owns a boat")
        writes: list[tuple[str, dict[str, Any]]] = [
            (f"/memories/{ids[0]}/text", {"text": "Alice has a red boat"}),
            (f"/memories/{ids[0]}/tags", {"tags": "leisure"}),
            (f"/memories/{ids[0]}/dates", {"since": "2020", "until": ""}),
            (f"/memories/{ids[0]}/pinned", {"pinned": "on"}),
            (f"/memories/{ids[0]}/edit", {"text": "Alice has a blue boat", "tags": "", "pinned": ""}),
            (f"/memories/{ids[1]}/delete", {}),
            (f"/memories/{ids[1]}/restore", {}),
            ("/memories/tag", {"id": ids[:2], "tag": "water"}),
            ("/memories/pin", {"id": ids[:2]}),
            ("/duplicates/merge", {"kept": ids[0], "id": ids[2]}),
            ("/conflicts/settle", {"kept": ids[0], "id": ids[1]}),
        ]
        for path, sent in writes:
            answer = await browser.post(path, data=sent)
            assert answer.status_code == 303, path
            edits = len(await page.memory.log(ALICE, limit=100))
            shown = [await browser.get(answer.headers["location"]) for _ in range(2)]
            assert [undo_paths(each) for each in shown] == [[f"/edits/{edits}/undo"]] * 2, path
            assert len(await page.memory.log(ALICE, limit=100)) == edits
            assert undo_paths(await other.get(answer.headers["location"], follow_redirects=True)) == []


# What two people save with each form of a memory.
FIELDS = {
    "text": ({"text": "Alice has a green boat"}, {"text": "Alice has a white boat"}),
    "tags": ({"tags": "red"}, {"tags": "blue"}),
    "hints": ({"hints": "who has a boat?"}, {"hints": "who can sail?"}),
    "dates": ({"since": "2020", "until": ""}, {"since": "2021", "until": ""}),
    "edit": ({"text": "Alice has a red boat", "tags": ""}, {"text": "Alice has a blue boat", "tags": "blue"}),
}


async def test_a_second_save_overwrites_no_other_unseen(page: OpenPage, browser: Browser) -> None:
    """Whoever saves second sees both, and may then save theirs. What was sent twice is no second save."""
    for form, (first, second) in FIELDS.items():
        (memory_id,) = await page.add(f"Alice has a boat, {form}")

        async def save(fields: dict[str, str], revision: int, memory_id: str = memory_id, form: str = form) -> Any:
            sent, headers = fields | {"revision": str(revision)}, OWN
            if form == "edit":
                headers = OWN | {"hx-request": "true"}
            path = f"/memories/{memory_id}/{form}"
            return await done(browser, path, sent, headers=headers)

        await save(first, (await page.stored(memory_id)).revision)
        kept = await page.stored(memory_id)
        twice = await save(first, kept.revision - 1)
        assert "Nothing had to change." in twice.text, form
        refused = await save(second, kept.revision - 1)
        assert refused.status_code == (200 if form == "edit" else 409), form
        assert "This was changed after you had opened it" in refused.text, form
        for value in (kept.text, next(iter(second.values()))):
            assert value in refused.text, form
        assert await page.stored(memory_id) == kept
        (revision,) = set(re.findall(r'name="revision" value="(\d+)"', refused.text))
        await save(second, int(revision))
        assert (await page.stored(memory_id)).revision == kept.revision + 1, form


async def test_a_block_is_deleted_as_it_was_shown(page: OpenPage, browser: Browser) -> None:
    block = {"pinned": True, "label": "human"}
    human = (await page.memory.add_text(ALICE, "Alice sails", metadata=block)).outcomes[0].memory.id
    await page.memory.update(ALICE, human, text="Alice rows", line=-1)
    for revision, status in (("1", 409), ("2", 303)):
        assert (await page.stored(human)).deleted_at is None
        answer = await browser.post(f"/memories/{human}/delete", data={"revision": revision})
        assert answer.status_code == status
    assert (await page.stored(human)).deleted_at is not None


# What htmx says of a request for a part of a page.
PART = {"hx-request": "true", "hx-current-url": f"{HOST}/?q=dentist&done=undone"}


def back_of(shown: httpx.Response) -> list[str]:
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
