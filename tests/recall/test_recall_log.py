"""The recall log: what it notes, how long, what takes a question out of it, and that nothing else is slowed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import Implementation

from palimpsest.core.models import Decision, Event, Scope
from palimpsest.hooks.brief import RecallRequest
from palimpsest.learn import recall_log
from palimpsest.memory import Memory
from palimpsest.store import usage, verify
from palimpsest.store.usage import Recall
from tests.support.command_line import palimpsest
from tests.support.exports import exported
from tests.support.graph_rows import run_statement
from tests.support.ledger_access import (
    ignore_progress,
    ledger_in,
    row_faults,
    store_memory,
    store_messages,
    write_decisions,
)
from tests.support.ledger_files import files_with
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from
from tests.support.server_in_process import server_in_process

pytestmark = pytest.mark.anyio

BICYCLE = "Ana parks her bicycle behind the bakery"
CHOIR = "The choir rehearses in the old chapel"
QUESTION = "Where does Ana park her bicycle?"
WEB, BOB = Scope("alice", project="web"), Scope("bob")


async def asked(memory: Memory, *questions: str, scope: Scope = ALICE, **rest: Any) -> None:
    """Search, and have it noted."""
    for question in questions:
        await memory.search(scope, question, **rest)
    await memory.recall_log.write()


async def noted(memory: Memory, owner_id: str, scope: Scope = ALICE, **rest: Any) -> list[str]:
    """Return the questions that brought back a memory or message, the newest first."""
    return [recall.question for recall in await memory.recall_log.recalls(scope, owner_id, **rest)]


def rows(folder: Path) -> tuple[int, int]:
    """Return how many questions and hits a ledger keeps."""
    with ledger_in(folder) as ledger, ledger.read() as conn:
        questions = conn.exec_driver_sql("SELECT count(*) FROM recalls").scalar_one()
        hits = conn.exec_driver_sql("SELECT count(*) FROM recalled").scalar_one()
        return questions, hits


class TestWhatIsNoted:
    async def test_a_search_is_noted_with_its_hits(self, tmp_path: Path) -> None:
        """It says when, for which question, who asked, and as which hit the memory came back."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock) as memory:
            bicycle, choir = await add_text(memory, BICYCLE), await add_text(memory, CHOIR)
            hits = [hit.id for hit in (await memory.search(ALICE, QUESTION, caller="claude-code")).hits]
            await memory.recall_log.write()
            (recall,) = await memory.recall_log.recalls(ALICE, bicycle)
            assert recall == Recall(ALICE, QUESTION, clock.at, "claude-code", 1)
            assert [item.rank for item in await memory.recall_log.recalls(ALICE, choir)] == [hits.index(choir) + 1]
            clock.forward(minutes=1)
            await asked(memory, "bicycle")
            assert await noted(memory, bicycle) == ["bicycle", QUESTION]
            assert await noted(memory, bicycle, limit=1) == ["bicycle"]

    async def test_messages_are_noted_too(self, tmp_path: Path) -> None:
        """What is recalled need not be a memory."""
        async with memory_in(tmp_path) as memory:
            await memory.add_messages(messages_from(("user", BICYCLE)), infer=False)
            hits = (await memory.search(ALICE, QUESTION)).hits
            await memory.recall_log.write()
            assert await noted(memory, hits[0].id) == [QUESTION]

    async def test_what_is_no_recall(self, tmp_path: Path) -> None:
        """What nobody uses, what was believed at another time, and what brought back nothing."""
        async with memory_in(tmp_path) as memory:
            await asked(memory, QUESTION)
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, QUESTION, is_use=False)
            await asked(memory, QUESTION, as_of=StoppedClock().at)
            assert await noted(memory, bicycle) == []
        assert rows(tmp_path) == (0, 0)

    async def test_it_is_written_when_the_memory_is_closed(self, tmp_path: Path) -> None:
        """Guards the searches of processes that answer one question and end."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await memory.search(ALICE, QUESTION)
            assert await noted(memory, bicycle) == []
        async with memory_in(tmp_path) as memory:
            assert await noted(memory, bicycle) == [QUESTION]

    async def test_the_command_line_and_a_client_say_who_they_are(self, tmp_path: Path) -> None:
        """A client is noted by the name that it gives itself."""
        data, info = tmp_path / "data", Implementation(name="claude-code", version="1")
        async with Client(server_in_process(tmp_path), client_info=info) as client:
            await client.call_tool("add_memory", {"text": BICYCLE})
            await client.call_tool("search_memories", {"query": QUESTION})
        palimpsest(tmp_path, "search", "Ana's bicycle")
        with ledger_in(data) as ledger, ledger.read() as conn:
            callers = dict(conn.exec_driver_sql("SELECT question, caller FROM recalls").all())
        assert callers == {QUESTION: "claude-code", "Ana's bicycle": "cli"}

    async def test_what_a_hook_recalls_for_a_prompt(self, tmp_path: Path) -> None:
        """What the prompt was shown counts, by the client that asked."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            answer = await memory.briefs.answer(RecallRequest(QUESTION, user="alice", client="codex"))
            await memory.recall_log.write()
            assert answer.ids == (bicycle,)
            assert [item.caller for item in await memory.recall_log.recalls(ALICE, bicycle)] == ["codex"]

    async def test_a_secret_in_a_question_is_replaced(self, tmp_path: Path) -> None:
        """It is replaced as in messages, unless the settings keep secrets."""
        key = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
        for folder, keeps in (("a", False), ("b", True)):
            async with memory_in(tmp_path / folder, keep_secrets=keeps) as memory:
                bicycle = await add_text(memory, BICYCLE)
                await asked(memory, f"Ana's bicycle {key}")
                (question,) = await noted(memory, bicycle)
                assert (key in question) is keeps

    async def test_a_long_question_is_cut(self, tmp_path: Path) -> None:
        """A prompt may hold a whole file."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, "Ana's bicycle " * 100)
            (question,) = await noted(memory, bicycle)
            assert len(question) <= recall_log.MAX_QUESTION_CHARS
            assert question.endswith("…")


class TestWhoSeesIt:
    async def test_another_user_sees_nothing(self, tmp_path: Path) -> None:
        """Guards questions against other users who know an id."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, QUESTION)
            assert await noted(memory, bicycle, BOB, in_all_projects=True) == []

    async def test_a_project_sees_its_own_searches_and_global_ones(self, tmp_path: Path) -> None:
        """One through all projects belongs to none of them. Whoever sees all projects sees all searches."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, "bicycle")
            await asked(memory, "bicycle in web", scope=WEB)
            await asked(memory, "bicycle in api", scope=Scope("alice", project="api"))
            await asked(memory, "bicycle anywhere", scope=WEB, all_projects=True)
            assert await noted(memory, bicycle, WEB) == ["bicycle in web", "bicycle"]
            assert await noted(memory, bicycle) == ["bicycle"]
            every = ["bicycle anywhere", "bicycle in api", "bicycle in web", "bicycle"]
            assert await noted(memory, bicycle, WEB, in_all_projects=True) == every

    async def test_it_follows_a_project_to_its_new_name(self, tmp_path: Path) -> None:
        """Also what a process asked that does not know of the move yet."""
        async with memory_in(tmp_path) as memory:
            bicycle = (await memory.add_text(WEB, BICYCLE, infer=False)).outcomes[0].memory.id
            await asked(memory, "bicycle", scope=WEB)
            await memory.search(WEB, "Ana")
            await memory.projects.move("web", "site")
            await memory.recall_log.write()
            assert await noted(memory, bicycle, Scope("alice", project="site")) == ["Ana", "bicycle"]


class TestHowLong:
    async def test_it_is_kept_for_days(self, tmp_path: Path) -> None:
        """What is older is not shown, and erased with the next search, or when a process ends."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, recall_log_days=7) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, QUESTION)
            clock.forward(days=7)
            assert await noted(memory, bicycle) == [QUESTION]
            clock.forward(seconds=1)
            assert await noted(memory, bicycle) == []
            assert rows(tmp_path) == (1, 1)
            await asked(memory, "bicycle")
            assert await noted(memory, bicycle) == ["bicycle"]
        assert rows(tmp_path) == (1, 1)
        clock.forward(days=8)
        async with memory_in(tmp_path, clock, recall_log_days=7):
            pass
        assert rows(tmp_path) == (0, 0)

    async def test_the_newest_of_a_user_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The bound is for each user, so that nobody takes the room of others."""
        monkeypatch.setattr(usage, "MAX_RECALLS", 3)
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            theirs = (await memory.add_text(BOB, BICYCLE, infer=False)).outcomes[0].memory.id
            await asked(memory, "bicycle", scope=BOB)
            await asked(memory, *(f"bicycle {number}" for number in range(5)))
            assert await noted(memory, bicycle) == ["bicycle 4", "bicycle 3", "bicycle 2"]
            assert await noted(memory, theirs, BOB) == ["bicycle"]

    async def test_turned_off_nothing_is_kept(self, tmp_path: Path) -> None:
        """What was noted before is erased by the next process."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, QUESTION)
        async with memory_in(tmp_path, recall_log_days=0) as memory:
            assert await noted(memory, bicycle) == []
            await asked(memory, QUESTION)
            assert rows(tmp_path) == (0, 0)
            await asked(memory, QUESTION)
        assert rows(tmp_path) == (0, 0)

    async def test_an_export_leaves_it_out(self, tmp_path: Path) -> None:
        """The log is no part of what is remembered."""
        async with memory_in(tmp_path) as memory:
            await add_text(memory, BICYCLE)
            before = await exported(memory)
            await asked(memory, QUESTION)
            assert await exported(memory) == before


