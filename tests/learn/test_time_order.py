"""Of two facts that contradict each other the later one holds, whatever order they arrive in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.memory import Memory
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio

STORED = "\n\nStored memories: "
ROME, OSLO = "User lives in Rome.", "User lives in Oslo."
ADDED = json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})


def learned(text: str, **rest: Any) -> str:
    return json.dumps({"facts": [{"text": text, "sources": [1], **rest}]})


def contradicts(memory: int = 0, text: str | None = None, fact: int = 0) -> str:
    return json.dumps({"decisions": [{"fact": fact, "event": "DELETE", "memory": memory, "text": text}]})


def said(text: str, at: str) -> Any:
    return messages_from({"role": "user", "content": text, "at": at})


async def deleted(memory: Memory) -> list[StoredMemory]:
    hits = (await memory.list(ALICE, deleted=True)).hits
    return [(await memory.history(ALICE, hit.id))[0] for hit in hits]


class TestTimeOrder:
    async def test_an_old_message_that_arrives_late_changes_nothing_that_holds(self, tmp_path: Path) -> None:
        """A message of 2020 does not replace a memory of 2026. It is stored as closed when the newer one began."""
        with OpenAIServer([learned(ROME), learned(OSLO), contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("I live in Rome", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("I live in Oslo", "2020-03-01T10:00:00Z"))
                assert await memory_texts(memory) == [ROME]
                (oslo,) = await deleted(memory)
        assert (oslo.text, oslo.stated_at) == (OSLO, datetime(2020, 3, 1, 10, tzinfo=UTC))
        assert oslo.valid_until == datetime(2026, 1, 5, 10, tzinfo=UTC)
        assert oslo.superseded_by is not None

    async def test_the_memory_that_is_replaced_held_until_the_new_one_began(self, tmp_path: Path) -> None:
        """`valid_until` of the older memory is `valid_from` of the newer one, not the time of the write."""
        newer = learned("User has lived in Rome since May 2025.", valid_from="2025-05")
        with OpenAIServer([learned(OSLO), newer, contradicts(text="User has lived in Rome since May 2025.")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("I live in Oslo", "2020-03-01T10:00:00Z"))
                await memory.add_messages(said("I've lived in Rome since May 2025", "2026-01-05T10:00:00Z"))
                (oslo,) = await deleted(memory)
                (hit,) = (await memory.list(ALICE)).hits
        assert oslo.valid_until == datetime(2025, 5, 1, tzinfo=UTC)
        assert hit.date == "2026-01-05", "since when it holds is not the date at which it was said"

    async def test_since_when_something_holds_decides_if_both_say_so(self, tmp_path: Path) -> None:
        """A job since 2019, told later, does not replace one since 2026."""
        bosch = learned("User has worked at Bosch since March 2026.", valid_from="2026-03")
        siemens = learned("User has worked at Siemens since 2019.", valid_from="2019")
        with OpenAIServer([bosch, siemens, contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("At Bosch since March", "2026-04-05T10:00:00Z"))
                await memory.add_messages(said("From my CV: Siemens since 2019", "2026-04-06T10:00:00Z"))
                assert await memory_texts(memory) == ["User has worked at Bosch since March 2026."]

    async def test_a_return_to_the_old_state_is_learned(self, tmp_path: Path) -> None:
        """Vim, then VS Code, then Vim again: the last one holds, although the summary may still say Vim."""
        vim, code = "User's favourite editor is Vim.", "User's favourite editor is VS Code."
        replies = [learned(vim), learned(code), contradicts(), learned(vim), contradicts()]
        with OpenAIServer(replies) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for text, at in (("Vim", "2024-01-01"), ("VS Code", "2025-01-01"), ("Vim again", "2026-01-01")):
                    await memory.add_messages(said(text, f"{at}T10:00:00Z"))
                assert await memory_texts(memory) == [vim]

    async def test_facts_of_one_call_are_held_against_each_other(self, tmp_path: Path) -> None:
        """Two facts of one extraction that say the same become one memory with both sources."""
        both = json.dumps(
            {
                "facts": [
                    {"text": "User has a cat named Miso.", "sources": [1]},
                    {"text": "User's cat is named Miso.", "sources": [2]},
                ]
            }
        )
        same = json.dumps({"decisions": [{"fact": 0, "event": "ADD"}, {"fact": 1, "event": "NONE", "memory": 0}]})
        with OpenAIServer([both, same]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "I have a cat, Miso"), ("user", "Miso is my cat")))
                (hit,) = (await memory.list(ALICE)).hits
        assert (hit.text, len(hit.sources)) == ("User has a cat named Miso.", 2)

    async def test_of_two_contradicting_facts_of_one_call_the_later_said_holds(self, tmp_path: Path) -> None:
        """The earlier one is kept as closed by the later one."""
        both = json.dumps({"facts": [{"text": ROME, "sources": [2]}, {"text": OSLO, "sources": [1]}]})
        replies = [
            both,
            json.dumps({"decisions": [{"fact": 0, "event": "ADD"}, {"fact": 1, "event": "DELETE", "memory": 0}]}),
        ]
        with OpenAIServer(replies) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(
                    messages_from(
                        {"role": "user", "content": "I live in Oslo", "at": "2025-01-01T10:00:00Z"},
                        {"role": "user", "content": "I live in Rome now", "at": "2026-01-01T10:00:00Z"},
                    )
                )
                assert await memory_texts(memory) == [ROME]
                (oslo,) = await deleted(memory)
        assert (oslo.text, oslo.valid_until) == (OSLO, datetime(2026, 1, 1, 10, tzinfo=UTC))

    async def test_a_fact_between_two_memories_ends_the_older_one(self, tmp_path: Path) -> None:
        """Berlin 2015 and Rome 2026 are stored; Oslo of 2020 arrives late. Berlin held until Oslo, Oslo until Rome."""
        berlin, rome = "User lives in Berlin.", "User's home is in Rome."
        both = [{"fact": 0, "event": "DELETE", "memory": number, "text": None} for number in (0, 1)]
        replies = [learned(berlin), learned(rome), ADDED, learned(OSLO), json.dumps({"decisions": both})]
        with OpenAIServer(replies) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for text, at in (("Berlin", "2015"), ("Rome", "2026"), ("Oslo", "2020")):
                    await memory.add_messages(said(text, f"{at}-01-05T10:00:00Z"))
                assert await memory_texts(memory) == [rome]
                until = {old.text: old.valid_until.year for old in await deleted(memory) if old.valid_until}
        assert until == {berlin: 2020, OSLO: 2026}

    async def test_a_late_fact_held_until_the_newer_one_was_said_again(self, tmp_path: Path) -> None:
        """Rome was said in 2020 and in 2026; Oslo of 2023 was between, and did not end in the moment it began."""
        known = json.dumps({"decisions": [{"fact": 0, "event": "NONE", "memory": 0}]})
        replies = [learned(ROME), learned("User still lives in Rome."), known, learned(OSLO), contradicts()]
        with OpenAIServer(replies) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for text, at in (("Rome", "2020"), ("still Rome", "2026"), ("Oslo", "2023")):
                    await memory.add_messages(said(text, f"{at}-03-01T10:00:00Z"))
                (oslo,) = await deleted(memory)
        assert oslo.valid_until == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_an_older_fact_does_not_reword_a_newer_memory(self, tmp_path: Path) -> None:
        """An UPDATE that takes words of the memory away is a contradiction, and the memory is the later one."""
        updates = json.dumps({"decisions": [{"fact": 0, "event": "UPDATE", "memory": 0, "text": OSLO}]})
        with OpenAIServer([learned(ROME), learned(OSLO), updates]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("Rome", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("Oslo", "2020-01-05T10:00:00Z"))
                assert await memory_texts(memory) == [ROME]
                (oslo,) = await deleted(memory)
        assert oslo.text == OSLO

    async def test_an_older_fact_may_add_a_detail(self, tmp_path: Path) -> None:
        """An UPDATE that keeps the words of the memory loses nothing."""
        merged = "User lives in Rome with a cat."
        updates = json.dumps({"decisions": [{"fact": 0, "event": "UPDATE", "memory": 0, "text": merged}]})
        with OpenAIServer([learned(ROME), learned("User has a cat."), updates]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("Rome", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("a cat", "2020-01-05T10:00:00Z"))
                assert await memory_texts(memory) == [merged]

    async def test_a_year_and_a_month_of_it_are_ordered_by_when_they_were_said(self, tmp_path: Path) -> None:
        """The year "2026" does not begin before "2026-03"; nobody knows which came first."""
        bosch = learned("User has worked at Bosch since March 2026.", valid_from="2026-03")
        siemens = "User has worked at Siemens since 2026."
        with OpenAIServer([bosch, learned(siemens, valid_from="2026"), contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("At Bosch since March", "2026-04-05T10:00:00Z"))
                await memory.add_messages(said("This year I joined Siemens", "2026-11-01T10:00:00Z"))
                assert await memory_texts(memory) == [siemens]

    async def test_a_beginning_does_not_make_a_fact_old(self, tmp_path: Path) -> None:
        """Who says in March to have lived in Oslo since 2015 corrects what was said in January."""
        with OpenAIServer([learned(ROME), learned(OSLO, valid_from="2015"), contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("I live in Rome", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("I have lived in Oslo since 2015", "2026-03-05T10:00:00Z"))
                assert await memory_texts(memory) == [OSLO]

    async def test_a_late_message_is_older_than_a_long_known_state(self, tmp_path: Path) -> None:
        """What has held "since 2015" was said in 2026, and a message of 2020 does not end it."""
        with OpenAIServer([learned(ROME, valid_from="2015"), learned(OSLO), contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("I have lived in Rome since 2015", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("I live in Oslo", "2020-03-05T10:00:00Z"))
                assert await memory_texts(memory) == [ROME]

    async def test_of_one_message_the_fact_with_a_beginning_holds(self, tmp_path: Path) -> None:
        """In "since 2025 in Oslo, before that in Rome", which fact is listed last does not matter."""
        facts = [{"text": OSLO, "sources": [1], "valid_from": "2025"}, {"text": ROME, "sources": [1]}]
        decisions = [{"fact": 0, "event": "ADD"}, {"fact": 1, "event": "DELETE", "memory": 0}]
        replies = [json.dumps({"facts": facts}), json.dumps({"decisions": decisions})]
        with OpenAIServer(replies) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("In Oslo since 2025, before that in Rome", "2026-01-05T10:00:00Z"))
                assert await memory_texts(memory) == [OSLO]

    async def test_a_plan_does_not_end_what_holds_today(self, tmp_path: Path) -> None:
        """Who will live in Rome from 2027 still lives in Oslo."""
        plan = "User will live in Rome from 2027."
        with OpenAIServer([learned(OSLO), learned(plan, valid_from="2027"), contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("I live in Oslo", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("To Rome next year", "2026-03-05T10:00:00Z"))
                assert await memory_texts(memory) == sorted([OSLO, plan])

    async def test_a_plan_that_is_given_up_ends(self, tmp_path: Path) -> None:
        """A plan is as old as its saying, so that a later word can contradict it."""
        plan, stays = "User will live in Rome from 2027.", "User stays in Oslo for good."
        with OpenAIServer([learned(plan, valid_from="2027"), learned(stays), contradicts()]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("To Rome next year", "2026-01-05T10:00:00Z"))
                await memory.add_messages(said("I stay in Oslo", "2026-03-05T10:00:00Z"))
                assert await memory_texts(memory) == [stays]

    async def test_what_has_ended_is_a_memory_and_its_turn_is_still_shown(self, tmp_path: Path) -> None:
        """The end of something is told without a date and without a text: nothing of it is forgotten."""
        died = "User's dog Rex died of cancer."
        with OpenAIServer([learned("User has a dog named Rex."), contradicts(text="")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "My dog Rex sleeps in the garage.")))
                await memory.add_text(ALICE, died)
                assert await memory_texts(memory) == [died]
                (rex,) = await deleted(memory)
                texts = [hit.text for hit in (await memory.search(ALICE, "garage")).hits]
        assert not rex.is_forgotten
        assert "My dog Rex sleeps in the garage." in texts


class TestPrecision:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        ("valid_from", "since"),
        [
            ("2025", "2025"),
            ("2025-05", "2025-05"),
            ("2025-05-00", "2025-05"),
            ("2025-05-03", "2025-05-03"),
            ("since 2025", "2025"),
            ("May 2025", "2025-05"),
            ("seit Mai 2025", "2025-05"),
            ("last year", None),
            ("before 2025", None),
        ],
    )
    async def test_a_beginning_is_known_as_exactly_as_it_was_said(
        self, tmp_path: Path, valid_from: str, since: str | None
    ) -> None:
        """What it replaced held until then, and the next decision sees the same: a year is not its first of January."""
        decisions = [contradicts(), json.dumps({"decisions": [{"fact": 0, "event": "NONE", "memory": 0}]})]
        same = learned("User's home is in Rome.")
        replies = [learned(OSLO), learned(ROME, valid_from=valid_from), decisions[0], same, decisions[1]]
        with OpenAIServer(replies) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                for text, at in (("Oslo", "2020-03-01"), ("Rome", "2026-01-05"), ("Rome", "2026-02-05")):
                    await memory.add_messages(said(text, f"{at}T10:00:00Z"))
                (oslo,) = await deleted(memory)
            prompts = [request["messages"][1]["content"] for request in server.chat_requests]
        assert oslo.until == (since or "2026-01-05")
        new, stored = (json.loads(part) for part in prompts[2].removeprefix("New facts: ").split(STORED))
        assert (new[0].get("since"), stored[0].get("since")) == (since, None)
        (rome,) = json.loads(prompts[4].split(STORED)[1])
        assert rome.get("since") == since

    async def test_a_month_stays_a_month(self, tmp_path: Path) -> None:
        """`2023-04` is shown and filtered as a month, and never as its first day."""
        with OpenAIServer([learned("User moved to Rome in April 2023.", happened_at="2023-04")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(said("I moved in April 2023", "2023-06-01T10:00:00Z"))
                (hit,) = (await memory.list(ALICE)).hits
                april = {"at": {"gte": "2023-04-01", "lt": "2023-05-01"}}
                for filters, count in (
                    ({"at": "2023-04"}, 1),
                    (april, 1),
                    ({"at": "2023-04-01"}, 0),
                    ({"at": "2023"}, 1),
                ):
                    assert len((await memory.list(ALICE, filters=filters)).hits) == count, filters
        assert hit.date == "2023-04"


class TestNames:
    async def test_user_and_nadia_are_one_person_once_the_name_is_known(self, tmp_path: Path) -> None:
        """The model is told the name, and facts about "User" are written with it even if it forgets."""
        adds = json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})
        tells = json.dumps({"user_name": "Nadia", "facts": [{"text": "User's name is Nadia.", "sources": [1]}]})
        with OpenAIServer([tells, learned("User likes sailing."), adds]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "I'm Nadia")))
                await memory.add_messages(messages_from(("user", "I like sailing")), infer=True)
                texts = await memory_texts(memory)
                shown = server.chat_requests[1]["messages"][1]["content"]
        assert "The user's name is Nadia." in shown
        assert "Nadia likes sailing." in texts

    async def test_memories_of_before_the_name_was_known_are_shown_with_it(self, tmp_path: Path) -> None:
        """Otherwise the model would hold "User" and "Nadia" for two people, and keep both towns."""
        moved = {"fact": 0, "event": "DELETE", "memory": 0, "text": "Nadia lives in Oslo."}
        with OpenAIServer([learned("Nadia lives in Oslo."), json.dumps({"decisions": [moved]})]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User lives in Rome.", infer=False)
                message = {"role": "user", "name": "Nadia", "content": "I live in Oslo now"}
                await memory.add_messages(messages_from(message))
                assert await memory_texts(memory) == ["Nadia lives in Oslo."]
                shown = server.chat_requests[1]["messages"][1]["content"]
        assert "Nadia lives in Rome." in shown

    async def test_the_name_is_known_even_if_the_fact_that_tells_it_was_known_before(self, tmp_path: Path) -> None:
        """The model finds that a memory says the same, and the memory then tells the name."""
        tells = json.dumps({"user_name": "Nadia", "facts": [{"text": "User's name is Nadia.", "sources": [1]}]})
        known = json.dumps({"decisions": [{"fact": 0, "event": "NONE", "memory": 0}]})
        adds = json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})
        with OpenAIServer([tells, known, learned("User likes sailing."), adds]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "The user is called Nadia.", infer=False)
                await memory.add_messages(messages_from(("user", "I'm Nadia")))
                await memory.add_messages(messages_from(("user", "I like sailing")))
                assert "The user's name is Nadia." in server.chat_requests[2]["messages"][1]["content"]
                assert "Nadia likes sailing." in await memory_texts(memory)

    async def test_a_name_that_nobody_said_is_not_taken_over(self, tmp_path: Path) -> None:
        """Guards every fact that follows: all of them would be about John Smith."""
        invents = json.dumps({"user_name": "John Smith", "facts": [{"text": "User likes tea.", "sources": [1]}]})
        with OpenAIServer([invents]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_messages(messages_from(("user", "I like tea")))
                assert await memory_texts(memory) == ["User likes tea."]
