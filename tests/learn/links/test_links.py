"""New memories are linked with those nearest to them in the background, and searches follow the links."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from palimpsest.core.models import LINK, Decision, Event, Fact, Undo
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from palimpsest.store.schema import history, memory_links
from tests.support.exports import exporting
from tests.support.ledger_access import ignore_progress, write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in
from tests.support.scripted_model import given, memory_with

pytestmark = pytest.mark.anyio

SISTER, WORK, TEA = "User's sister is called Beatriz", "Beatriz restores violins in Antwerp", "User likes green tea"


CROWD = 300
"""So many memories are nearer to the question than the one that a link leads to, by their words."""


THINGS = ("boat", "aunt", "street", "cousin", "teacher", "song", "brother", "school", "cat", "doctor", "village")


def store_many(memory: Memory, number: int) -> None:
    """Store memories of several things that share words with the question about the sister and answer nothing."""
    facts = (Fact(f"The name of my {THINGS[place % len(THINGS)]} {place} is a secret") for place in range(number))
    write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts))


async def link(memory: Memory, clock: StoppedClock) -> None:
    """Do the work that waits."""
    clock.forward(minutes=1)
    await work_on_jobs(memory.engine, memory.engine.own_model)


async def stored(memory: Memory, memory_id: str) -> StoredMemory:
    """Return a memory as it is now."""
    return (await memory.history(ALICE, memory_id))[0]


class FamilyModel:
    """A model that links what names Beatriz, and says the text of each memory again in its context."""

    def __init__(self, invented: int | None = None) -> None:
        self.invented = invented

    def __call__(self, request: dict[str, Any]) -> str:
        """Answer one request."""
        memories = given(request, "Memories")
        family = [item["id"] for item in memories if "Beatriz" in item["text"]]
        notes: list[dict[str, Any]] = []
        for item in memories:
            others = [other for other in family if other != item["id"] and item["id"] in family and "near" in item]
            others += [] if self.invented is None else [self.invented]
            links = [{"memory": other, "reason": "about Beatriz"} for other in others]
            context = f"Belongs to: {item['text']}"
            notes.append({"memory": item["id"], "context": context, "tags": ["family"], "links": links})
        return json.dumps({"notes": notes})


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("state", ["linked", "off", "expired", "deleted", "of another scope", "filtered"])
async def test_what_is_found_by_a_link_is_current_visible_and_as_asked_for(tmp_path: Path, state: str) -> None:
    """Guards the second way to become a candidate: the other memory is too far from the question for the first."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, links="off" if state == "off" else "on") as memory:
        shed = replace(ALICE, project="shed")
        await add_text(memory, SISTER)
        ends = {"expires_at": "2030-01-01"} if state == "expired" else {}
        scope = shed if state == "of another scope" else ALICE
        added = await memory.add_text(scope, WORK, infer=False, metadata=ends)
        work = added.outcomes[0].memory.id
        store_many(memory, CROWD)
        await link(memory, clock)
        kinds = [report.job.kind for report in await memory.care.jobs()]
        assert ("link" in kinds) is (state != "off")
        if state == "of another scope":
            assert await memory.linked(shed, (await memory.history(shed, work))[0])
        if state == "expired":
            clock.at = datetime(2030, 1, 2, tzinfo=UTC)
        if state == "deleted":
            await memory.delete(ALICE, [work])
        filters = {"metadata.kept": {"ne": True}, "at": {"lt": "2000"}} if state == "filtered" else {}
        hits = (await memory.search(ALICE, "What is the name of my sister?", filters=filters)).hits
        assert (WORK in {hit.text for hit in hits}) is (state == "linked")


async def test_an_undo_without_a_number_passes_links_over(tmp_path: Path) -> None:
    """People undo what they did. By its number an edit of the background can be undone too, and stays undone."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, links="on") as memory:
        sister = await add_text(memory, SISTER)
        await add_text(memory, WORK)
        await link(memory, clock)
        linking = next(edit.number for edit in await memory.log(ALICE) if edit.provenance.stage == LINK)
        await memory.undo(ALICE, Undo(linking))
        assert (await stored(memory, sister)).links == ()
        await link(memory, clock)
        assert (await stored(memory, sister)).links == ()
        undone = await memory.undo(ALICE)
        assert [outcome.memory.text for outcome in undone.outcomes] == [WORK]


async def test_links_follow_a_memory_that_has_another_id_after_an_import(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path / "from", clock, links="on") as memory:
        for text in (SISTER, WORK):
            await add_text(memory, text)
        await link(memory, clock)
        await exporting(memory, tmp_path / "export.jsonl")
    async with memory_in(tmp_path / "to", clock) as memory:
        work = await add_text(memory, WORK)
        await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
        (sister,) = [item for item in (await memory.scope_contents(ALICE)).memories if item.text == SISTER]
        assert [item.memory_id for item in sister.links] == [work]
        assert [item.memory.text for item in await memory.linked(ALICE, await stored(memory, work))] == [SISTER]


async def test_a_purge_takes_what_others_say_of_a_memory(tmp_path: Path) -> None:
    clock, model = StoppedClock(), FamilyModel()
    async with memory_with(model, tmp_path, clock, links="on") as (memory, _):
        sister, work = await add_text(memory, SISTER), await add_text(memory, WORK)
        await link(memory, clock)
        assert (await stored(memory, sister)).links
        done = await memory.care.purge(ALICE, [work])
        assert done.traces == ()
        after = await stored(memory, sister)
        assert (after.links, after.context, after.text) == ((), "", SISTER)
        with memory.engine.ledger.read() as conn:
            states = conn.execute(select(history.c.state)).scalars().all()
            assert conn.execute(select(memory_links)).all() == []
        assert work not in json.dumps(states)
        assert "Antwerp" not in json.dumps(states)
