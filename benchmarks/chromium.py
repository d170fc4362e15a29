"""Start Debian's Chromium, driven by Playwright: for the pictures of the page, and for its tests."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--no-sandbox",  # CI runs as root, whom Chromium gives no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",  # it would look up hosts of its maker
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP rebound.example 127.0.0.1",  # what an attacker makes of a name of theirs
)

MISSING = "there is no `chromium` on the path: install it with `apt-get install chromium`, or run .ci/run"


@contextmanager
def chromium() -> Generator[Browser]:
    """Start Chromium until the block ends. Raises RuntimeError if it is not installed."""
    program = shutil.which("chromium")
    if program is None:
        raise RuntimeError(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
