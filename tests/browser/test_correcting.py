"""Correct what a list shows, with the script that replaces parts of a page."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Served
from tests.support.browser import Windows

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
