"""What others try in a browser: stored scripts, forms of other pages, other names for this machine, old cookies."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import anyio.from_thread
import pytest
from playwright.sync_api import Browser, Page

from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Provenance, Relation, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from palimpsest.store.apply import Write
from palimpsest.store.writes import Conversation
from tests.browser.conftest import Served, entered
from tests.support.browser import Windows, linked_pages
from tests.support.http_server import new_access_token
from tests.support.memory import messages_from
from tests.support.page_process import run_ui

# Texts that would run a script, load something, or mark an element as injected, wherever they got into a page.
HOSTILE = (
    "<script class=injected>alert(1)</script>",
    "<img class=injected src=x onerror=alert(2)>",
    "\"'><svg class=injected onload=alert(3)>",
    "\" autofocus onfocus=alert(4) '",
    "</textarea></title></script><script class=injected>alert(5)</script>",
    "<b class=injected hx-get=/edits hx-trigger=load hx-target=body>",
    "<meta class=injected http-equiv=refresh content='0;url=//rebound.example'>",
    "<base class=injected href=//rebound.example/>",
    "<iframe class=injected srcdoc='<script>alert(6)</script>'></iframe>",
    "javascript:alert(7)",
    "{{ 123457 * 99991 }}",
)

PROJECT = "<img class=injected src=x onerror=alert(8)>"


async def _store(data: Path) -> None:
    """Store hostile texts in every field that there is."""
    settings = load_settings(None, data_dir=data, user_id="alice", llm={"provider": "none"}, project="")
    async with open_memory(settings, background=False) as memory:
        for project in ("", PROJECT):
            scope = Scope("alice", project)
            for number, text in enumerate(HOSTILE):
                said = messages_from({"role": "user", "content": f"I said {text}", "name": text[:60]}, scope=scope)
                fact = Fact(
                    f"Alice wrote {text}",
                    sources=(said[0].id,),
                    tags=(text[:40],),
                    metadata={"source": text},
                    entities=(NamedEntity(f"Alice {text}", "person"), NamedEntity(text, "place")),
                    relations=(Relation(f"Alice {text}", text, text),),
                )
                provenance = Provenance("extract", caller=text[:60])
                conversation = Conversation("claude", f"{number}{project}", f"On {text}")
                memory.engine.ledger.apply_as_one(
                    [
                        Write(scope, provenance, messages=said, conversation=conversation),
                        Write(scope, provenance, decisions=(Decision(Event.ADD, fact),)),
                    ]
                )
                added = await memory.add_text(scope, f"Bob heard {text}", infer=False, caller=text[:60])
                await memory.update(scope, added.outcomes[0].memory.id, text=f"Bob read {text}", caller=text[:60])
            file = anyio.Path(data.parent / "notes.md")
            await file.write_text("\n\n".join(f"# About {text}\n\nIt says {text}." for text in HOSTILE), "utf-8")
            await memory.documents.learn_file(scope, Path(file), title=HOSTILE[1])
        await memory.search(Scope("alice"), f"what about {HOSTILE[1]}")


@pytest.fixture(scope="module")
def hostile(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    with anyio.from_thread.start_blocking_portal() as portal:
        portal.call(_store, folder / "data")
    new_access_token(folder / "data", "alice", HOSTILE[1])
    with run_ui(folder) as url:
        yield entered(browser, url, folder)


def injected(page: Page) -> list[str]:
    return page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((element) =>
             element.classList.contains("injected")
             || [...element.attributes].some((one) => one.name.startsWith("on"))
             || /^javascript:/i.test(element.getAttribute("href") ?? "")
           ).map((element) => element.outerHTML)"""
    )


@pytest.mark.nightly
def test_no_stored_text_becomes_part_of_a_page(windows: Windows, hostile: Served) -> None:
    """Guards every field on every page that a link leads to. The policy's refusal of a script is a complaint too."""
    page = windows.open(hostile.base, storage_state=hostile.state)
    with_project = page.get_by_label("project").locator("option").last
    assert with_project.get_attribute("value") in (None, PROJECT)
    starts = ("/", "/?q=wrote&explain=on", "/?project=" + PROJECT.replace(" ", "+"))
    for path in linked_pages(hostile.base, hostile.cookies, starts):
        page.goto(hostile.base + path)
        page.evaluate("() => document.querySelectorAll('details').forEach((details) => { details.open = true })")
        assert injected(page) == [], path
        assert str(123457 * 99991) not in page.content(), path
        assert page.url.startswith(f"{hostile.base}/"), path


def test_another_name_for_this_machine_shows_nothing(windows: Windows, shown: Served) -> None:
    """Guards against DNS rebinding: a page of an attacker whose name leads to this machine by now."""
    page = windows.open(shown.base, storage_state=shown.state)
    for host in ("rebound.example", "localhost"):
        for path in ("/", "/edits", "/static/page.js", "/sign-in"):
            answer = page.goto(shown.base.replace("127.0.0.1", host) + path)
            assert answer is not None
            assert answer.status == 421
            assert "Nora" not in page.content()
    windows.forgive()
