"""New memories are linked with those nearest to them in the background, and searches follow the links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from palimpsest.admin.doctor import verify
from palimpsest.core.models import LINK, Undo
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from palimpsest.store.schema import history, memory_links
from tests.support.exports import exporting
from tests.support.ledger_access import ignore_progress
from tests.support.ledger_files import run_sql
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in
from tests.support.scripted_model import given, memory_with

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
        notes.append({"memory": item["id"], "context": context, "tags": ["family"], "links": links})
    return json.dumps({"notes": notes})


class TestWithoutModel:
    async def test_memories_that_mention_the_same_person_are_linked(self, tmp_path: Path) -> None:
        """The reason says whom, both ends show the link, and nothing that the memories say has changed."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, links="on") as memory:
            sister, work, _ = [await add_text(memory, text) for text in (SISTER, WORK, TEA)]
            before = await stored(memory, sister)
            await link(memory, clock)
            after = await stored(memory, sister)
            assert [(link.memory_id, link.reason) for link in after.links] == [(work, "both mention Beatriz")]
            assert (after.revision, after.updated_at) == (before.revision, before.updated_at)
            for one, other in ((sister, WORK), (work, SISTER)):
                assert [item.memory.text for item in await memory.linked(ALICE, await stored(memory, one))] == [other]
            versions = (await memory.history(ALICE, sister))[1]
            assert [version.provenance.stage for version in versions] == ["add", LINK]
            text = replies.history_text(await replies.history_of(memory, ALICE, sister))
            assert f"linked [{work[:8]}] {WORK} (both mention Beatriz)" in text

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("state", ["linked", "off", "expired", "deleted", "of another scope", "filtered"])
    async def test_what_is_found_by_a_link_is_current_visible_and_as_asked_for(
        self, tmp_path: Path, state: str
    ) -> None:
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

    async def test_what_faded_is_not_found_by_a_link(self, tmp_path: Path) -> None:
        """One use brings it back."""
        clock = StoppedClock()
        async with memory_in(tmp_path, clock, links="on", forgetting="archive") as memory:
            sister, work = [await add_text(memory, text) for text in (SISTER, WORK)]
            store_many(memory, CROWD)
            await link(memory, clock)
            clock.forward(days=200)
            await memory.engine.write(lambda: memory.engine.ledger.run(usage.note_uses, {sister: Use(1, clock())}))
            question = "What is the name of my sister?"
            first, *others = (await memory.search(ALICE, question, is_use=False)).hits
            assert first.text == SISTER
            assert WORK not in {hit.text for hit in others}
            await memory.engine.write(lambda: memory.engine.ledger.run(usage.note_uses, {work: Use(1, clock())}))
            assert WORK in {hit.text for hit in (await memory.search(ALICE, question, is_use=False)).hits}

    async def test_an_undo_without_a_number_passes_links_over(self, tmp_path: Path) -> None:
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

    async def test_links_follow_a_memory_that_has_another_id_after_an_import(self, tmp_path: Path) -> None:
        """The other memory already knew one of the two texts, under an id of its own."""
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


async def test_verify_finds_and_repairs_links_that_were_lost(tmp_path: Path) -> None:
    """What a memory says of its links counts."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, links="on") as memory:
        sister = await add_text(memory, SISTER)
        await add_text(memory, WORK)
        await link(memory, clock)
        settings = memory.settings
    assert all(finding.ok for finding in verify(settings, ignore_progress, repair=False, clock=clock))
    run_sql(settings.ledger_path, "DELETE FROM memory_links")
    texts = [finding.text for finding in verify(settings, ignore_progress, repair=True, clock=clock)]
    assert any("have links that cannot be followed from both ends" in text for text in texts)
    async with memory_in(tmp_path, clock, links="on") as memory:
        assert len(await memory.linked(ALICE, await stored(memory, sister))) == 1
