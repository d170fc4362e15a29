"""Summaries of days and of conversations, and what makes a summary outdated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact
from palimpsest.store import summaries
from tests.support.ledger_access import ignore_progress, store_memory, write_decisions
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from

pytestmark = pytest.mark.anyio


def summary(text: str) -> str:
    return json.dumps({"summary": text})


async def test_a_day_is_made_of_what_was_said_and_learned_on_it(tmp_path: Path) -> None:
    """Guards MemoryBank's first level: the day's memories and messages, and nothing of other days."""
    clock = StoppedClock()
    with OpenAIServer([summary("She baked."), Reply(status=401)]) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            await memory.add_text(ALICE, "User likes tea", infer=False)
            clock.forward(days=1)
            await memory.add_messages(messages_from(("user", "I baked bread today"), at=clock.at), infer=False)
            baked = (await memory.add_text(ALICE, "User bakes bread", infer=False)).outcomes[0].memory.id
            clock.forward(days=1)
            day = await memory.summary(ALICE, "day: yesterday")
            shown = server.chat_requests[0]["messages"][1]["content"]
            assert (day.text, day.kind, day.sources) == ("She baked.", "day:2026-05-09", (baked,))
            assert await memory.last_days(ALICE, 7) == ["day:2026-05-09", "day:2026-05-08"]
            assert (await memory.summary(ALICE, "day")).text == "She baked."
            plain = await memory.summary(ALICE, "day:2026-05-08")
    assert "I baked bread today" in shown
    assert "User bakes bread" in shown
    assert "tea" not in shown
    assert (plain.text, plain.is_plain) == ("- User likes tea", True)
    assert "could not be written" in plain.notes[0]


async def test_without_a_model_a_day_and_a_conversation_list_what_was_learned_or_said(tmp_path: Path) -> None:
    """Guards the default installation: what there is, in its order, and that it says so."""
    async with memory_in(tmp_path) as memory:
        assert (await memory.summary(ALICE, "session")).text == "There is no conversation yet."
        assert (await memory.summary(ALICE, "day:2025-01-01")).text == "Nothing was said on 2025-01-01."
        turns = messages_from({"role": "user", "content": "I adopted a cat", "id": "D1:1"})
        await memory.add_messages(turns, infer=False)
        said = f"- [{turns[0].id[:8]}] user: I adopted a cat"
        assert (await memory.summary(ALICE, "day")).text == said
        session = await memory.summary(ALICE, "session")
        assert session.text == said
        store_memory(memory, "User has a cat", sources=[turns[0].id])
        day = await memory.summary(ALICE, "day")
        assert day.text == f"- User has a cat\nMessages:\n{said}"
        assert "these are the memories and messages themselves" in day.notes[0]
        session = await memory.summary(ALICE, session.kind)
        assert session.text == "- User has a cat (D1:1)"
        assert "these are the memories themselves" in session.notes[0]
        with pytest.raises(InputError, match="is no day; use day:2026-05-08"):
            await memory.summary(ALICE, "day:monday")


async def test_a_conversation_has_its_observations_with_their_turns(tmp_path: Path) -> None:
    """Guards LoCoMo's observations: the model reads each with its turns, and they stand below its text."""
    with OpenAIServer([summary("They talked about a cat.")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            turns = messages_from({"role": "user", "content": "I adopted a cat", "id": "D1:1"})
            await memory.add_messages(turns, infer=False)
            store_memory(memory, "User has a cat", sources=[turns[0].id])
            session = await memory.summary(ALICE, "session")
            shown = server.chat_requests[0]["messages"][1]["content"]
    assert session.text == "They talked about a cat.\n- User has a cat (D1:1)"
    assert '"messages": ["D1:1"]' in shown


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("kind", ["overall", "recent", "day", "session"])
@pytest.mark.parametrize("how", ["delete", "reword", "forget message"])
async def test_a_summary_is_outdated_by_what_it_rests_on(tmp_path: Path, kind: str, how: str) -> None:
    """Guards against a text that says what was taken back: it is neither returned nor given to a model.

    After a correction the model gets the last text of the whole, to bring it up to date.
    """
    with OpenAIServer([summary("Secretly ill."), summary("Well.")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            turns = messages_from(("user", "I am secretly ill"))
            await memory.add_messages(turns, infer=False)
            ill = store_memory(memory, "User is secretly ill", sources=[turns[0].id])
            store_memory(memory, "User sings")
            assert (await memory.summary(ALICE, kind)).text.startswith("Secretly ill.")
            if how == "delete":
                await memory.delete(ALICE, [ill])
            elif how == "reword":
                write_decisions(memory, Decision(Event.UPDATE, Fact("User is well"), ill))
            else:
                write_decisions(memory, Decision(Event.DELETE, memory_id=ill, forgets=True))
            text = (await memory.summary(ALICE, kind)).text
            assert "ecretly" not in text.split("\n")[0]
            given_again = any("Secretly ill." in str(request) for request in server.chat_requests[1:])
            assert given_again == (how == "reword" and kind == "overall")


async def test_an_edit_of_something_else_leaves_a_summary_as_it_is(tmp_path: Path) -> None:
    """Guards the cost: a day is not written again because a memory of another day was deleted, or only linked."""
    clock = StoppedClock()
    with OpenAIServer([summary("She baked.")]) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            tea = store_memory(memory, "User likes tea")
            clock.forward(days=1)
            bread = store_memory(memory, "User bakes bread")
            assert (await memory.summary(ALICE, "day")).text == "She baked."
            clock.forward(minutes=1)
            await memory.delete(ALICE, [tea])
            linked = Decision(Event.UPDATE, Fact("User bakes bread", tags=("food",)), bread)
            write_decisions(memory, linked, stage="link")
            assert (await memory.summary(ALICE, "day", refresh=True)).text == "She baked."
    assert len(server.chat_requests) == 1


async def test_a_purge_leaves_summaries_that_rest_on_nothing_of_it(tmp_path: Path) -> None:
    """Guards both sides of a purge: what may quote is erased, and what cannot is kept."""
    clock = StoppedClock()
    with OpenAIServer([summary("Tea."), summary("Bread."), summary("Both.")]) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            tea = store_memory(memory, "User likes tea")
            clock.forward(days=1)
            store_memory(memory, "User bakes bread")
            for kind in ("day:2026-05-08", "day:2026-05-09", "overall"):
                await memory.summary(ALICE, kind)
            await memory.care.purge(ALICE, [tea], and_backups=False)
            with memory.engine.ledger.read() as conn:
                left = summaries.newest_texts(conn, ALICE, 9)
    assert left == ["Bread."]


async def test_an_imported_summary_is_outdated_by_the_same_edits(tmp_path: Path) -> None:
    """Guards exports: what a summary rests on goes with it, so it holds on until one of that changes."""
    with OpenAIServer([summary("Sings.")]) as server:
        async with memory_in(tmp_path / "old", llm=llm_settings(server.base_url)) as memory:
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
