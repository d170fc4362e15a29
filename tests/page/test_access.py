"""Who may open the page: cookies for single-use tokens and for access tokens, and nobody else."""

from __future__ import annotations

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
from tests.support.page import OWNER, Browser, OpenPage, done, page_in

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


async def test_a_first_url_is_too_old_after_ten_minutes(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with page_in(tmp_path, clock) as page, page.browser(None) as browser:
        token = page.visits.invite(OWNER)
        clock.forward(minutes=10)
        assert (await browser.get("/enter", params={"token": token})).status_code == 403


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


async def test_a_cookie_ends_with_the_session_and_after_a_day_without_use(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with page_in(tmp_path, clock) as page, page.browser() as browser, page.browser() as other:
        clock.forward(hours=11)
        assert (await browser.get("/")).status_code == 200
        clock.forward(hours=11)
        assert (await browser.get("/")).status_code == 200
        assert (await other.get("/")).status_code == 303
        cookie = browser.cookies["palimpsest_page"]
        signed_out = await done(browser, "/sign-out")
        assert "You are signed out." in signed_out.text
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


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("with_general", [False, True])
async def test_a_visitor_of_a_project_sees_what_is_general_only_if_the_token_says_so(
    tmp_path: Path, *, with_general: bool
) -> None:
    """Guards every door of the page: lists, searches, the graph, summaries, exports, and ids that somebody knows."""
    grant = Grant("alice", project="shop", with_general=with_general)
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
        assert "sells flowers" in (await browser.get("/")).text
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
