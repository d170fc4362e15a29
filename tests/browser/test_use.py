"""Search, look around and correct in a browser, with the mouse and with the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Served, entered
from tests.support.browser import NARROW, Windows, linked_pages, overflowing
from tests.support.command_line import palimpsest
from tests.support.page_process import run_ui


def first_hit(page: Page, text: str) -> None:
    """Wait until the first hit is one with a text."""
    expect(page.locator(".hits li").first).to_contain_text(text)


@pytest.mark.nightly
def test_one_question_is_one_entry_of_the_history_and_back_shows_whole_pages(windows: Windows, shown: Served) -> None:
    page = windows.open(shown.base, storage_state=shown.state)
    search, entries = page.get_by_role("searchbox"), "() => history.length"
    before = page.evaluate(entries)
    for question, hit in (("best", " friend"), ("aller", "gic")):
        for letters in (question, hit):
            with page.expect_response(re.compile(r"/\?q=")):
                search.press_sequentially(letters)
        search.press("Enter")
        expect(page).to_have_url(re.compile(f"q={question}"))
        search.fill("") if question == "best" else None
    assert page.evaluate(entries) == before + 2
    first_hit(page, "Nora is allergic to hazelnuts.")
    page.locator(".hits a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("allergic")
    for question, hit in (("allergic", "Nora is allergic"), ("best friend", "Nora's best friend"), ("", "")):
        page.go_back()
        expect(page.get_by_role("navigation")).to_be_visible()
        expect(page.get_by_role("searchbox")).to_have_value(question)
        first_hit(page, hit)


@pytest.mark.nightly
def test_a_click_while_an_answer_arrives_is_not_lost(windows: Windows, shown: Served) -> None:
    """The mouse is down on a hit, the field is left by that, and the answer would take the hit away."""
    page = windows.open(f"{shown.base}/?q=best+friend", storage_state=shown.state)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/\?q="), hold)

    hit = page.locator(".hits a").first
    hit.evaluate("(link) => { link.dataset.pressed = 'yes' }")
    script = "(event) => { window.clicked = event.target.dataset.pressed; event.preventDefault() }"
    page.evaluate(f"() => document.addEventListener('click', {script})")
    with page.expect_request(re.compile(r"/\?q=")):
        page.get_by_role("searchbox").fill("best friends of Nora")
    hit.hover()
    page.mouse.down()
    with page.expect_response(re.compile(r"/\?q=")):
        held.pop().continue_()
    page.mouse.up()
    assert page.evaluate("() => window.clicked") == "yes"
    page.unroute_all()
    first_hit(page, "Nora's best friend is Amina.")
    expect(page).to_have_url(re.compile("friends"))


def test_a_hit_leads_to_its_message_in_the_conversation(windows: Windows, shown: Served) -> None:
    page = windows.open(f"{shown.base}/?q=I+bake+saffron+buns&kind=message", storage_state=shown.state)
    hit = page.locator(".hits a").first
    text = hit.inner_text()
    hit.click()
    message = page.locator("li:target")
    expect(message).to_contain_text(text)
    expect(message).to_be_in_viewport()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Chat of")


@pytest.mark.nightly
def test_hebrew_and_arabic_are_written_from_the_right(windows: Windows, shown: Served) -> None:
    """Guards the direction of each text by itself: of hits, of what is typed, and on a memory's page."""
    direction = "(element) => getComputedStyle(element).direction"
    page = windows.open(shown.base, storage_state=shown.state)
    search = page.get_by_role("searchbox")
    for query, text in (("במקהלה", "נורה שרה אלט"), ("الإيطالية", "تتعلم نورا")):
        search.fill(query)
        first_hit(page, text)
        assert search.evaluate(direction) == "rtl"
        assert page.locator(".hits a").first.evaluate(direction) == "rtl"
    page.locator(".hits a").first.click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("نورا")
    assert heading.evaluate(direction) == "rtl"
    assert page.locator("body").evaluate(direction) == "ltr"


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


LIST = "/?kind=memory"


def test_a_hit_is_corrected_in_its_place_and_its_undo_leads_back(windows: Windows, served: Served) -> None:
    page = windows.open(served.base, storage_state=served.state)
    page.goto(served.base + LIST)
    hit = page.locator("#hits article").first
    before = hit.locator("a.text").inner_text()
    hit.get_by_role("button", name=re.compile("^Correct")).click()
    text = hit.get_by_role("textbox", name="Correct")
    expect(text).to_be_focused()
    text.fill("Nora plays the trumpet")
    hit.get_by_role("button", name="Save").click()
    expect(hit.locator("a.text")).to_have_text("Nora plays the trumpet")
    assert page.url == served.base + LIST
    expect(hit.get_by_role("button", name="Undo")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{served.base}{LIST}&done=undone")
    expect(page.locator("#hits article a.text").first).to_have_text(before)


def done(page: Page, text: str) -> None:
    """Wait until the page says what was done."""
    expect(page.get_by_role("status").filter(visible=True)).to_contain_text(text)


@pytest.mark.nightly
def test_the_first_stop_leads_past_the_links(windows: Windows, shown: Served) -> None:
    page = windows.open(f"{shown.base}/edits", storage_state=shown.state)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    assert (skip.bounding_box() or {})["width"] > 20, "it is shown while it has the focus"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("main").get_by_role("button", name="Undo").first).to_be_focused()
