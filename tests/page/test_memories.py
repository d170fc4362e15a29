"""Search, look around, and correct what is stored: reloads, second saves, contradictions, and undos on the spot."""

from __future__ import annotations

import re
from typing import Any

import pytest

from palimpsest.core.models import Memory, Relation, Scope
from palimpsest.page.page_context import language_of, languages
from tests.support.memory import ALICE, messages_from
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


TEXTS = ("Alice's dentist is Dr. Brandt", "Alice plays the violin", "Alice's rent is due on the 3rd")


async def stored(page: OpenPage, ids: list[str], scope: Scope = ALICE) -> list[Memory]:
    found = [await page.memory.get(scope, memory_id) for memory_id in ids]
    return [memory for memory in found if isinstance(memory, Memory)]


async def test_a_block_is_deleted_as_it_was_shown(page: OpenPage, browser: Browser) -> None:
    block = {"pinned": True, "label": "human"}
    human = (await page.memory.add_text(ALICE, "Alice sails", metadata=block)).outcomes[0].memory.id
    await page.memory.update(ALICE, human, text="Alice rows", line=-1)
    for revision, status in (("1", 409), ("2", 303)):
        assert (await page.stored(human)).deleted_at is None
        answer = await browser.post(f"/memories/{human}/delete", data={"revision": revision})
        assert answer.status_code == status
    assert (await page.stored(human)).deleted_at is not None


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


async def add_related(page: OpenPage, text: str, *relation: str, scope: Scope = ALICE) -> str:
    (memory_id,) = await page.add(text, scope=scope, relations=[Relation(*relation)])
    return memory_id


@pytest.mark.nightly
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


async def test_the_page_has_the_hits_of_the_search(page: OpenPage, browser: Browser) -> None:
    """A search on the way to a question is no use of what it finds."""
    await page.add(*TEXTS)
    await browser.get("/", params={"q": "Who is my dentist?"})
    await page.memory.fading.write()
    assert {item.fading.strength for item in (await page.memory.fading.report(ALICE)).fading} == {1}
    hits = (await page.memory.search(ALICE, "Who is my dentist?", limit=20, max_tokens=20_000)).hits
    shown = await browser.get("/", params={"q": "Who is my dentist?", "explain": "on"})
    assert re.findall(r'href="/memories/([^"]+)"', shown.text) == [hit.id for hit in hits]
    assert "meaning" in shown.text
    part = await browser.get("/", params={"q": "Who is my dentist?"}, headers={"hx-request": "true"})
    assert re.findall(r'href="/memories/([^"]+)"', part.text) == [hit.id for hit in hits]
    assert "<html" not in part.text


@pytest.mark.nightly
async def test_without_a_question_the_newest_are_listed_page_by_page(page: OpenPage, browser: Browser) -> None:
    assert "Nothing is stored yet" in (await browser.get("/")).text
    ids = await page.add(*(f"Alice owns book {number}" for number in range(25)))
    first = await browser.get("/")
    (more,) = re.findall(r'href="(/\?cursor=[^"]+)"', first.text)
    second = await browser.get(more.replace("&amp;", "&"))
    shown = [re.findall(r'href="/memories/([^"]+)"', each.text) for each in (first, second)]
    assert [*shown[0], *shown[1]] == ids[::-1]
    await page.add("Alice wrote a letter. " * 40 + "It ends with love.")
    listed = (await browser.get("/")).text
    assert ("Show the whole text" in listed, listed.count("It ends with love.")) == (True, 1)


# What browsers accept, and the language that they would rather read.
RATHER = {
    "": "en",
    "de": "de",
    "fr, de;q=0.4, en;q=0.3": "de",
    "de-AT,de;q=0.9,en;q=0.5": "de",
    "*": "en",
}


async def test_the_page_speaks_the_language_of_the_browser(browser: Browser) -> None:
    """Guards the choice, and that every word is there in every language."""
    assert {accepted: language_of(accepted) for accepted in RATHER} == RATHER
    keys = {language: set(words) for language, words in languages().items()}
    assert keys["de"] == keys["en"]
    assert [word for word in languages()["de"].values() if not word.strip()] == []
    german = (await browser.get("/", headers={"accept-language": "de-AT,de;q=0.9,en;q=0.5"})).text
    assert '<html lang="de"' in german
    assert "Änderungen" in german
    assert '<html lang="en"' in (await browser.get("/", headers={"accept-language": "fr"})).text


async def test_a_hit_opens_its_conversation_at_the_turn(page: OpenPage, browser: Browser) -> None:
    """However long a conversation is, the turn is on the page that its hit leads to."""
    turns = [("user", f"Alice counts sheep number {number}") for number in range(300)]
    await page.memory.add_messages(messages_from(*turns), infer=False)
    hit = (await page.memory.search(ALICE, "sheep number 287", limit=1)).hits[0]
    shown = (await browser.get(f"/conversations/{hit.id}")).text
    assert f'id="m-{hit.id}"' in shown
    assert "number 280" in shown
    assert "From the start" in shown
    listed = await browser.get("/conversations")
    assert "300 messages" in listed.text
