"""MemoryBank (Zhong et al. 2023, arXiv 2305.10250): days, the whole, and a portrait.

Section 2.1: conversations are kept by date; each day becomes a summary, the days become one of the whole, and what they
tell of the user becomes a portrait. Forgetting, section 2.3, is in tests/recall/test_forgetting.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from tests.support.learning_jobs import do_due_jobs, learning_memory
from tests.support.mcp_client import error_text, reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from
from tests.support.scripted_model import add_all, answering, given, prompt_of
from tests.support.server_in_process import connect
from tests.support.sessions import spooled


async def remembered(memory: Memory, scope: Scope = ALICE) -> dict[str, float]:
    return {item.memory.id: item.fading.retention for item in (await memory.fading.report(scope)).fading}


pytestmark = pytest.mark.anyio

# What Henrike says on three days.
DAYS = {
    "2026-05-08": ("My brother Tomke gave me two beehives", "I lie awake before every talk", "Good night"),
    "2026-05-09": ("I put the hives behind the pottery", "Please give me one step at a time", "Until tomorrow"),
    "2026-05-10": ("A swarm hangs in the pear tree", "I read my talk to Tomke and was calm", "That was it"),
}

LEARNED = {
    "My brother Tomke gave me two beehives": "Henrike's brother Tomke gave her two beehives",
    "I lie awake before every talk": "Henrike is nervous before talks",
    "I put the hives behind the pottery": "Henrike's hives stand behind the pottery",
    "Please give me one step at a time": "Henrike wants one step at a time",
    "A swarm hangs in the pear tree": "A swarm of Henrike's hung in the pear tree",
}


def extract(request: dict[str, Any]) -> dict[str, Any]:
    said = [item["text"] for item in given(request, "New messages")]
    facts = [{"text": LEARNED[text], "sources": [place]} for place, text in enumerate(said, 1) if text in LEARNED]
    return {"facts": facts}


def write_day(request: dict[str, Any]) -> dict[str, Any]:
    said = [item["text"] for item in given(request, "Messages")]
    return {"summary": f"{given(request, 'Kind')}: {said[0]}."}


def write_whole(request: dict[str, Any]) -> dict[str, Any]:
    days = [item["text"] for item in given(request, "Memories") if item.get("of") == "the whole day"]
    previous = given(request, "Previous summary")
    return {"summary": " / ".join(filter(None, (previous, *reversed(days))))}


def write_portrait(request: dict[str, Any]) -> dict[str, Any]:
    texts = [item["text"] for item in given(request, "Memories")]
    traits = [text for text in texts if "nervous" in text or "one step" in text]
    return {"summary": f"Identity: Henrike. {'. '.join(reversed(traits))}."}


def write_mood(request: dict[str, Any]) -> dict[str, Any]:
    said = " ".join(item["text"] for item in given(request, "Messages"))
    return {"summary": "Tense, and wants short steps." if "lie awake" in said else "At ease; jokes are welcome."}


def write_treatment(request: dict[str, Any]) -> dict[str, Any]:
    moods = [f"{item['date']} {item['text']}" for item in given(request, "Memories") if "of" in item]
    previous = given(request, "Previous portrait").partition("How to treat them: ")[2]
    return {"summary": "Identity: Henrike.\nHow to treat them: " + " ".join(filter(None, (previous, *moods[::-1])))}


HENRIKE = answering(extract=extract, decide=add_all, day=write_day, summarize=write_whole, profile=write_portrait)
MOODY = answering(
    extract=extract,
    decide=add_all,
    day=write_day,
    summarize=write_whole,
    profile=write_treatment,
    mood=write_mood,
)


async def live(memory: Memory, clock: StoppedClock) -> None:
    """Live through the days. What is due is done a quarter of an hour after midnight."""
    for day, texts in DAYS.items():
        clock.at = datetime.fromisoformat(f"{day}T09:00").replace(tzinfo=UTC)
        await memory.add_messages(messages_from(*(("user", text) for text in texts), at=clock.at))
        clock.forward(minutes=5)
        await do_due_jobs(memory)
        clock.forward(hours=15, minutes=10)
        await do_due_jobs(memory)


async def test_what_a_day_taught_and_was_taken_back_is_in_no_level(tmp_path: Path) -> None:
    """A correction of the first day reaches the whole and the portrait, and leaves the other days as they are."""
    clock = StoppedClock()
    with OpenAIServer(HENRIKE) as server:
        async with learning_memory(tmp_path, server.base_url, clock, summary={"every": 4}) as memory:
            await live(memory, clock)
            await memory.summary(ALICE)
            await memory.summary(ALICE, "profile")
            nervous = next(hit for hit in (await memory.list(ALICE)).hits if "nervous" in hit.text)
            await memory.delete(ALICE, [nervous.id])
            asked = len(server.chat_requests)
            for kind in ("profile", "day:2026-05-08", "day:2026-05-09", "overall"):
                await memory.summary(ALICE, kind)
            again = [prompt_of(request) for request in server.chat_requests[asked:]]
            assert again == ["profile", "day", "summarize"]
            assert "nervous" not in str([request["messages"] for request in server.chat_requests[asked:]])


@pytest.mark.nightly
async def test_days_become_the_whole_and_a_portrait(tmp_path: Path) -> None:
    """The background writes each day after its end; the whole is made of the days, the portrait of what they taught."""
    clock = StoppedClock()
    with OpenAIServer(HENRIKE) as server:
        async with learning_memory(tmp_path, server.base_url, clock, summary={"every": 4}) as memory:
            await live(memory, clock)
            asked = len(server.chat_requests)
            days = {day: (await memory.summary(ALICE, f"day:{day}")).text for day in DAYS}
            assert len(server.chat_requests) == asked, "the days were written before anybody asked"
            whole = (await memory.summary(ALICE, refresh=True)).text
            portrait = await memory.summary(ALICE, "profile")
            behind = {(await memory.history(ALICE, each))[0].text for each in portrait.sources}
    assert days == {day: f"day:{day}: {texts[0]}." for day, texts in DAYS.items()}
    assert whole == " / ".join(days.values())
    assert portrait.text == "Identity: Henrike. Henrike is nervous before talks. Henrike wants one step at a time."
    assert behind == set(LEARNED.values()), "a portrait names the memories that it rests on"


async def test_each_recall_makes_a_memory_last_longer(tmp_path: Path) -> None:
    """A day after its n-th recall R is e^(-1 / (n + 1)): it grows. What nobody recalls fades by the day."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, forgetting="rank", forgetting_days=1) as memory:
        swarm = await add_text(memory, "The swarm of May hung in the pear tree")
        invoice = await add_text(memory, "An invoice for wax came from Bremen")
        for recalls in range(1, 5):
            assert (await memory.search(ALICE, "Where did the swarm of May hang?", limit=1)).hits[0].id == swarm
            await memory.fading.write()
            assert (await remembered(memory))[swarm] == 1.0
            clock.forward(days=1)
            now = await remembered(memory)
            assert now[swarm] == pytest.approx(math.exp(-1 / (recalls + 1)))
            assert now[invoice] == pytest.approx(math.exp(-recalls))


