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
def test_a_change_by_another_process_is_told(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", "Alice has a boat")
    with run_ui(tmp_path) as url, httpx.Client(follow_redirects=True, timeout=TIMEOUT) as browser:
        base = url.partition("/enter")[0]
        browser.get(url)
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
        assert httpx.get(f"{base}/live", timeout=TIMEOUT).headers["location"] == "/sign-in"


@pytest.mark.nightly
def test_a_change_of_another_user_is_not_told(tmp_path: Path) -> None:
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
            number = int(next(told).split()[1])
        assert number > 1


@pytest.mark.nightly
def test_a_stream_of_a_revoked_access_token_tells_nothing_more(tmp_path: Path) -> None:
    token = new_access_token(tmp_path / "data", "alice")
    with run_http_server(tmp_path, "http") as server, httpx.Client(timeout=TIMEOUT) as browser:
        own = {"origin": server.base, "sec-fetch-site": "same-origin"}
        browser.post(f"{server.base}/sign-in", data={"token": token}, headers=own)
        with browser.stream("GET", f"{server.base}/live") as stream:
            lines = stream.iter_lines()
            told = events(lines)
            next(told)
            (listed,) = palimpsest(tmp_path, "token", "list", "--json").split('"id": "')[1:]
            palimpsest(tmp_path, "token", "revoke", listed.partition('"')[0])
            palimpsest(tmp_path, "add", "Alice has a boat")
            assert list(told) == []


@pytest.mark.nightly
def test_a_server_that_is_asked_to_stop_ends_its_streams(tmp_path: Path) -> None:
    """An open page keeps it neither from stopping nor from stopping quietly."""
    with run_http_server(tmp_path, "http") as server, httpx.Client(follow_redirects=True, timeout=TIMEOUT) as browser:
        browser.get(f"{server.base}{server.page}")
        with browser.stream("GET", f"{server.base}/live") as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.terminate()
            assert "event: changed" not in list(lines)
        server.process.wait(TIMEOUT)
    assert "Traceback" not in "".join(server.log)


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
    assert "no memory of user" in palimpsest(tmp_path, "list")
    assert "page" in palimpsest(tmp_path, "log")
