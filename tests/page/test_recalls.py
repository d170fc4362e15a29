"""The recall log on a memory's page: when it came back, for which question, and for how long that is kept."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from palimpsest.core.models import Scope
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.memory import ALICE, memory_in
from tests.support.page import Browser, OpenPage, page_in

pytestmark = pytest.mark.anyio

DENTIST = "Alice's dentist is Dr. Brandt"
WEB, API = Scope("alice", project="web"), Scope("alice", project="api")


async def ask(page: OpenPage, question: str, scope: Scope = ALICE, caller: str = "claude-code") -> None:
    await page.memory.search(scope, question, caller=caller)
    await page.memory.recall_log.write()


def questions_in(text: str) -> list[str]:
    (section,) = re.findall(r'<ul class="recalls">(.*?)</ul>', text, re.DOTALL) or [""]
    paths: list[str] = [path.replace("&amp;", "&") for path in re.findall(r'href="([^"]+)"', section)]
    return [parse_qs(urlsplit(path).query)["q"][0] for path in paths]


async def test_a_memory_says_for_which_questions_it_came_back(page: OpenPage, browser: Browser) -> None:
    """Each leads to the search for it, which is no recall itself. Before the first one, the page says so."""
    (memory_id,) = await page.add(DENTIST)
    before = (await browser.get(f"/memories/{memory_id}")).text
    assert "No question brought it back." in before
    assert re.search(r"How many days questions are kept:\s+30", before)
    await ask(page, "Who is my dentist? 50% & <b>more</b>")
    shown = (await browser.get(f"/memories/{memory_id}")).text
    assert questions_in(shown) == ["Who is my dentist? 50% & <b>more</b>"]
    assert "&lt;b&gt;more&lt;/b&gt;" in shown
    assert "by claude-code" in shown
    assert f"{datetime.now(UTC):%Y-%m-%d}" in shown
    (path,) = re.findall(r'href="(/\?q=[^"]+)"', shown)
    assert memory_id in (await browser.get(path.replace("&amp;", "&"))).text
    await page.memory.recall_log.write()
    assert len(questions_in((await browser.get(f"/memories/{memory_id}")).text)) == 1


async def test_a_token_of_a_project_sees_the_questions_of_that_project(page: OpenPage, browser: Browser) -> None:
    """And those of no project. Whoever may see all projects sees all questions, each with its project."""
    bound = Visitor(Grant("alice", "web", read_only=True))
    async with page.browser(bound) as other:
        (memory_id,) = await page.add(DENTIST)
        for question, scope in (("dentist", ALICE), ("dentist web", WEB), ("dentist api", API)):
            await ask(page, question, scope)
        path = f"/memories/{memory_id}"
        assert questions_in((await other.get(path)).text) == ["dentist web", "dentist"]
        every = (await browser.get(path)).text
        assert questions_in(every) == ["dentist api", "dentist web", "dentist"]
        assert "project=api" in every


async def test_the_page_says_that_the_log_is_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_in(tmp_path) as memory:
        memory_id = (await memory.add_text(ALICE, DENTIST, infer=False)).outcomes[0].memory.id
        await memory.search(ALICE, "dentist")
    monkeypatch.setenv("PALIMPSEST_RECALL_LOG_DAYS", "0")
    async with page_in(tmp_path) as page, page.browser() as browser:
        shown = (await browser.get(f"/memories/{memory_id}")).text
        assert "Questions are not kept: recall_log_days is 0." in shown
        assert questions_in(shown) == []
        german = (await browser.get(f"/memories/{memory_id}", headers={"accept-language": "de"})).text
        assert "Fragen werden nicht aufbewahrt" in german
