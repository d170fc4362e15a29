"""Each flow once with the keyboard alone."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Served
from tests.support.browser import Windows

pytestmark = pytest.mark.nightly

MAX_STOPS = 80


def tab_to(page: Page, name: str, role: Literal["button", "link"] = "button", key: str = "Tab") -> None:
    """Press Tab until a control has the focus. Raises AssertionError if it cannot be reached."""
    wanted = page.get_by_role(role, name=name, exact=True).first
    for _ in range(MAX_STOPS):
        page.keyboard.press(key)
        if wanted.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"Tab does not lead to {name}")


def find(windows: Windows, served: Served, question: str, text: str) -> Page:
    page = windows.open(served.base, storage_state=served.state)
    page.keyboard.type(question)
    expect(page.locator(".hits li").first).to_contain_text(text)
    tab_to(page, text, "link")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(text)
    return page


def done(page: Page, text: str) -> None:
    """Wait until the page says what was done."""
    expect(page.get_by_role("status").filter(visible=True)).to_contain_text(text)


def test_a_memory_is_found_corrected_and_the_correction_undone(windows: Windows, served: Served) -> None:
    page = find(windows, served, "allergic", "Nora is allergic to hazelnuts.")
    summary = page.locator("summary").filter(has_text="Correct").first
    while not summary.evaluate("(element) => element === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("Nora is allergic to walnuts.")
    tab_to(page, "Save")
    page.keyboard.press("Space")
    done(page, "Changed.")
    tab_to(page, "Undo")
    page.keyboard.press("Enter")
    done(page, "Undone.")


def test_the_first_stop_leads_past_the_links(windows: Windows, shown: Served) -> None:
    page = windows.open(f"{shown.base}/edits", storage_state=shown.state)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    assert (skip.bounding_box() or {})["width"] > 20, "it is shown while it has the focus"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("main").get_by_role("button", name="Undo").first).to_be_focused()
