"""Summaries of the whole, of days, of conversations and about somebody: how they are written and what outdates them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Relation
from palimpsest.learn.summaries.dossier import MAX_TOKENS
from palimpsest.learn.summaries.extractive import Passage, most_telling
from palimpsest.memory import Memory
from palimpsest.store import summaries
from palimpsest.text.tokenizer import count_tokens
from tests.support.learning_jobs import HastyClock
from tests.support.ledger_access import store_memory, write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import facts_reply, given, memory_with, summary_reply
from tests.support.slow_model import HeldModel

pytestmark = pytest.mark.anyio

NO_FACTS = facts_reply()


async def read(memory: Memory, kind: str = "overall", *, refresh: bool = False) -> str:
    return (await memory.summary(ALICE, kind, refresh=refresh)).text


async def said(memory: Memory, *messages: Any) -> str:
    """Keep messages and return the id of the first."""
    kept = messages_from(*messages, at=memory.engine.clock())
    await memory.add_messages(kept, infer=False)
    return kept[0].id


async def test_what_is_lasting_stays_in_view_without_a_model(tmp_path: Path) -> None:
    """Guards a long life in the default installation: hundreds of later remarks do not push out an allergy."""
    clock = StoppedClock()
    lasting = ("User is allergic to penicillin", "User's daughter is named Ottoline", "User prefers short answers")
    async with memory_in(tmp_path, clock) as memory:
        write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in lasting))
        for day in range(40):
            clock.forward(days=7)
            facts = (f"User spent {hour} hours of day {day} on item {hour}, which was pleasant" for hour in range(10))
            write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in facts))
        overall, profile = await read(memory), await read(memory, "profile")
    assert [text for text in lasting if text not in overall or text not in profile] == []
    assert "day 39" in overall, "and what was said last is there, too"


async def test_a_summary_is_refreshed_in_the_background_after_some_changes(tmp_path: Path) -> None:
    """No add waits for the summary."""
    model = HeldModel(lambda _: summary_reply("Three things."))
    settings: dict[str, Any] = {"summary": {"every": 3}, "background": True}
    async with memory_with(model, tmp_path, HastyClock(), **settings) as (memory, _):
        for text in ("User likes tea", "User has a cat", "User is a cook"):
            assert not model.was_asked.is_set()
            await add_text(memory, text)
        await model.wait()
        model.may_answer.set()
        with anyio.fail_after(30):
            while await read(memory) != "Three things.":  # noqa: ASYNC110 - it lands in the ledger
                await anyio.sleep(0.01)


@pytest.mark.parametrize("has_model", [False, True])
async def test_the_recent_summary_is_about_when_things_were_said_or_happened(
    tmp_path: Path, *, has_model: bool
) -> None:
    """Guards imports: what was said years ago is not news on the day it is stored, and an edit does not make it so."""
    clock = StoppedClock()
    now, long_ago = clock.at, clock.at - timedelta(days=90)
    facts = (
        Fact("User had a cat in 2019", said_at=datetime(2019, 3, 1, tzinfo=UTC)),
        Fact("User likes tea", said_at=now - timedelta(days=13)),
        Fact("User flies to Oslo", said_at=long_ago, happened_at=now - timedelta(days=2)),
        Fact("User was ill", said_at=long_ago),
    )
    async with memory_with([summary_reply("Oslo and tea."), summary_reply("Two.")], tmp_path, clock) as (
        with_model,
        server,
    ):
        llm = llm_settings(server.base_url) if has_model else {"provider": "none"}
        async with memory_in(tmp_path, clock, llm=llm) as memory:
            *_, ill = write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts)).outcomes
            await memory.update(ALICE, ill.memory.id, metadata={"seen": True})
            await said(memory, ("user", "Look at my cat"))
            text = await read(memory, "recent")
        if has_model:
            text = server.chat_requests[0]["messages"][1]["content"]
            await said(with_model, ("user", "Hello again"))
            assert await read(with_model, "recent", refresh=True) == "Two.", "messages outdate it, and time alone"
    assert {fact.text for fact in facts if fact.text in text} == {"User likes tea", "User flies to Oslo"}
    assert "Look at my cat" in text or not has_model


async def test_a_purge_leaves_summaries_that_rest_on_nothing_of_it(tmp_path: Path) -> None:
    """Guards both sides of a purge: what may quote is erased, and what cannot is kept."""
    clock = StoppedClock()
    async with memory_with(
        [summary_reply("Tea."), summary_reply("Bread."), summary_reply("Both.")], tmp_path, clock
    ) as (memory, _):
        tea = store_memory(memory, "User likes tea")
        clock.forward(days=1)
        store_memory(memory, "User bakes bread")
        for kind in ("day:2026-05-08", "day:2026-05-09", "overall"):
            await memory.summary(ALICE, kind)
        await memory.care.purge(ALICE, [tea], and_backups=False)
        with memory.engine.ledger.read() as conn:
            assert summaries.newest_texts(conn, ALICE, 9) == ["Bread."]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("how", "item"),
    [
        ("update", {"text": "User lives in Lyon", "was": "User lives in Nice"}),
        ("replace", {"text": "User lives in Nice", "until": "2026-05-10"}),
        ("add", {"text": "User lives in Lyon"}),
        ("delete", None),
        ("undo", None),
    ],
)
@pytest.mark.parametrize("kind", ["overall", "profile"])
async def test_the_last_summary_is_brought_up_to_date_unless_something_was_deleted(
    tmp_path: Path, kind: str, how: str, item: dict[str, str] | None
) -> None:
    """Guards what was told once: one correction must not throw away all that the last summary carries on."""
    clock, replies = StoppedClock(), [summary_reply("A nurse in Nice."), NO_FACTS, summary_reply("Now.")]
    async with memory_with(replies, tmp_path, clock) as (memory, server):
        await add_text(memory, "User is a nurse")
        memory_id = await add_text(memory, "User lives in Nice")
        await memory.summary(ALICE, kind)
        clock.forward(days=2)
        match how:
            case "update":
                await memory.update(ALICE, memory_id, text="User lives in Lyon")
            case "replace":
                await memory.add_text(ALICE, "User lives in Lyon", replaces=[memory_id])
            case "add":
                await add_text(memory, "User lives in Lyon")
            case "delete":
                await memory.delete(ALICE, [memory_id])
            case _:
                await memory.undo(ALICE)
        await memory.add_messages(messages_from(("user", "Hello"), at=clock.at))
        extracted_with = given(server.chat_requests[1], "Summary of what is known")
        assert await read(memory, kind, refresh=True) == "Now."
        assert await read(memory, kind) == "Now.", "it says what has changed"
    kept = "" if item is None else "A nurse in Nice."
    if kind == "overall":
        told = f"(Written on 2026-05-08; {'2 memories' if how == 'replace' else '1 memory'} changed since"
        assert extracted_with.startswith(told if kept else "")
        assert extracted_with.endswith(kept)
    previous = {"overall": "Previous summary", "profile": "Previous portrait"}[kind]
    assert given(server.chat_requests[2], previous) == kept
    shown = [{key: one[key] for key in one if key != "date"} for one in given(server.chat_requests[2], "Memories")]
    assert item is None or item in shown


ANA = NamedEntity("Ana", "person")


async def test_it_stays_within_its_tokens_and_says_what_is_left_out(tmp_path: Path) -> None:
    """Guards the agent's context from somebody of whom a lot is known, and what somebody's safety depends on."""
    facts = [
        Fact(
            f"Ana met person number {number} and {'they talked for a while, ' * 4}about the weather",
            entities=(ANA, NamedEntity(f"person {number}", "person")),
            relations=(Relation("Ana", "met", f"person {number}"),),
        )
        for number in range(150)
    ]
    facts.insert(30, Fact("Ana is allergic to penicillin", entities=(ANA,)))
    async with memory_in(tmp_path) as memory:
        write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts))
        result = await memory.summary(ALICE, "about:Ana")
    text = result.text
    assert count_tokens(text) <= MAX_TOKENS + 20  # the counts of what was left out
    assert text.splitlines()[2].endswith("Ana is allergic to penicillin")
    assert "person number 149 " in text
    assert text.count(" more)") == 2
    assert "person number 0 " in text.split("(between these ")[1], "who she is was said first"
    assert result.is_cut


async def test_a_change_while_the_model_writes_is_not_lost(tmp_path: Path) -> None:
    """Guards against a text that was outdated before it was returned."""
    opened: list[Memory] = []

    def chat(_: dict[str, Any]) -> str:
        write_decisions(opened[0], Decision(Event.ADD, Fact("Ana sings", entities=(ANA,))))
        return json.dumps({"about": "Ana runs a bakery."})

    async with memory_with(chat, tmp_path) as (memory, _):
        opened.append(memory)
        write_decisions(memory, Decision(Event.ADD, Fact("Ana runs a bakery", entities=(ANA,))))
        with anyio.fail_after(30):
            result = await memory.summary(ALICE, "about:Ana")
    assert "Ana sings" in result.text
    assert "memories changed while the text was written" in result.notes[0]


USED, FULL = 3, 21
"""Every so many days the user says something, and every so many days much, so that the day has a summary."""


NOW = datetime(2026, 11, 20, tzinfo=UTC)
RECENT: dict[str, Any] = {"now": NOW, "half_life": timedelta(days=90)}
DOG = [
    Passage("Mara has a dog named Rex"),
    Passage("Rex the dog of Mara sleeps in the kitchen"),
    Passage("Mara walks the dog Rex at seven"),
    Passage("The train to Ghent was late"),
]


def old_and_new(old: str, old_days: int, new: str, new_days: int) -> list[Passage]:
    return [Passage(text, NOW - timedelta(days=days)) for text, days in ((old, old_days), (new, new_days))]


FERRY = old_and_new("The ferry leaves at nine", 300, "Tomatoes grow in the yard", 1)
REPEATED = [Passage("Mara has a dog named Rex"), Passage("Mara's dog is named Rex"), Passage("Rain is likely")]
NEAR = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0]], dtype=np.float32)
BY_MEANING = [Passage(text, vector=row) for text, row in zip(("eins", "zwei", "drei", "vier"), NEAR, strict=True)]


@pytest.mark.parametrize(
    ("passages", "tokens", "options", "expected"),
    [
        pytest.param(DOG, 10_000, {}, [0, 3], id="the best comes first, then another subject"),
        pytest.param(DOG, 1, {}, [], id="none fits"),
        pytest.param(BY_MEANING, 1, {}, [1], id="central by meaning where there are vectors"),
        pytest.param(REPEATED, 1_000, {}, [0, 2], id="what repeats a chosen text is left out"),
        pytest.param(
            old_and_new("Mara works at Kisling", 400, "Mara works at the Kisling", 2),
            1_000,
            RECENT,
            [1],
            id="of two that say the same the newer one stays",
        ),
        pytest.param(FERRY, 1_000, {}, [0, 1], id="recency does not count by itself"),
        pytest.param(FERRY, 1_000, RECENT, [1, 0], id="recency counts where it is asked for"),
        pytest.param([FERRY[0], Passage("Tomatoes grow", weight=2.0)], 1_000, {}, [1, 0], id="a heavier text"),
        pytest.param([Passage("Tomatoes grow", tokens=50), Passage("The ferry leaves")], 20, {}, [1], id="a dear line"),
        pytest.param([], 100, RECENT, [], id="nothing of nothing"),
    ],
)
def test_the_most_telling_come_first(
    passages: list[Passage], tokens: int, options: dict[str, Any], expected: list[int]
) -> None:
    assert most_telling(passages, tokens, **options)[:2] == expected
