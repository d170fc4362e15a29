"""Who may open the page, and that stored texts, other pages and other hosts cannot make it do anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from palimpsest.core.clock import now
from palimpsest.core.models import Relation, Scope
from palimpsest.page.memory_page import ACTIONS, EDITS
from palimpsest.page.page_context import Visitor
from palimpsest.server import access_tokens
from palimpsest.server.access_tokens import Grant
from tests.support.memory import ALICE, StoppedClock, messages_from
from tests.support.page import HOST, OWN, OWNER, Browser, OpenPage, done, page_in

pytestmark = pytest.mark.anyio


async def test_the_token_of_the_first_url_opens_the_page_once(page: OpenPage, stranger: Browser) -> None:
    async with page.browser(None) as other:
        token = page.visits.invite(OWNER)
        entered = await stranger.get("/enter", params={"token": token})
        cookie = entered.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/"))
        assert (await stranger.get("/")).status_code == 200
        again = await other.get("/enter", params={"token": token})
        assert again.status_code == 403
        assert "set-cookie" not in again.headers
        assert (await other.get("/enter", params={"token": "a guess"})).status_code == 403


async def test_without_a_cookie_there_is_only_the_form_to_sign_in(page: OpenPage, stranger: Browser) -> None:
    (memory_id,) = await page.add("Alice has a boat")
    for path in ("/", "/edits", f"/memories/{memory_id}", f"/conversations/{memory_id}", "/nothing"):
        refused = await stranger.get(path)
        assert (refused.status_code, refused.headers["location"]) == (303, "/sign-in")
    part = await stranger.get("/", params={"q": "boat"}, headers={"hx-request": "true"})
    assert (part.status_code, part.text, part.headers["hx-redirect"]) == (401, "", "/sign-in")
    assert (await stranger.post(f"/memories/{memory_id}/delete")).status_code == 401
    assert (await page.memory.get(Scope("alice"), memory_id)).deleted_at is None
    assert (await stranger.get("/sign-in")).status_code == 200
    assert (await stranger.get("/static/page.css")).status_code == 200


async def test_first_urls_and_cookies_end(tmp_path: Path) -> None:
    """A first URL after ten minutes; a cookie with the session, and after a day without use."""
    clock = StoppedClock()
    async with page_in(tmp_path, clock) as page, page.browser() as browser, page.browser(None) as other:
        token = page.visits.invite(OWNER)
        clock.forward(minutes=10)
        assert (await other.get("/enter", params={"token": token})).status_code == 403
        for hours, status in ((11, 200), (11, 200), (13, 303)):
            clock.forward(hours=hours)
            assert (await browser.get("/")).status_code == status
    async with page_in(tmp_path, clock) as page, page.browser() as browser:
        cookie = browser.cookies["palimpsest_page"]
        assert "You are signed out." in (await done(browser, "/sign-out")).text
        assert (await browser.get("/", headers={"cookie": f"palimpsest_page={cookie}"})).status_code == 303


# Words that only what belongs to no project has in the test below.
GENERAL = ("oleander", "Quentin", "Lisbon", "unspoken")

PATHS = (
    "/",
    "/?q=where+does+Quentin+live+oleander",
    "/?q=what+was+unspoken",
    "/?as_of=2999-01-01",
    "/?kind=message",
    "/edits",
    "/deleted",
    "/deleted?kind=message",
    "/timeline?period=year&on={year}",
    "/timeline?period=day&on={day}",
    "/entities",
    "/entities?name=quen",
    "/entities/graph.json",
    "/conversations",
    "/documents",
    "/summaries",
    "/summaries?kind=profile",
    "/summaries?kind=procedures",
    "/summaries?kind=recent",
    "/summaries?kind=day:{day}",
    "/activity",
    "/duplicates",
    "/conflicts",
)


@pytest.mark.few_by_day(2)
@pytest.mark.parametrize("grant", [Grant("alice", "shop"), Grant("mallory"), Grant("alice", "shop", with_general=True)])
async def test_a_visitor_sees_what_is_general_only_if_it_is_theirs_or_the_token_says_so(
    tmp_path: Path, grant: Grant
) -> None:
    """Guards every door of the page: lists, searches, the graph, summaries, exports, and ids that somebody knows."""
    with_general = grant.with_general and grant.user_id == "alice"
    shop, clock = Scope("alice", "shop"), StoppedClock()
    async with page_in(tmp_path, clock) as page, page.browser(Visitor(grant)) as browser:
        lives = [Relation("Quentin", "lives in", city) for city in ("Lisbon", "Porto")]
        general = await page.add("Quentin lives in Lisbon", relations=lives[:1])
        general += await page.add("Quentin lives in Porto", relations=lives[1:])
        general += await page.add("The oleander needs water", "The oleander needs some water", "Wear red")
        await page.memory.update(ALICE, general[-1], text="Wear an oleander", metadata={"pinned": True})
        await page.add("The shop sells oleanders to nobody".replace("oleanders", "flowers"), scope=shop)
        said = messages_from({"role": "user", "content": "This is unspoken elsewhere", "session": "s"}, scope=ALICE)
        await page.memory.add_messages(said, infer=False)
        (message,) = [hit.id for hit in (await page.memory.search(ALICE, "unspoken")).hits if hit.kind == "message"]
        (gone,) = await page.add("The oleander is dead")
        await page.memory.delete(ALICE, [gone])
        day = clock().date()
        shown: list[str] = []
        for path in PATHS:
            answer = await browser.get(path.format(day=day, year=day.year))
            assert answer.status_code == 200, path
            typed = ("where does Quentin live oleander", "what was unspoken")
            text = answer.text
            for question in typed:
                text = text.replace(question, "").replace(question.replace(" ", "+"), "")
            shown += [f"{word} on {path}" for word in GENERAL if word in text]
        assert bool(shown) == with_general, shown
        assert ("sells flowers" in (await browser.get("/")).text) == (grant.user_id == "alice")
        status = 200 if with_general else 404
        for path in (f"/memories/{general[0]}", f"/memories/{gone}", f"/conversations/{message}"):
            assert (await browser.get(path)).status_code == status
        changed = await browser.post(f"/memories/{general[0]}/tags", data={"tags": "x"})
        assert changed.status_code == (303 if with_general else 404)
        assert (await browser.post("/memories/delete", data={"id": general[1]})).status_code == (
            303 if with_general else 404
        )


async def test_wrong_tokens_are_counted_by_address_and_a_valid_one_is_always_let_in(
    tmp_path: Path, page: OpenPage, stranger: Browser
) -> None:
    text, _ = access_tokens.create(tmp_path, Grant("alice"), now())
    async with page.browser(None, "2001:db8::1") as other, page.browser(None, "2001:db8::2") as neighbour:

        async def sign_in(browser: Browser, token: str) -> httpx.Response:
            return await browser.post("/sign-in", data={"token": token})

        for guess in range(60):
            wrong = await sign_in(stranger, f"guess {guess}")
            assert (wrong.status_code, "is not valid" in wrong.text) == (403, True)
        for browser, status in ((stranger, 429), (other, 403), (neighbour, 403)):
            refused = await sign_in(browser, "one more guess")
            assert (refused.status_code, "too many wrong ones" in refused.text) == (status, status == 429)
            assert refused.headers.get("retry-after", "0").isdecimal()
            assert (await sign_in(browser, f" {text} ")).status_code == 303
        for guess in range(58):
            assert (await sign_in(other, f"guess {guess}")).status_code == 403
        assert (await sign_in(neighbour, "a guess from the same network")).status_code == 429


async def test_who_may_not_write_or_see_changes_nothing(page: OpenPage, reader: Browser, gardener: Browser) -> None:
    """Guards every write of a memory: a reader has no form, and another project's memories are not found."""
    kitchen = Scope("alice", "kitchen")
    own = await page.add("Alice is allergic to nuts", "Alice is allergic to nuts!?")
    foreign = await page.add("Alice grows beans", "Alice grows beans!?", scope=kitchen)
    many = [*(f"/memories/{action}" for action in ACTIONS), "/duplicates/merge", "/conflicts/settle"]
    for visitor, (kept, other), status, asked in (
        (reader, own, 403, {}),
        (gardener, foreign, 404, {}),
        (gardener, foreign, 404, {"project": "kitchen"}),
    ):
        form = {"kept": kept, "id": [kept, other], "tag": "x", "text": "x", "tags": "x", "since": "", "until": ""}
        for path in (*many, *(f"/memories/{kept}/{action}" for action in (*EDITS, "edit"))):
            assert (await visitor.post(path, params=asked, data=form)).status_code == status, path
        assert (await visitor.get(f"/memories/{kept}/edit", params=asked)).status_code == status
    assert (await reader.post("/edits/1/undo")).status_code == 403
    assert (await gardener.get(f"/memories/{foreign[0]}/hit")).status_code == 404
    assert {(await gardener.post(path)).status_code for path in many} == {400}, "nothing is chosen"
    assert "allergic" in (await reader.get("/duplicates")).text
    for path in ("/", f"/memories/{own[0]}", "/edits", "/deleted", "/duplicates", "/conflicts"):
        assert (await reader.get(path)).text.count('method="post"') == 1, "to sign out"
    for memory in [await page.stored(each) for each in own] + [await page.stored(each, kitchen) for each in foreign]:
        assert (memory.tags, memory.metadata, memory.deleted_at, memory.revision) == ((), {}, None, 1)


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
