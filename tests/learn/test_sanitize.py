"""Recalled text: what a search printed is not kept or learned again, and nothing else is taken for it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Event, Scope
from palimpsest.memory import Memory
from palimpsest.server import replies
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from
from tests.support.scripted_model import facts_reply
from tests.support.sessions import spooled

pytestmark = pytest.mark.anyio

WEB = Scope("alice", project="web")
TEA = "User likes tea"
PARAGRAPH = "The user lives in Lyon, likes tea, and plays the cello in an orchestra."


def summary(text: str) -> str:
    return json.dumps({"summary": text})


async def added(memory: Memory, text: str, scope: Scope = ALICE) -> str:
    """Add a memory and return its id."""
    return (await memory.add_text(scope, text, infer=False)).outcomes[0].memory.id


async def kept(memory: Memory, *texts: str, scope: Scope = ALICE) -> list[str]:
    """Add messages to the scope and return the texts that were kept."""
    known = {message.id for message in (await memory.scope_contents(scope)).messages}
    await memory.add_messages(messages_from(*(("user", text) for text in texts), scope=scope))
    return [message.content for message in (await memory.scope_contents(scope)).messages if message.id not in known]


async def searched(memory: Memory, query: str, scope: Scope = ALICE, **options: Any) -> str:
    """Return the reply to a search as an agent gets it."""
    return replies.search_text(await memory.search(scope, query, **options), scope)


class TestSearchReplies:
    async def test_a_pasted_reply_is_removed_and_the_rest_of_the_message_is_kept(self, tmp_path: Path) -> None:
        """Old memories do not come back as new ones."""
        async with memory_in(tmp_path) as memory:
            await added(memory, TEA)
            await added(memory, "User's  tea cabinet:\n- Assam\n- Sencha")
            await memory.add_messages(messages_from({"role": "user", "name": "Ana", "content": "Tea,\nplease!"}))
            reply = await searched(memory, "tea")
            assert reply.count("\n") == 2
            assert "Ana said: Tea, please!" in reply
            result = await memory.add_messages(
                messages_from(("assistant", f"I looked it up:\n{reply}\nSo, tea it is."))
            )
            assert [message.content for message in (await memory.scope_contents(ALICE)).messages][1:] == [
                "I looked it up:\nSo, tea it is."
            ]
            assert "3 recalled passages left out" in result.notes

    async def test_a_pasted_reply_is_removed_though_it_shows_what_the_text_hides(self, tmp_path: Path) -> None:
        """A reply shows control characters as escapes, and is recognized by these or by the text itself."""
        hidden = "User's tea \x1b[31m cabinet\u202e is red"
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, hidden)
            reply = await searched(memory, "tea")
            assert r"\x1b[31m cabinet\u202e" in reply
            assert await kept(memory, f"I looked:\n{reply}\nRed tea.") == ["I looked:\nRed tea."]
            assert await kept(memory, f"[{memory_id[:8]}] 2026-05-08 {hidden}\nGreen tea.") == ["Green tea."]

    async def test_a_message_that_is_only_a_reply_is_not_kept(self, tmp_path: Path) -> None:
        """There are no empty messages, and the model is not asked about nothing."""
        with OpenAIServer() as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                result = await memory.add_messages(messages_from(("assistant", await searched(memory, "tea"))))
                assert (await memory.scope_contents(ALICE)).messages == ()
                assert server.chat_requests == []
        assert (result.kept_messages, result.notes) == (0, ("1 recalled passage left out",))

    async def test_the_model_is_not_shown_what_was_recalled(self, tmp_path: Path) -> None:
        """No facts are extracted from what was only searched for."""
        with OpenAIServer([facts_reply()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, "User plays the cello")
                content = f"{await searched(memory, 'cello')}\nBy the way, make it green tea."
                await memory.add_messages(messages_from(("user", content)))
                prompt = server.chat_requests[0]["messages"][1]["content"]
        assert "green tea" in prompt
        assert "cello" not in prompt

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("line", ["{}", "- {}", "* {}", "> {}", "    {}", "-{}", "{}\r"])
    async def test_a_line_is_recognized_in_a_list_and_in_a_quotation(self, tmp_path: Path, line: str) -> None:
        """Agents reformat replies in their own messages."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            for shown in (memory_id, memory_id[:8]):
                assert await kept(memory, line.format(f"[{shown}] 2026-05-08 {TEA}")) == []

    async def test_a_line_that_says_which_date_it_has_is_recognized(self, tmp_path: Path) -> None:
        """A text that names a time has "said" before its date."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, "The vet comes on Friday")
            reply = await searched(memory, "vet")
            assert f"[{memory_id[:8]}] said 2026-05-08 The vet comes on Friday" in reply
            assert await kept(memory, reply) == []

    async def test_a_line_is_recognized_after_its_memory_was_updated_deleted_and_restored(self, tmp_path: Path) -> None:
        """An old reply in the same conversation does not bring back what was updated since."""
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

    @pytest.mark.few_by_day(1)
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
            "[{message}] 2026-05-08 Hello there",
            "[{message}] 2026-05-08 assistant said: Hello there",
            "[{message}] 2026-05-08 Ana said: Hello there",
            "User likes tea",
        ],
    )
    async def test_a_line_that_only_looks_like_a_hit_is_kept(self, tmp_path: Path, line: str) -> None:
        """The user's own words are kept, above all those that say a memory is wrong."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            await kept(memory, "Hello there")
            (message,) = (await memory.scope_contents(ALICE)).messages
            content = line.format(id=memory_id[:8], short=memory_id[:7], message=message.id[:8])
            assert await kept(memory, content) == [content]

    async def test_ids_are_recognized_within_their_scope_only(self, tmp_path: Path) -> None:
        """Removed lines do not reveal what another user or project remembers."""
        async with memory_in(tmp_path) as memory:
            foreign = f"[{(await added(memory, TEA, Scope('bob')))[:8]}] 2026-05-08 {TEA}"
            of_web = f"[{(await added(memory, TEA, WEB))[:8]}] 2026-05-08 {TEA}"
            own = f"[{(await added(memory, TEA))[:8]}] 2026-05-08 {TEA}"
            assert await kept(memory, foreign, of_web, own) == [foreign, of_web]
            assert await kept(memory, foreign, of_web, own, scope=WEB) == [foreign]

    async def test_the_last_line_of_a_reply_is_removed_only_with_the_reply(self, tmp_path: Path) -> None:
        """A user's own line of the same form stays."""
        async with memory_in(tmp_path) as memory:
            await added(memory, TEA)
            reply = await searched(memory, "tea", WEB)
            assert reply.endswith(f"scope: {WEB}")
            assert await kept(memory, reply, f"scope: {WEB}", scope=WEB) == [f"scope: {WEB}"]
            assert await kept(memory, f"{reply}\nscope: user bob", scope=WEB) == ["scope: user bob"]

    async def test_a_repeated_conversation_is_recognized_although_it_was_sanitized(self, tmp_path: Path) -> None:
        """A call can be repeated even if its messages were only kept in part."""
        async with memory_in(tmp_path) as memory:
            await added(memory, TEA)
            messages = messages_from(("user", f"{await searched(memory, 'tea')}\nHello"), ("assistant", "Hi"))
            assert (await memory.add_messages(messages)).kept_messages == 2
            again = await memory.add_messages(messages)
            assert (again.kept_messages, len((await memory.scope_contents(ALICE)).messages)) == (0, 2)


