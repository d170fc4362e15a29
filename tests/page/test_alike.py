"""Merge duplicates, and settle contradictions with one click."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from palimpsest.core.models import Decision, Event, Fact, Memory, Provenance, Relation, Scope
from palimpsest.learn.commit import apply_decisions
from palimpsest.page.sign_in import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.memory import ALICE, messages_from
from tests.support.page import OWN, READER, OpenPage, page_in, undo_paths

pytestmark = pytest.mark.anyio

GARDEN = Scope("alice", "garden")
OTHERS = ("Alice plays the violin in an orchestra", "The rent is due on the 3rd", "Bob collects stamps from Peru")
HOSTILE = "<script>alert(1)</script>"


async def stored(page: OpenPage, memory_id: str, scope: Scope = ALICE) -> Memory:
    """Return a memory as it is stored."""
    memory = await page.memory.get(scope, memory_id)
    assert isinstance(memory, Memory)
    return memory


async def state(page: OpenPage, ids: Sequence[str], scope: Scope = ALICE) -> list[str | None]:
    """Return which memory took the place of each."""
    return [(await stored(page, each, scope)).superseded_by for each in ids]


def forms(shown: httpx.Response, path: str) -> list[tuple[list[str], list[str]]]:
    """Return for each form of a path the values of `kept` and of `id`."""
    found = re.findall(rf'<form method="post" action="{path}[^"]*">(.*?)</form>', shown.text, re.DOTALL)

    def values(name: str, form: str) -> list[str]:
        return re.findall(rf'name="{name}" value="([^"]+)"', form)

    return [(values("kept", form), values("id", form)) for form in found]


async def add_related(page: OpenPage, text: str, *relation: str, scope: Scope = ALICE) -> str:
    """Store a memory that states a relation."""
    (memory_id,) = await page.add(text, scope=scope, relations=[Relation(*relation)])
    return memory_id


async def test_duplicates_are_found_and_merged_as_one_edit(tmp_path: Path) -> None:
    """The newest is proposed. It takes over messages and tags, and the undo brings the other one back."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        await page.add(*OTHERS)
        ids = await page.add("Alice is allergic to nuts", "Alice is allergic to nuts!?")
        await page.memory.set_tags(ALICE, ids[0], ["health"])
        shown = await browser.get("/duplicates")
        assert forms(shown, "/duplicates/merge") == [(ids[::-1], ids[::-1])]
        done = await browser.post(
            "/duplicates/merge",
            data={"kept": ids[1], "id": ids, "back": "/duplicates"},
            headers=OWN,
            follow_redirects=True,
        )
        assert await state(page, ids) == [ids[1], None]
        assert (await stored(page, ids[1])).tags == ("health",)
        assert forms(await browser.get("/duplicates"), "/duplicates/merge") == []
        undone = await browser.post(undo_paths(done)[0], data={"back": "/duplicates"}, headers=OWN)
        assert undone.headers["location"] == "/duplicates?done=undone"
        assert await state(page, ids) == [None, None]
        assert (await stored(page, ids[1])).tags == ()


