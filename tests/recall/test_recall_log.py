"""The recall log: what it notes, how long, what takes a question out of it, and that nothing else is slowed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Decision, Event, Scope
from palimpsest.hooks.brief import RecallRequest
from palimpsest.learn import recall_log
from palimpsest.memory import Memory
from palimpsest.store import usage
from palimpsest.store.usage import Recall
from tests.support.exports import exported
from tests.support.ledger_access import ledger_in, row_faults, store_memory, store_messages, write_decisions
from tests.support.ledger_files import files_with
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from

pytestmark = pytest.mark.anyio

BICYCLE = "Ana parks her bicycle behind the bakery"
CHOIR = "The choir rehearses in the old chapel"
QUESTION = "Where does Ana park her bicycle?"
WEB, BOB = Scope("alice", project="web"), Scope("bob")
KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


async def ask(memory: Memory, *questions: str, scope: Scope = ALICE, **rest: Any) -> None:
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


async def test_a_search_is_noted_with_its_hits(tmp_path: Path, memory: Memory, clock: StoppedClock) -> None:
    await ask(memory, QUESTION)  # it brings back nothing
    bicycle, choir = await add_text(memory, BICYCLE), await add_text(memory, CHOIR)
    await ask(memory, QUESTION, is_use=False)
    await ask(memory, QUESTION, as_of=clock.at)
    assert await noted(memory, bicycle) == []
    assert rows(tmp_path) == (0, 0)
    hits = [hit.id for hit in (await memory.search(ALICE, QUESTION, caller="claude-code")).hits]
    await memory.recall_log.write()
    (recall,) = await memory.recall_log.recalls(ALICE, bicycle)
    assert recall == Recall(ALICE, QUESTION, clock.at, "claude-code", 1)
    assert [item.rank for item in await memory.recall_log.recalls(ALICE, choir)] == [hits.index(choir) + 1]
    clock.forward(minutes=1)
    await ask(memory, "bicycle")
    assert await noted(memory, bicycle) == ["bicycle", QUESTION]
    assert await noted(memory, bicycle, limit=1) == ["bicycle"]
    # What a prompt was shown counts, by the client that asked.
    clock.forward(minutes=1)
    answer = await memory.briefs.answer(RecallRequest(QUESTION, user="alice", client="codex"))
    await memory.recall_log.write()
    assert answer.ids[0] == bicycle
    assert (await memory.recall_log.recalls(ALICE, bicycle))[0].caller == "codex"


async def test_messages_and_long_or_secret_questions(tmp_path: Path) -> None:
    for folder, keeps in (("a", False), ("b", True)):
        async with memory_in(tmp_path / folder, keep_secrets=keeps) as memory:
            await memory.add_messages(messages_from(("user", BICYCLE)), infer=False)
            (hit,) = (await memory.search(ALICE, f"Ana's bicycle {KEY}")).hits
            await ask(memory, "Ana's bicycle " * 100)
            long, with_key = await noted(memory, hit.id)
            assert (KEY in with_key) is keeps
            assert len(long) <= recall_log.MAX_QUESTION_CHARS
            assert long.endswith("…")


async def test_it_is_written_when_the_memory_is_closed(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        bicycle = await add_text(memory, BICYCLE)
        await memory.search(ALICE, QUESTION)
        assert await noted(memory, bicycle) == []
    async with memory_in(tmp_path) as memory:
        assert await noted(memory, bicycle) == [QUESTION]
    async with memory_in(tmp_path, recall_log_days=0) as memory:
        await ask(memory, QUESTION)
        assert await noted(memory, bicycle) == []
    assert rows(tmp_path) == (0, 0)


async def test_who_sees_it(memory: Memory) -> None:
    bicycle = await add_text(memory, BICYCLE)
    await memory.add_text(WEB, CHOIR, infer=False)
    await ask(memory, "bicycle")
    await ask(memory, "bicycle in web", scope=WEB)
    await ask(memory, "bicycle in api", scope=Scope("alice", project="api"))
    await ask(memory, "bicycle anywhere", scope=WEB, all_projects=True)
    assert await noted(memory, bicycle, WEB) == ["bicycle in web", "bicycle"]
    assert await noted(memory, bicycle) == ["bicycle"]
    every = ["bicycle anywhere", "bicycle in api", "bicycle in web", "bicycle"]
    assert await noted(memory, bicycle, WEB, in_all_projects=True) == every
    assert await noted(memory, bicycle, BOB, in_all_projects=True) == []
    # It follows a project to its new name, also what a process asked that does not know of the move yet.
    await memory.search(WEB, "Ana")
    await memory.projects.move("web", "site")
    await memory.recall_log.write()
    site = await noted(memory, bicycle, Scope("alice", project="site"))
    assert site == ["Ana", "bicycle in web", "bicycle"]


async def test_it_is_kept_for_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, recall_log_days=7) as memory:
        bicycle = await add_text(memory, BICYCLE)
        await ask(memory, QUESTION)
        clock.forward(days=7)
        assert await noted(memory, bicycle) == [QUESTION]
        clock.forward(seconds=1)
        assert await noted(memory, bicycle) == []
    clock.forward(days=8)
    async with memory_in(tmp_path, clock, recall_log_days=7):
        pass
    assert rows(tmp_path) == (0, 0)
    monkeypatch.setattr(usage, "MAX_RECALLS", 3)
    async with memory_in(tmp_path) as memory:
        theirs = (await memory.add_text(BOB, BICYCLE, infer=False)).outcomes[0].memory.id
        await ask(memory, "bicycle", scope=BOB)
        before = await exported(memory)
        await ask(memory, *(f"bicycle {number}" for number in range(5)))
        assert await noted(memory, bicycle) == ["bicycle 4", "bicycle 3", "bicycle 2"]
        assert await noted(memory, theirs, BOB) == ["bicycle"], "nobody takes the room of others"
        assert await exported(memory) == before, "the log is no part of what is remembered"


async def test_a_purge_leaves_no_question_that_may_quote(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        bicycle, choir = await add_text(memory, BICYCLE), await add_text(memory, CHOIR)
        await ask(memory, QUESTION, f"Why did I say that {BICYCLE}?")
        await ask(memory, "Does the choir rehearse?", limit=1)
        await memory.search(ALICE, f"choir? {BICYCLE}", limit=1)
        await memory.search(ALICE, QUESTION)
        assert (await memory.care.purge(ALICE, [bicycle])).clean
        await memory.recall_log.write()
        assert await noted(memory, choir) == ["Does the choir rehearse?"]
        assert await row_faults(memory) == []
        await ask(memory, "choir")
        assert await noted(memory, choir) == ["choir", "Does the choir rehearse?"]
    assert files_with(tmp_path, QUESTION, "bicycle") == set()


async def test_a_purge_of_a_scope_and_a_deletion_of_all_take_the_questions(tmp_path: Path, memory: Memory) -> None:
    bicycle = await add_text(memory, BICYCLE)
    await ask(memory, "anything", scope=WEB)
    await ask(memory, "anything at all")
    await memory.care.purge(WEB, None)
    assert await noted(memory, bicycle, in_all_projects=True) == ["anything at all"]
    await memory.search(ALICE, "bicycle")
    await memory.delete_all(ALICE)
    await memory.recall_log.write()
    assert rows(tmp_path) == (0, 0)


async def test_what_is_forgotten_is_in_no_question(memory: Memory) -> None:
    said, fact = "My ex-husband Mark drinks too much", "User's ex-husband is a drinker"
    choir = await add_text(memory, CHOIR)
    await ask(memory, f"{said}. When does the choir rehearse?", "chapel")
    (message,) = await store_messages(memory, ("user", said))
    forgotten = store_memory(memory, fact, sources=[message.id])
    await ask(memory, "choir and whatever")
    await memory.search(ALICE, "the old chapel")
    write_decisions(memory, Decision(Event.DELETE, memory_id=forgotten, forgets=True))
    await memory.recall_log.write()
    assert await noted(memory, choir) == ["chapel"]
    await ask(memory, "the old chapel")
    assert await noted(memory, choir) == ["the old chapel", "chapel"]
