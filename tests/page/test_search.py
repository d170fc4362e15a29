"""Search and look around: hits, filters, time, people and things, conversations, documents, and what came back when."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.core.clock import now
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


async def test_a_document_is_shown_page_by_page(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    file = tmp_path / "handbook.md"
    file.write_text("\n\n".join(f"# Part {n}\n\n" + f"The valve {n} opens to the left. " * 60 for n in range(40)))
    await page.memory.documents.learn_file(ALICE, file, caller="test")
    (path,) = set(re.findall(r'href="(/documents/[^"]+)"', (await browser.get("/documents")).text))
    first = (await browser.get(path)).text
    assert "handbook.md" in first
    assert "The valve 0 opens" in first
    assert "The valve 39 opens" not in first
    hit = (await page.memory.search(ALICE, "the valve 39", limit=1, max_tokens=9_000)).hits[0]
    opened = await browser.get(f"/conversations/{hit.id}", follow_redirects=True)
    assert opened.url.path.startswith("/documents/")
    assert f'id="m-{hit.id}"' in opened.text


async def test_activity_shows_jobs_and_growth(page: OpenPage, browser: Browser) -> None:
    await page.add("Alice lives in Lyon", "Alice has a cat", metadata={"expires_at": "2031-01-01"})
    shown = (await browser.get("/activity")).text
    assert f"{now():%Y-%m}: 2" in shown
    await page.memory.search(ALICE, "Where do I live?", caller="claude")
    await page.memory.search(ALICE, "Do I have a cat?", caller="claude")
    await page.memory.recall_log.write()
    assert f"{now():%Y-%m-%d}: 2" in (await browser.get("/activity")).text
    assert "End memories whose time has come" in shown
