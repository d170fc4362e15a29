"""Every page that a link leads to can be used by everybody, and shows no script, form or name of an attacker."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
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
from tests.support.browser import COLOURS, NARROW, WIDE, Windows, accessibility_problems, linked_pages, overflowing
from tests.support.http_server import new_access_token
from tests.support.memory import messages_from
from tests.support.page_process import run_ui

# Where the links are followed from: all there is, good hits, and none that is good.
STARTS = ("/", "/?q=where+does+Nora+live&explain=on", "/?q=zzzz&kind=message")


@pytest.fixture(scope="module")
def paths(shown: Served) -> Sequence[str]:
    linked = linked_pages(shown.base, shown.cookies, STARTS)
    for kind in ("/edits", "/memories/", "/conversations/"):
        assert any(path.startswith(kind) for path in linked), f"no link leads to {kind}"
    return linked


def each_page(
    windows: Windows, served: Served, paths: Sequence[str], size: tuple[int, int] = WIDE, locale: str = "en-US"
) -> Iterator[tuple[str, Page]]:
    page = windows.open(served.base, size, storage_state=served.state, locale=locale)
    for path in paths:
        page.goto(served.base + path)
        page.evaluate("() => document.querySelectorAll('details').forEach((details) => { details.open = true })")
        yield path, page


@pytest.mark.nightly
def test_axe_finds_nothing_wrong(windows: Windows, shown: Served, paths: Sequence[str]) -> None:
    """Guards WCAG, levels A and AA: names of all controls, contrasts, the order of headings, languages."""
    problems: dict[str, Sequence[str]] = {}
    for path, page in each_page(windows, shown, paths):
        page.emulate_media(color_scheme="light")
        in_light = accessibility_problems(page)
        page.emulate_media(color_scheme="dark")
        problems[path] = [*in_light, *accessibility_problems(page, COLOURS)]
    assert {path: found for path, found in problems.items() if found} == {}


@pytest.mark.nightly
def test_a_telephone_shows_every_page_without_scrolling_sideways(
    windows: Windows, shown: Served, paths: Sequence[str]
) -> None:
    wide = {path: overflowing(page) for path, page in each_page(windows, shown, paths, size=NARROW)}
    assert {path: found for path, found in wide.items() if found} == {}


@pytest.mark.nightly
def test_every_page_has_german_words(windows: Windows, shown: Served, paths: Sequence[str]) -> None:
    """Guards that words of the page come from the file of words: a German browser sees none of the English ones."""
    english = re.compile(r"^(Search|Edits|Sign out|Delete|Undo|Save|Pin|Versions|Relations|More)$", re.MULTILINE)
    for path, page in each_page(windows, shown, paths, locale="de-DE"):
        assert page.locator("html").get_attribute("lang") == "de"
        assert english.findall(page.locator("body").inner_text()) == [], path


@pytest.mark.nightly
def test_whoever_uses_the_keyboard_sees_where_they_are(windows: Windows, shown: Served, paths: Sequence[str]) -> None:
    """Guards that each control on each page can be reached with Tab, and that the one in focus is outlined."""
    for path, page in each_page(windows, shown, paths):
        page.evaluate("() => document.activeElement.blur()")
        reached = 0
        for _ in range(12):
            page.keyboard.press("Tab")
            outline: str = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            in_body: bool = page.evaluate("() => document.activeElement !== document.body")
            reached += in_body
            assert not in_body or outline != "none", (path, page.evaluate("() => document.activeElement.outerHTML"))
        assert reached > 3, path


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


@pytest.mark.nightly
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
