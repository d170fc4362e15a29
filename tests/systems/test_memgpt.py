"""MemGPT (Packer et al. 2023, arXiv 2310.08560): core memory, recall storage, and the recursive summary.

Section 2.1: the prompt begins with a block of fixed size that the model edits itself, and with a summary of what no
longer fits, which is written from the last summary and what is put out. Section 2.2: every message is kept in recall
storage, searched by words and by date, page by page. The blocks are in `tests/server/scenarios.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextResourceContents

from loopback import OpenAIServer
from palimpsest.core.models import Decision, Event, Fact
from tests.support.ledger_access import write_decisions
from tests.support.mcp_client import reply_results
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in
from tests.support.scripted_model import answering, given
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

MONTHS = ("02", "03", "04")

TURNS = [
    {
        **({"role": "user", "name": "Maarten"} if number % 2 else {"role": "assistant"}),
        "content": f"Turn {number}: {'the boat leaks' if number in (3, 7, 11) else 'kieli is language'}",
        "at": f"2026-{MONTHS[(number - 1) // 4]}-01T08:{number:02}:00Z",
    }
    for number in range(1, 13)
]
"""Twelve turns: four on a day in each of three months."""


class TestRecallStorage:
    async def test_every_turn_is_found_by_words_date_role_and_speaker(self, tmp_path: Path) -> None:
        """The four ways lead to the same turns, whatever was learned from them."""
        async with connect(tmp_path) as agent:
            await fill(agent)
            leaks = [TURNS[number - 1]["content"] for number in (11, 7, 3)]
            assert await turns(agent, words="boat leaks") == leaks
            assert await turns(agent, words="boat leaks", at={"gte": "2026-03", "lt": "2026-04"}) == leaks[1:2]
            assert await turns(agent, words="boat leaks", speaker="maarten") == leaks
            assert await turns(agent, words="boat leaks", role="assistant") == []
            february = [turn["content"] for turn in TURNS if turn["at"] < "2026-03"][::-1]
            assert await turns(agent, at="2026-02") == february

    async def test_it_is_read_page_by_page_and_as_a_whole(self, tmp_path: Path) -> None:
        """No turn is missing on a page or on two, and any turn leads to its conversation."""
        async with connect(tmp_path) as agent:
            await fill(agent)
            pages: list[list[str]] = []
            cursor: str | None = None
            while cursor or not pages:
                page: dict[str, Any] = {"filters": {"kind": "message"}, "limit": 5, "cursor": cursor}
                result = await agent.call_tool("list_memories", page)
                pages.append([hit["text"] for hit in reply_results(result)])
                cursor = result.structured_content.get("cursor")
            every = [turn["content"] for turn in TURNS]
            assert [len(page) for page in pages] == [5, 5, 2]
            assert [text for page in pages for text in page] == every[::-1]
            found = {"query": "Which boat has a leak?", "filters": {"kind": "message"}, "limit": 1}
            (hit,) = reply_results(await agent.call_tool("search_memories", found))
            (whole,) = (await agent.read_resource(f"conversation://{hit['id']}")).contents
            assert isinstance(whole, TextResourceContents)
            of_its_day = [text for text, turn in zip(every, TURNS, strict=True) if turn["at"][:10] == hit["at"][:10]]
            assert [line[line.index("Turn ") :] for line in whole.text.splitlines()[1:]] == of_its_day


async def test_the_recursive_summary_carries_an_early_fact_through_every_window(tmp_path: Path) -> None:
    """What does not fit one prompt is read by several, the oldest first, each with the summary of the one before.

    The first memory is in the first prompt alone. Later ones have it only from the summary, and keep it.
    """
    early, clock = "Maarten must not be given aspirin", StoppedClock()
    chatter = [f"Maarten told story {number} of the sea: {'wind and water ' * 100}" for number in range(80)]
    with OpenAIServer(answering(summarize=keep_aspirin)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in (early, *chatter)))
            first = (await memory.summary(ALICE)).text
            windows = [json.dumps(given(request, "Memories")) for request in server.chat_requests]
            clock.forward(days=1)
            write_decisions(memory, *(Decision(Event.ADD, Fact(f"Later {text}")) for text in chatter[:40]))
            second = (await memory.summary(ALICE, refresh=True)).text
            later = [json.dumps(given(request, "Memories")) for request in server.chat_requests[len(windows) :]]
    assert len(windows) > 2
    assert [early in window for window in windows] == [True, *(False for _ in windows[1:])]
    assert not any(early in window for window in later)
    assert first == f"{early}. Window {len(windows)}."
    assert second == f"{early}. Window {len(windows) + len(later)}."


def keep_aspirin(request: dict[str, Any]) -> dict[str, Any]:
    """Keep what the last summary or the memories say of aspirin, and count the prompts in a row."""
    previous, memories = given(request, "Previous summary"), json.dumps(given(request, "Memories"))
    kept = "Maarten must not be given aspirin" if "aspirin" in previous + memories else "Nothing lasting"
    number = int(previous.rpartition(" ")[2].strip(".")) if previous else 0
    return {"summary": f"{kept}. Window {number + 1}."}


async def fill(agent: Client) -> None:
    """Keep the twelve turns."""
    await agent.call_tool("add_memory", {"messages": TURNS, "infer": False})


async def turns(agent: Client, **filters: Any) -> list[str]:
    """Return the turns that filters leave, newest first."""
    arguments = {"filters": {"kind": "message", **filters}}
    return [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", arguments))]
