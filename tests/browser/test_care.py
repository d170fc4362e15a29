"""Look after the memory in a browser: findings, a backup and its restore, an import and its undo, tokens, prompts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Served
from tests.support.browser import Windows
from tests.support.command_line import palimpsest

pytestmark = pytest.mark.nightly


def at_care(windows: Windows, served: Served, name: str) -> Page:
    """Return a page of care that was reached by its links."""
    page = windows.open(served.base, storage_state=served.state)
    page.get_by_role("link", name="Care", exact=True).click()
    page.locator("main").get_by_role("link", name=name, exact=True).click()
    return page


def test_a_file_is_looked_at_imported_and_taken_back(windows: Windows, served: Served, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    lines = [{"type": "entity", "name": "Iris", "entityType": "person", "observations": ["Iris keeps bees in Uppsala"]}]
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    page = at_care(windows, served, "Import")
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_role("button", name="Show what it would add").click()
    expect(page.locator("#import")).to_contain_text("Iris keeps bees in Uppsala")
    assert "bees" not in palimpsest(served.folder, "list")
    page.get_by_role("button", name="Import", exact=True).press("Enter")
    expect(page.locator("#import").get_by_role("status")).to_be_visible()
    assert "Iris keeps bees in Uppsala" in palimpsest(served.folder, "list")
    page.get_by_role("button", name="Undo").first.press("Enter")
    expect(page.get_by_role("status").filter(visible=True).first).to_contain_text("Undone.")
    assert "bees" not in palimpsest(served.folder, "list")


def test_a_backup_is_made_and_restored_and_that_is_taken_back(windows: Windows, served: Served) -> None:
    page = at_care(windows, served, "Backups")
    page.get_by_role("button", name="Back up now").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("A backup was made")
    palimpsest(served.folder, "add", "Nora bought a cello")
    page.get_by_role("link", name=re.compile("^Restore this backup")).first.click()
    page.get_by_role("button", name="Restore this backup").click()
    expect(page.get_by_role("checkbox")).to_be_focused()  # the browser asks for it first
    page.keyboard.press("Space")
    page.get_by_role("button", name="Restore this backup").press("Enter")
    expect(page.get_by_role("status")).to_be_visible()
    assert "Nora bought a cello" not in palimpsest(served.folder, "list")
    page.locator("main").get_by_role("link").first.click()
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Restore this backup").click()
    expect(page.get_by_role("status")).to_be_visible()
    assert "Nora bought a cello" in palimpsest(served.folder, "list")
