"""Correct what is stored, and undo it on the spot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Memory, Relation
from tests.support.memory import ALICE
from tests.support.page import OWN, OpenPage, page_in, undo_paths

pytestmark = pytest.mark.anyio


async def stored(page: OpenPage, memory_id: str) -> Memory:
    """Return a memory as it is stored."""
    memory = await page.memory.get(ALICE, memory_id)
    assert isinstance(memory, Memory)
    return memory


async def test_a_text_is_corrected_and_its_versions_show_what_changed(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice's dentist is Dr. Brandt")
        new = {"text": "Alice's dentist is Dr. Meyer"}
        shown = await browser.post(f"/memories/{memory_id}/text", data=new, headers=OWN, follow_redirects=True)
        assert re.findall(r"<(del|ins)>(.*?)</", shown.text)[:2] == [("del", "Brandt"), ("ins", "Meyer")]
        assert (await stored(page, memory_id)).text == "Alice's dentist is Dr. Meyer"
        (edit, *_) = await page.memory.log(ALICE)
        assert (edit.provenance.caller, undo_paths(shown)) == ("page", [f"/edits/{edit.number}/undo"])
        assert (await browser.post(undo_paths(shown)[0], headers=OWN)).headers["location"] == "/edits?done=undone"
        assert (await stored(page, memory_id)).text == "Alice's dentist is Dr. Brandt"


async def test_tags_and_pins(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice is allergic to nuts")
        for tags, kept in ((" health ,people,, health", ("health", "people")), ("food", ("food",)), ("", ())):
            shown = await browser.post(
                f"/memories/{memory_id}/tags", data={"tags": tags}, headers=OWN, follow_redirects=True
            )
            assert (shown.status_code, (await stored(page, memory_id)).tags) == (200, kept)
        too_many = ",".join(str(number) for number in range(21))
        refused = await browser.post(f"/memories/{memory_id}/tags", data={"tags": too_many}, headers=OWN)
        assert (refused.status_code, "at most 20 tags" in refused.text) == (400, True)
        await browser.post(f"/memories/{memory_id}/pinned", data={"pinned": "on"}, headers=OWN)
        assert (await stored(page, memory_id)).metadata["pinned"] is True
        await browser.post(f"/memories/{memory_id}/pinned", data={"pinned": ""}, headers=OWN)
        assert "pinned" not in (await stored(page, memory_id)).metadata


async def test_since_when_it_holds_and_when_it_ends(tmp_path: Path) -> None:
    """Both are as exact as they are given, and are taken away by an empty field."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice rents a flat in Lyon")
        await page.memory.set_tags(ALICE, memory_id, ["home"])
        path = f"/memories/{memory_id}/dates"
        shown = await browser.post(path, data={"since": "2020-03", "until": "2999"}, headers=OWN, follow_redirects=True)
        memory = await stored(page, memory_id)
        assert (memory.since, memory.metadata, memory.tags) == ("2020-03", {"expires_at": "2999"}, ("home",))
        await browser.post(undo_paths(shown)[0], headers=OWN)
        assert ((await stored(page, memory_id)).since, (await stored(page, memory_id)).metadata) == ("", {})
        for wrong in ({"since": "soon", "until": ""}, {"since": "", "until": "x"}, {"since": "2030", "until": "2029"}):
            assert (await browser.post(path, data=wrong, headers=OWN)).status_code == 400
        await browser.post(path, data={"since": "2020-03-04", "until": "2999"}, headers=OWN)
        await browser.post(path, data={"since": "", "until": ""}, headers=OWN)
        assert ((await stored(page, memory_id)).since, (await stored(page, memory_id)).metadata) == ("", {})


