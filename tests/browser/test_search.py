"""Search as you type, what can be chosen, and where a hit leads."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Served
from tests.support.browser import Windows


def first_hit(page: Page, text: str) -> None:
    """Wait until the first hit is one with a text."""
    expect(page.locator(".hits li").first).to_contain_text(text)


@pytest.mark.nightly
def test_hits_change_while_one_types(windows: Windows, shown: Served) -> None:
    page = windows.open(shown.base, storage_state=shown.state)
    page.evaluate("() => { window.isStillHere = true }")
    search = page.get_by_role("searchbox")
    expect(search).to_be_focused()
    search.press_sequentially("best friend")
    first_hit(page, "Nora's best friend is Amina.")
    search.fill("")
    search.press_sequentially("allergic")
    first_hit(page, "Nora is allergic to hazelnuts.")
    assert page.evaluate("() => window.isStillHere")
    expect(search).to_be_focused()
    page.reload()
    expect(search).to_have_value("allergic")
    first_hit(page, "Nora is allergic to hazelnuts.")


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
def test_chinese_is_searched_as_one_types_it(windows: Windows, shown: Served) -> None:
    page = windows.open(shown.base, storage_state=shown.state)
    page.get_by_role("searchbox").press_sequentially("攀岩")
    first_hit(page, "诺拉每个星期四晚上去攀岩")


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