async def test_a_merge_takes_over_the_messages_behind(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (kept,) = await page.add("Alice is allergic to nuts")
        await page.memory.add_messages(
            messages_from({"role": "user", "content": "No nuts for me, please."}), infer=False
        )
        (message,) = (await page.memory.list(ALICE, filters={"kind": "message"})).hits
        learned = Decision(Event.ADD, Fact("Alice cannot eat nuts", sources=(message.id,)))
        added = await apply_decisions(page.memory.engine, ALICE, [learned], Provenance("add"))
        other = added.outcomes[0].memory.id
        await page.memory.update(ALICE, other, metadata={"pinned": True, "expires_at": "2999", "origin": "a letter"})
        await browser.post("/duplicates/merge", data={"kept": kept, "id": [kept, other]}, headers=OWN)
        assert (await stored(page, kept)).metadata == {"pinned": True, "origin": "a letter"}
        assert [message.content for message in await page.memory.sources(ALICE, kept)] == ["No nuts for me, please."]


async def test_what_differs_in_a_number_is_no_duplicate(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        await page.add("The rent of the flat is 800 euros", "The rent of the flat is 950 euros")
        assert forms(await browser.get("/duplicates"), "/duplicates/merge") == []
        assert len(forms(await browser.get("/conflicts"), "/conflicts/settle")) == 2


async def test_what_is_merged_belongs_to_one_scope(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        (everywhere,) = await page.add("The beans need water")
        (garden,) = await page.add("The beans need water", scope=GARDEN)
        asked = {"project": "garden"}
        assert forms(await browser.get("/duplicates", params=asked), "/duplicates/merge") == []
        for path in ("/duplicates/merge", "/conflicts/settle"):
            refused = await browser.post(path, params=asked, data={"kept": garden, "id": [everywhere]}, headers=OWN)
            assert (refused.status_code, "different projects" in refused.text) == (400, True)


async def test_a_memory_is_merged_with_one_of_its_nearest(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        kept, other, *_ = await page.add("Alice has a boat at the lake", "Alice sails a boat on the lake", *OTHERS)
        shown = await browser.get(f"/memories/{kept}/merge")
        ((keepable, ids),) = forms(shown, "/duplicates/merge")
        assert (keepable[0], ids[0], ids[1]) == (kept, kept, other)
        done = await browser.post(
            "/duplicates/merge",
            data={"kept": other, "id": [kept], "back": f"/memories/{kept}"},
            headers=OWN,
            follow_redirects=True,
        )
        assert await state(page, [kept, other]) == [other, None]
        assert f'href="/memories/{other}"' in done.text


async def test_a_named_conflict_is_settled_with_one_click(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
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
        done = await browser.post(
            "/conflicts/settle",
            data={"kept": kept, "id": others, "back": "/conflicts"},
            headers=OWN,
            follow_redirects=True,
        )
        assert await state(page, [berlin, lisbon, again]) == [None, berlin, berlin]
        assert "Bob · lives in" not in (await browser.get("/conflicts")).text
        await browser.post(undo_paths(done)[0], headers=OWN)
        assert await state(page, [berlin, lisbon, again]) == [None, None, None]


async def test_no_contradiction_hides_behind_others(tmp_path: Path) -> None:
    """Guards the oldest of many: it is on a page of the list, and on the page of each of its memories."""
    async with page_in(tmp_path) as page, page.browser() as browser:
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


async def test_what_never_was_true_is_deleted_and_not_kept_as_what_was(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        lisbon = await add_related(page, "Bob moved to the sea", "Bob", "lives in", "Lisbon")
        berlin = await add_related(page, "Bob's flat is in Berlin", "Bob", "lives in", "Berlin")
        given = {"kept": lisbon, "id": [berlin], "never": "on"}
        done = await browser.post("/conflicts/settle", data=given, headers=OWN, follow_redirects=True)
        assert "they never were true" in done.text
        never = await stored(page, berlin)
        assert (never.deleted_at is None, never.superseded_by, never.valid_until) == (False, None, None)
        await browser.post(undo_paths(done)[0], headers=OWN)
        given = {"kept": lisbon, "id": [berlin]}
        done = await browser.post("/conflicts/settle", data=given, headers=OWN, follow_redirects=True)
        assert "true before" not in done.text
        assert (await stored(page, berlin)).superseded_by == lisbon


async def test_none_is_said_only_when_all_were_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palimpsest.learn.duplicates.SECONDS", 0.0)
    monkeypatch.setattr("palimpsest.learn.duplicates.MIN_COMPARED", 2)
    none = {"/duplicates": "that say nearly the same were found", "/conflicts": "No contradictions were found"}
    async with page_in(tmp_path) as page, page.browser() as browser:
        await page.add(*OTHERS[:2])
        for path, text in none.items():
            shown = (await browser.get(path)).text
            assert (text in shown, "Compare older ones" in shown) == (True, False)
        await page.add(OTHERS[2])
        for path, text in none.items():
            shown = (await browser.get(path)).text
            assert (text in shown, "The older ones were not looked at yet." in shown) == (False, True)
            assert "Not compared yet: 1" in shown
            (following,) = re.findall(rf'href="({path}\?cursor=\d+)"', shown)
            assert "None among these older memories." in (await browser.get(following)).text


async def test_another_project_contradicts_nothing(tmp_path: Path) -> None:
    """A conflict is one of the project's own memories, and nobody is shown what another user said."""
    async with page_in(tmp_path) as page, page.browser() as browser:
        await add_related(page, "Bob's flat is in Berlin", "Bob", "lives in", "Berlin")
        await add_related(page, "Bob moved to the sea", "Bob", "lives in", "Lisbon", scope=GARDEN)
        for scope, at in ((Scope("mallory"), "Porto"), (Scope("mallory"), "Nice")):
            await add_related(page, f"Bob's flat is in {at}", "Bob", "lives in", at, scope=scope)
        for asked in ({}, {"project": "garden"}):
            assert "Bob · lives in" not in (await browser.get("/conflicts", params=asked)).text


async def test_what_has_ended_and_a_move_contradict_nothing(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        await add_related(page, "Bob's flat is in Berlin", "Bob", "lives in", "Berlin")
        await page.add(
            "Bob stayed with his aunt",
            relations=[Relation("Bob", "lives in", "Porto")],
            metadata={"expires_at": "2001"},
        )
        await page.add(
            "Bob moved from Berlin to Lisbon",
            relations=[Relation("Bob", "lives in", "Berlin"), Relation("Bob", "lives in", "Lisbon")],
        )
        assert "Bob · lives in" not in (await browser.get("/conflicts")).text


async def test_a_text_that_probably_replaces_another_is_named(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        await page.add(*OTHERS)
        ids = await page.add("The office of Bob is in Zurich", "The office of Bob is in Winterthur")
        offered = forms(await browser.get("/conflicts"), "/conflicts/settle")
        assert offered == [([ids[1]], [ids[0]]), ([ids[0]], [ids[1]])]
        await browser.post("/conflicts/settle", data={"kept": ids[0], "id": [ids[1]]}, headers=OWN)
        assert await state(page, ids) == [None, ids[0]]


async def test_older_memories_are_compared_on_the_next_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends after a time. What it did not come to is on the next ones, and nothing is on two."""
    monkeypatch.setattr("palimpsest.learn.duplicates.SECONDS", 0.0)
    monkeypatch.setattr("palimpsest.learn.duplicates.MIN_COMPARED", 1)
    async with page_in(tmp_path) as page, page.browser() as browser:
        ids = await page.add("Alice is allergic to nuts", "Alice is allergic to nuts!?", OTHERS[0])
        found: list[tuple[list[str], list[str]]] = []
        path: str | None = "/duplicates"
        for _ in range(5):
            if path is None:
                break
            shown = await browser.get(path)
            found += forms(shown, "/duplicates/merge")
            more = re.findall(r'href="(/duplicates\?cursor=\d+)"', shown.text)
            path = more[0] if more else None
        assert (found, path) == ([(ids[1::-1], ids[1::-1])], None)


async def test_texts_are_never_html(tmp_path: Path) -> None:
    async with page_in(tmp_path) as page, page.browser() as browser:
        await page.add(f"Alice wrote {HOSTILE} to Bob", f"Alice wrote {HOSTILE} to Bob!?")
        ids = [await add_related(page, f"Bob's flat is in {at}{HOSTILE}", "Bob", "lives in", f"{at}<b>") for at in "XY"]
        for path in ("/duplicates", "/conflicts", f"/memories/{ids[0]}/merge"):
            shown = await browser.get(path)
            assert "&lt;script&gt;" in shown.text
            assert "<script>alert" not in shown.text
            assert "<b>" not in shown.text


async def test_who_may_not_write_or_see_settles_nothing(tmp_path: Path) -> None:
    bound = Visitor(Grant("alice", project="garden"))
    async with page_in(tmp_path) as page, page.browser(READER) as reader, page.browser(bound) as gardener:
        ids = await page.add("Alice is allergic to nuts", "Alice is allergic to nuts!?")
        beans = await page.add("The beans need water", "The beans need water!?", scope=Scope("alice", "kitchen"))
        for path in ("/duplicates/merge", "/conflicts/settle"):
            refused = await reader.post(path, data={"kept": ids[0], "id": [ids[1]]}, headers=OWN)
            assert refused.status_code == 403
            assert (
                await gardener.post(path, data={"kept": beans[0], "id": [beans[1]]}, headers=OWN)
            ).status_code == 404
            assert (await gardener.post(path, data={"kept": ids[0]}, headers=OWN)).status_code == 400
        for path in ("/duplicates", "/conflicts"):
            shown = (await reader.get(path)).text
            assert "<button>" not in shown
            assert "<input" not in shown
        assert "allergic" in (await reader.get("/duplicates")).text
        assert (await reader.get(f"/memories/{ids[0]}/merge")).status_code == 403
        assert (await gardener.get(f"/memories/{beans[0]}/merge")).status_code == 404
        assert await state(page, ids) == [None, None]
