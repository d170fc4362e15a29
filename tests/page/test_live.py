"""The command that serves the page, and what an open page is told of changes while its visitor may look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.command_line import palimpsest
from tests.support.http_server import new_access_token, run_http_server
from tests.support.page_process import TIMEOUT, run_ui


def events(lines: Iterator[str]) -> Iterator[str]:
    return (line for line in lines if line.startswith(("event:", "id:")))


@pytest.mark.nightly
def test_the_command_serves_the_page_for_this_machine_and_tells_of_changes(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", "Alice has a boat")
    with run_ui(tmp_path) as url, httpx.Client(follow_redirects=True, timeout=TIMEOUT) as browser:
        base = url.partition("/enter")[0]
        assert base.startswith("http://127.0.0.1:")
        for host in ("evil.example", "localhost", f"evil.example:{base.rpartition(':')[2]}"):
            assert httpx.get(base, headers={"host": host}, timeout=TIMEOUT).status_code == 421
        assert "Alice has a boat" not in browser.get(base).text
        assert httpx.get(f"{base}/live", timeout=TIMEOUT).headers["location"] == "/sign-in"
        assert "Alice has a boat" in browser.get(url).text
        with browser.stream("GET", f"{base}/live") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            told = events(stream.iter_lines())
            first = next(told)
            palimpsest(tmp_path, "add", "Alice sold the boat to Bo")
            assert next(told) == "event: changed"
        again = {"last-event-id": first.removeprefix("id: ")}
        with browser.stream("GET", f"{base}/live", headers=again) as stream:
            told = events(stream.iter_lines())
            assert [next(told).partition(":")[0], next(told)] == ["id", "event: changed"]
        path = re.findall(r'href="(/memories/[^"]+)"', browser.get(base).text)[0]
        own = {"origin": base, "sec-fetch-site": "same-origin"}
        assert "Restore" in browser.post(f"{base}{path}/delete", headers=own).text
    assert "page" in palimpsest(tmp_path, "log")


@pytest.mark.nightly
def test_a_change_is_told_to_its_user_until_the_token_is_revoked(tmp_path: Path) -> None:
    token = new_access_token(tmp_path / "data", "bob")
    with run_http_server(tmp_path, "http") as server, httpx.Client(timeout=TIMEOUT) as browser:
        own = {"origin": server.base, "sec-fetch-site": "same-origin"}
        browser.post(f"{server.base}/sign-in", data={"token": token}, headers=own)
        with browser.stream("GET", f"{server.base}/live") as stream:
            told = events(stream.iter_lines())
            next(told)
            palimpsest(tmp_path, "add", "Alice has a boat")
            palimpsest(tmp_path, "--user", "bob", "add", "Bob has a cat")
            next(told)
            assert int(next(told).split()[1]) > 1
            (listed,) = palimpsest(tmp_path, "token", "list", "--json").split('"id": "')[1:]
            palimpsest(tmp_path, "token", "revoke", listed.partition('"')[0])
            palimpsest(tmp_path, "--user", "bob", "add", "Bob has a dog")
            assert list(told) == []
