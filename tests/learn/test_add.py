"""Add messages and texts: keep, extract, decide, apply, with a scripted model over real HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.models import Event, Scope
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, memory_texts, messages_from
from tests.support.scripted_model import facts_reply, memory_with

pytestmark = pytest.mark.anyio

UNREACHABLE = {"provider": "openai", "config": {"model": "e", "openai_base_url": "http://127.0.0.1:9/v1"}}


def system_prompts(server: OpenAIServer) -> list[str]:
    return [request["messages"][0]["content"] for request in server.chat_requests]


async def test_a_conversation_becomes_facts_with_sources_dates_and_labels(tmp_path: Path) -> None:
    labels = {"happened_at": "2026-05-07", "keywords": ["flat"], "tags": ["event"]}
    fact = {"text": "Ana got the keys on 2026-05-07.", "sources": [1], **labels}
    async with memory_with([json.dumps({"facts": [fact]}), facts_reply("Nora sails")], tmp_path) as (
        memory,
        server,
    ):
        keys = {"role": "user", "name": "Ana", "content": "We got the keys yesterday!", "id": "t1"}
        result = await memory.add_messages(messages_from(keys, ("assistant", "Congratulations!")))
        (hit,) = (await memory.list(ALICE)).hits
        assert len(server.chat_requests) == 1, "nothing is known yet, so there is nothing to decide"
        bob, old = Scope("bob"), {"role": "user", "content": "I sail", "at": "2025-01-02T10:00:00Z"}
        await memory.add_messages(messages_from(old, scope=bob))
        (late,) = (await memory.list(bob)).hits
    assert (result.kept_messages, [change.event for change in result.outcomes]) == (2, [Event.ADD])
    assert (hit.text, hit.sources, hit.name, hit.tags) == (fact["text"], ("t1",), "Ana", ("event",))
    assert [f"{one.at:%Y-%m-%d}" for one in (hit, late)] == ["2026-05-07", "2025-01-02"]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("infer", [None, True])
async def test_replaces_is_the_callers_decision_and_asks_no_model(tmp_path: Path, infer: bool | None) -> None:  # noqa: FBT001
    """An agent that names what a text replaces has already decided."""
    async with memory_with([], tmp_path) as (memory, server):
        old = await add_text(memory, "User lives in Nice")
        await memory.add_text(ALICE, "User lives in Lyon", replaces=[old[:8]], infer=infer)
        assert await memory_texts(memory) == ["User lives in Lyon"]
        assert server.chat_requests == []


async def test_an_agents_conversation_is_read_with_the_agents_prompt(tmp_path: Path) -> None:
    agent = Scope("alice", agent_id="otto")
    said = (("user", "Never deploy on Fridays"), ("assistant", "Understood"))
    replies = [facts_reply("Otto must not deploy on Fridays"), facts_reply(), facts_reply()]
    async with memory_with(replies, tmp_path) as (memory, server):
        await memory.add_messages(messages_from(*said, scope=agent))
        await memory.add_messages(messages_from(*said))
        await memory.add_messages(messages_from(("user", "And never on Mondays"), scope=agent))
        assert ["memory of an AI agent" in each for each in system_prompts(server)] == [True, False, True]


@pytest.mark.parametrize("custom", [None, "List what the user likes as JSON."])
async def test_instructions_and_included_topics_follow_the_prompt(tmp_path: Path, custom: str | None) -> None:
    settings: dict[str, Any] = {"custom_instructions": "Prices in $.", "includes": ["work", "plans"]}
    settings |= {"custom_fact_extraction_prompt": custom} if custom else {}
    async with memory_with([facts_reply()], tmp_path, **settings) as (memory, server):
        await memory.add_messages(messages_from(("user", "It costs 5 dollars.")))
        (system,) = system_prompts(server)
        graph = memory.engine.prompts.get("graph").system
    assert system.endswith(f"Prices in $.\n\nExtract facts about these topics only: work; plans.\n\n{graph}")
    assert system.startswith(custom or "You keep the long-term memory")


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(status=401), "401"),
        (Reply(status=500), "500"),
        (Reply(body=b'{"choices": [{"mess'), "not in OpenAI's format"),
        (Reply(refusal="I will not"), "declined"),
        ("I am sorry, I cannot help with that.", "no usable reply"),
        ('{"facts": [{"text": "cut o', "no usable reply"),
        ("{}", "no usable reply"),
    ],
)
async def test_the_messages_are_kept_and_the_reply_says_what_was_not_done(
    tmp_path: Path, reply: Reply | str, expected: str
) -> None:
    async with memory_with(lambda _: reply, tmp_path) as (memory, _):
        result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
        assert [hit.text for hit in (await memory.search(ALICE, "Lyon")).hits] == ["I moved to Lyon"]
    assert (result.kept_messages, result.outcomes) == (1, ())
    (note,) = result.notes
    assert note.startswith("kept 1 message, but no facts were learned")
    assert expected in note


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("failure", [["no", "no"], [Reply(status=402)]])
async def test_a_failed_decision_throws_no_fact_away(tmp_path: Path, failure: list[Any]) -> None:
    async with memory_with([facts_reply("User lives in Lyon"), *failure], tmp_path) as (memory, _):
        await add_text(memory, "User lives in Nice")
        said = messages_from(("user", "I moved to Lyon"))
        result = await memory.add_messages(said)
        assert await memory_texts(memory) == ["User lives in Lyon", "User lives in Nice"]
        assert (await memory.add_messages(said)).outcomes == ()
    assert result.kept_messages == 1
    assert any("added as they are, not reconciled" in note for note in result.notes)
    assert [item.memory.text for item in result.similar[result.outcomes[0].memory.id]] == ["User lives in Nice"]


async def test_a_broken_prompt_file_is_named_and_the_messages_are_kept(tmp_path: Path) -> None:
    """A prompt may be edited, and broken, while the server runs."""
    own = tmp_path / "prompts"
    own.mkdir()
    async with memory_with([], tmp_path, prompts_dir=own) as (memory, _):
        (own / "extract.md").write_text("---\nname: extract\n", "utf-8")
        result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
    assert "extract.md" in result.notes[0]
    assert result.kept_messages == 1


@pytest.mark.nightly
async def test_without_an_embedder_texts_are_stored_and_found_by_words(tmp_path: Path) -> None:
    async with memory_in(tmp_path, embedder=UNREACHABLE) as memory:
        result = await memory.add_text(ALICE, "User plays the cello")
        search_result = await memory.search(ALICE, "cello")
    assert "found by words only" in result.notes[0]
    assert [hit.text for hit in search_result.hits] == ["User plays the cello"]
    assert "searched by words only" in search_result.notes[0]
    async with memory_in(tmp_path) as memory:
        assert "no vector of this embedder yet" in (await memory.search(ALICE, "cello")).notes[0]
        await memory.care.rebuild()
        assert (await memory.search(ALICE, "musical instrument")).notes == ()


async def test_messages_are_kept_and_found_and_the_reply_says_so(tmp_path: Path) -> None:
    clock = StoppedClock()
    retreat = {"role": "user", "content": "The team retreat is in Lisbon", "at": "2024-02-29T08:00:00+02:00"}
    async with memory_in(tmp_path, clock) as memory:
        result = await memory.add_messages(messages_from(retreat))
        (hit,) = (await memory.search(ALICE, "where is the offsite of the team?")).hits
        clock.forward(minutes=5)
        assert (await memory.add_messages(messages_from(retreat, at=clock.at))).kept_messages == 0
    assert result.kept_messages == 1
    assert result.notes[0].startswith("there is no language model to ask: messages are kept as they are")
    assert (hit.kind, hit.at.isoformat()) == ("message", "2024-02-29T06:00:00+00:00")
    assert hit.created_at == StoppedClock().at


async def test_a_known_text_takes_a_later_date_and_keeps_it(tmp_path: Path) -> None:
    first, later = datetime(2025, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    async with memory_in(tmp_path) as memory:
        await memory.add_text(ALICE, "User lives in Lyon", at=first)
        (hit,) = (await memory.search(ALICE, "where does the user live")).hits
        assert (hit.at, hit.created_at) == (first, StoppedClock().at)
        assert (await memory.add_text(ALICE, "User lives in Lyon", at=first)).outcomes[0].event is Event.NONE
        (change,) = (await memory.add_text(ALICE, "User lives in Lyon", at=later)).outcomes
        assert (change.event, change.memory.at) == (Event.UPDATE, later)
        unchanged = await memory.add_text(ALICE, "User lives in Lyon", at=first)
        assert unchanged.outcomes[0].event is Event.NONE
        assert unchanged.notes == ("its date stays 2026-03-01, which is later",)
        await memory.undo(ALICE)
        (hit,) = (await memory.list(ALICE)).hits
    assert hit.at == first


ATLAS = Scope("alice", project="atlas")


@pytest.mark.parametrize(
    ("text", "home"),
    [
        ("User does not like small pull requests any more", ""),
        ("User doesn't drink coffee now", ""),
        ("Luis left the company", "atlas"),
        ("Luis works from Lisbon this week", "atlas"),
        ("Luis is allergic to cats", ""),
        ("Luis is married to Nadia", ""),
        ("Maite left the company", ""),
        ("Nadia works for the city", ""),
    ],
)
async def test_the_work_of_somebody_whom_the_project_alone_knows_stays_in_it(
    tmp_path: Path, text: str, home: str
) -> None:
    """A namesake is not made outside. Health, family and taste are general, and so is all of the user."""
    async with memory_in(tmp_path) as memory:
        for project, known in (("atlas", "Luis Ortega reviews all changes"), ("", "Maite is the sister of the user")):
            await memory.add_text(Scope("alice", project=project), known)
        scope = await memory.home_of(ATLAS, text, (), ())
    assert scope.project == home
