"""What is known about one entity: from the ledger alone, and as a model's text that rests on it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopback import Reply
from palimpsest.core.errors import InputError
from palimpsest.core.models import USER_NAME, Decision, Event, Fact, NamedEntity, Relation, Scope
from palimpsest.learn.summaries.dossier import MAX_TOKENS
from palimpsest.memory import Memory
from palimpsest.text.tokenizer import count_tokens
from tests.support.graph_rows import LIVES, store_stating
from tests.support.ledger_access import write_decisions
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.scripted_model import memory_with

pytestmark = pytest.mark.anyio

ANA, TOM, LYON, PORTO = ("Ana", "person"), ("Tom", "person"), ("Lyon", "place"), ("Porto", "place")


def text_reply(text: str) -> str:
    return json.dumps({"about": text})


def ana_moves(memory: Memory) -> tuple[str, str]:
    """Store that Ana lived in Porto and lives in Lyon since March. Return the ids of both memories."""
    porto = store_stating(memory, "Ana lives in Porto", ANA, PORTO, relations=(Relation("Ana", "lives in", "Porto"),))
    moved = Fact(
        "Ana lives in Lyon",
        valid_from=datetime(2026, 9, 1, tzinfo=UTC),
        valid_from_precision="month",
        entities=(NamedEntity(*ANA), NamedEntity(*LYON)),  # pyright: ignore[reportArgumentType] - types
        relations=(LIVES,),
    )
    (outcome,) = write_decisions(memory, Decision(Event.ADD, moved, replaces=(porto,))).outcomes
    return porto, outcome.memory.id


async def about(memory: Memory, name: str, scope: Scope = ALICE) -> str:
    """Return the text about an entity."""
    return (await memory.summary(scope, f"about:{name}")).text


async def test_without_a_model_it_says_what_holds_what_held_and_what_is_connected(tmp_path: Path) -> None:
    """Guards the default installation: every line comes from the ledger, with its dates."""
    async with memory_in(tmp_path) as memory:
        porto, lyon = ana_moves(memory)
        bakery = store_stating(memory, "Ana and Tom run a bakery", ANA, TOM)
        result = await memory.summary(ALICE, "about: ANA ")
    assert result.text.split("\n") == [
        "Ana (person)",
        "Holds now:",
        f"- [{bakery[:8]}] 2026-05-08 Ana and Tom run a bakery",
        f"- [{lyon[:8]}] 2026-05-08 Ana lives in Lyon (since 2026-09)",
        "Held before:",
        f"- [{porto[:8]}] 2026-05-08 Ana lives in Porto (until 2026-09)",
        "Connected with:",
        "- Ana — lives in → Lyon (since 2026-09)",
        "- Ana — lives in → Porto (until 2026-09)",
        "Named together with: Tom (person) in 1 memory",
    ]
    assert "there is no language model" in result.notes[0]
    assert (result.kind, result.changes_since) == ("about:ANA", 0)


async def test_a_relation_that_several_memories_state_is_listed_once(tmp_path: Path) -> None:
    """Guards the reader from the same line twice, however it is spelled."""
    async with memory_in(tmp_path) as memory:
        store_stating(memory, "Ana lives in Lyon", ANA, LYON, relations=(LIVES,))
        store_stating(memory, "Ana still lives in Lyon", ANA, relations=(Relation("ana", "LIVES_IN", "Lyon"),))
        assert (await about(memory, "Ana")).count("→ Lyon") == 1


async def test_what_was_known_at_a_time_is_shown_as_it_was(tmp_path: Path) -> None:
    """Guards the times: an instant shows what was believed then, with what was only ended later."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        store_stating(memory, "Ana lives in Porto", ANA, PORTO, relations=(Relation("Ana", "lives in", "Porto"),))
        then = clock.at
        clock.forward(days=30)
        (first,) = await memory.graph.dossiers(ALICE, "Ana")
        porto = first.holds[0].id
        lyon = Fact("Ana lives in Lyon", entities=(NamedEntity("Ana", "person"),), relations=(LIVES,))
        write_decisions(memory, Decision(Event.ADD, lyon, replaces=(porto,)))
        (past,) = await memory.graph.dossiers(ALICE, "Ana", as_of=then)
        (present,) = await memory.graph.dossiers(ALICE, "Ana")
    assert [item.text for item in past.holds] == ["Ana lives in Porto"]
    assert past.held == ()
    assert [(item.destination, item.is_current) for item in past.relations] == [("Porto", True)]
    assert [item.text for item in present.held] == ["Ana lives in Porto"]
    assert [(item.destination, item.is_current) for item in present.relations] == [("Lyon", True), ("Porto", False)]


async def test_the_user_is_found_by_every_name_of_theirs(tmp_path: Path) -> None:
    """Guards that "me", "User" and the told name are one."""
    async with memory_in(tmp_path) as memory:
        store_stating(memory, "User plays the violin", ("User", "person"))
        tea = Fact("User is called Alice", metadata={USER_NAME: "Alice"}, entities=(NamedEntity("I", "person"),))
        write_decisions(memory, Decision(Event.ADD, tea))
        texts = {await about(memory, name) for name in ("me", "User", "alice", "I")}
    (text,) = texts
    assert text.startswith("Alice (the user)")
    assert "violin" in text


