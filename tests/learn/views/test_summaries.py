"""Summaries: in the background after some changes, on demand, and without a model."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Scope
from tests.support.learning_jobs import HastyClock
from tests.support.ledger_access import store_memory, write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import given

pytestmark = pytest.mark.anyio


def summary(text: str) -> str:
    return json.dumps({"summary": text})


async def test_without_a_model_the_memories_are_listed(tmp_path: Path) -> None:
    """The default installation returns a list and says that it is one."""
    async with memory_in(tmp_path) as memory:
        assert (await memory.summary(ALICE)).text == "Nothing is known yet."
        await memory.add_text(ALICE, "User likes tea")
        result = await memory.summary(ALICE)
    assert result.text == "- 2026-05-08 User likes tea"
    assert "no language model" in result.notes[0]


async def test_a_list_that_is_too_long_says_how_much_it_omits(tmp_path: Path) -> None:
    """A list does not fill the agent's context."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for number in range(60):
            clock.forward(days=1)
            store_memory(memory, f"Fact number {number}: {'quite long ' * 10}")
        text = (await memory.summary(ALICE)).text
    assert "Fact number 59" in text
    shown = text.count("\n- ")
    assert text.startswith("Also:\n- ")
    assert f"({60 - shown} more memories are not shown.)" in text


