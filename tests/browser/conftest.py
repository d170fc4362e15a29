"""One browser for all tests of the page in a browser, and servers with a year of somebody's life."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.sync_api import Browser, expect

from chromium import chromium
from tests.support.browser import PATIENCE_MS, Windows
from tests.support.page_process import run_ui
from year import store_year


@dataclass(frozen=True)
class Served:
    """A running page: its URL without a path, the folder of its memory, and the state of a browser that is let in."""

    base: str
    folder: Path
    state: Any

    @property
    def cookies(self) -> dict[str, str]:
        """Return the cookies of the browser that is let in."""
        return {cookie["name"]: cookie["value"] for cookie in self.state["cookies"]}


@pytest.fixture(scope="package")
def browser() -> Generator[Browser]:
    """Start Chromium once. Playwright has an event loop in this thread until the last test in this folder."""
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as started:
        yield started


@pytest.fixture(scope="package")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the memory of a year."""
    folder = tmp_path_factory.mktemp("year")
    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(store_year, folder / "data", "alice")
    return folder


@pytest.fixture(scope="package")
def shown(browser: Browser, year: Path) -> Generator[Served]:
    """Serve the year to tests that change nothing."""
    with run_ui(year) as url:
        yield entered(browser, url, year)


@pytest.fixture
def served(browser: Browser, windows: Windows, year: Path, tmp_path: Path) -> Generator[Served]:
    """Serve a copy of the year to one test. The windows are closed before the server stops, so that none misses it."""
    shutil.copytree(year / "data", tmp_path / "data")
    with run_ui(tmp_path) as url:
        yield entered(browser, url, tmp_path)
        windows.close()


@pytest.fixture
def windows(browser: Browser) -> Generator[Windows]:
    """Open windows. At the end, no page may have complained, and none may have asked another host for anything."""
    opened = Windows(browser)
    yield opened
    opened.close()
    assert opened.complaints == []
    assert len(opened.hosts) <= 1


def entered(browser: Browser, url: str, folder: Path) -> Served:
    """Open the first URL of a page, and return the page with what the browser got."""
    context = browser.new_context()
    context.new_page().goto(url)
    state = context.storage_state()
    context.close()
    return Served(url.partition("/enter")[0], folder, state)
