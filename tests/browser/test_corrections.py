"""Correct a memory in the browser: each action says what it did and can be undone on the spot."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Served
from tests.support.browser import Windows
from tests.support.command_line import palimpsest

pytestmark = pytest.mark.nightly

PHONE = "Nora uses a Fairphone 5."


def open_memory(windows: Windows, served: Served, text: str = PHONE) -> Page:
    """Open the page of a memory by searching for its text."""
    page = windows.open(f"{served.base}/?q={text}&kind=memory", storage_state=served.state)
    page.get_by_role("link", name=text).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(text)
    return page


def done(page: Page, text: str) -> None:
    """Wait until the page says what was done."""
    expect(page.get_by_role("status")).to_contain_text(text)


def undo(page: Page) -> None:
    """Undo what was just done."""
    page.get_by_role("status").get_by_role("button", name="Undo").click()
    done(page, "Undone.")


def stored(served: Served) -> str:
    """Return the memories as another process lists them."""
    return palimpsest(served.folder, "list")


def test_a_text_is_corrected_and_the_correction_undone(windows: Windows, served: Served) -> None:
    page = open_memory(windows, served)
    page.locator("summary", has_text="Correct").first.click()
    page.get_by_label("Correct").fill("Nora uses a Nokia 3310.")
    page.get_by_role("button", name="Save").first.click()
    done(page, "Changed.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nora uses a Nokia 3310.")
    expect(page.locator(".versions del").first).to_have_text("Fairphone 5.")
    expect(page.locator(".versions ins").first).to_have_text("Nokia 3310.")
    assert "Nora uses a Nokia 3310." in stored(served)
    undo(page)
    assert PHONE in stored(served)


def test_a_memory_is_pinned_and_tagged(windows: Windows, served: Served) -> None:
    page = open_memory(windows, served)
    page.get_by_role("button", name="Pin").click()
    done(page, "Changed.")
    expect(page.locator(".tag", has_text="pinned")).to_be_visible()
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator(".tag", has_text="pinned")).to_have_count(0)
    page.locator("summary", has_text="Correct").first.click()
    page.get_by_label("Tags").fill("music, hobby")
    form = page.locator("form", has=page.get_by_label("Tags"))
    form.get_by_role("button", name="Save").click()
    done(page, "Changed.")
    expect(page.locator("main > .about .tag")).to_have_text(["music", "hobby"])