async def test_a_pin_beyond_the_block_is_refused_with_advice(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        ids = await page.add(*(f"Alice likes {'very ' * 150}{thing}" for thing in ("tea", "rum")))
        await browser.post(f"/memories/{ids[0]}/pinned", data={"pinned": "on"}, headers=OWN)
        refused = await browser.post(f"/memories/{ids[1]}/pinned", data={"pinned": "on"}, headers=OWN)
        assert (refused.status_code, "1,200" in refused.text) == (400, True)
        assert "pinned" not in (await stored(page, ids[1])).metadata


async def test_one_or_many_are_deleted_and_restored(tmp_path: Path) -> None:
    """Many are one edit."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        ids = await page.add("Alice has a boat", "Alice has a canoe", "Alice has a kayak")
        deleted = await browser.post(f"/memories/{ids[0]}/delete", headers=OWN, follow_redirects=True)
        assert "This memory is deleted." in deleted.text
        assert (await stored(page, ids[0])).deleted_at is not None
        assert "Alice has a boat" not in (await browser.get("/")).text
        refused = await browser.post(f"/memories/{ids[0]}/text", data={"text": "Alice sails"}, headers=OWN)
        assert (refused.status_code, "is deleted" in refused.text) == (400, True)
        await browser.post(f"/memories/{ids[0]}/restore", headers=OWN)
        assert (await stored(page, ids[0])).deleted_at is None
        done = await browser.post("/memories/delete", data={"id": ids[:2]}, headers=OWN, follow_redirects=True)
        assert [(await stored(page, each)).deleted_at is None for each in ids] == [False, False, True]
        await browser.post(undo_paths(done)[0], headers=OWN)
        assert [(await stored(page, each)).deleted_at is None for each in ids] == [True, True, True]


async def test_everything_since_an_edit_is_undone(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (boat,) = await page.add("Alice has a boat")
        (edit, *_) = await page.memory.log(ALICE)
        later = await page.add("Alice has a canoe", "Alice has a kayak")
        first = next(entry for entry in await page.memory.log(ALICE) if entry.number == edit.number + 1)
        await browser.post(f"/edits/{first.number}/undo", data={"since": "on"}, headers=OWN)
        assert (await stored(page, boat)).deleted_at is None
        assert all([(await stored(page, each)).deleted_at is not None for each in later])


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    nobody = "/memories/00000000-0000-0000-0000-000000000000"
    async with page_in(tmp_path) as page, page.browser() as browser:
        await page.add("Alice has a boat")
        assert (await browser.get(nobody)).status_code == 404
        for path, form in ((f"{nobody}/text", {"text": "x"}), (f"{nobody}/delete", {}), (f"{nobody}/restore", {})):
            assert (await browser.post(path, data=form, headers=OWN)).status_code == 404, path
        assert (await browser.post("/edits/999/undo", headers=OWN)).status_code in (400, 404)


async def test_the_log_says_what_was_tagged_and_pinned(tmp_path: Path) -> None:
    """An edit of the labels alone names them, in the log and among the versions of the memory."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        (memory_id,) = await page.add("Alice plays the violin")
        await browser.post(f"/memories/{memory_id}/tags", data={"tags": "music"}, headers=OWN)
        await browser.post(f"/memories/{memory_id}/pinned", data={"pinned": "on"}, headers=OWN)
        for path in ("/edits", f"/memories/{memory_id}"):
            shown = (await browser.get(path)).text
            assert "<ins>tags: music</ins>" in shown
            assert "<ins>pinned: True</ins>" in shown
            assert "<del>Alice plays the violin</del>" not in shown


async def test_a_memory_names_what_contradicts_it(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (brno,) = await page.add("Elif lives in Brno", relations=[Relation("Elif", "lives in", "Brno")])
        (prague,) = await page.add("Elif lives in Prague", relations=[Relation("Elif", "lives in", "Prague")])
        shown = (await browser.get(f"/memories/{brno}")).text
        assert "This contradicts:" in shown
        assert f'href="/memories/{prague}"' in shown
        await page.memory.corrections.settle(ALICE, prague, [brno])
        assert "This contradicts:" not in (await browser.get(f"/memories/{prague}")).text


async def test_every_answer_to_a_write_can_be_reloaded_and_writes_nothing_then(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser, page.browser() as other:
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
            answer = await browser.post(path, data=sent, headers=OWN)
            assert answer.status_code == 303, path
            edits = len(await page.memory.log(ALICE, limit=100))
            shown = [await browser.get(answer.headers["location"]) for _ in range(2)]
            assert [undo_paths(each) for each in shown] == [[f"/edits/{edits}/undo"]] * 2, path
            assert len(await page.memory.log(ALICE, limit=100)) == edits
            assert undo_paths(await other.get(answer.headers["location"], follow_redirects=True)) == []


FIELDS = {
    "text": ({"text": "Alice has a green boat"}, {"text": "Alice has a white boat"}),
    "tags": ({"tags": "red"}, {"tags": "blue"}),
    "dates": ({"since": "2020", "until": ""}, {"since": "2021", "until": ""}),
    "edit": ({"text": "Alice has a red boat", "tags": ""}, {"text": "Alice has a blue boat", "tags": "blue"}),
}
"""What two people save with each form of a memory."""


async def test_a_second_save_overwrites_no_other_unseen(tmp_path: Path) -> None:
    """Whoever saves second sees both, and may then save theirs. What was sent twice is no second save."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        for form, (first, second) in FIELDS.items():
            (memory_id,) = await page.add(f"Alice has a boat, {form}")

            async def save(fields: dict[str, str], revision: int, memory_id: str = memory_id, form: str = form) -> Any:
                sent, headers = fields | {"revision": str(revision)}, OWN
                if form == "edit":
                    headers = OWN | {"hx-request": "true"}
                path = f"/memories/{memory_id}/{form}"
                return await browser.post(path, data=sent, headers=headers, follow_redirects=True)

            await save(first, (await stored(page, memory_id)).revision)
            kept = await stored(page, memory_id)
            twice = await save(first, kept.revision - 1)
            assert "Nothing had to change." in twice.text, form
            refused = await save(second, kept.revision - 1)
            assert refused.status_code == (200 if form == "edit" else 409), form
            assert "This was changed after you had opened it" in refused.text, form
            for value in (kept.text, next(iter(second.values()))):
                assert value in refused.text, form
            assert await stored(page, memory_id) == kept
            (revision,) = set(re.findall(r'name="revision" value="(\d+)"', refused.text))
            await save(second, int(revision))
            assert (await stored(page, memory_id)).revision == kept.revision + 1, form
