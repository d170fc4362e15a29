"""Stored texts, other pages and other hosts cannot make the page do anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from palimpsest.core.models import Scope
from tests.support.memory import ALICE, messages_from
from tests.support.page import HOST, OWN, Browser, OpenPage, done

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover=alert(3) {{ 123457 * 99991 }}"


# What browsers say of requests that this page did not send.
FOREIGN: dict[str, dict[str, str]] = {
    "neither": {},
    "another site": {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
    "forged origin": {"origin": HOST, "sec-fetch-site": "cross-site"},
    "another port's page": {"origin": HOST, "sec-fetch-site": "same-site"},
    "no page": {"sec-fetch-site": "none"},
    "no origin": {"origin": "null"},
    "another port": {"origin": "http://127.0.0.1:9999"},
}


async def test_a_write_of_another_page_is_refused(page: OpenPage, browser: Browser) -> None:
    (memory_id,) = await page.add("Alice has a boat")
    for name in OWN:
        del browser.headers[name]
    for case, headers in FOREIGN.items():
        for path in (f"/memories/{memory_id}/delete", f"/memories/{memory_id}/text", "/edits/1/undo", "/sign-out"):
            refused = await browser.post(path, data={"text": "Alice has no boat"}, headers=headers)
            assert refused.status_code == 403, (case, path)
    stored = await page.memory.get(ALICE, memory_id)
    assert (getattr(stored, "text", ""), stored.deleted_at) == ("Alice has a boat", None)
    assert (await browser.get("/")).status_code == 200
    for path in (f"/memories/{memory_id}/text", f"/memories/{memory_id}/restore", "/edits/1/undo", "/sign-out"):
        assert (await browser.get(path)).status_code == 405, "a write is no GET"


async def test_stored_text_is_never_html(page: OpenPage, browser: Browser) -> None:
    project = Scope("alice", HOSTILE[:60])
    (memory_id,) = await page.add(f"Alice wrote {HOSTILE}", scope=project)
    await page.memory.update(project, memory_id, tags=[HOSTILE[:50]])
    await page.memory.update(project, memory_id, text=f"Alice wrote again {HOSTILE}", caller=HOSTILE[:50])
    kept = await page.memory.add_messages(
        messages_from({"role": "user", "content": HOSTILE, "name": HOSTILE[:50]}, scope=project), infer=False
    )
    assert kept.kept_messages == 1
    asked = {"project": project.project}
    (message,) = [hit for hit in (await page.memory.search(project, "script alert")).hits if hit.kind == "message"]
    pages = [
        await browser.get("/", params=asked),
        await browser.get("/", params=asked | {"q": HOSTILE, "as_of": HOSTILE, "explain": "on", "kind": HOSTILE}),
        await browser.get(f"/memories/{memory_id}", params=asked),
        await browser.get(f"/conversations/{message.id}", params=asked),
        await browser.get("/edits", params=asked),
        await done(browser, f"/memories/{memory_id}/tags", {"tags": "<b>,x"}, params=asked),
    ]
    for shown in pages:
        assert shown.status_code == 200
        assert "&lt;script&gt;" in shown.text
        for raw in ("<script>alert", "<img", "<b>", str(123457 * 99991)):
            assert raw not in shown.text
        assert " onmouseover=" not in shown.text.replace("&#34;&#39; onmouseover=", "")


async def test_every_answer_forbids_scripts_frames_and_caches(browser: Browser, stranger: Browser) -> None:
    answers = [
        await browser.get("/"),
        await browser.get("/memories/none"),
        await browser.get("/static/page.js"),
        await browser.post("/memories/delete"),
        await stranger.get("/"),
        await stranger.post("/edits/1/undo", headers={"origin": "null"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        is_static = answer.request.url.path.startswith("/static/")
        assert answer.headers["cache-control"] == ("no-cache" if is_static else "no-store")
        assert is_static or "HX-Request, HX-History-Restore-Request" in answer.headers["vary"]
    kept = await browser.get("/static/page.css")
    again = await browser.get("/static/page.css", headers={"if-none-match": kept.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_going_back_in_the_history_gets_a_whole_page(page: OpenPage, browser: Browser, stranger: Browser) -> None:
    """Htmx says of both that it sends them; what it puts in place of the whole page has to be one."""
    part = {"hx-request": "true", "hx-current-url": f"{HOST}/"}
    await page.add("Alice has a boat")
    for path in ("/?q=boat", "/entities?name=alice", "/care/findings", "/care/import"):
        assert "<html" not in (await browser.get(path, headers=part)).text
        for headers in ({}, part | {"hx-history-restore-request": "true"}):
            assert "<html" in (await browser.get(path, headers=headers)).text
    back = await stranger.get("/?q=boat", headers=part | {"hx-history-restore-request": "true"})
    assert (back.status_code, back.headers["location"]) == (303, "/sign-in")


async def test_a_form_says_its_length_and_is_not_too_long(stranger: Browser) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b"token=x"

    long = {"token": "x" * 300_000}
    assert (await stranger.post("/sign-in", data=long)).status_code == 413
    assert (await stranger.post("/sign-in", content=endless())).status_code == 411
