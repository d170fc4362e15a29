"""Look around: the time line, what was believed then, people and things, conversations, documents and summaries."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from palimpsest.core.clock import now
from palimpsest.core.models import Relation, Scope
from palimpsest.page.browse import PERIOD_NAMES
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.memory import ALICE, messages_from
from tests.support.page import Browser, OpenPage

pytestmark = pytest.mark.anyio

MARCH = datetime(2026, 3, 4, 12, tzinfo=UTC)
WORK = Scope("alice", "work")


def hit_texts(page: httpx.Response) -> list[str]:
    return re.findall(r'<a class="text"[^>]*>([^<]+)</a>', page.text)


async def entity_id(page: OpenPage, name: str) -> str:
    (dossier,) = await page.memory.graph.dossiers(ALICE, name)
    return dossier.entity.id


async def test_the_time_line_counts_what_each_day_week_and_year_is_about(page: OpenPage, browser: Browser) -> None:
    await page.add("Alice planted a fig tree", "Alice met Bo in Rome", at=MARCH)
    await page.add("Alice sold her car", at=MARCH + timedelta(days=1))
    day = await browser.get("/timeline", params={"period": "day", "on": "2026-03-04"})
    assert hit_texts(day) == ["Alice planted a fig tree", "Alice met Bo in Rome"]
    week = (await browser.get("/timeline", params={"period": "week", "on": "2026-03-04"})).text
    assert "2026-W10" in week
    assert week.index("Alice planted a fig tree") < week.index("Alice sold her car")
    year = (await browser.get("/timeline", params={"period": "year", "on": "2026"})).text
    assert re.search(r">2026-03</a></th>\s*<td>3</td>", year)
    assert re.search(r">2026-04</a></th>\s*<td>0</td>", year)
    month = (await browser.get("/timeline", params={"period": "month", "on": "2026-03"})).text
    assert re.search(r">2026-03-05</a> Thursday</th>\s*<td>1</td>", month)
    assert "Alice sold her car" in (await browser.get("/timeline")).text, "it begins where the memory last was"
    for on in ("0001-01-01", "9999-12-31", "2026-13", "soon", "", "2026-02-30"):
        for name in PERIOD_NAMES:
            assert (await browser.get("/timeline", params={"period": name, "on": on})).status_code == 200, on


async def test_a_hit_opens_its_conversation_at_the_turn(page: OpenPage, browser: Browser) -> None:
    """However long a conversation is, the turn is on the page that its hit leads to."""
    turns = [("user", f"Alice counts sheep number {number}") for number in range(300)]
    await page.memory.add_messages(messages_from(*turns), infer=False)
    hit = (await page.memory.search(ALICE, "sheep number 287", limit=1)).hits[0]
    shown = (await browser.get(f"/conversations/{hit.id}")).text
    assert f'id="m-{hit.id}"' in shown
    assert "number 280" in shown
    assert "From the start" in shown
    listed = await browser.get("/conversations")
    assert "300 messages" in listed.text


async def test_a_document_is_shown_page_by_page(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    file = tmp_path / "handbook.md"
    file.write_text("\n\n".join(f"# Part {n}\n\n" + f"The valve {n} opens to the left. " * 60 for n in range(40)))
    await page.memory.documents.learn_file(ALICE, file, caller="test")
    (path,) = set(re.findall(r'href="(/documents/[^"]+)"', (await browser.get("/documents")).text))
    first = (await browser.get(path)).text
    assert "handbook.md" in first
    assert "The valve 0 opens" in first
    assert "The valve 39 opens" not in first
    hit = (await page.memory.search(ALICE, "the valve 39", limit=1, max_tokens=9_000)).hits[0]
    opened = await browser.get(f"/conversations/{hit.id}", follow_redirects=True)
    assert opened.url.path.startswith("/documents/")
    assert f'id="m-{hit.id}"' in opened.text


async def test_a_summary_names_what_it_rests_on(page: OpenPage, browser: Browser) -> None:
    (lyon,) = await page.add("Alice lives in Lyon")
    for kind in ("overall", "profile", "recent", "procedures"):
        assert (await browser.get("/summaries", params={"kind": kind})).status_code == 200
    shown = (await browser.get("/summaries")).text
    assert "Alice lives in Lyon" in shown
    assert f'href="/memories/{lyon}"' in shown
    assert (await browser.get("/summaries", params={"kind": "horoscope"})).status_code == 404


async def test_an_entity_shows_what_is_known_and_what_is_near(page: OpenPage, browser: Browser) -> None:
    await page.add("Ana lives in Lyon", "Ana works with Bruno at Acme", "Carla met Bruno in Rome")
    married = [Relation("Ana", "is married to", "Dov")]
    await page.add("Ana is married to Dov", relations=married)
    ana = await entity_id(page, "Ana")
    listed = await browser.get("/entities", params={"name": "ana"}, headers={"hx-request": "true"})
    assert f'href="/entities/{ana}"' in listed.text
    assert "Carla" not in listed.text
    shown = (await browser.get(f"/entities/{ana}")).text
    assert "is married to" in shown
    assert "Ana works with Bruno at Acme" in shown
    one = (await browser.get(f"/entities/{ana}/graph.json")).json()
    assert {"Ana", "Dov", "Bruno", "Lyon"} <= {node["name"] for node in one["nodes"]}
    assert "Carla" not in {node["name"] for node in one["nodes"]}
    assert "is married to" in {link["name"] for link in one["links"]}
    two = (await browser.get(f"/entities/{ana}/graph.json", params={"hops": 2})).json()
    assert "Carla" in {node["name"] for node in two["nodes"]}
    whole = (await browser.get("/entities/graph.json")).json()
    ids = {node["id"] for node in whole["nodes"]}
    assert all({link["source"], link["target"]} <= ids for link in whole["links"])


async def test_activity_shows_jobs_and_growth(page: OpenPage, browser: Browser) -> None:
    await page.add("Alice lives in Lyon", "Alice has a cat", metadata={"expires_at": "2031-01-01"})
    shown = (await browser.get("/activity")).text
    assert f"{now():%Y-%m}: 2" in shown
    await page.memory.search(ALICE, "Where do I live?", caller="claude")
    await page.memory.search(ALICE, "Do I have a cat?", caller="claude")
    await page.memory.recall_log.write()
    assert f"{now():%Y-%m-%d}: 2" in (await browser.get("/activity")).text
    assert "End memories whose time has come" in shown


async def test_every_page_shows_a_visitor_their_own_memory_alone(page: OpenPage) -> None:
    """A token of another user, and one of another project, sees nothing of what belongs to neither."""
    secret = messages_from(("user", "Zebulon keeps the vault key"), scope=WORK)
    await page.memory.add_messages(secret, infer=False)
    told = secret[0].id
    await page.add("Zebulon met Ana in the vault", scope=WORK, relations=[Relation("Zebulon", "met", "Ana")])
    (dossier,) = await page.memory.graph.dossiers(WORK, "Zebulon")
    pages = (
        *("/", "/?q=Zebulon", f"/?as_of={now().date()}", "/timeline", "/timeline?period=day", "/entities"),
        *("/entities/graph.json", "/conversations", "/documents", "/summaries", "/activity", "/edits"),
    )
    for visitor in (Visitor(Grant("mallory")), Visitor(Grant("alice", "home"))):
        async with page.browser(visitor) as browser:
            for path in pages:
                answer = await browser.get(path)
                assert answer.status_code == 200
                assert "vault" not in answer.text, path
                assert "Ana" not in answer.text, path
            for path in (f"/entities/{dossier.entity.id}", f"/conversations/{told}"):
                assert (await browser.get(path)).status_code == 404, path
    async with page.browser(Visitor(Grant("alice", "home"))) as browser:
        assert (await browser.get("/timeline?project=work")).status_code == 404
    async with page.browser(Visitor(Grant("alice", "work"))) as browser:
        assert "Zebulon" in (await browser.get("/entities?project=work")).text