class TestErasing:
    async def test_a_purge_leaves_no_question_that_may_quote(self, tmp_path: Path) -> None:
        """Neither one that brought it back nor one with its words; one about other things stays."""
        async with memory_in(tmp_path) as memory:
            bicycle, choir = await add_text(memory, BICYCLE), await add_text(memory, CHOIR)
            await asked(memory, QUESTION, f"Why did I say that {BICYCLE}?")
            await asked(memory, "Does the choir rehearse?", limit=1)
            assert (await memory.care.purge(ALICE, [bicycle])).clean
            assert await noted(memory, choir) == ["Does the choir rehearse?"]
            assert await row_faults(memory) == []
        assert files_with(tmp_path, QUESTION, "bicycle") == set()

    async def test_what_waits_is_not_written_after_a_purge(self, tmp_path: Path) -> None:
        """Guards a question that is collected while rows are erased."""
        async with memory_in(tmp_path) as memory:
            bicycle, choir = await add_text(memory, BICYCLE), await add_text(memory, CHOIR)
            await memory.recall_log.write()
            await memory.search(ALICE, f"choir? {BICYCLE}", limit=1)
            await memory.search(ALICE, QUESTION)
            await memory.care.purge(ALICE, [bicycle])
            await memory.recall_log.write()
            assert await noted(memory, choir) == []
            await asked(memory, "choir")
            assert await noted(memory, choir) == ["choir"]

    async def test_a_purge_of_a_scope_takes_its_questions(self, tmp_path: Path) -> None:
        """Whatever they brought back."""
        async with memory_in(tmp_path) as memory:
            bicycle = await add_text(memory, BICYCLE)
            await asked(memory, "anything", scope=WEB)
            await asked(memory, "anything at all")
            await memory.care.purge(WEB, None)
            assert await noted(memory, bicycle, in_all_projects=True) == ["anything at all"]
            await memory.care.purge(ALICE, None)
        assert rows(tmp_path) == (0, 0)

    async def test_delete_all_takes_the_questions(self, tmp_path: Path) -> None:
        """Written ones and those that wait. A deleted memory alone keeps its own."""
        async with memory_in(tmp_path) as memory:
            bicycle, choir = await add_text(memory, BICYCLE), await add_text(memory, CHOIR)
            await asked(memory, QUESTION)
            await memory.delete(ALICE, [choir])
            assert await noted(memory, choir) == [QUESTION]
            await memory.search(ALICE, "bicycle")
            await memory.delete_all(ALICE)
            await memory.recall_log.write()
            assert await noted(memory, bicycle) == []
        assert rows(tmp_path) == (0, 0)

    async def test_what_is_forgotten_is_in_no_question(self, tmp_path: Path) -> None:
        """Neither in one that brought it back, nor in the prompt at which it was said."""
        turn, fact = "My ex-husband Mark drinks too much", "User's ex-husband is a drinker"
        async with memory_in(tmp_path) as memory:
            choir = await add_text(memory, CHOIR)
            await asked(memory, f"{turn}. When does the choir rehearse?", "chapel")
            (said,) = await store_messages(memory, ("user", turn))
            forgotten = store_memory(memory, fact, sources=[said.id])
            await asked(memory, "choir and whatever")
            await memory.search(ALICE, "the old chapel")
            write_decisions(memory, Decision(Event.DELETE, memory_id=forgotten, forgets=True))
            await memory.recall_log.write()
            assert await noted(memory, choir) == ["chapel"]
            await asked(memory, "the old chapel")
            assert await noted(memory, choir) == ["the old chapel", "chapel"]


async def test_doctor_finds_and_erases_what_belongs_to_nothing(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        bicycle = await add_text(memory, BICYCLE)
        await asked(memory, QUESTION, "bicycle")
        assert await row_faults(memory) == []
        run_statement(memory, "UPDATE recalled SET owner_id = 'nobody' WHERE recall_seq = 1")
        assert await row_faults(memory) == ["1 questions of the recall log belong to no memory or message"]
        ledger = memory.engine.ledger
        faults = await memory.engine.run(lambda: ledger.read_with(verify.verify, ledger.database, ignore_progress))
        await memory.engine.write(lambda: ledger.run(verify.repair, ledger.database, faults, ledger.clock()))
        assert await row_faults(memory) == []
        assert await noted(memory, bicycle) == ["bicycle"]
