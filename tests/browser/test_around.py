"""Look around: the time line, people and things, conversations, documents, and what others change meanwhile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Served, entered
from tests.support.browser import NARROW, Windows, linked_pages, overflowing
from tests.support.command_line import palimpsest
from tests.support.page_process import run_ui


@pytest.mark.nightly
def test_a_memory_of_another_process_appears_by_itself(windows: Windows, served: Served) -> None:
    page = windows.open(served.base, storage_state=served.state)
    page.get_by_role("searchbox").blur()
    page.evaluate("() => { window.isStillHere = true }")
    palimpsest(served.folder, "add", "Nora keeps bees on the roof")
    expect(page.locator(".hits li").first).to_contain_text("Nora keeps bees on the roof")
    search = page.get_by_role("searchbox")
    search.fill("beekeeping and honey")
    palimpsest(served.folder, "add", "Nora sells honey from her beekeeping")
    expect(page.locator(".hits li").first).to_contain_text("sells honey")
    expect(search).to_have_value("beekeeping and honey")
    assert page.evaluate("() => window.isStillHere")


@pytest.mark.nightly
def test_what_somebody_is_doing_is_not_taken_away(windows: Windows, served: Served) -> None:
    """Guards a choice and a text that somebody writes against a change by another process: they are told of it."""
    page = windows.open(f"{served.base}/?kind=memory", storage_state=served.state)
    box = page.locator(".hits").get_by_role("checkbox").first
    box.check()
    palimpsest(served.folder, "add", "Nora keeps bees on the roof")
    expect(page.locator("#news")).to_be_visible()
    expect(box).to_be_checked()
    page.locator("#news").get_by_role("link").click()
    expect(page.locator(".hits li").first).to_contain_text("bees")


@pytest.mark.nightly
def test_a_graph_is_drawn_and_opened_with_the_keyboard(windows: Windows, shown: Served) -> None:
    page = windows.open(f"{shown.base}/entities/graph", storage_state=shown.state)
    graph = page.locator("canvas.graph[data-state=still]")
    expect(graph).to_be_visible()
    painted = """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
      .some((value, place) => place % 4 === 3 && value > 0)"""
    assert graph.evaluate(painted)
    graph.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("canvas.graph + [role=status]")).to_contain_text(":")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/entities/[0-9a-f-]{36}"))


@pytest.mark.nightly
def test_a_word_of_two_hundred_letters_widens_no_page(windows: Windows, browser: Browser, tmp_path: Path) -> None:
    """Guards every place where a page shows what somebody wrote: texts, tags, names, projects, questions, prompts."""
    word = "Donaudampfschiff" * 13
    project = ("--project", word[:200])
    palimpsest(tmp_path, "add", f"{word} {word[::-1]}", "--metadata", f"{word[:60]}={word[:60]}")
    palimpsest(tmp_path, "add", f"{word} moved", "--relation", f"{word[:120]}|is a {word[:60]} of|{word[:100]}")
    palimpsest(tmp_path, *project, "add", f"In a project {word}")
    (tmp_path / f"{word[:100]}.md").write_text(f"# {word}\n\n{word}\n", "utf-8")
    palimpsest(tmp_path, "learn", str(tmp_path / f"{word[:100]}.md"))
    with run_ui(tmp_path) as url:
        served = entered(browser, url, tmp_path)
        starts = ("/", f"/?q={word}&explain=on&tag={word[:60]}&speaker={word}", f"/?project={word[:200]}")
        paths = linked_pages(served.base, served.cookies, starts)
        page, wide = windows.open(served.base, NARROW, storage_state=served.state), dict[str, object]()
        for path in paths:
            page.goto(served.base + path)
            page.evaluate("() => document.querySelectorAll('details').forEach((details) => { details.open = true })")
            wide[path] = overflowing(page)
        windows.close()
    assert len(paths) > 15
    assert {path: found for path, found in wide.items() if found} == {}
