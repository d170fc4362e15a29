"""Merge duplicates, and settle contradictions with one click."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import httpx
import pytest

from palimpsest.core.models import Decision, Event, Fact, Provenance, Relation, Scope
from palimpsest.learn.commit import apply_decisions
from palimpsest.store.apply import Write
from tests.support.memory import ALICE, messages_from
from tests.support.page import OWN, Browser, OpenPage, done, undo_paths

pytestmark = pytest.mark.anyio

GARDEN = Scope("alice", "garden")
OTHERS = ("Alice plays the violin in an orchestra", "The rent is due on the 3rd", "Bob collects stamps from Peru")


async def state(page: OpenPage, ids: Sequence[str], scope: Scope = ALICE) -> list[str | None]:
    return [(await page.stored(each, scope)).superseded_by for each in ids]


def forms(shown: httpx.Response, path: str) -> list[tuple[list[str], list[str]]]:
    """Return for each form of a path the values of `kept` and of `id`."""
    found = re.findall(rf'<form method="post" action="{path}[^"]*">(.*?)</form>', shown.text, re.DOTALL)

    def values(name: str, form: str) -> list[str]:
        return re.findall(rf'name="{name}" value="([^"]+)"', form)

    return [(values("kept", form), values("id", form)) for form in found]


async def add_related(page: OpenPage, text: str, *relation: str, scope: Scope = ALICE) -> str:
    (memory_id,) = await page.add(text, scope=scope, relations=[Relation(*relation)])
    return memory_id


async def test_duplicates_are_found_and_merged_as_one_edit(page: OpenPage, browser: Browser) -> None:
    """The newest is proposed. It takes over messages and tags, and the undo brings the other one back."""
    await page.add(*OTHERS)
    ids = await page.add("Alice is allergic to nuts", "Alice is allergic to nuts!?")
    await page.memory.update(ALICE, ids[0], tags=["health"])
    shown = await browser.get("/duplicates")
    assert forms(shown, "/duplicates/merge") == [(ids[::-1], ids[::-1])]
    answer = await done(browser, "/duplicates/merge", {"kept": ids[1], "id": ids, "back": "/duplicates"}, headers=OWN)
    assert await state(page, ids) == [ids[1], None]
    assert (await page.stored(ids[1])).tags == ("health",)
    assert forms(await browser.get("/duplicates"), "/duplicates/merge") == []
    undone = await browser.post(undo_paths(answer)[0], data={"back": "/duplicates"})
    assert undone.headers["location"] == "/duplicates?done=undone"
    assert await state(page, ids) == [None, None]
    assert (await page.stored(ids[1])).tags == ()


async def test_a_merge_takes_over_the_messages_behind(page: OpenPage, browser: Browser) -> None:
    (kept,) = await page.add("Alice is allergic to nuts")
    await page.memory.add_messages(messages_from({"role": "user", "content": "No nuts for me, please."}), infer=False)
    (message,) = (await page.memory.list(ALICE, filters={"kind": "message"})).hits
    learned = Decision(Event.ADD, Fact("Alice cannot eat nuts", sources=(message.id,)))
    added = await apply_decisions(page.memory.engine, Write(ALICE, Provenance("add"), decisions=(learned,)))
    other = added.outcomes[0].memory.id
    await page.memory.update(ALICE, other, metadata={"pinned": True, "expires_at": "2999", "origin": "a letter"})
    await browser.post("/duplicates/merge", data={"kept": kept, "id": [kept, other]})
    assert (await page.stored(kept)).metadata == {"pinned": True, "origin": "a letter"}
    assert [message.content for message in await page.memory.sources(ALICE, kept)] == ["No nuts for me, please."]


async def test_what_is_merged_belongs_to_one_scope(page: OpenPage, browser: Browser) -> None:
    (everywhere,) = await page.add("The beans need water")
    (garden,) = await page.add("The beans need water", scope=GARDEN)
    asked = {"project": "garden"}
    assert forms(await browser.get("/duplicates", params=asked), "/duplicates/merge") == []
    for path in ("/duplicates/merge", "/conflicts/settle"):
        refused = await browser.post(path, params=asked, data={"kept": garden, "id": [everywhere]})
        assert (refused.status_code, "different projects" in refused.text) == (400, True)


async def test_a_named_conflict_is_settled_with_one_click(page: OpenPage, browser: Browser) -> None:
    berlin = await add_related(page, "Bob's flat is in Berlin", "Bob", "lives in", "Berlin")
    lisbon = await add_related(page, "Bob moved to a house near the sea", "Bob", "lives in", "Lisbon")
    again = await add_related(page, "Bob pays taxes in Lisbon, his home", "Bob", "lives in", "Lisbon")
    await add_related(page, "Bob likes tea", "Bob", "likes", "tea")
    await add_related(page, "Bob likes rum", "Bob", "likes", "rum")
    shown = await browser.get("/conflicts")
    assert "Bob · lives in: Lisbon / Berlin" in html.unescape(shown.text)
    assert "Bob · likes" not in shown.text
    named = forms(shown, "/conflicts/settle")[:2]
    assert named == [([again], [berlin]), ([berlin], [again, lisbon])]
    kept, others = named[1]
    answer = await done(browser, "/conflicts/settle", {"kept": kept, "id": others, "back": "/conflicts"}, headers=OWN)
    assert await state(page, [berlin, lisbon, again]) == [None, berlin, berlin]
    assert "Bob · lives in" not in (await browser.get("/conflicts")).text
    await browser.post(undo_paths(answer)[0])
    assert await state(page, [berlin, lisbon, again]) == [None, None, None]


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


async def test_what_never_was_true_is_deleted_and_not_kept_as_what_was(page: OpenPage, browser: Browser) -> None:
    lisbon = await add_related(page, "Bob moved to the sea", "Bob", "lives in", "Lisbon")
    berlin = await add_related(page, "Bob's flat is in Berlin", "Bob", "lives in", "Berlin")
    given = {"kept": lisbon, "id": [berlin], "never": "on"}
    answer = await done(browser, "/conflicts/settle", given)
    assert "they never were true" in answer.text
    never = await page.stored(berlin)
    assert (never.deleted_at is None, never.superseded_by, never.valid_until) == (False, None, None)
    await browser.post(undo_paths(answer)[0])
    given = {"kept": lisbon, "id": [berlin]}
    answer = await done(browser, "/conflicts/settle", given)
    assert "true before" not in answer.text
    assert (await page.stored(berlin)).superseded_by == lisbon


async def test_another_project_what_has_ended_and_a_move_contradict_nothing(page: OpenPage, browser: Browser) -> None:
    """A conflict is one of the project's own memories, and nobody is shown what another user said."""
    await add_related(page, "Bob's flat is in Berlin", "Bob", "lives in", "Berlin")
    await add_related(page, "Bob moved to the sea", "Bob", "lives in", "Lisbon", scope=GARDEN)
    for at in ("Porto", "Nice"):
        await add_related(page, f"Bob's flat is in {at}", "Bob", "lives in", at, scope=Scope("mallory"))
    for text, places, metadata in (
        ("Bob stayed with his aunt", ("Porto",), {"expires_at": "2001"}),
        ("Bob moved from Berlin to Lisbon", ("Berlin", "Lisbon"), {}),
    ):
        await page.add(text, relations=[Relation("Bob", "lives in", at) for at in places], metadata=metadata)
    for asked in ({}, {"project": "garden"}):
        assert "Bob · lives in" not in (await browser.get("/conflicts", params=asked)).text


