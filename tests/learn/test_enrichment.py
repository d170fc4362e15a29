"""What the background adds to memories: hints from a model, within the daily limit, and links with those nearest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from palimpsest.core.errors import InputError
from palimpsest.core.models import LINK, Decision, Event, Fact, Undo
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.learn.job_runner import ENRICHED_AT_ONCE, work_on_jobs
from palimpsest.memory import Memory
from palimpsest.store.schema import history, memory_links
from tests.support.exports import exporting
from tests.support.ledger_access import ignore_progress, write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in
from tests.support.scripted_model import given, memory_with

pytestmark = pytest.mark.anyio

DOCTOR = "Dr. Osei sees people without an appointment on Tuesdays"
ASK, WORD = "When can I walk in at the surgery?", "general practitioner"


def hints(number: int, *asks: str, words: tuple[str, ...] = (WORD,)) -> dict[str, Any]:
    return {"memory": number, "asks": list(asks or (ASK,)), "words": list(words)}


def model(request: dict[str, Any]) -> str:
    """Give each memory hints that name it."""
    memories = given(request, "Memories")
    return json.dumps({"hints": [hints(item["id"], f"Who wants {item['text']}?") for item in memories]})


async def work(memory: Memory, clock: StoppedClock) -> None:
    clock.forward(minutes=1)
    await work_on_jobs(memory.engine, memory.engine.own_model)


async def hints_of(memory: Memory, *memory_ids: str) -> list[tuple[str, ...]]:
    return [(await memory.history(ALICE, memory_id))[0].keywords for memory_id in memory_ids]


async def test_an_old_memory_is_found_in_other_words_until_one_undo_takes_all_hints(tmp_path: Path) -> None:
    clock = StoppedClock()
    replies = [json.dumps({"summary": "Much."}), json.dumps({"hints": [hints(0), hints(1, "Who sings?")]})]
    async with memory_with(replies, tmp_path, clock) as (memory, _):
        other, doctor = await add_text(memory, "Bea is a soprano"), await add_text(memory, DOCTOR)
        given_before = await add_text(memory, "Cem paints", hints=("Who is an artist?",))
        await memory.summary(ALICE, refresh=True)
        queued = await memory.care.enrich()
        later = await add_text(memory, "Dan moved to Lima")
        before = (await memory.history(ALICE, doctor)).memory
        await work(memory, clock)
        assert await hints_of(memory, doctor, other, given_before, later) == [
            (ASK, WORD),
            ("Who sings?", WORD),
            ("Who is an artist?",),
            (),
        ]
        after, versions, *_ = await memory.history(ALICE, doctor)
        assert (after.text, after.stated_at, versions[-1].edit) == (DOCTOR, before.stated_at, queued.edit)
        assert (versions[-1].provenance.stage, versions[-1].provenance.model) == ("enrich", "scripted")
        assert (await memory.summary(ALICE)).changes_since == 1
        assert (await memory.search(ALICE, ASK)).hits[0].text == DOCTOR
        (hit, *_) = (await memory.search(ALICE, "practitioner")).hits
        assert hit.text in {DOCTOR, "Bea is a soprano"}
        await memory.undo(ALICE, Undo(queued.edit))
        assert await hints_of(memory, doctor, other, given_before) == [(), (), ("Who is an artist?",)]


async def test_the_daily_limit_stops_it_and_the_next_day_goes_on_with_the_same_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_BACKGROUND", '{"calls_per_day": 1}')
    clock = StoppedClock()
    async with memory_with(model, tmp_path, clock) as (memory, _):
        boats = (Decision(Event.ADD, Fact(f"boat {number}")) for number in range(3 * ENRICHED_AT_ONCE))
        ids = [each.memory.id for each in write_decisions(memory, *boats).outcomes]
        queued = await memory.care.enrich()
        assert (queued.without, queued.chosen, queued.calls) == (len(ids), len(ids), 3)
        await work(memory, clock)
        (report,) = await memory.care.jobs()
        assert report.job.error.endswith("This goes on tomorrow (UTC).")
        clock.forward(days=1)
        await work(memory, clock)
        assert sum(map(bool, await hints_of(memory, *ids))) == 2 * ENRICHED_AT_ONCE
        await memory.undo(ALICE, Undo(queued.edit))
        clock.forward(days=1)
        await work(memory, clock)
        assert not any(await hints_of(memory, *ids))
        assert [report.job.state for report in await memory.care.jobs()] == ["done"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ([hints(0), hints(7)], [(ASK, WORD), ()]),
        ([hints(1, *"abcdef", words=tuple(map(str, range(20))))], [(), ("a", "b", *map(str, range(6)))]),
        ([hints(0, "What is my password? hunter2-Xy7!qq", words=("password: hunter2-Xy7!qq",))], None),
        ("I am sorry, I cannot do that.", [(), ()]),
    ],
    ids=["an unknown id", "too many", "a secret", "nonsense"],
)
async def test_what_a_model_may_reply(tmp_path: Path, reply: Any, expected: list[tuple[str, ...]] | None) -> None:
    clock = StoppedClock()
    text = reply if isinstance(reply, str) else json.dumps({"hints": reply})
    async with memory_with([text, text], tmp_path, clock) as (memory, server):
        second, first = await add_text(memory, "Bea sings"), await add_text(memory, DOCTOR)
        await memory.care.enrich()
        await work(memory, clock)
        found = await hints_of(memory, first, second)
        (report,) = await memory.care.jobs()
        assert len(server.chat_requests) == 2
        assert (report.job.state, report.job.attempts) == (("waiting", 1) if expected == [(), ()] else ("done", 0))
        if expected is None:
            assert "hunter2" not in json.dumps(found)
        else:
            assert found == expected


async def test_without_a_model_it_says_what_to_do(memory: Memory) -> None:
    await add_text(memory, DOCTOR)
    assert (await memory.care.enrich(dry_run=True)).without == 1
    with pytest.raises(InputError, match=r"palimpsest setup chooses one.* update_memory"):
        await memory.care.enrich()
    assert await memory.care.jobs() == []


# Memories are linked with those nearest to them.

SISTER, WORK = "User's sister is called Beatriz", "Beatriz restores violins in Antwerp"


async def stored(memory: Memory, memory_id: str) -> StoredMemory:
    """Return a memory as it is now."""
    return (await memory.history(ALICE, memory_id))[0]


def family_model(request: dict[str, Any]) -> str:
    """Link what names Beatriz, and say the text of each memory again in its context. One bad note loses no other."""
    memories = given(request, "Memories")
    notes: list[dict[str, Any]] = [{"memory": 99, "context": "null", "tags": [], "links": []}]
    for item in memories:
        links = [{"memory": other["id"], "reason": "about Beatriz"} for other in memories if other is not item]
        notes.append(
            {"memory": item["id"], "context": f"Belongs to: {item['text']}", "tags": ["family"], "links": links}
        )
    return json.dumps({"notes": notes})


async def test_an_undo_without_a_number_passes_links_over(tmp_path: Path) -> None:
    """People undo what they did. By its number an edit of the background can be undone too, and stays undone."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, links="on") as memory:
        sister = await add_text(memory, SISTER)
        await add_text(memory, WORK)
        await work(memory, clock)
        linking = next(edit.number for edit in await memory.log(ALICE) if edit.provenance.stage == LINK)
        await memory.undo(ALICE, Undo(linking))
        assert (await stored(memory, sister)).links == ()
        await work(memory, clock)
        assert (await stored(memory, sister)).links == ()
        undone = await memory.undo(ALICE)
        assert [outcome.memory.text for outcome in undone.outcomes] == [WORK]


