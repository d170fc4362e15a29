"""The page of real processes: `palimpsest ui`, and `palimpsest serve` with and without access tokens."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.support.command_line import palimpsest
from tests.support.http_server import new_access_token, run_http_server
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


@pytest.mark.nightly
def test_a_server_without_access_tokens_names_a_url_that_opens_its_page_once(tmp_path: Path) -> None:
    with run_http_server(tmp_path, "http") as server, httpx.Client(timeout=TIMEOUT) as browser:
        path = server.page
        assert httpx.get(f"{server.base}/", timeout=TIMEOUT).headers["location"] == "/sign-in"
        assert browser.get(f"{server.base}{path}").headers["location"] == "/"
        assert browser.get(f"{server.base}/").status_code == 200
        assert httpx.get(f"{server.base}{path}", timeout=TIMEOUT).status_code == 403
        assert httpx.get(f"{server.base}/health", timeout=TIMEOUT).status_code in (200, 503)


@pytest.mark.nightly
def test_a_server_with_access_tokens_asks_for_one(tmp_path: Path) -> None:
    token = new_access_token(tmp_path / "data", "alice")
    with run_http_server(tmp_path, "http") as server, httpx.Client(timeout=TIMEOUT) as browser:
        assert server.page == "/"
        own = {"origin": server.base, "sec-fetch-site": "same-origin"}
        assert browser.post(f"{server.base}/sign-in", data={"token": "guess"}, headers=own).status_code == 403
        assert browser.post(f"{server.base}/sign-in", data={"token": token}, headers=own).headers["location"] == "/"
        assert browser.get(f"{server.base}/").status_code == 200
        assert httpx.post(f"{server.base}/mcp", timeout=TIMEOUT).status_code == 401