class TestSummaries:
    async def test_a_summary_is_removed_and_the_text_around_it_is_kept(self, tmp_path: Path) -> None:
        """A summary that is learned from would become its own source."""
        with OpenAIServer([summary(PARAGRAPH), *[facts_reply()] * 2]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                assert (await memory.summary(ALICE)).text == PARAGRAPH
                assert await kept(memory, f"You are this: {PARAGRAPH} And a dog owner!") == [
                    "You are this:  And a dog owner!"
                ]
                assert await kept(memory, PARAGRAPH, PARAGRAPH[:-1]) == [PARAGRAPH[:-1]]

    async def test_a_short_summary_is_not_removed(self, tmp_path: Path) -> None:
        """People may use the words of a very short summary by chance."""
        with OpenAIServer([summary("Likes tea."), facts_reply()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                assert (await memory.summary(ALICE)).text == "Likes tea."
                assert await kept(memory, "Likes tea. And cake.") == ["Likes tea. And cake."]

    async def test_the_summary_of_another_scope_is_kept(self, tmp_path: Path) -> None:
        """Summaries are recognized within their scope only."""
        with OpenAIServer([summary(PARAGRAPH), facts_reply()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await added(memory, TEA)
                assert (await memory.summary(ALICE)).text == PARAGRAPH
                assert await kept(memory, PARAGRAPH, scope=WEB) == [PARAGRAPH]


class TestTexts:
    @pytest.mark.parametrize("form", ["{}", "- {}", "  {} \n"])
    async def test_adding_a_recalled_line_changes_nothing(self, tmp_path: Path, form: str) -> None:
        """A memory never contains the id and the date of another one."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            line = form.format(f"[{memory_id[:8]}] 2026-05-08 {TEA}")
            result = await memory.add_text(ALICE, line)
            assert replies.added_text(result, ALICE).startswith(f"unchanged (duplicate of {memory_id[:8]}): {TEA}")
            assert len(await memory.log(ALICE)) == 1

    async def test_a_recalled_message_is_stored_in_its_own_words(self, tmp_path: Path) -> None:
        """An agent may store a message it found: without the id, the date and the speaker."""
        async with memory_in(tmp_path) as memory:
            await kept(memory, "I play the cello")
            line = (await searched(memory, "cello")).splitlines()[0]
            (change,) = (await memory.add_text(ALICE, line)).outcomes
        assert (change.event, change.memory.text) == (Event.ADD, "I play the cello")

    async def test_a_text_that_only_looks_like_a_hit_is_added_as_it_is(self, tmp_path: Path) -> None:
        """Several lines, another id, or a line that says a memory is wrong are the agent's own words."""
        async with memory_in(tmp_path) as memory:
            memory_id = await added(memory, TEA)
            foreign = await added(memory, TEA, Scope("bob"))
            for text in (
                f"[{memory_id[:8]}] 2026-05-08 It is no longer so that {TEA}",
                f"[{memory_id[:8]}] 2026-05-08 {TEA}\nand cake",
                f"[{foreign[:8]}] 2026-05-08 {TEA}",
            ):
                (change,) = (await memory.add_text(ALICE, text)).outcomes
                assert (change.event, change.memory.text) == (Event.ADD, text)


class TestSideFields:
    """What is no text of a memory holds secrets too."""

    KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2

    async def test_no_field_of_a_message_or_document_keeps_a_secret(self, tmp_path: Path) -> None:
        """Names of authors, ids of callers and addresses of documents are written by programs that paste anything."""
        async with memory_in(tmp_path) as memory:
            said = {"role": "user", "name": f"bot {self.KEY}", "id": f"m-{self.KEY}", "content": "Tea is ready"}
            await memory.add_messages(messages_from(said))
            file = tmp_path / f"handbook {self.KEY}.md"
            file.write_text("# Boiler\n\nIt needs 1.5 bar.", "utf-8")
            await memory.documents.learn_file(ALICE, file)
            spooled(tmp_path, "prompt", "Where is the boiler key kept?", session=f"s-{self.KEY}")
            await memory.capture.take_in()
            await memory.care.export(tmp_path / "export.jsonl", "jsonl", lambda _done, _all: None)
        assert self.KEY not in (tmp_path / "export.jsonl").read_text("utf-8")

    async def test_an_export_that_somebody_edited_brings_no_secret(self, tmp_path: Path) -> None:
        """An edited file is as any other text that a person writes; its history and metadata are read as well."""
        async with memory_in(tmp_path / "from") as memory:
            await memory.add_text(ALICE, "User keeps a key", infer=False, metadata={"note": "safe"})
            await memory.care.export(tmp_path / "export.jsonl", "jsonl", lambda _done, _all: None)
        edited = (tmp_path / "export.jsonl").read_text("utf-8").replace("keeps a key", f"keeps a key {self.KEY}")
        (tmp_path / "export.jsonl").write_text(edited.replace('"safe"', f'"{self.KEY}"'), "utf-8")
        async with memory_in(tmp_path / "to") as memory:
            result = await memory.care.import_file(ALICE, tmp_path / "export.jsonl", lambda _done, _all: None)
            (stored,) = (await memory.scope_contents(ALICE)).memories
            versions = (await memory.history(ALICE, stored.id))[1]
        assert self.KEY not in repr((stored, versions))
        assert any("secret" in note for note in result.notes)

    @pytest.mark.parametrize(
        ("question", "answer", "kept"),
        [
            ("What's the wifi password?", "It's bluewhale99, the network is Altbau", "the network is Altbau"),
            ("Wie lautet die PIN der Karte?", "4821", ""),
            ("Where is the password kept?", "In 1Password, under NAS", "In 1Password, under NAS"),
        ],
    )
    async def test_the_answer_to_a_question_for_a_secret_is_one(
        self, tmp_path: Path, question: str, answer: str, kept: str
    ) -> None:
        """An answer does not say what it is; the message before it does."""
        async with memory_in(tmp_path) as memory:
            await memory.add_messages(messages_from(("assistant", question), ("user", answer)))
            _, said = (await memory.scope_contents(ALICE)).messages
        assert kept in said.content
        assert "bluewhale99" not in said.content
        assert "4821" not in said.content
