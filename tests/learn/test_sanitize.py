"""Recalled text: what a search of ours printed is not kept or learnt again, and nothing else is taken for it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Event, Scope
from palimpsest.memory import Memory
from palimpsest.server.replies import render
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from

pytestmark = pytest.mark.anyio

WEB = Scope("alice", project="web")
TEA = "User likes tea"
PARAGRAPH = "The user lives in Lyon, likes tea, and plays the cello in an orchestra."


def facts(*texts: str) -> str:
    return json.dumps({"facts": [{"text": text, "sources": [1]} for text in texts]})


def summary(text: str) -> str:
    return json.dumps({"summary": text})


async def added(memory: Memory, text: str, scope: Scope = ALICE) -> str:
    """Add a memory and return its id."""
    return (await memory.add_text(scope, text, infer=False)).outcomes[0].memory.id


async def kept(memory: Memory, *texts: str, scope: Scope = ALICE) -> list[str]:
    """Say something in the scope and return what of it was kept."""
    known = {message.id for message in (await memory.scope_contents(scope)).messages}
    await memory.add_messages(messages_from(*(("user", text) for text in texts), scope=scope))
    return [message.content for message in (await memory.scope_contents(scope)).messages if message.id not in known]


async def searched(memory: Memory, query: str, **asked: Any) -> str:
    """Return the reply of a search as an agent gets it."""
    return render.search_text(await memory.search(ALICE, query, **asked), ALICE)


class TestSearchReplies:
    async def test_a_pasted_reply_is_left_out_and_the_rest_of_the_message_is_kept(self, tmp_path: Path) -> None:
        """Guards against old memories that come back as new ones, the commonest junk there is."""
        async with memory_in(tmp_path) as memory:
            await added(memory, TEA)
            await added(memory, "User's  tea cabinet:\n- Assam\n- Sencha")
            await memory.add_messages(messages_from({"role": "user", "name": "Ana", "content": "Tea,\nplease!"}))
            reply = await searched(memory, "tea")
            assert reply.count("\n") == 3
            assert "Ana said: Tea, please!" in reply
            done = await memory.add_messages(messages_from(("assistant", f"I looked it up:\n{reply}\nSo, tea it is.")))
            assert [each.content for each in (await memory.scope_contents(ALICE)).messages][1:] == [
                "I looked it up:\nSo, tea it is."
            ]
            assert "3 recalled passages were not kept again" in done.notes

    async def test_a_message_that_is_nothing_but_a_reply_is_not_kept_at_all(self, tmp_path: Path) -> None:
        """Guards against empty turns, and against a model that is asked about nothing."""
        with OpenAIServer() as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                done = await memory.add_messages(messages_from(("assistant", await searched(memory, "tea"))))
                assert (await memory.scope_contents(ALICE)).messages == ()
                assert server.chat_requests == []
        assert (done.kept_messages, done.notes) == (0, ("1 recalled passages were not kept again",))

    async def test_the_model_is_not_shown_what_was_recalled(self, tmp_path: Path) -> None:
        """Guards against facts learnt from what was only looked up."""
        with OpenAIServer([facts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, "User plays the cello")
                said = f"{await searched(memory, 'cello')}\nBy the way, make it green tea."
                await memory.add_messages(messages_from(("user", said)))
                asked = server.chat_requests[0]["messages"][1]["content"]
        assert "green tea" in asked
        assert "cello" not in asked

    @pytest.mark.parametrize("line", ["{}", "- {}", "* {}", "> {}", "    {}", "-{}", "{}\r"])
    async def test_a_line_is_known_in_a_list_a_quotation_and_with_any_end(self, tmp_path: Path, line: str) -> None:
        """Guards against the forms an agent gives a reply in its own message."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            for shown in (memory_id, memory_id[:8]):
                assert await kept(memory, line.format(f"[{shown}] 2026-05-08 {TEA}")) == []

    async def test_a_line_is_known_after_the_memory_was_corrected_forgotten_and_restored(self, tmp_path: Path) -> None:
        """Guards against an old reply, in the same conversation, that brings back what was corrected since."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            memory_id = await added(memory, TEA)
            reply = await searched(memory, "tea")
            clock.forward(minutes=1)
            await memory.update(ALICE, memory_id, text="User likes coffee")
            assert await kept(memory, reply) == []
            assert await kept(memory, await searched(memory, "tea", as_of=clock.at - timedelta(seconds=1))) == []
            await memory.delete(ALICE, [memory_id])
            assert await kept(memory, reply) == []
            await memory.restore(ALICE, memory_id)
            assert await kept(memory, reply, await searched(memory, "coffee")) == []

    @pytest.mark.parametrize(
        "line",
        [
            "[{id}] 2026-05-08 User likes coffee",
            "[{id}] 2026-05-08 User likes tea no more",
            "[{id}] 2026-05-08 It is no longer so that User likes tea",
            "[{id}] 2026-05-08 user said: User likes tea",
            "[{id}] User likes tea",
            "[{id}] on 2026-05-08 User likes tea",
            "See [{id}] 2026-05-08 User likes tea",
            "[{short}] 2026-05-08 User likes tea",
            "[00000000] 2026-05-08 User likes tea",
            "[{turn}] 2026-05-08 Hello there",
            "[{turn}] 2026-05-08 assistant said: Hello there",
            "[{turn}] 2026-05-08 Ana said: Hello there",
            "User likes tea",
        ],
    )
    async def test_a_line_that_merely_looks_like_it_is_kept(self, tmp_path: Path, line: str) -> None:
        """Guards the user's own words, above all those that say a memory is wrong."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            await kept(memory, "Hello there")
            (turn,) = (await memory.scope_contents(ALICE)).messages
            said = line.format(id=memory_id[:8], short=memory_id[:7], turn=turn.id[:8])
            assert await kept(memory, said) == [said]

    async def test_ids_of_others_are_nobodys_and_those_a_project_sees_are_known_there(self, tmp_path: Path) -> None:
        """Guards the scope: what another user or project remembers is not even told by what is left out."""
        async with memory_in(tmp_path) as memory:
            theirs = f"[{(await added(memory, TEA, Scope('bob')))[:8]}] 2026-05-08 {TEA}"
            of_web = f"[{(await added(memory, TEA, WEB))[:8]}] 2026-05-08 {TEA}"
            own = f"[{(await added(memory, TEA))[:8]}] 2026-05-08 {TEA}"
            assert await kept(memory, theirs, of_web, own) == [theirs, of_web]
            assert await kept(memory, theirs, of_web, own, scope=WEB) == [theirs]

    async def test_only_the_frame_of_a_reply_goes_with_it(self, tmp_path: Path) -> None:
        """Guards what stands around a reply: its last line says nothing alone, and a user's line like it stays."""
        async with memory_in(tmp_path) as memory:
            await added(memory, TEA)
            reply = await searched(memory, "tea")
            assert reply.endswith("scope: user alice")
            assert await kept(memory, reply, "scope: user alice") == ["scope: user alice"]
            assert await kept(memory, f"{reply}\nscope: user bob") == ["scope: user bob"]

    async def test_the_same_conversation_sent_again_is_known_though_it_was_screened(self, tmp_path: Path) -> None:
        """Guards a retried call whose turns were kept in part."""
        async with memory_in(tmp_path) as memory:
            await added(memory, TEA)
            said = messages_from(("user", f"{await searched(memory, 'tea')}\nHello"), ("assistant", "Hi"))
            assert (await memory.add_messages(said)).kept_messages == 2
            again = await memory.add_messages(said)
            assert (again.kept_messages, len((await memory.scope_contents(ALICE)).messages)) == (0, 2)