async def test_links_follow_a_memory_that_has_another_id_after_an_import(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path / "from", clock, links="on") as memory:
        for text in (SISTER, WORK):
            await add_text(memory, text)
        await work(memory, clock)
        await exporting(memory, tmp_path / "export.jsonl")
    async with memory_in(tmp_path / "to", clock) as memory:
        violins = await add_text(memory, WORK)
        await memory.care.import_file(ALICE, tmp_path / "export.jsonl", ignore_progress)
        (sister,) = [item for item in (await memory.scope_contents(ALICE)).memories if item.text == SISTER]
        assert [item.memory_id for item in sister.links] == [violins]
        assert [item.memory.text for item in (await memory.history(ALICE, violins)).linked] == [SISTER]


async def test_a_purge_takes_what_others_say_of_a_memory(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_with(family_model, tmp_path, clock, links="on") as (memory, _):
        sister, violins = await add_text(memory, SISTER), await add_text(memory, WORK)
        await work(memory, clock)
        assert (await stored(memory, sister)).links
        done = await memory.care.purge(ALICE, [violins])
        assert done.traces == ()
        after = await stored(memory, sister)
        assert (after.links, after.context, after.text) == ((), "", SISTER)
        with memory.engine.ledger.read() as conn:
            states = conn.execute(select(history.c.state)).scalars().all()
            assert conn.execute(select(memory_links)).all() == []
        assert violins not in json.dumps(states)
        assert "Antwerp" not in json.dumps(states)
