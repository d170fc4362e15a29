"""What holds on every page that a link leads to: it can be used by everybody, on every screen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Served
from tests.support.browser import COLOURS, NARROW, WIDE, Windows, accessibility_problems, linked_pages, overflowing

pytestmark = pytest.mark.nightly

# Where the links are followed from: all there is, good hits, and none that is good.
STARTS = ("/", "/?q=where+does+Nora+live&explain=on", "/?q=zzzz&kind=message")


@pytest.fixture(scope="module")
def paths(shown: Served) -> Sequence[str]:
    linked = linked_pages(shown.base, shown.cookies, STARTS)
    for kind in ("/edits", "/memories/", "/conversations/"):
        assert any(path.startswith(kind) for path in linked), f"no link leads to {kind}"
    return linked


def each_page(
    windows: Windows, served: Served, paths: Sequence[str], size: tuple[int, int] = WIDE, locale: str = "en-US"
) -> Iterator[tuple[str, Page]]:
    page = windows.open(served.base, size, storage_state=served.state, locale=locale)
    for path in paths:
        page.goto(served.base + path)
        page.evaluate("() => document.querySelectorAll('details').forEach((details) => { details.open = true })")
        yield path, page


def test_axe_finds_nothing_wrong(windows: Windows, shown: Served, paths: Sequence[str]) -> None:
    """Guards WCAG, levels A and AA: names of all controls, contrasts, the order of headings, languages."""
    problems: dict[str, Sequence[str]] = {}
    for path, page in each_page(windows, shown, paths):
        page.emulate_media(color_scheme="light")
        in_light = accessibility_problems(page)
        page.emulate_media(color_scheme="dark")
        problems[path] = [*in_light, *accessibility_problems(page, COLOURS)]
    assert {path: found for path, found in problems.items() if found} == {}


def test_a_telephone_shows_every_page_without_scrolling_sideways(
    windows: Windows, shown: Served, paths: Sequence[str]
) -> None:
    wide = {path: overflowing(page) for path, page in each_page(windows, shown, paths, size=NARROW)}
    assert {path: found for path, found in wide.items() if found} == {}


def test_every_page_has_german_words(windows: Windows, shown: Served, paths: Sequence[str]) -> None:
    """Guards that words of the page come from the file of words: a German browser sees none of the English ones."""
    english = re.compile(r"^(Search|Edits|Sign out|Delete|Undo|Save|Pin|Versions|Relations|More)$", re.MULTILINE)
    for path, page in each_page(windows, shown, paths, locale="de-DE"):
        assert page.locator("html").get_attribute("lang") == "de"
        assert english.findall(page.locator("body").inner_text()) == [], path


def test_whoever_uses_the_keyboard_sees_where_they_are(windows: Windows, shown: Served, paths: Sequence[str]) -> None:
    """Guards that each control on each page can be reached with Tab, and that the one in focus is outlined."""
    for path, page in each_page(windows, shown, paths):
        page.evaluate("() => document.activeElement.blur()")
        reached = 0
        for _ in range(12):
            page.keyboard.press("Tab")
            outline: str = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            in_body: bool = page.evaluate("() => document.activeElement !== document.body")
            reached += in_body
            assert not in_body or outline != "none", (path, page.evaluate("() => document.activeElement.outerHTML"))
        assert reached > 3, path
