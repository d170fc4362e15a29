"""Add messages and texts: keep, extract, decide, apply, with a scripted model over real HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.models import Event, Scope
from palimpsest.memory import Memory
from tests.support.ledger_access import second_writer
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from

pytestmark = pytest.mark.anyio


def facts(*items: str | dict[str, Any]) -> str:
    """Return the reply of an extraction; a bare text cites the first message."""
    return json.dumps({"facts": [{"text": item, "sources": [1]} if isinstance(item, str) else item for item in items]})


def decisions(*items: dict[str, Any]) -> str:
    return json.dumps({"decisions": list(items)})


def decision(fact: int, event: str, memory: int | None = None, text: str | None = None) -> dict[str, Any]:
    return {"fact": fact, "event": event, "memory": memory, "text": text}


def prompts(server: OpenAIServer) -> list[str]:
    """Return the user part of every request."""
    return [request["messages"][1]["content"] for request in server.chat_requests]


async def believed(memory: Memory, scope: Scope = ALICE) -> list[str]:
    return sorted(hit.text for hit in (await memory.list(scope, limit=100)).hits)


class TestWithAModel:
    async def test_a_conversation_becomes_facts_with_sources_dates_and_labels(self, tmp_path: Path) -> None:
        """Extracted facts name the messages they came from."""
        fact = {
            "text": "Ana got the keys on 2026-05-07.",
            "sources": [1],
            "happened_at": "2026-05-07",
            "keywords": ["flat"],
            "tags": ["event"],
        }
        with OpenAIServer([facts(fact)]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                conversation = messages_from(
                    {"role": "user", "name": "Ana", "content": "We got the keys yesterday!", "id": "t1"},
                    ("assistant", "Congratulations!"),
                )
                result = await memory.add_messages(conversation)
                (hit,) = (await memory.list(ALICE)).hits
                assert len(server.chat_requests) == 1, "nothing is known yet, so there is nothing to decide"
        assert (result.kept_messages, [change.event for change in result.outcomes]) == (2, [Event.ADD])
        assert (hit.text, hit.sources, hit.name, hit.tags) == (fact["text"], ("t1",), "Ana", ("event",))
        assert f"{hit.at:%Y-%m-%d}" == "2026-05-07"

    async def test_a_fact_is_as_old_as_its_messages(self, tmp_path: Path) -> None:
        """An old conversation that is imported late does not outdate a current fact."""
        with OpenAIServer([facts("Nora likes sailing")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(
                    messages_from({"role": "user", "content": "I sail", "at": "2025-01-02T10:00:00Z"})
                )
                (hit,) = (await memory.list(ALICE)).hits
        assert f"{hit.at:%Y-%m-%d}" == "2025-01-02"

    async def test_the_model_sees_the_summary_recent_messages_and_the_new_ones(self, tmp_path: Path) -> None:
        """The prompt is P = (S, the last m messages, the new ones), and context is no source."""
        earlier = [("user", f"earlier message {number}") for number in range(12)]
        with OpenAIServer([facts(), facts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(*earlier))
                await memory.add_messages(messages_from(("user", "the new one")), context=["You are a pirate."])
                shown = prompts(server)[1]
        recent, rest = shown.split("Notes of the system", 1)
        context, new = rest.split("New messages", 1)
        assert 'earlier message 1"' not in recent
        assert all(f"earlier message {number}" in recent for number in range(2, 12))
        assert "You are a pirate." in context
        assert "the new one" in new
        assert "earlier" not in new
        assert "pirate" not in new

    async def test_all_kinds_of_decisions_are_applied_after_two_requests(self, tmp_path: Path) -> None:
        """ADD, UPDATE, DELETE and NONE reach the ledger."""
        async with memory_in(tmp_path) as memory:
            for text in ("User has a cat", "User lives in Nice", "User likes tea"):
                await memory.add_text(ALICE, text)

        def chat(request: dict[str, Any]) -> str:
            user = request["messages"][1]["content"]
            if "New messages" in user:
                return facts("User's cat is called Miso", "User moved to Lyon", "User drinks tea", "User is a cook")
            shown = json.loads(user.split("Stored memories: ", 1)[1])
            number = {item["text"]: item["id"] for item in shown}
            return decisions(
                decision(0, "UPDATE", number["User has a cat"], "User has a cat called Miso"),
                decision(1, "DELETE", number["User lives in Nice"], "User lives in Lyon"),
                decision(2, "NONE", number["User likes tea"]),
                decision(3, "ADD"),
            )

        with OpenAIServer(chat) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await memory.add_messages(messages_from(("user", "My cat is called Miso and I moved to Lyon")))
                assert len(server.chat_requests) == 2
                assert await believed(memory) == [
                    "User has a cat called Miso",
                    "User is a cook",
                    "User likes tea",
                    "User lives in Lyon",
                ]
                nice = next(change for change in result.outcomes if change.previous == "User lives in Nice")
                _, history = await memory.history(ALICE, nice.memory.id)
        assert [change.event for change in result.outcomes] == [Event.UPDATE, Event.ADD, Event.NONE, Event.ADD]
        assert (history[0].provenance.stage, history[0].provenance.model) == ("decide", "scripted")

    async def test_a_text_is_reconciled_and_not_extracted_again(self, tmp_path: Path) -> None:
        """The agent's own words take one request, for the decision."""
        with OpenAIServer([decisions(decision(0, "DELETE", 0, "User lives in Lyon"))]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User lives in Nice", infer=False)
                result = await memory.add_text(ALICE, "User lives in Lyon now")
                assert len(server.chat_requests) == 1
                assert await believed(memory) == ["User lives in Lyon"]
        assert result.outcomes[0].previous == "User lives in Nice"

    async def test_the_model_sees_the_date_of_a_text(self, tmp_path: Path) -> None:
        """Guards the order of what changed: the model learns which of two facts is the later one."""
        with OpenAIServer([decisions(decision(0, "ADD"))]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "Ana lives in Nice", infer=False)
                await memory.add_text(ALICE, "Ana lives in Lyon", at=datetime(2025, 3, 1, tzinfo=UTC))
        assert "2025-03-01" in prompts(server)[0]

    async def test_infer_true_extracts_facts_from_a_text(self, tmp_path: Path) -> None:
        """With `infer` True a text is treated like a message."""
        with OpenAIServer([facts("User is a cook", "User lives in Lyon")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "I cook, in Lyon", infer=True)
                assert await believed(memory) == ["User is a cook", "User lives in Lyon"]

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("infer", [None, True])
    async def test_replaces_is_the_callers_decision_and_asks_no_model(self, tmp_path: Path, infer: bool | None) -> None:  # noqa: FBT001
        """An agent that names what a text replaces has already decided."""
        with OpenAIServer() as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                old = await memory.add_text(ALICE, "User lives in Nice", infer=False)
                await memory.add_text(
                    ALICE, "User lives in Lyon", replaces=[old.outcomes[0].memory.id[:8]], infer=infer
                )
                assert await believed(memory) == ["User lives in Lyon"]
                assert server.chat_requests == []

    async def test_an_agents_conversation_is_read_with_the_agents_prompt(self, tmp_path: Path) -> None:
        """There are two extraction prompts."""
        scope = Scope("alice", agent_id="otto")
        with OpenAIServer([facts("Otto must not deploy on Fridays"), facts(), facts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                conversation = (("user", "Never deploy on Fridays"), ("assistant", "Understood"))
                await memory.add_messages(messages_from(*conversation, scope=scope))
                await memory.add_messages(messages_from(*conversation))
                await memory.add_messages(messages_from(("user", "And never on Mondays"), scope=scope))
                systems = [request["messages"][0]["content"] for request in server.chat_requests]
        assert "memory of an AI agent" in systems[0]
        assert "memory of an AI agent" not in systems[1]
        assert "memory of an AI agent" in systems[2], "also if the agent has not answered yet"

    async def test_plain_facts_of_a_custom_prompt_find_their_source(self, tmp_path: Path) -> None:
        """Prompts written for Mem0, and the reply they ask for, work."""
        custom = 'Give me {"facts": ["..."]} and $nothing else.'
        with OpenAIServer([json.dumps({"facts": ["Rex is a dog", "Tea is fine"]})]) as server:
            async with memory_in(
                tmp_path, llm=llm_settings(server.base_url), custom_fact_extraction_prompt=custom
            ) as memory:
                conversation = messages_from(
                    {"role": "user", "content": "I like tea", "id": "a"},
                    {"role": "user", "content": "My dog Rex is old", "id": "b"},
                )
                await memory.add_messages(conversation)
                hits = {hit.text: hit.sources for hit in (await memory.list(ALICE)).hits}
                system, added = server.chat_requests[0]["messages"][0]["content"].split("\n\n", 1)
        assert system == custom
        assert added.startswith("For each fact that is an object, give two more lists."), "what the graph asks for"
        assert hits == {"Rex is a dog": ("b",), "Tea is fine": ("a",)}

    async def test_facts_already_known_word_for_word_change_nothing(self, tmp_path: Path) -> None:
        """The same fact is not stored twice, even if the model says ADD."""
        with OpenAIServer([facts("User likes tea"), facts("User likes tea"), decisions(decision(0, "ADD"))]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "I like tea")))
                result = await memory.add_messages(messages_from(("user", "As I said, I like tea")))
                assert len(await believed(memory)) == 1
        assert result.outcomes[0].event is Event.NONE

    async def test_a_repeated_call_changes_nothing(self, tmp_path: Path) -> None:
        """A client that timed out and repeats the call sends messages that are known."""
        message = {"role": "user", "content": "I like tea", "id": "t1"}
        with OpenAIServer([facts("User likes tea")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(message))
                again = await memory.add_messages(messages_from(message))
                assert len(server.chat_requests) == 1
        assert (again.kept_messages, again.outcomes) == (0, ())

    async def test_memories_that_change_while_the_model_thinks_are_decided_on_again(self, tmp_path: Path) -> None:
        """A decision on memories that have changed is not applied."""
        async with memory_in(tmp_path) as other:
            await other.add_text(ALICE, "User lives in Nice")

            def chat(request: dict[str, Any]) -> str:
                shown = json.loads(request["messages"][1]["content"].split("Stored memories: ", 1)[1])
                if len(shown) == 1:
                    # Another client is faster, while this one thinks.
                    with second_writer(tmp_path) as add:
                        add("User lives in Metz")
                    return decisions(decision(0, "DELETE", 0))
                return decisions(*(decision(0, "DELETE", item["id"]) for item in shown))

            with OpenAIServer(chat) as server:
                async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                    await memory.add_text(ALICE, "User lives in Lyon")
                    assert len(server.chat_requests) == 2
                    assert await believed(memory) == ["User lives in Lyon"]

    async def test_a_projects_facts_do_not_rewrite_global_memories(self, tmp_path: Path) -> None:
        """What one project learns does not show in the user's other projects."""
        secret = Scope("alice", project="secret")
        with OpenAIServer() as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User keeps passwords in a vault", infer=False)
                await memory.add_text(secret, "User keeps passwords in the vault of the secret project")
                assert await believed(memory) == ["User keeps passwords in a vault"]
                assert server.chat_requests == []

    async def test_a_text_is_kept_even_if_the_model_drops_it(self, tmp_path: Path) -> None:
        """The agent found its own words worth storing."""
        with OpenAIServer([decisions(decision(0, "NONE"))]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User likes tea", infer=False)
                await memory.add_text(ALICE, "User likes green tea")
                assert "User likes green tea" in await believed(memory)


class TestWhenTheModelFails:
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
        self, tmp_path: Path, reply: Reply | str, expected: str
    ) -> None:
        """No failure of a model looks like an empty result."""
        with OpenAIServer(lambda _: reply) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
                search_result = await memory.search(ALICE, "Lyon")
        assert result.kept_messages == 1
        assert result.outcomes == ()
        (note,) = result.notes
        assert note.startswith("kept 1 message, but no facts were learned")
        assert expected in note
        assert [hit.text for hit in search_result.hits] == ["I moved to Lyon"]

    async def test_a_text_is_stored_without_reconciliation_if_the_model_is_unreachable(self, tmp_path: Path) -> None:
        """The agent's fact is stored while the endpoint is down."""
        async with memory_in(tmp_path) as memory:
            await memory.add_text(ALICE, "User lives in Nice")
        async with memory_in(tmp_path, llm=llm_settings("http://127.0.0.1:9/v1")) as memory:
            result = await memory.add_text(ALICE, "User lives in Lyon")
            assert await believed(memory) == ["User lives in Lyon", "User lives in Nice"]
        assert "not reconciled" in result.notes[0]
        assert "could not be reached" in result.notes[0]

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("failure", [["no", "no"], [Reply(status=402)]])
    async def test_a_failed_decision_throws_no_fact_away(self, tmp_path: Path, failure: list[Any]) -> None:
        """What was found is added as it is; the reply says so, and names what it resembles."""
        with OpenAIServer([facts("User lives in Lyon"), *failure]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User lives in Nice", infer=False)
                result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
                assert await believed(memory) == ["User lives in Lyon", "User lives in Nice"]
                assert (await memory.add_messages(messages_from(("user", "I moved to Lyon")))).outcomes == ()
        assert result.kept_messages == 1
        assert any("added as they are, not reconciled" in note for note in result.notes)
        assert [item.memory.text for item in result.similar[result.outcomes[0].memory.id]] == ["User lives in Nice"]

    async def test_a_broken_prompt_file_is_named_and_the_messages_are_kept(self, tmp_path: Path) -> None:
        """A prompt may be edited, and broken, while the server runs."""
        own = tmp_path / "prompts"
        own.mkdir()
        with OpenAIServer() as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url), prompts_dir=own) as memory:
                (own / "extract.md").write_text("---\nname: extract\n", "utf-8")
                result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
        assert "extract.md" in result.notes[0]
        assert result.kept_messages == 1

    @pytest.mark.nightly
    async def test_without_an_embedder_texts_are_stored_and_found_by_words(self, tmp_path: Path) -> None:
        """Texts that were stored while the embedder was down get their vectors later."""
        gone = {"provider": "openai", "config": {"model": "e", "openai_base_url": "http://127.0.0.1:9/v1"}}
        async with memory_in(tmp_path, embedder=gone) as memory:
            result = await memory.add_text(ALICE, "User plays the cello")
            search_result = await memory.search(ALICE, "cello")
        assert "found by words only" in result.notes[0]
        assert [hit.text for hit in search_result.hits] == ["User plays the cello"]
        assert "searched by words only" in search_result.notes[0]
        async with memory_in(tmp_path) as memory:
            assert "no vector of this embedder yet" in (await memory.search(ALICE, "cello")).notes[0]
            await memory.care.rebuild()
            assert (await memory.search(ALICE, "musical instrument")).notes == ()


class TestWithoutAModel:
    async def test_messages_are_kept_and_found_and_the_reply_says_so(self, tmp_path: Path) -> None:
        """The default installation has no model."""
        async with memory_in(tmp_path) as memory:
            result = await memory.add_messages(messages_from(("user", "The team retreat is in Lisbon")))
            search_result = await memory.search(ALICE, "where is the offsite of the team?")
        assert result.kept_messages == 1
        assert result.notes[0].startswith("there is no language model to ask: messages are kept as they are")
        assert [hit.kind for hit in search_result.hits] == ["message"]

    async def test_a_likely_conflict_is_named_by_id(self, tmp_path: Path) -> None:
        """The reply lets the agent settle contradictions itself."""
        async with memory_in(tmp_path) as memory:
            for text in ("User's manager is Tom", "User plays the violin", "The build runs on Tuesdays"):
                await memory.add_text(ALICE, text)
            result = await memory.add_text(ALICE, "Sarah is the user's manager now")
            (near,) = result.similar[result.outcomes[0].memory.id]
        assert near.memory.text == "User's manager is Tom"

    async def test_a_fact_that_resembles_nothing_names_no_conflict(self, tmp_path: Path) -> None:
        """Unrelated memories do not fill the agent's context."""
        async with memory_in(tmp_path) as memory:
            for text in ("User's manager is Tom", "User plays the violin", "The build runs on Tuesdays"):
                await memory.add_text(ALICE, text)
            result = await memory.add_text(ALICE, "Peanuts make the user's sister ill")
        assert result.similar[result.outcomes[0].memory.id] == []

    async def test_messages_keep_the_time_they_were_said(self, tmp_path: Path) -> None:
        """The time of a message is not the time of the call."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            await memory.add_messages(
                messages_from({"role": "user", "content": "Hello", "at": "2024-02-29T08:00:00+02:00"})
            )
            (hit,) = (await memory.search(ALICE, "hello")).hits
        assert hit.at.isoformat() == "2024-02-29T06:00:00+00:00"
        assert hit.created_at == clock.at

    async def test_a_text_has_the_date_it_was_said_or_holds_from(self, tmp_path: Path) -> None:
        """The date in replies and the order of updates follow `at`, not the call."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            await memory.add_text(ALICE, "User lives in Lyon", at=datetime(2025, 3, 1, tzinfo=UTC))
            (hit,) = (await memory.search(ALICE, "where does the user live")).hits
        assert (hit.at, hit.created_at) == (datetime(2025, 3, 1, tzinfo=UTC), clock.at)

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        ("text", "note"),
        [
            ("User moved yesterday", 'read on 2026-03-05, "yesterday" is 2026-03-04'),
            ("User was ill last week", 'read on 2026-03-05, "last week" is 2026-02-23 to 2026-03-01'),
            ("Seit letztem Monat wohnt Ana hier", 'read on 2026-03-05, "letztem Monat" is 2026-02'),
            ("去年林越去了德国", 'read on 2026-03-05, "去年" is 2025'),
        ],
    )
    async def test_relative_dates_of_a_text_are_noted(self, tmp_path: Path, text: str, note: str) -> None:
        """The text stays as it is and has the date it was said, so that who reads it later counts from there."""
        said_at = datetime(2026, 3, 5, 20, tzinfo=UTC)
        async with memory_in(tmp_path) as memory:
            result = await memory.add_text(ALICE, text, at=said_at)
            (hit,) = (await memory.list(ALICE)).hits
        assert result.notes == (note,)
        assert (hit.text, hit.at) == (text, said_at)

    async def test_without_a_time_dates_count_from_now(self, tmp_path: Path) -> None:
        """A text without a relative date has no note."""
        async with memory_in(tmp_path) as memory:
            assert (await memory.add_text(ALICE, "User moved yesterday")).notes == (
                'read on 2026-05-08, "yesterday" is 2026-05-07',
            )
            assert (await memory.add_text(ALICE, "User was born on 3 May 1990, and may sing in March")).notes == ()

    async def test_a_known_text_takes_a_later_date_and_keeps_it(self, tmp_path: Path) -> None:
        """What is said again is true again; an earlier date changes nothing and the reply says so; undo knows both."""
        first, later = datetime(2025, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
        async with memory_in(tmp_path) as memory:
            await memory.add_text(ALICE, "User lives in Lyon", at=first)
            assert (await memory.add_text(ALICE, "User lives in Lyon", at=first)).outcomes[0].event is Event.NONE
            (change,) = (await memory.add_text(ALICE, "User lives in Lyon", at=later)).outcomes
            assert (change.event, change.memory.at) == (Event.UPDATE, later)
            unchanged = await memory.add_text(ALICE, "User lives in Lyon", at=first)
            assert unchanged.outcomes[0].event is Event.NONE
            assert unchanged.notes == ("its date stays 2026-03-01, which is later",)
            await memory.undo(ALICE)
            (hit,) = (await memory.list(ALICE)).hits
        assert hit.at == first

    async def test_a_repeated_conversation_with_its_times_is_kept_once(self, tmp_path: Path) -> None:
        """An import can be repeated: messages of the same moment are the same."""
        clock = StoppedClock()
        message = {"role": "user", "content": "Hello", "at": "2026-01-01T00:00:00Z"}
        async with memory_in(tmp_path, clock) as memory:
            assert (await memory.add_messages(messages_from(message, at=clock.at))).kept_messages == 1
            clock.forward(minutes=5)
            assert (await memory.add_messages(messages_from(message, at=clock.at))).kept_messages == 0

    async def test_a_known_fact_gets_new_metadata(self, tmp_path: Path) -> None:
        """The caller's metadata is kept if the text is known already."""
        async with memory_in(tmp_path) as memory:
            await memory.add_text(ALICE, "User likes tea", metadata={"a": 1})
            result = await memory.add_text(ALICE, "User likes tea", metadata={"b": 2})
            (hit,) = (await memory.list(ALICE)).hits
        assert result.outcomes[0].event is Event.UPDATE
        assert hit.metadata == {"a": 1, "b": 2}

    async def test_a_known_text_that_replaces_a_memory_names_that_memory(self, tmp_path: Path) -> None:
        """A memory was superseded, so the reply is not "unchanged"."""
        async with memory_in(tmp_path) as memory:
            old = (await memory.add_text(ALICE, "Ann has two cats")).outcomes[0].memory.id
            known = (await memory.add_text(ALICE, "Ann has three cats")).outcomes[0].memory.id
            (change,) = (await memory.add_text(ALICE, "Ann has three cats", replaces=[old])).outcomes
        assert (change.memory.id, change.replaced, change.previous) == (known, (old,), "Ann has two cats")
