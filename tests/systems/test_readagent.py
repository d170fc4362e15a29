"""ReadAgent (Lee et al. 2024, arXiv 2402.09727, section 3): pages, a gist of each, and the look-up of originals.

A long text is divided where it pauses. Of each page a short gist is kept, by which the reader decides which pages to
read again as they were written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextResourceContents

from loopback import OpenAIServer
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.environment import model_environment
from tests.support.learning_jobs import do_due_jobs
from tests.support.mcp_client import error_text, reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in
from tests.support.scripted_model import answering, given, prompt_of
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

# How each chapter of a made-up tale begins.
LEDE = {
    "Arrival": "The sloop Perpetua made fast at the quay of Skagen, and nobody came to take her lines.",
    "The cook": "Anneke found the galley cold, two plates on the table, and her brother's knife in the bread.",
    "The chart": "Below the lining of the chest lay a chart on which a reef was drawn in another hand.",
    "Departure": "They cast off before light, with a lamp at the stern and no cargo that anybody would name.",
}

# What a model makes of each. A question in these words shares none with the page.
GISTS = {
    "Arrival": "A ship comes into a deserted harbour.",
    "The cook": "A relative has vanished during a meal.",
    "The chart": "Somebody has forged a nautical map.",
    "Departure": "The crew smuggles something away at night.",
}

FILLER = "The wind went round to the north, and the water in the basin was as grey as the slates above it. "


def chapter(name: str) -> str:
    return f"## {name}\n\n{LEDE[name]}\n\n" + "\n\n".join([FILLER * 5] * 4)


TALE = "# Perpetua\n\n" + "\n\n".join(map(chapter, LEDE)) + "\n"


def write_gist(request: dict[str, Any]) -> dict[str, Any]:
    page = str(given(request, "Page"))
    return {"gist": next(GISTS[name] for name, lede in LEDE.items() if lede in page)}


def pause(request: dict[str, Any]) -> dict[str, Any]:
    parts = given(request, "Parts")
    return {
        "pages": [part["id"] for part in parts if part["begins"].startswith((LEDE["The chart"], LEDE["Departure"]))]
    }


async def resource(agent: Client, uri: str) -> str:
    (content,) = (await agent.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_a_question_finds_a_page_by_its_gist_and_the_original_is_looked_up(tmp_path: Path) -> None:
    """Each page has a gist from the background. The list of gists and a search name the page, which is read whole."""
    clock, file = StoppedClock(), tmp_path / "perpetua.md"
    file.write_text(TALE, "utf-8")
    with OpenAIServer(answering(gist=write_gist)) as server:
        llm = llm_settings(server.base_url)
        async with memory_in(tmp_path / "data", clock, llm=llm) as memory:
            learned = await memory.documents.learn_file(ALICE, file)
            clock.forward(minutes=1)
            await do_due_jobs(memory)
        assert len(server.chat_requests) == len(LEDE), "one call a page"
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            listed = await resource(agent, f"document://{learned.id}")
            question = {"query": "Who forged the nautical map?", "limit": 1}
            (hit,) = reply_results(await agent.call_tool("search_memories", question))
            whole = await resource(agent, f"document://{learned.id}/3")
    places = [listed.index(gist) for gist in GISTS.values()]
    assert places == sorted(places)
    assert hit["role"] == "document"
    assert (hit["document"]["id"], hit["document"]["page"]) == (learned.id, 3)
    assert chapter("The chart").strip() in whole
    assert LEDE["The cook"] not in whole


def test_without_a_model_a_gist_is_the_headings_and_sentences_of_the_page(tmp_path: Path) -> None:
    """On the command line a file is learned, its gists are listed, and a question shows the passage that answers."""
    file = tmp_path / "perpetua.md"
    file.write_text(TALE, "utf-8")
    said = palimpsest(tmp_path, "learn", str(file))
    assert f"{len(LEDE)} pages" in said
    (document,) = palimpsest_json(tmp_path, "documents")["documents"]
    listed = palimpsest_json(tmp_path, "documents", document["id"])["gists"]
    for name, page in zip(LEDE, listed, strict=True):
        assert page["gist"].startswith(f"Perpetua › {name}: ")  # noqa: RUF001 - the sign between headings
        assert LEDE[name] in page["gist"]
    hit = palimpsest_json(tmp_path, "search", "Where was the reef drawn in another hand?")["results"][0]
    assert (hit["document"]["title"], hit["document"]["page"]) == ("perpetua.md", 3)
    assert LEDE["The chart"] in hit["text"]


async def test_pages_end_where_the_text_pauses_and_lose_nothing(tmp_path: Path) -> None:
    """Together the pages are the text; each begins with its heading and has at most the words of a page."""
    async with connect(tmp_path) as agent:
        added = await agent.call_tool("add_memory", {"text": TALE})
        document = added.structured_content["document"]
        pages = [
            await resource(agent, f"document://{document['id']}/{number}") for number in range(1, document["pages"] + 1)
        ]
    assert document["pages"] == len(LEDE)
    for name, page in zip(LEDE, pages, strict=True):
        assert chapter(name).strip() in page
        assert len(chapter(name).split()) <= 600


async def test_an_agent_reads_gists_and_looks_up_pages_with_tools_alone(tmp_path: Path) -> None:
    """A client that reads no resources gets the gists of a document, and the pages that it chooses by them."""
    async with connect(tmp_path) as agent:
        added = await agent.call_tool("add_memory", {"text": TALE})
        kind = f"document:{added.structured_content['document']['id'][:8]}"
        gists = await agent.call_tool("get_summary", {"kind": kind})
        third = await agent.call_tool("get_summary", {"kind": kind, "page": 3})
        two = await agent.call_tool("get_summary", {"kind": kind, "page": [1, 4]})
        none = await agent.call_tool("get_summary", {"kind": kind, "page": 5})
        other = await agent.call_tool("get_summary", {"kind": "profile", "page": 1})
    assert [page["page"] for page in gists.structured_content["gists"]] == [1, 2, 3, 4]
    assert all(lede in reply_text(gists) for lede in LEDE.values())
    assert chapter("The chart").strip() in reply_text(third)
    assert LEDE["The cook"] not in reply_text(third)
    assert [page["page"] for page in two.structured_content["pages"]] == [1, 4]
    assert LEDE["Arrival"] in reply_text(two)
    assert LEDE["Departure"] in reply_text(two)
    assert "4 pages" in error_text(none)
    assert "document:ID" in error_text(other)


async def test_a_long_conversation_has_gists_and_pages_too(tmp_path: Path) -> None:
    """Its summary lists the gists; a page has the messages whole. A short conversation has no gists."""
    long = [{"role": "user", "content": f"{lede} {FILLER * 40}"} for lede in LEDE.values() for _ in range(3)]
    async with connect(tmp_path) as agent:
        await agent.call_tool("add_memory", {"messages": long})
        summary = await agent.call_tool("get_summary", {"kind": "session"})
        page = await agent.call_tool("get_summary", {"kind": summary.structured_content["kind"], "page": 2})
    gists = reply_text(summary).partition("Gists;")[2].splitlines()
    assert any(line.startswith("2 ") and LEDE["Arrival"] in line for line in gists)
    assert f"{LEDE['Arrival']} {FILLER * 40}".strip() in reply_text(page)
    assert LEDE["Departure"] not in reply_text(page)
    (tmp_path / "short").mkdir()
    async with connect(tmp_path / "short") as agent:
        await agent.call_tool("add_memory", {"messages": long[:1]})
        assert "Gists" not in reply_text(await agent.call_tool("get_summary", {"kind": "session"}))


async def test_with_a_model_pages_end_where_it_says_that_the_text_pauses(tmp_path: Path) -> None:
    """A text without headings is divided by what it says, and not again while it stays; the pages are all of it."""
    file = tmp_path / "plain.txt"
    file.write_text("\n\n".join(f"{lede}\n\n" + "\n\n".join([FILLER * 5] * 3) for lede in LEDE.values()), "utf-8")
    pages: dict[bool, list[str]] = {}
    with OpenAIServer(answering(pauses=pause, gist=write_gist)) as server:
        for with_model in (True, False):
            llm = llm_settings(server.base_url) if with_model else {}
            async with memory_in(tmp_path / str(with_model), StoppedClock(), llm=llm) as memory:
                learned = await memory.documents.learn_file(ALICE, file)
                again = await memory.documents.learn_file(ALICE, file)
                assert again.is_unchanged
                _, found = await memory.documents.pages(ALICE, learned.id)
                pages[with_model] = [page.message.content for page in found]
        assert [prompt_of(request) for request in server.chat_requests] == ["pauses"]
    assert any(page.startswith(LEDE["The chart"]) for page in pages[True])
    assert not any(page.startswith(LEDE["The chart"]) for page in pages[False])
    for found in pages.values():
        assert "".join("".join(found).split()) == "".join(file.read_text("utf-8").split())


async def test_a_page_of_the_last_conversation_needs_no_id(tmp_path: Path) -> None:
    """As `session` alone does. A document is always named."""
    said = [{"role": "user", "content": lede} for lede in LEDE.values()]
    async with connect(tmp_path) as agent:
        nothing = await agent.call_tool("get_summary", {"kind": "session", "page": 1})
        await agent.call_tool("add_memory", {"messages": said})
        page = await agent.call_tool("get_summary", {"kind": "session", "page": 1})
        missing = await agent.call_tool("get_summary", {"kind": "session", "page": 2})
        unnamed = await agent.call_tool("get_summary", {"kind": "document", "page": 2})
    assert all(lede in reply_text(page) for lede in LEDE.values())
    assert "it has 1 page" in error_text(missing)
    assert "document:ID" in error_text(unnamed)
    assert "it has 0 pages" in error_text(nothing)


async def test_what_has_no_sentences_has_gists_of_its_beginnings(tmp_path: Path) -> None:
    """A chat of short lines is found by its pages, too: none of its gists is a bare number."""
    chat = [{"role": "user", "content": "\n".join([f"brb {number}", "ok cool", "lol"] * 200)} for number in range(12)]
    async with connect(tmp_path) as agent:
        await agent.call_tool("add_memory", {"messages": chat})
        summary = reply_text(await agent.call_tool("get_summary", {"kind": "session"}))
    gists = [line for line in summary.partition("Gists;")[2].splitlines() if line[:1].isdigit()]
    assert gists
    assert all("brb" in line for line in gists)
