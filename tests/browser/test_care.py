"""Look after the memory in a browser: findings, a backup and its restore, an import and its undo, tokens, prompts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Served
from tests.support.browser import Windows
from tests.support.command_line import palimpsest
from tests.support.page_process import TIMEOUT

pytestmark = pytest.mark.nightly


def at_care(windows: Windows, served: Served, name: str) -> Page:
    """Return a page of care that was reached by its links."""
    page = windows.open(served.base, storage_state=served.state)
    page.get_by_role("link", name="Care", exact=True).click()
    page.locator("main").get_by_role("link", name=name, exact=True).click()
    return page


def test_the_findings_name_every_part(windows: Windows, shown: Served) -> None:
    page = windows.open(f"{shown.base}/care", storage_state=shown.state)
    expect(page.locator("main table")).to_contain_text("ledger.db")


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


def test_a_token_is_shown_once_and_revoked(windows: Windows, served: Served) -> None:
    page = at_care(windows, served, "Access tokens")
    page.get_by_label("May only read").check()
    page.get_by_role("button", name="Create a token").press("Enter")
    text = page.get_by_role("status").locator("code").inner_text()
    assert text.startswith("palimpsest_")
    page.goto(f"{served.base}/care/tokens")
    expect(page.locator("main")).not_to_contain_text(text)
    page.get_by_role("button", name=re.compile("^Revoke")).press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("The token is revoked.")


def test_an_export_is_a_file(windows: Windows, shown: Served) -> None:
    page = windows.open(f"{shown.base}/care", storage_state=shown.state)
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("JSONL")).click()
    first = Path(download.value.path()).read_text("utf-8").partition("\n")[0]
    assert json.loads(first)["format"] == "palimpsest-export"


def test_settings_say_where_they_come_from_and_prompts_how_they_differ(windows: Windows, shown: Served) -> None:
    page = at_care(windows, shown, "Settings")
    row = page.locator("tr", has_text="llm.provider").first
    expect(row).to_contain_text("environment")
    page.goto(f"{shown.base}/care/prompts")
    page.get_by_role("link", name="extract", exact=True).press("Enter")
    expect(page.locator("main")).to_contain_text("shipped")


def test_nobody_else_gets_to_it(shown: Served) -> None:
    """Without the cookie of the owner there is nothing to find."""
    for path in ("/care/backups", "/care/tokens", "/care/settings", "/care/export/jsonl"):
        assert httpx.get(shown.base + path, timeout=TIMEOUT).headers["location"] == "/sign-in"