class TestSummaries:
    async def test_the_summary_is_left_out_and_what_stands_around_it_is_kept(self, tmp_path: Path) -> None:
        """Guards against a summary that is learnt from, and becomes its own source."""
        with OpenAIServer([summary(PARAGRAPH), *[facts()] * 2]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                assert (await memory.summary(ALICE)).text == PARAGRAPH
                assert await kept(memory, f"You are this: {PARAGRAPH} And a dog owner!") == [
                    "You are this:  And a dog owner!"
                ]
                assert await kept(memory, PARAGRAPH, PARAGRAPH[:-1]) == [PARAGRAPH[:-1]]

    async def test_a_summary_of_a_few_words_is_not_searched_for(self, tmp_path: Path) -> None:
        """Guards the user's own words against a summary that is one of them."""
        with OpenAIServer([summary("Likes tea."), facts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                assert (await memory.summary(ALICE)).text == "Likes tea."
                assert await kept(memory, "Likes tea. And cake.") == ["Likes tea. And cake."]

    async def test_the_summary_of_another_scope_is_the_speakers_own(self, tmp_path: Path) -> None:
        """Guards the scope, here too."""
        with OpenAIServer([summary(PARAGRAPH), facts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                assert (await memory.summary(ALICE)).text == PARAGRAPH
                assert await kept(memory, PARAGRAPH, scope=WEB) == [PARAGRAPH]


class TestTexts:
    @pytest.mark.parametrize("form", ["{}", "- {}", "  {} \n"])
    async def test_adding_a_recalled_line_changes_nothing(self, tmp_path: Path, form: str) -> None:
        """Guards against a memory of a memory, with an id and a date in its text."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            line = form.format(f"[{memory_id[:8]}] 2026-05-08 {TEA}")
            done = await memory.add_text(ALICE, line)
            assert render.added_text(done, ALICE).startswith(f"unchanged (duplicate of {memory_id[:8]}): {TEA}")
            assert len(await memory.log(ALICE)) == 1

    async def test_a_recalled_turn_is_remembered_in_its_words(self, tmp_path: Path) -> None:
        """Guards the agent that finds a turn worth a memory: without the id, the date and who said it."""
        async with memory_in(tmp_path) as memory:
            await kept(memory, "I play the cello")
            line = (await searched(memory, "cello")).splitlines()[0]
            (change,) = (await memory.add_text(ALICE, line)).outcomes
        assert (change.event, change.memory.text) == (Event.ADD, "I play the cello")

    async def test_a_text_that_merely_looks_like_it_is_added_as_it_is(self, tmp_path: Path) -> None:
        """Guards the agent's own words: a text of several lines, another's id, a memory that is said to be wrong."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            theirs = await added(memory, TEA, Scope("bob"))
            for text in (
                f"[{memory_id[:8]}] 2026-05-08 It is no longer so that {TEA}",
                f"[{memory_id[:8]}] 2026-05-08 {TEA}\nand cake",
                f"[{theirs[:8]}] 2026-05-08 {TEA}",
            ):
                (change,) = (await memory.add_text(ALICE, text)).outcomes
                assert (change.event, change.memory.text) == (Event.ADD, text)