async def test_older_memories_are_compared_on_the_next_page(
    page: OpenPage, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page ends after a time. Nothing is on two, and that there is none is said only when all were compared."""
    monkeypatch.setattr("palimpsest.learn.duplicates.SECONDS", 0.0)
    monkeypatch.setattr("palimpsest.learn.duplicates.MIN_COMPARED", 2)
    none = {"/duplicates": "that say nearly the same were found", "/conflicts": "No contradictions were found"}
    for added, is_all in ((OTHERS[:2], True), (OTHERS[2:], False)):
        await page.add(*added)
        for path, text in none.items():
            shown = (await browser.get(path)).text
            said = (text, "Compare older ones", "The older ones were not looked at yet.", "Not compared yet: 1")
            assert [each in shown for each in said] == [is_all, *[not is_all] * 3]
            for following in re.findall(rf'href="({path}\?cursor=\d+)"', shown):
                assert "None among these older memories." in (await browser.get(following)).text
    monkeypatch.setattr("palimpsest.learn.duplicates.MIN_COMPARED", 1)
    ids = await page.add("Alice is allergic to nuts", "Alice is allergic to nuts!?", "The bins are emptied on Friday")
    found, paths = list[tuple[list[str], list[str]]](), ["/duplicates"]
    for path in paths:
        shown = await browser.get(path)
        found += forms(shown, "/duplicates/merge")
        paths += re.findall(r'href="(/duplicates\?cursor=\d+)"', shown.text)
    assert (found, len(paths) < 9) == ([(ids[1::-1], ids[1::-1])], True)