async def test_a_recall_strengthens_what_was_used_and_not_what_stood_beside_it(tmp_path: Path) -> None:
    """The first hit of an answer is used; one below it once the agent reads or updates it, and then once a search."""
    clock = StoppedClock()
    data = tmp_path / "data"
    texts = ("The swarm of May hung in the pear tree", "The swarm of June flew off", "The swarm of July was sold")
    async with memory_in(data, clock, forgetting="rank") as memory:
        ids = [await add_text(memory, text) for text in texts]
    async with connect(tmp_path, PALIMPSEST_FORGETTING="rank") as agent:
        found = reply_results(await agent.call_tool("search_memories", {"query": "Where did the swarm of May hang?"}))
        assert found[0]["id"] == ids[0]
        assert {hit["id"] for hit in found} == set(ids)
        for _ in range(2):
            await agent.call_tool("get_history", {"memory_id": ids[1]})
    async with memory_in(data, clock, forgetting="rank") as memory:
        known = (await memory.fading.report(ALICE)).fading
        assert {item.memory.id: item.fading.strength for item in known} == dict(zip(ids, (2, 2, 1), strict=True))


NAMES: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "cites it in a reply": lambda hit: (
        "add_memory",
        {"messages": [{"role": "assistant", "content": f"It flew off ({hit[:8]})."}]},
    ),
    "replaces it": lambda hit: ("add_memory", {"text": "The swarm of June came back", "replaces": [hit]}),
    "updates it": lambda hit: ("update_memory", {"memory_id": hit, "metadata": {"seen": True}}),
    "says it again": lambda _: ("add_memory", {"text": "The swarm of June flew off"}),
    "refers to it in a text": lambda hit: ("add_memory", {"text": f"Tomke saw it too, see [{hit[:8]}@1]"}),
    "relates something to it": lambda hit: (
        "add_memory",
        {"text": "Rain fell in June", "relations": [["rain", "is why", hit]]},
    ),
    "links it in metadata": lambda hit: ("add_memory", {"text": "Rain fell", "metadata": {"because": hit[:8]}}),
}