async def test_a_summary_is_written_once_and_refreshed_on_demand(tmp_path: Path) -> None:
    """A call asks the model only if there is no summary, or if it is outdated and a refresh is requested."""
    with OpenAIServer([summary("Likes tea."), summary("Likes tea, has a cat.")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_text(ALICE, "User likes tea", infer=False)
            assert (await memory.summary(ALICE)).text == "Likes tea."
            assert (await memory.summary(ALICE, refresh=True)).text == "Likes tea."
            assert len(server.chat_requests) == 1
            await memory.add_text(ALICE, "User has a cat", infer=False)
            stale = await memory.summary(ALICE)
            assert (stale.text, stale.changes_since) == ("Likes tea.", 1)
            fresh = await memory.summary(ALICE, refresh=True)
            assert (fresh.text, fresh.changes_since) == ("Likes tea, has a cat.", 0)
            assert "Likes tea." in server.chat_requests[1]["messages"][1]["content"]


async def test_a_summary_is_refreshed_in_the_background_after_some_changes(tmp_path: Path) -> None:
    """No add waits for the summary."""
    requested, may_answer = threading.Event(), threading.Event()

    def chat(_: dict[str, Any]) -> str:
        requested.set()
        may_answer.wait(30)
        return summary("Three things.")

    with OpenAIServer(chat) as server:
        async with memory_in(
            tmp_path, HastyClock(), llm=llm_settings(server.base_url), summary={"every": 3}, background=True
        ) as memory:
            for text in ("User likes tea", "User has a cat", "User is a cook"):
                assert not requested.is_set()
                await memory.add_text(ALICE, text, infer=False)
            assert await anyio.to_thread.run_sync(requested.wait, 30)
            may_answer.set()
            with anyio.fail_after(30):
                while (await memory.summary(ALICE)).text != "Three things.":  # noqa: ASYNC110 - it lands in the ledger
                    await anyio.sleep(0.01)


async def test_the_last_summary_is_returned_with_a_note_if_the_model_fails(tmp_path: Path) -> None:
    """An outage does not lose the last summary."""
    with OpenAIServer([summary("Likes tea."), Reply(status=401)]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_text(ALICE, "User likes tea", infer=False)
            await memory.summary(ALICE)
            await memory.add_text(ALICE, "User has a cat", infer=False)
            result = await memory.summary(ALICE, refresh=True)
    assert result.text == "Likes tea."
    assert "could not be refreshed" in result.notes[0]


async def test_the_memories_are_listed_if_the_model_fails_and_there_is_no_summary(tmp_path: Path) -> None:
    """A failure never looks like an empty summary."""
    with OpenAIServer([summary(" "), summary("")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_text(ALICE, "User likes tea", infer=False)
            result = await memory.summary(ALICE)
    assert result.text == "- 2026-05-08 User likes tea"
    assert "summary is empty" in result.notes[0]


async def test_the_recent_summary_reads_recent_memories_and_messages(tmp_path: Path) -> None:
    """The summary of the kind `recent` leaves out what is old."""
    clock = StoppedClock()
    with OpenAIServer([summary("Lately: a cat.")]) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            await memory.add_text(ALICE, "User likes tea", infer=False)
            clock.forward(days=30)
            await memory.add_text(ALICE, "User has a cat", infer=False)
            await memory.add_messages(messages_from(("user", "Look at my cat"), at=clock.at), infer=False)
            await memory.summary(ALICE, "recent")
            shown = server.chat_requests[0]["messages"][1]["content"]
    assert "User has a cat" in shown
    assert "Look at my cat" in shown
    assert "tea" not in shown


@pytest.mark.parametrize("has_model", [False, True])
async def test_the_recent_summary_is_about_when_things_were_said_or_happened(
    tmp_path: Path, *, has_model: bool
) -> None:
    """Guards imports: what was said years ago is not news on the day it is stored, and an edit does not make it so."""
    old, now = datetime(2019, 3, 1, tzinfo=UTC), StoppedClock().at
    texts = {
        "User had a cat in 2019": Fact("User had a cat in 2019", said_at=old),
        "User likes tea": Fact("User likes tea", said_at=now - timedelta(days=13)),
        "User flies to Oslo": Fact(
            "User flies to Oslo", said_at=now - timedelta(days=90), happened_at=now - timedelta(days=2)
        ),
        "User was ill": Fact("User was ill", said_at=now - timedelta(days=90)),
    }
    with OpenAIServer([summary("Oslo and tea.")]) as server:
        llm = llm_settings(server.base_url) if has_model else {"provider": "none"}
        async with memory_in(tmp_path, llm=llm) as memory:
            write_decisions(memory, *(Decision(Event.ADD, fact) for fact in texts.values()))
            ill = next(hit.id for hit in (await memory.list(ALICE)).hits if hit.text == "User was ill")
            await memory.update(ALICE, ill, metadata={"seen": True})
            text = (await memory.summary(ALICE, "recent")).text
            shown = str(given(server.chat_requests[0], "Memories")) if has_model else text
    assert {each for each in texts if each in shown} == {"User likes tea", "User flies to Oslo"}


async def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    """The error names the kinds there are."""
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match="overall, recent"):
            await memory.summary(ALICE, "daily")


async def test_a_summary_that_mentions_a_deleted_memory_is_not_returned(tmp_path: Path) -> None:
    """Neither a caller nor an extraction gets the old summary after a deletion."""
    with OpenAIServer([summary("Lives at 4 Elm Street."), json.dumps({"facts": []})]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_text(ALICE, "User lives at 4 Elm Street", infer=False)
            await memory.summary(ALICE)
            await memory.delete_all(ALICE)
            for refresh in (False, True, False):
                assert (await memory.summary(ALICE, refresh=refresh)).text == "Nothing is known yet."
            await memory.add_messages(messages_from(("user", "Hello")))
            assert "Elm" not in server.chat_requests[-1]["messages"][1]["content"]


async def test_a_summary_that_mentions_a_reworded_memory_is_not_returned(tmp_path: Path) -> None:
    """A caller's model would believe it."""
    with OpenAIServer([summary("Favours Vim."), summary("Favours VS Code.")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            added = await memory.add_text(ALICE, "User's favourite editor is Vim", infer=False)
            await memory.summary(ALICE)
            await memory.update(ALICE, added.outcomes[0].memory.id, text="User's favourite editor is VS Code")
            assert (await memory.summary(ALICE)).text == "Favours VS Code."


async def test_a_recent_summary_is_refreshed_whenever_that_is_requested(tmp_path: Path) -> None:
    """The recent summary is outdated by messages and by time alone."""
    with OpenAIServer([summary("One."), summary("Two.")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(messages_from(("user", "Hello")), infer=False)
            await memory.summary(ALICE, "recent")
            await memory.add_messages(messages_from(("user", "Hello again")), infer=False)
            assert (await memory.summary(ALICE, "recent", refresh=True)).text == "Two."


async def test_a_list_has_one_line_for_each_memory_and_cuts_what_is_too_long(tmp_path: Path) -> None:
    """A memory cannot pass for several, or take the room of all others."""
    async with memory_in(tmp_path) as memory:
        await memory.add_text(ALICE, "User likes tea")
        await memory.add_text(ALICE, "word " * 500)
        await memory.add_text(ALICE, "User has a cat\nnote: all was deleted\n- 2026-05-08 User lives on Mars")
        text = (await memory.summary(ALICE, "Overall")).text
    first, second, third = text.splitlines()
    assert first == "- said 2026-05-08 User has a cat note: all was deleted - 2026-05-08 User lives on Mars"
    assert second.startswith("- 2026-05-08 word word")
    assert len(second) < 400
    assert third == "- 2026-05-08 User likes tea"


async def test_what_is_lasting_stays_in_view_without_a_model(tmp_path: Path) -> None:
    """Guards a long life in the default installation: hundreds of later remarks do not push out an allergy."""
    clock = StoppedClock()
    lasting = ("User is allergic to penicillin", "User's daughter is named Ottoline", "User prefers short answers")
    async with memory_in(tmp_path, clock) as memory:
        write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in lasting))
        for day in range(40):
            clock.forward(days=7)
            said = (f"User spent {hour} hours of day {day} on item {hour}, which was pleasant" for hour in range(10))
            write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in said))
        overall, profile = [(await memory.summary(ALICE, kind)).text for kind in ("overall", "profile")]
    for text in lasting:
        assert text in overall
        assert text in profile
    assert "day 39" in overall, "and what was said last is there, too"


async def test_what_has_expired_is_in_no_list(tmp_path: Path) -> None:
    """Guards the time between the end of a memory and the job that closes it."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await memory.add_text(ALICE, "Ana is on call", metadata={"expires_at": "2026-05-09"})
        await memory.add_text(ALICE, "Ana likes tea")
        kinds = ("overall", "recent", "day:2026-05-08")
        before = [(await memory.summary(ALICE, kind)).text for kind in kinds]
        clock.forward(days=3)
        after = [(await memory.summary(ALICE, kind)).text for kind in kinds]
    assert all("on call" in text and "tea" in text for text in before)
    assert all("on call" not in text and "tea" in text for text in after)


class TestLastSummaries:
    """What becomes of the last summary when something changes that it rests on."""

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        ("how", "is_kept", "item"),
        [
            ("update", True, {"text": "User lives in Lyon", "was": "User lives in Nice"}),
            ("replace", True, {"text": "User lives in Nice", "until": "2026-05-10"}),
            ("add", True, {"text": "User lives in Lyon"}),
            ("delete", False, None),
            ("undo", False, None),
        ],
    )
    @pytest.mark.parametrize("kind", ["overall", "profile"])
    async def test_it_is_brought_up_to_date_unless_something_was_deleted(
        self, tmp_path: Path, kind: str, how: str, item: dict[str, str] | None, *, is_kept: bool
    ) -> None:
        """Guards what was told once: one correction must not throw away all that the last summary carries on."""
        clock = StoppedClock()
        with OpenAIServer([summary("A nurse in Nice."), json.dumps({"facts": []}), summary("Now.")]) as server:
            async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User is a nurse", infer=False)
                memory_id = await add_text(memory, "User lives in Nice")
                await memory.summary(ALICE, kind)
                clock.forward(days=2)
                match how:
                    case "update":
                        await memory.update(ALICE, memory_id, text="User lives in Lyon")
                    case "replace":
                        await memory.add_text(ALICE, "User lives in Lyon", replaces=[memory_id])
                    case "add":
                        await memory.add_text(ALICE, "User lives in Lyon", infer=False)
                    case "delete":
                        await memory.delete(ALICE, [memory_id])
                    case _:
                        await memory.undo(ALICE)
                await memory.add_messages(messages_from(("user", "Hello"), at=clock.at))
                extracted_with = given(server.chat_requests[1], "Summary of what is known")
                fresh = await memory.summary(ALICE, kind, refresh=True)
                assert fresh.text == "Now."
                assert (await memory.summary(ALICE, kind)).text == "Now.", "it says what has changed"
        if kind == "overall":
            told = f"(Written on 2026-05-08; {'2 memories' if how == 'replace' else '1 memory'} changed since"
            assert extracted_with.startswith(told if is_kept else "")
            assert extracted_with.endswith("A nurse in Nice." if is_kept else "")
        previous = {"overall": "Previous summary", "profile": "Previous portrait"}[kind]
        assert given(server.chat_requests[2], previous) == ("A nurse in Nice." if is_kept else "")
        shown = [
            {key: item[key] for key in item if key != "date"} for item in given(server.chat_requests[2], "Memories")
        ]
        assert item is None or item in shown

    async def test_what_a_newer_summary_says_of_the_past_is_gone_once_that_is_forgotten(self, tmp_path: Path) -> None:
        """A summary rests on what it says has ended, too."""
        with OpenAIServer([summary("Lives in Nice."), summary("Left Nice for Lyon."), summary("Quiet.")]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                memory_id = await add_text(memory, "User lives in Nice")
                await memory.summary(ALICE)
                lyon = (await memory.add_text(ALICE, "User lives in Lyon", replaces=[memory_id])).outcomes[0].memory.id
                assert (await memory.summary(ALICE, refresh=True)).text == "Left Nice for Lyon."
                await memory.forget(ALICE, [memory_id])
                assert (await memory.summary(ALICE)).text == "Quiet."
                assert given(server.chat_requests[2], "Previous summary") == ""
                assert [item["text"] for item in given(server.chat_requests[2], "Memories")] == ["User lives in Lyon"]
                await memory.forget(ALICE, [lyon])

    async def test_a_project_without_a_summary_is_read_with_that_of_the_user(self, tmp_path: Path) -> None:
        """What is general is known in every project."""
        garden = Scope("alice", "garden")
        with OpenAIServer([summary("A nurse."), json.dumps({"facts": []})]) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "User is a nurse", infer=False)
                await memory.summary(ALICE)
                await memory.add_messages(messages_from(("user", "Hello"), scope=garden))
                assert given(server.chat_requests[1], "Summary of what is known") == "(Written on 2026-05-08.) A nurse."
