"""Summaries of the whole, of days and of conversations: when they are written, and what makes them outdated."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from palimpsest.core.models import Decision, Event, Fact
from palimpsest.memory import Memory
from palimpsest.store import summaries
from tests.support.learning_jobs import HastyClock
from tests.support.ledger_access import ignore_progress, store_memory, write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import given, memory_with

pytestmark = pytest.mark.anyio

NO_FACTS = json.dumps({"facts": []})


def summary(text: str) -> str:
    return json.dumps({"summary": text})


async def read(memory: Memory, kind: str = "overall", *, refresh: bool = False) -> str:
    return (await memory.summary(ALICE, kind, refresh=refresh)).text


async def said(memory: Memory, *messages: Any) -> str:
    """Keep messages and return the id of the first."""
    kept = messages_from(*messages, at=memory.engine.clock())
    await memory.add_messages(kept, infer=False)
    return kept[0].id


async def test_a_list_that_is_too_long_says_how_much_it_omits(tmp_path: Path) -> None:
    """A list does not fill the agent's context."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for number in range(60):
            clock.forward(days=1)
            store_memory(memory, f"Fact number {number}: {'quite long ' * 10}")
        text = await read(memory)
    assert "Fact number 59" in text
    assert text.startswith("Also:\n- ")
    shown = text.count("\n- ")
    assert f"({60 - shown} more memories are not shown.)" in text


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
    requested, may_answer = threading.Event(), threading.Event()

    def chat(_: dict[str, Any]) -> str:
        requested.set()
        may_answer.wait(30)
        return summary("Three things.")

    settings: dict[str, Any] = {"summary": {"every": 3}, "background": True}
    async with memory_with(chat, tmp_path, HastyClock(), **settings) as (memory, _):
        for text in ("User likes tea", "User has a cat", "User is a cook"):
            assert not requested.is_set()
            await add_text(memory, text)
        assert await anyio.to_thread.run_sync(requested.wait, 30)
        may_answer.set()
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
    async with memory_with([summary("Oslo and tea."), summary("Two.")], tmp_path, clock) as (with_model, server):
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
    async with memory_with([summary("Tea."), summary("Bread."), summary("Both.")], tmp_path, clock) as (memory, _):
        tea = store_memory(memory, "User likes tea")
        clock.forward(days=1)
        store_memory(memory, "User bakes bread")
        for kind in ("day:2026-05-08", "day:2026-05-09", "overall"):
            await memory.summary(ALICE, kind)
        await memory.care.purge(ALICE, [tea], and_backups=False)
        with memory.engine.ledger.read() as conn:
            assert summaries.newest_texts(conn, ALICE, 9) == ["Bread."]


async def test_an_imported_summary_is_outdated_by_the_same_edits(tmp_path: Path) -> None:
    """Guards exports: what a summary rests on goes with it, so it holds on until one of that changes."""
    async with memory_with([summary("Sings.")], tmp_path / "old") as (memory, _):
        tea = store_memory(memory, "User likes tea")
        await memory.delete(ALICE, [tea])
        sings = store_memory(memory, "User sings")
        await memory.summary(ALICE)
        await memory.care.export(tmp_path / "export.jsonl", "jsonl", ignore_progress)
    async with memory_in(tmp_path / "new") as memory:
        await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
        with memory.engine.ledger.read() as conn:
            imported = summaries.current_summary(conn, ALICE, "overall")
        assert imported is not None
        assert imported.text == "Sings."
        await memory.delete(ALICE, [sings])
        with memory.engine.ledger.read() as conn:
            assert summaries.current_summary(conn, ALICE, "overall") is None


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
    clock, replies = StoppedClock(), [summary("A nurse in Nice."), NO_FACTS, summary("Now.")]
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
