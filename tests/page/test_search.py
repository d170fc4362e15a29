"""Search and look around: the same hits as the tool's, in parts for a page that is open already."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from palimpsest.core.clock import now
from palimpsest.core.models import Scope
from palimpsest.page.page_context import language_of, languages
from tests.support.memory import ALICE, messages_from
from tests.support.page import Browser, OpenPage

pytestmark = pytest.mark.anyio

DAYS = timedelta(days=2)
TEXTS = ("Alice's dentist is Dr. Brandt", "Alice plays the violin", "Alice's rent is due on the 3rd")


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


async def test_what_was_believed_at_a_time(page: OpenPage, browser: Browser) -> None:
    """A date is the end of its day; one that is not finished yet is none."""
    (memory_id,) = await page.add(TEXTS[0])
    await page.memory.update(ALICE, memory_id, text="Alice's dentist is Dr. Meyer")
    asked, today = {"q": "Who is the dentist?"}, now().date()
    assert "Meyer" in (await browser.get("/", params=asked)).text
    assert "Meyer" in (await browser.get("/", params=asked | {"as_of": f"{today + timedelta(days=1)}"})).text
    before = (await browser.get("/", params=asked | {"as_of": f"{today - DAYS}"})).text
    assert "Nothing had been stored by then." in before
    assert f'href="/?last={today - DAYS}"' in before
    assert "Meyer" in (await browser.get("/", params=asked | {"as_of": "2026-1"})).text


async def test_what_held_in_a_year(page: OpenPage, browser: Browser) -> None:
    """The list and a question show what held then, whatever replaced it; a year that is not finished yet is none."""
    old = await page.memory.add_text(ALICE, "Alice lives in Turku", since="2021", until="2024")
    replaces = [old.outcomes[0].memory.id]
    await page.memory.add_text(ALICE, "Alice lives in Kemi", since="2024-02", replaces=replaces)
    for asked in ({}, {"q": "Where does Alice live?"}):
        for year, towns in (("2022", ["Turku"]), ("2025-03", ["Kemi"]), ("20", ["Kemi"])):
            shown = (await browser.get("/", params=asked | {"held_at": year})).text
            first = re.findall(r"Alice lives in (\w+)", shown)[:1]
            assert first == towns, (asked, year)


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


async def test_filters_narrow_the_search_and_the_list(page: OpenPage, browser: Browser) -> None:
    """They are those of the tools: by tag, name, speaker, day, agent and run."""
    tagged, cello = await page.add("Alice plays the violin", "Bruno plays the cello")
    await page.memory.update(ALICE, tagged, tags=["music"])
    (other,) = await page.add("Alice plays the drums", scope=Scope("alice", agent_id="coach"))
    await page.memory.add_messages(messages_from({"role": "user", "name": "Carla", "content": "I play chess"}))
    for asked, shown in (
        ({"tag": "music"}, {tagged}),
        ({"entity": "Bruno"}, {cello}),
        ({"agent": "coach"}, {other}),
        ({"first": "2001-01-01", "last": "2001-12-31"}, set[str]()),
    ):
        for question in ("", "Who plays?"):
            found = await browser.get("/", params={"q": question, **asked})
            assert set(re.findall(r'href="/memories/([^"/]+)"', found.text)) == shown, asked
    said = await browser.get("/", params={"q": "who plays?", "speaker": "Carla"})
    assert "I play chess" in said.text
    assert "violin" not in said.text
