"""New memories are linked with those nearest to them in the background, and searches follow the links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.support.exports import exporting
from tests.support.ledger_access import ignore_progress
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in
from tests.support.scripted_model import given, memory_with

from palimpsest.core.models import LINK, Undo
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from palimpsest.store.schema import history, memory_links

pytestmark = pytest.mark.anyio

SISTER, WORK = "User's sister is called Beatriz", "Beatriz restores violins in Antwerp"


async def link(memory: Memory, clock: StoppedClock) -> None:
    """Do the work that waits."""
    clock.forward(minutes=1)
    await work_on_jobs(memory.engine, memory.engine.own_model)


async def stored(memory: Memory, memory_id: str) -> StoredMemory:
    """Return a memory as it is now."""
    return (await memory.history(ALICE, memory_id))[0]


def family_model(request: dict[str, Any]) -> str:
    """Link what names Beatriz, and say the text of each memory again in its context."""
    memories = given(request, "Memories")
    family = [item["id"] for item in memories if "Beatriz" in item["text"]]
    notes: list[dict[str, Any]] = []
    for item in memories:
        others = [other for other in family if other != item["id"] and item["id"] in family and "near" in item]
        links = [{"memory": other, "reason": "about Beatriz"} for other in others]
        context = f"Belongs to: {item['text']}"
        notes.append(
            {"memory": item["id"], "context": context, "tags": ["family"], "keywords": ["Antwerp"], "links": links}
        )
    return json.dumps({"notes": notes})


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
    clock = StoppedClock()
    async with memory_with(family_model, tmp_path, clock, links="on") as (memory, _):
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