async def test_two_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Guards that nobody is mixed up with a namesake: each stands by itself, with what only it is connected with."""
    async with memory_in(tmp_path) as memory:
        store_stating(memory, "Mercury is the planet nearest to the sun", ("Mercury", "place"), ("Sun", "place"))
        store_stating(memory, "Ana maintains Mercury, a queue", ("Mercury", "product"), ANA)
        text = await about(memory, "mercury")
    assert text.count("Mercury (") == 2
    assert "Only this one is connected with Ana" in text
    assert "Only this one is connected with Sun" in text


async def test_an_unknown_name_is_an_error_that_names_near_ones(tmp_path: Path) -> None:
    """Guards the next step of whoever misspells a name. A spelling that only a deleted memory used is gone with it."""
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match="No names are known yet"):
            await about(memory, "Ana")
        store_stating(memory, "Anna Berg knows Katharina", ("Anna Berg", "person"), ("Katharina", "person"))
        secret = store_stating(memory, "Zeppelina dances", ("Zeppelina", "person"))
        await memory.delete(ALICE, [secret])
        for name, told in (
            ("Katarina", r"Did you mean Katharina\?"),
            ("Berg", r"Did you mean Anna Berg\?"),
            (" ", "1 to 256 characters"),
            ("Zeppelin", "^((?!Zeppelina).)*$"),
            ("Zeppelina", "Zeppelina"),
        ):
            with pytest.raises(InputError, match=told):
                await about(memory, name)
        with pytest.raises(InputError, match=r"overall, recent, .* and about:NAME"):
            await memory.summary(ALICE, "abot:Ana")


async def test_another_scope_sees_nothing_of_it(tmp_path: Path) -> None:
    """Guards projects and users: neither names nor memories nor near names cross."""
    site, other = Scope("alice", "site"), Scope("alice", "other")
    async with memory_in(tmp_path) as memory:
        store_stating(memory, "Ana pays for the site", ANA, scope=site)
        store_stating(memory, "Ana likes tea", ANA)
        assert "site" not in await about(memory, "Ana")
        assert "site" not in await about(memory, "Ana", other)
        assert "Ana pays for the site" in await about(memory, "Ana", site)
        with pytest.raises(InputError, match="No names are known yet"):
            await about(memory, "Ana", Scope("bob"))


async def test_it_stays_within_its_tokens_and_says_what_is_left_out(tmp_path: Path) -> None:
    """Guards the agent's context from somebody of whom a lot is known, and what somebody's safety depends on."""
    async with memory_in(tmp_path) as memory:
        for number in range(150):
            if number == 30:
                store_stating(memory, "Ana is allergic to penicillin", ANA)
            text = f"Ana met person number {number} and {'they talked for a while, ' * 4}about the weather"
            stated = (Relation("Ana", "met", f"person {number}"),)
            store_stating(memory, text, ANA, (f"person {number}", "person"), relations=stated)
        result = await memory.summary(ALICE, "about:Ana")
    text = result.text
    assert count_tokens(text) <= MAX_TOKENS + 20  # the counts of what was left out
    assert text.splitlines()[2].endswith("Ana is allergic to penicillin")
    assert "person number 149 " in text
    assert text.count(" more)") == 2
    assert "person number 0 " in text.split("(between these ")[1], "who she is was said first"
    assert result.is_cut


async def test_a_models_text_is_written_once_and_again_only_after_a_change(tmp_path: Path) -> None:
    """Guards the cost: the model is asked when something about this entity changed, and not for others."""
    replies = [text_reply("Ana runs a bakery."), text_reply("Ana runs a bakery and sings.")]
    async with memory_with(replies, tmp_path) as (memory, server):
        bakery = store_stating(memory, "Ana runs a bakery", ANA)
        first = await memory.summary(ALICE, "about:Ana")
        store_stating(memory, "Tom swims", TOM)
        assert await about(memory, "ana") == first.text == "Ana runs a bakery."
        assert first.lines == ("Ana (person)", "Holds now:", f"- [{bakery[:8]}] 2026-05-08 Ana runs a bakery")
        assert len(server.chat_requests) == 1
        assert "Ana runs a bakery" in server.chat_requests[0]["messages"][1]["content"]
        store_stating(memory, "Ana sings", ANA)
        assert await about(memory, "Ana") == "Ana runs a bakery and sings."
        assert await about(memory, "Ana") == "Ana runs a bakery and sings."
        assert len(server.chat_requests) == 2


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("how", ["delete", "forget", "update"])
async def test_what_was_taken_back_does_not_come_back_from_a_kept_text(tmp_path: Path, how: str) -> None:
    """Guards people: a text that says what they took back is not returned, also if no model answers any more."""
    async with memory_with([text_reply("Ana is ill and sings."), Reply(status=401)], tmp_path) as (memory, _):
        ill = store_stating(memory, "Ana is ill", ANA)
        store_stating(memory, "Ana sings", ANA)
        assert "ill" in await about(memory, "Ana")
        if how == "delete":
            await memory.delete(ALICE, [ill])
        elif how == "forget":
            write_decisions(memory, Decision(Event.DELETE, memory_id=ill, forgets=True))
        else:
            write_decisions(memory, Decision(Event.UPDATE, Fact("Ana is well", entities=(NamedEntity("Ana"),)), ill))
        result = await memory.summary(ALICE, "about:Ana")
    assert "is ill" not in result.text
    assert "Ana sings" in result.text
    assert "the text could not be written" in result.notes[0]


async def test_a_change_while_the_model_writes_is_not_lost(tmp_path: Path) -> None:
    """Guards against a text that was outdated before it was returned."""
    opened: list[Memory] = []

    def chat(_: dict[str, Any]) -> str:
        write_decisions(opened[0], Decision(Event.ADD, Fact("Ana sings", entities=(NamedEntity("Ana", "person"),))))
        return text_reply("Ana runs a bakery.")

    async with memory_with(chat, tmp_path) as (memory, _):
        opened.append(memory)
        store_stating(memory, "Ana runs a bakery", ANA)
        with anyio.fail_after(30):
            result = await memory.summary(ALICE, "about:Ana")
    assert "Ana sings" in result.text
    assert "memories changed while the text was written" in result.notes[0]
