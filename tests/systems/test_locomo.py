"""LoCoMo (Maharana et al. 2024, arXiv 2402.17753): summaries of sessions, and observations with their turns.

What is learned from a session is kept as observations, each with the turns that show it, and the session as a summary.
Section 6.1: of turns, observations and summaries, observations were the best unit of recall.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextResourceContents

from loopback import OpenAIServer
from tests.support.environment import model_environment
from tests.support.mcp_client import reply_results, reply_text
from tests.support.scripted_model import add_all, answering, given
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

MAY = (
    ("D1:1", "Rosalind", "Hi! How was the week?"),
    ("D1:2", "Edwin", "Loud: we are rehearsing the Hanover opera, and I conduct."),
    ("D1:3", "Rosalind", "I adopted a greyhound, Pixel. She is afraid of trams."),
    ("D1:4", "Edwin", "Then walk with her along the canal."),
)
JUNE = (
    ("D2:1", "Rosalind", "Pixel rode a tram today!"),
    ("D2:2", "Edwin", "Bravo. The opera is sold out, by the way."),
)

# What is learned, by the turn that shows it.
OBSERVATIONS = {
    "D1:2": "Edwin conducts the Hanover opera",
    "D1:3": "Rosalind adopted a greyhound named Pixel",
    "D2:1": "Pixel rode a tram in June 2026",
}

ACCOUNTS = {"D1:1": "They spoke of an opera and a dog.", "D2:1": "They spoke of a tram."}


def extract(request: dict[str, Any]) -> dict[str, Any]:
    said = [item["text"] for item in given(request, "New messages")]
    turns = {text: turn for turn, _, text in (*MAY, *JUNE)}
    facts = [(OBSERVATIONS.get(turns[text]), place) for place, text in enumerate(said, 1)]
    return {"facts": [{"text": text, "sources": [place]} for text, place in facts if text]}


def account(request: dict[str, Any]) -> dict[str, Any]:
    messages = [item["text"] for item in given(request, "Messages")]
    first = next(turn for turn, _, text in (*MAY, *JUNE) if text == messages[0])
    shown = {item["text"]: item["messages"] for item in given(request, "Learned")}
    assert shown == {text: [turn] for turn, text in OBSERVATIONS.items() if turn[:2] == first[:2]}
    return {"summary": ACCOUNTS[first]}


STUDY = answering(extract=extract, decide=add_all, session=account)


async def tell(agent: Client) -> None:
    for month, turns in (("05", MAY), ("06", JUNE)):
        messages = [
            {"role": "user", "name": name, "content": text, "id": turn, "at": f"2026-{month}-04T18:{minute:02}:00Z"}
            for minute, (turn, name, text) in enumerate(turns)
        ]
        reply_text(await agent.call_tool("add_memory", {"messages": messages}))


async def test_a_session_has_a_summary_with_its_observations_and_their_turns(tmp_path: Path) -> None:
    """Each session has its own, also the earlier one, by the id of any of its turns."""
    with OpenAIServer(STUDY) as server:
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            await tell(agent)
            last = reply_text(await agent.call_tool("get_summary", {"kind": "session"}))
            turn = await turn_with(agent, "greyhound")
            earlier = reply_text(await agent.call_tool("get_summary", {"kind": f"session:{turn['id']}"}))
    assert f"{ACCOUNTS['D2:1']}\n- Pixel rode a tram in June 2026 (D2:1)" in last
    lines = [f"- {OBSERVATIONS[turn]} ({turn})" for turn in ("D1:2", "D1:3")]
    assert "\n".join((ACCOUNTS["D1:1"], *lines)) in earlier


async def turn_with(agent: Client, words: str) -> dict[str, Any]:
    """Return the only turn with these words."""
    filters = {"kind": "message", "words": words}
    (turn,) = reply_results(await agent.call_tool("list_memories", {"filters": filters}))
    return turn


@pytest.mark.nightly
async def test_an_observation_leads_to_its_turn(tmp_path: Path) -> None:
    """A question finds the observation, which names the turn; that one is read whole, amid its conversation."""
    with OpenAIServer(STUDY) as server:
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            await tell(agent)
            question = {"query": "Which dog did Rosalind adopt?", "filters": {"kind": "memory"}, "limit": 1}
            (hit,) = reply_results(await agent.call_tool("search_memories", question))
            assert (hit["text"], hit["sources"]) == (OBSERVATIONS["D1:3"], ["D1:3"])
            turn = await turn_with(agent, "greyhound")
            assert turn["sources"] == hit["sources"]
            (memory,) = (await agent.read_resource(f"memory://{turn['id']}")).contents
            (whole,) = (await agent.read_resource(f"conversation://{turn['id']}")).contents
            assert isinstance(memory, TextResourceContents)
            assert isinstance(whole, TextResourceContents)
    assert MAY[2][2] in memory.text
    places = [whole.text.index(text) for _, _, text in MAY]
    assert places == sorted(places)
    assert "tram today" not in whole.text