@pytest.mark.few_by_day(6)
@pytest.mark.parametrize("how", ["reads it", "said its id", *NAMES])
async def test_a_hit_that_stood_below_counts_as_used_once_when_the_agent(tmp_path: Path, how: str) -> None:
    """What the agent never saw does not count however it is named, and neither does what it names before it sees it."""
    texts = ("The swarm of May hung in the pear tree", "The swarm of June flew off", "The cellar door is blue")
    async with connect(tmp_path, PALIMPSEST_FORGETTING="rank") as agent:

        async def name(memory_id: str) -> None:
            if how == "reads it":
                await agent.read_resource(f"memory://{memory_id}")
            elif how == "said its id":
                spooled(tmp_path / "data", "reply", f"It flew off, see {memory_id[:8]}.", cwd=str(tmp_path))
            else:
                tool, arguments = NAMES[how](memory_id)
                assert not (await agent.call_tool(tool, arguments)).is_error

        ids = [reply_results(await agent.call_tool("add_memory", {"text": text}))[0]["id"] for text in texts]
        if how == "reads it":
            await name(ids[1])
        asked = {"query": "Where did the swarm of May hang?", "limit": 2}
        found = [hit["id"] for hit in reply_results(await agent.call_tool("search_memories", asked))]
        assert found == ids[:2]
    # A new process knows of it by the recall log.
    async with connect(tmp_path, PALIMPSEST_FORGETTING="rank") as agent:
        for memory_id in (ids[1],) if how == "replaces it" else (ids[1], ids[1], ids[2]):
            await name(memory_id)
    async with memory_in(tmp_path / "data", StoppedClock(now()), forgetting="rank", user_id="alice") as memory:
        await memory.capture.take_in()
        await memory.fading.write()
        if how == "replaces it":
            await memory.undo(Scope("alice"))
        known = {item.memory.id: item.fading.strength for item in (await memory.fading.report(Scope("alice"))).fading}
        assert [known[memory_id] for memory_id in ids] == [2, 2, 1]


async def test_a_question_that_nothing_answers_strengthens_nothing(tmp_path: Path) -> None:
    """Also if what comes first is not marked as weak."""
    texts = ("The amber necklace lies in the blue chest", "Onions are in the cellar", "The bus stops at Linden Square")
    async with connect(tmp_path, PALIMPSEST_FORGETTING="rank") as agent:
        for text in texts:
            await agent.call_tool("add_memory", {"text": text})
        for query in ("How tall is Everest?", "What is the capital of Peru?", "How many legs has a spider?"):
            assert reply_results(await agent.call_tool("search_memories", {"query": query}))
        await agent.call_tool("search_memories", {"query": "Where does the bus stop?"})
    async with memory_in(tmp_path / "data", forgetting="rank") as memory:
        known = (await memory.fading.report(Scope("alice"))).fading
        assert {item.memory.text: item.fading.strength for item in known} == dict(zip(texts, (1, 1, 2), strict=True))


