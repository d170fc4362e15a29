"""The page of a real process: `palimpsest ui`."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.support.command_line import palimpsest
from tests.support.page_process import TIMEOUT, run_ui


@pytest.mark.nightly
def test_the_command_serves_the_page_for_this_machine_only(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", "Alice has a boat")
    with run_ui(tmp_path) as url, httpx.Client(follow_redirects=True, timeout=TIMEOUT) as browser:
        base = url.partition("/enter")[0]
        assert base.startswith("http://127.0.0.1:")
        for host in ("evil.example", "localhost", f"evil.example:{base.rpartition(':')[2]}"):
            assert httpx.get(base, headers={"host": host}, timeout=TIMEOUT).status_code == 421
        assert "Alice has a boat" not in browser.get(base).text
        assert "Alice has a boat" in browser.get(url).text
        (path,) = re.findall(r'href="(/memories/[^"]+)"', browser.get(base).text)
        own = {"origin": base, "sec-fetch-site": "same-origin"}
        assert "Restore" in browser.post(f"{base}{path}/delete", headers=own).text
    assert "no memories" in palimpsest(tmp_path, "list").lower()
    assert "page" in palimpsest(tmp_path, "log")
