"""Correct what is stored, one or several at once, merge duplicates, settle contradictions, and undo it on the spot."""

from __future__ import annotations

import re
from typing import Any

import pytest

from palimpsest.core.models import CAPTURED, ORIGIN, Memory, Relation, Scope
from tests.support.memory import ALICE
from tests.support.page import OWN, Browser, OpenPage, done, undo_paths

pytestmark = pytest.mark.anyio


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


TEXTS = ("Alice has a boat", "Alice plays the violin", "Alice's rent is due on the 3rd")


async def stored(page: OpenPage, ids: list[str], scope: Scope = ALICE) -> list[Memory]:
    found = [await page.memory.get(scope, memory_id) for memory_id in ids]
    return [memory for memory in found if isinstance(memory, Memory)]


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


# What is no place of the page to come back to.
ELSEWHERE = (
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example/",
    "/\t/evil.example",
    "javascript:alert(1)",
    "/nowhere",
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


async def add_related(page: OpenPage, text: str, *relation: str, scope: Scope = ALICE) -> str:
    (memory_id,) = await page.add(text, scope=scope, relations=[Relation(*relation)])
    return memory_id


async def test_no_contradiction_hides_behind_others(page: OpenPage, browser: Browser) -> None:
    """Guards the oldest of many: it is on a page of the list, and on the page of each of its memories."""
    oldest = [await add_related(page, f"Ann's flat is in {at}", "Ann", "lives in", at) for at in ("Rome", "Oslo")]
    for number in range(33):
        for at in ("Rome", "Oslo"):
            await add_related(page, f"Tenant {number} is in {at}", f"Tenant {number}", "lives in", at)
    first = await browser.get("/conflicts")
    assert "Contradictions in all: 34" in first.text
    assert "Ann · lives in" not in first.text
    (following,) = re.findall(r'href="(/conflicts\?after=\d+)"', first.text)
    assert "Ann · lives in" in (await browser.get(following)).text
    for shown, other in (oldest, reversed(oldest)):
        text = (await browser.get(f"/memories/{shown}")).text
        assert "This contradicts:" in text
        assert f'href="/memories/{other}"' in text
