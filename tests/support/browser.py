"""Windows of a browser, and what they noticed of the pages that they showed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import unescape
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

# The sizes of windows, in CSS pixels: a computer's, and the smallest telephone's that the page promises to fit.
WIDE, NARROW = (1000, 800), (360, 640)

# What axe checks: the success criteria of WCAG, levels A and AA.
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}

# What axe checks anew when only the colours have changed.
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}

# How many pages of a kind are looked at for links, and for the longest of them.
OF_A_KIND = 12

# How long a page may take to show what a test expects: long, because tests share their machine.
PATIENCE_MS = 30_000

# What htmx logs when another request takes the place of one without an answer, as it should while one types.
REPLACED_REQUEST = ("htmx:afterRequest", "htmx:sendAbort")

_ID = re.compile(r"(?<=/)([0-9a-f]{8}[0-9a-f-]*|\d+)(?=/|$)")


@dataclass
class Windows:
    """Windows of a browser, each with cookies of its own.

    `complaints` are errors on their consoles, exceptions of scripts and dialogs. A policy that a page breaks is an
    error on the console. `hosts` are where requests went.
    """

    browser: Browser
    complaints: list[str] = field(default_factory=list[str])
    hosts: set[str] = field(default_factory=set[str])
    _contexts: list[BrowserContext] = field(default_factory=list[BrowserContext])

    def open(self, url: str, size: tuple[int, int] = WIDE, **options: Any) -> Page:
        """Open a URL in a new window. `options` are those of Playwright's `Browser.new_context`."""
        width, height = size
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self._contexts.append(context)
        page = context.new_page()
        context.on("request", self._note_request)
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        page.on("dialog", self._note_dialog)
        page.goto(url)
        return page

    def close(self) -> None:
        """Close all windows."""
        while self._contexts:
            self._contexts.pop().close()

    def forgive(self) -> None:
        """Close all windows and forget what they noticed. A window that is open can still notice something later."""
        self.close()
        self.complaints.clear()
        self.hosts.clear()

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.hosts.add(urlsplit(request.url).netloc)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(REPLACED_REQUEST):
            self.complaints.append(message.text)

    def _note_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


def accessibility_problems(page: Page, rules: dict[str, Any] = RULES) -> Sequence[str]:
    """Return what axe finds wrong on a page: the rule, and the elements that break it."""
    page.evaluate("() => document.querySelectorAll('details').forEach((details) => { details.open = true })")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found: dict[str, Any] = page.evaluate("(rules) => axe.run(rules)", rules)
    assert found["testEngine"]["version"].startswith("4.")
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]


def overflowing(page: Page) -> Sequence[str]:
    """Return the elements that make a page wider than its window, if it is."""
    return page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth
          if (document.documentElement.scrollWidth <= width) return []
          const isOut = (element) => {
            const box = element.getBoundingClientRect()
            return box.right > width + 1 || box.left < -1
          }
          return [...document.querySelectorAll("body *")].filter(isOut).map((e) => e.outerHTML.slice(0, 120))
        }"""
    )


def linked_pages(base: str, cookies: dict[str, str], starts: Sequence[str]) -> Sequence[str]:
    """Follow the links of the page from some paths, and return a path of each kind of page: of several the longest."""
    longest: dict[str, tuple[int, str]] = {}
    known, waiting = set(starts), list(starts)
    visited = Counter[str]()
    with httpx.Client(base_url=base, cookies=cookies, timeout=60, follow_redirects=True) as browser:
        while waiting:
            path = waiting.pop(0)
            kind = _kind(path)
            visited[kind] += 1
            if visited[kind] > OF_A_KIND:
                continue
            shown = browser.get(path)
            assert shown.status_code == 200, f"{path}: {shown.status_code}"
            if "text/html" not in shown.headers.get("content-type", ""):
                continue
            longest[kind] = max(longest.get(kind, (0, "")), (len(shown.text), path))
            links = [unescape(link) for link in re.findall(r'<a [^>]*href="(/[^"#]*)', shown.text)]
            waiting += [link for link in dict.fromkeys(links) if link not in known]
            known.update(links)
    return [path for _, path in longest.values()]


def _kind(path: str) -> str:
    """Return a path without what names one of many: ids, and the values of a query."""
    split = urlsplit(path)
    names = sorted(part.partition("=")[0] for part in split.query.split("&") if part)
    return f"{_ID.sub('*', split.path)}?{'&'.join(names)}"