async def test_a_search_shows_what_was_said_by_days(tmp_path: Path) -> None:
    """The day of the best hit comes first; each day is named once, above all that it has."""
    async with connect(tmp_path) as agent:
        for day, text in (
            ("2026-05-08", "Tomke gave Henrike two beehives"),
            ("2026-05-09", "Henrike sold a jar of honey to the baker"),
            ("2026-05-08", "The beehives are painted blue"),
        ):
            await agent.call_tool("add_memory", {"text": text, "at": f"{day}T09:00:00Z"})
        asked = {"query": "Who gave Henrike the beehives?", "group_by": "day"}
        reply = await agent.call_tool("search_memories", asked)
        wrong = await agent.call_tool("search_memories", asked | {"group_by": "week"})
    hits = {hit["id"]: hit["at"][:10] for hit in reply_results(reply)}
    days = reply.structured_content["days"]
    assert list(days) == ["2026-05-08", "2026-05-09"]
    assert {memory_id: day for day, ids in days.items() for memory_id in ids} == hits
    lines = reply_text(reply).splitlines()
    assert [line for line in lines if line.endswith(":")] == ["2026-05-08:", "2026-05-09:"]
    assert lines.index("2026-05-09:") == 3
    assert "'week'" in error_text(wrong)


@pytest.mark.nightly
async def test_how_to_treat_the_user_develops_over_days_and_rests_on_what_was_said(tmp_path: Path) -> None:
    """A day gets a note on mood and needs, by which a part of the profile grows; without the setting, nothing."""
    clock, every = StoppedClock(), {"every": 4}
    with OpenAIServer(MOODY) as server:
        async with learning_memory(tmp_path / "on", server.base_url, clock, summary={**every, "mood": True}) as memory:
            await live(memory, clock)
            asked = len(server.chat_requests)
            tense = await memory.summary(ALICE, "mood:2026-05-08")
            assert (tense.text, len(server.chat_requests)) == ("Tense, and wants short steps.", asked)
            portrait = await memory.summary(ALICE, "profile", refresh=True)
            assert portrait.text.endswith(
                "How to treat them: 2026-05-08 Tense, and wants short steps. 2026-05-09 At ease; jokes are welcome. "
                "2026-05-10 At ease; jokes are welcome."
            )
            assert set(tense.sources) <= set(portrait.sources), "it rests on what the days rest on"
            nervous = next(hit for hit in (await memory.list(ALICE)).hits if "nervous" in hit.text)
            await memory.delete(ALICE, [nervous.id])
            assert "Tense" not in (await memory.summary(ALICE, "profile")).text
        asked = len(server.chat_requests)
        async with learning_memory(tmp_path / "off", server.base_url, StoppedClock(), summary=every) as memory:
            await live(memory, clock)
            assert "mood" not in [prompt_of(request) for request in server.chat_requests[asked:]]
            with pytest.raises(InputError, match=r"summary\.mood"):
                await memory.summary(ALICE, "mood:2026-05-08")


async def test_a_day_with_little_talk_has_a_note_on_the_mood_and_a_day_without_says_so(tmp_path: Path) -> None:
    """A day needs no `summary.every` messages for it."""
    clock = StoppedClock()
    with OpenAIServer(MOODY) as server:
        async with learning_memory(tmp_path, server.base_url, clock, summary={"mood": True}) as memory:
            await live(memory, clock)
            asked = [prompt_of(request) for request in server.chat_requests]
            assert (asked.count("mood"), asked.count("day")) == (len(DAYS), 0)
            notes = [(await memory.summary(ALICE, f"mood:{day}")).text for day in DAYS]
            silent = await memory.summary(ALICE, "mood:2026-05-07")
            assert len(server.chat_requests) == len(asked)
    assert notes == ["Tense, and wants short steps.", *["At ease; jokes are welcome."] * 2]
    assert silent.text == "Nothing was said on 2026-05-07."
