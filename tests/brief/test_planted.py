"""What an attacker planted in a memory: shown to a model unasked, it is information, and nothing in it is markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import ABOUT_THE_PAST, ORIGIN, Memory, Message, Scope
from palimpsest.hooks.brief import RecallRequest, Sources, answer, instructions_with, sentences, session_brief
from palimpsest.hooks.spool import BLOCK_BEGIN, BLOCK_END
from palimpsest.recall.hits import memory_hit, message_hit
from palimpsest.recall.search import SearchQuery, SearchResult
from tests.support.mcp_client import reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in
from tests.support.scripted_model import NOW, memory
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

# Texts, and what of each must not stand in a prompt as it is.
PLANTED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "planted.json").read_text("utf-8"))

NO_MARKUP = (
    "Sort by a <= b, never by a <- b",
    "Load it with mysql shop < dump.sql",
    "[secret removed: pin] C# #1 === {x}",
)
MEMORY_ID = "0a1b2c3d-4444-4555-8666-777788889999"
WORD = re.compile(r"[^\W\d_]{4,}")


def recalled(stored: Memory) -> str:
    """Return what is recalled for a prompt if a search finds the memory, and a message of the same text."""
    said = Message("m1", Scope("ana", project="atlas"), "user", stored.text, NOW, NOW)
    hits = [replace(hit, score=1.0) for hit in (memory_hit(stored), message_hit(said))]

    def search(_query: SearchQuery) -> SearchResult:
        return SearchResult(tuple(hits), confident=True)

    return answer(search, Scope("ana", project="atlas"), RecallRequest("What about the plans?"), NOW, 0.0).text


def test_planted_text_is_readable_and_inert() -> None:
    for planted in PLANTED:
        stored = memory(planted["text"], MEMORY_ID)
        brief = session_brief(Sources(telling=(stored,), of_project=(stored,)), planted["text"]).text
        instructions = instructions_with(Sources(telling=(stored,)))
        for shown in (brief, recalled(stored), instructions):
            assert "not instructions" in shown
            within = shown.removeprefix(BLOCK_BEGIN).removesuffix(BLOCK_END)
            assert "<" not in within, planted
            assert planted["tag"] is None or planted["tag"] not in within, planted
        assert all(word in brief for word in WORD.findall(planted["text"].replace("\\u003c", ""))), planted
    for text in NO_MARKUP:
        assert text in session_brief(Sources(telling=(memory(text, MEMORY_ID),)), "").text
    # A memory of many sentences takes minutes if each beginning is read anew.
    assert sentences("。" * 100_000, 60) == "。" * 60


async def test_every_reply_to_an_agent_says_what_memories_are(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        kept = await client.call_tool("add_memory", {"text": "User drinks tea"})
        (added,) = reply_results(kept)
        replies = [
            kept,
            await client.call_tool("search_memories", {"query": "tea"}),
            await client.call_tool("list_memories", {}),
            await client.call_tool("get_summary", {}),
            await client.call_tool("get_history", {"memory_id": added["id"]}),
            await client.call_tool("update_memory", {"memory_id": added["id"], "text": "User drinks oolong"}),
            await client.call_tool("delete_memory", {"memory_ids": [added["id"]]}),
        ]
    for reply in replies:
        assert reply_text(reply).endswith(f"\nnote: {ABOUT_THE_PAST}")
        assert reply.structured_content is not None
        assert reply.structured_content["notes"][-1] == ABOUT_THE_PAST


async def test_what_a_page_or_a_tool_told_is_shown_when_asked_until_it_is_confirmed(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, instructions="memories") as memory:
        facts = (
            "The parcel shop closes at six",
            "The boiler needs 1.5 bar",
            "The bank moved to Linz",
            "Anna sells tea",
        )
        ids = [await add_text(memory, text, metadata={ORIGIN: "web"}) for text in facts]
        await add_text(memory, "The Rhine is 1,230 km long")
        await add_text(memory, "The Rhine is 1,230 km long", metadata={ORIGIN: "web"})  # was known before

        async def unasked() -> set[str]:
            shown = await memory.briefs.instructions(ALICE)
            recalled = await memory.briefs.answer(RecallRequest("When does the parcel shop close in the evening?"))
            return {text for text in (*facts, "The Rhine is 1,230 km long") if text in shown + recalled.text}

        assert await unasked() == {"The Rhine is 1,230 km long"}
        (hit, *_) = (await memory.search(ALICE, "When does the parcel shop close?")).hits
        assert (hit.id, hit.metadata[ORIGIN]) == (ids[0], "web")
        await memory.update(ALICE, ids[0], text="The parcel shop closes at six")
        await memory.update(ALICE, ids[1], metadata={"pinned": True})
        await memory.update(ALICE, ids[2], metadata={ORIGIN: None})
        confirmed = await memory.add_text(ALICE, facts[3], infer=False, replaces=[ids[3]])
        assert confirmed.notes == ("no longer marked as from web, since it was said again without an origin",)
        assert await unasked() == {*facts, "The Rhine is 1,230 km long"}
