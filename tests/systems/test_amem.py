"""A-Mem (Xu et al. 2025, arXiv 2502.12110): notes that are linked, and that change when a new one comes.

Section 3.2: a new note is held against its nearest, and linked with those that it belongs together with. Section 3.3:
contexts and tags of these neighbours are written anew. Section 3.4: a search follows links one hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import LINK, Undo
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.memory import Memory
from tests.support.environment import model_environment
from tests.support.learning_jobs import do_due_jobs
from tests.support.mcp_client import reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in
from tests.support.scripted_model import add_all, answering, given
from tests.support.server_in_process import connect
from tests.support.stores import ledger_variables

pytestmark = pytest.mark.anyio

SHELF = "The shelf by the window holds the bowls for Bruges"

# The notes of a potter, in the order in which they are written.
OLD = (
    "Ilse sells bowls on the market in Bruges",
    "The small kiln cracks whatever is fired above 1180 degrees",
    "The clay for the bowls comes from Boom",
    SHELF,
    "Ilse's bowls for Bruges are glazed with ash",
    "The bus to Bruges leaves at nine",
    "Ilse plays the viola on Mondays",
)

KILN = OLD[1]
NEW = "Ilse fired the bowls for Bruges in the small kiln at 1200 degrees"
REASON = "the firing that this warns of"


def annotate(request: dict[str, Any]) -> dict[str, Any]:
    """Write a context for each new note. Link the firing with the warning, which then says what it has become.

    The neighbours are shown by what they are like; the model gives the numbers that it was shown.
    """
    shown = given(request, "Memories")
    notes = [note(item["id"], f"Pottery: {item['text']}", ["pottery"]) for item in shown if "near" in item]
    number = {item["text"]: item["id"] for item in shown}
    if NEW in number and "near" in shown[number[NEW]]:
        notes[0]["links"] = [{"memory": number[KILN], "reason": REASON}]
        notes.append(note(number[KILN], "A warning that the bowls for Bruges did not heed", ["risk"]))
    return {"notes": notes}


def note(number: int, context: str, tags: Sequence[str]) -> dict[str, Any]:
    return {"memory": number, "context": context, "tags": list(tags), "links": list[Any]()}


async def write(memory: Memory, clock: StoppedClock, *texts: str) -> list[str]:
    ids: list[str] = []
    for text in texts:
        ids.append(await add_text(memory, text))
        clock.forward(minutes=1)
        await do_due_jobs(memory)
    return ids


async def stored(memory: Memory, memory_ids: Sequence[str]) -> list[StoredMemory]:
    return [(await memory.history(ALICE, memory_id))[0] for memory_id in memory_ids]


async def test_a_new_note_is_linked_and_the_right_neighbour_evolves(tmp_path: Path) -> None:
    """The one that the model means changes, and not the one whose rank among the nearest is its number.

    What it says stays; its context and tags are an edit, which can be taken back.
    """
    clock = StoppedClock()
    with OpenAIServer(answering(links=annotate)) as server:
        async with memory_in(tmp_path, clock, links="on", llm=llm_settings(server.base_url)) as memory:
            ids = await write(memory, clock, *OLD)
            before = await stored(memory, ids)
            (new,) = await write(memory, clock, NEW)
            after = await stored(memory, ids)
            (firing,) = await stored(memory, [new])
            kiln = after[OLD.index(KILN)]
            assert [(link.memory_id, link.reason) for link in firing.links] == [(kiln.id, REASON)]
            assert (firing.context, firing.tags) == (f"Pottery: {NEW}", ("pottery",))
            assert (kiln.text, kiln.context) == (KILN, "A warning that the bowls for Bruges did not heed")
            assert kiln.tags == ("risk",)
            assert [old.text for old, now in zip(before, after, strict=True) if old != now] == [KILN]
            assert [linked.memory.text for linked in (await memory.history(ALICE, kiln.id)).linked] == [NEW]
            *_, old, evolved = [version.labels for version in (await memory.history(ALICE, kiln.id))[1]]
            assert old - evolved == {f"context: Pottery: {KILN}", "tags: pottery"}, (
                "the history has the old and the new"
            )
            newest = next(edit for edit in await memory.log(ALICE) if edit.provenance.stage == LINK)
            await memory.undo(ALICE, Undo(newest.number))
            undone = [(old.context, old.tags, old.links) for old in await stored(memory, ids)]
            assert undone == [(old.context, old.tags, old.links) for old in before]
    shown = given(server.chat_requests[len(OLD) - 1], "Memories")
    place = next(item["id"] for item in shown if item["text"] == KILN)
    assert OLD[place] != KILN, "a number of the prompt is no place among all notes"


async def test_a_search_follows_a_link_one_hop(tmp_path: Path) -> None:
    """What the best note is linked with stands right below it; what that one is linked with gains nothing."""
    found: dict[str, list[str]] = {}
    for setting in ("on", "off"):
        clock = StoppedClock()
        with OpenAIServer(answering(links=chain)) as server:
            folder, llm = tmp_path / setting, llm_settings(server.base_url)
            async with memory_in(folder, clock, links=setting, llm=llm) as memory:
                await write(memory, clock, *OLD, *CHAIN)
                hits = (await memory.search(ALICE, "In which year did Ilse's teacher retire?", explain=True)).hits
        found[setting] = [hit.text for hit in hits]
        if setting == "on":
            gained = [hit.text for hit in hits if hit.score_parts.get("connected", 0.0) > 0]
            assert gained == [CHAIN[1]]
            place = {"PALIMPSEST_DATA_DIR": str(folder), **ledger_variables(folder)}
            async with connect(tmp_path, PALIMPSEST_LINKS="on", **place) as agent:
                asked = {"query": "In which year did Ilse's teacher retire?"}
                reply = await agent.call_tool("search_memories", asked)
            first, linked = reply_results(reply)[:2]
            assert (linked["why"].split(", ")[0], linked["context"]) == ("linked", "Of Ilse's life.")
            assert linked["linked"] == [{"id": first["id"], "reason": "teacher and town"}]
            assert f"linked [{first['id'][:8]}] (teacher and town)" in reply_text(reply)
    assert found["on"][:2] == list(CHAIN[:2])
    assert CHAIN[1] not in found["off"][:2]


# Of these, each is linked with the one before.
CHAIN = ("Ilse's teacher retired in the year 2019", "Wout Peeters keeps a studio in Ostend", "Ostend floods in spring")


def chain(request: dict[str, Any]) -> dict[str, Any]:
    shown = given(request, "Memories")
    number = {item["text"]: item["id"] for item in shown}
    notes = [note(item["id"], "Of Ilse's life.", []) for item in shown if "near" in item]
    for item in notes:
        text = shown[item["memory"]]["text"]
        before = CHAIN[CHAIN.index(text) - 1] if text in CHAIN[1:] else ""
        if before in number:
            item["links"] = [{"memory": number[before], "reason": "teacher and town"}]
    return {"notes": notes}


async def test_an_agent_reads_links_and_reasons(tmp_path: Path) -> None:
    """The history names what a note is linked with, from both ends, as text and as JSON."""
    clock = StoppedClock()
    with OpenAIServer(answering(links=annotate)) as server:
        async with memory_in(tmp_path / "data", clock, links="on", llm=llm_settings(server.base_url)) as memory:
            kiln, firing = await write(memory, clock, KILN, NEW)
        async with connect(tmp_path, **model_environment(server.base_url)) as agent:
            for one, other, text in ((kiln, firing, NEW), (firing, kiln, KILN)):
                history = await agent.call_tool("get_history", {"memory_id": one})
                assert f"linked [{other[:8]}] {text} ({REASON})" in reply_text(history)
                linked = {"id": other, "memory": text, "reason": REASON}
                assert history.structured_content["linked"] == [linked]
            history = await agent.call_tool("get_history", {"memory_id": kiln})
            evolved = history.structured_content["history"][-1]
            assert evolved["stage"] == LINK
            assert evolved["changed"] == ["+context: A warning that the bowls for Bruges did not heed", "+tags: risk"]
            added = (await agent.call_tool("get_history", {"memory_id": firing})).structured_content["history"][-1]
            assert f"+linked: [{kiln[:8]}] {REASON}" in added["changed"], "a new link is a row of the history too"


DESK = (
    "The lamp on the desk is green",
    "The red folder lies on the desk",
    "The keys hang by the door",
    "Tea is at four",
)
# What a model says that a note belongs to, in words that share none with it.
MEANT = {DESK[1]: "Papers for the tax office, due in May", DESK[3]: "A pause of the choir"}


async def test_what_a_note_belongs_to_is_in_its_key_and_made_anew_when_it_changes(tmp_path: Path) -> None:
    """A question that only the context answers finds the note first, and shows the context; after an evolution too."""
    clock, meant = StoppedClock(), dict(MEANT)

    def write_contexts(request: dict[str, Any]) -> dict[str, Any]:
        shown = given(request, "Memories")
        return {"notes": [note(item["id"], meant.get(item["text"], "Of the house."), []) for item in shown]}

    with OpenAIServer(answering(links=write_contexts)) as server:
        async with memory_in(tmp_path, clock, links="on", llm=llm_settings(server.base_url)) as memory:
            await write(memory, clock, *DESK)
            hit = (await memory.search(ALICE, "Where are the documents for my revenue declaration?")).hits[0]
            (first, *_) = (await memory.search(ALICE, "What is due at the tax office?")).hits
            assert (hit.text, first.text, first.context) == (DESK[1], DESK[1], MEANT[DESK[1]])
            meant[DESK[1]] = "Sheet music for the singers of Sunday"
            await write(memory, clock, "The folder was moved to the desk by Wout")
            (evolved, *_) = (await memory.search(ALICE, "Where are the notes for Sunday's singing?")).hits
            assert (evolved.text, evolved.context) == (DESK[1], meant[DESK[1]])


FOLDER, MOVED = "The red folder lies on the desk", "Wout took the red folder to the choir"


async def test_an_evolution_changes_context_keywords_and_tags_of_a_neighbour_and_is_undone(tmp_path: Path) -> None:
    """What a caller gave and what decides how long a memory lasts stays: questions, tags of the metadata, "health"."""

    def evolve(request: dict[str, Any]) -> dict[str, Any]:
        shown = given(request, "Memories")
        notes = [note(item["id"], "Of the house.", []) for item in shown if "near" in item]
        if any(item["text"] == MOVED and "near" in item for item in shown):
            (old,) = (item for item in shown if item["text"] == FOLDER)
            assert old["keywords"] == ["invoices", "receipts"], "what a model cannot change it does not see"
            new = {"context": "Sheet music for Sunday", "tags": ["music"], "keywords": ["scores", "receipts"]}
            notes.append({"memory": old["id"], "links": [], **new})
        return {"notes": notes}

    clock, hints = StoppedClock(), ["What is for the tax office?", "invoices", "receipts"]
    with OpenAIServer(answering(links=evolve, decide=add_all)) as server:
        async with memory_in(tmp_path, clock, links="on", llm=llm_settings(server.base_url)) as memory:
            await write(memory, clock, *DESK[2:])
            added = await memory.add_text(ALICE, FOLDER, hints=hints, metadata={"tags": ["office"]})
            folder = added.outcomes[0].memory
            for tag in ("health", "paper"):
                await memory.corrections.add_tag(ALICE, [folder.id], tag)
            clock.forward(minutes=1)
            await do_due_jobs(memory)
            before = (await stored(memory, [folder.id]))[0]
            assert before.keywords == (*hints, "office")
            await write(memory, clock, MOVED)
            (evolved,) = await stored(memory, [folder.id])
            assert (evolved.context, evolved.tags) == ("Sheet music for Sunday", ("health", "music"))
            assert evolved.keywords == (hints[0], "office", "scores", "receipts")
            *_, row = (await memory.history(ALICE, folder.id))[1]
            assert row.provenance.stage == LINK
            assert {"hint: scores", "tags: music"} <= row.labels
            assert (await memory.search(ALICE, "scores")).hits[0].id == folder.id
            (found, *_) = (await memory.search(ALICE, "invoices")).hits
            newest = next(edit for edit in await memory.log(ALICE) if edit.provenance.stage == LINK)
            await memory.undo(ALICE, Undo(newest.number))
            (undone,) = await stored(memory, [folder.id])
            assert (undone.context, undone.tags, undone.keywords) == (before.context, before.tags, before.keywords)
            (again, *_) = (await memory.search(ALICE, "invoices")).hits
            assert (again.id, again.score > found.score) == (folder.id, True), "its key was made anew, both times"


TAGGED = {
    "The receipt lies in the lower drawer": "bookkeeping",
    "Mika sleeps behind the stove": "cats",
    "The last chapter is finished": "dissertation",
    "Green crate, third shelf": "bulbs",
    "Ask Oana before ten": "plumbing",
}


async def test_tags_that_an_agent_gives_find_the_note(tmp_path: Path) -> None:
    """By words and by meaning, as the hints do; changed tags find it instead, and other hints stay."""
    async with connect(tmp_path) as agent:

        async def first(query: str) -> str:
            return reply_results(await agent.call_tool("search_memories", {"query": query}))[0]["text"]

        ids: list[str] = []
        for text, tag in TAGGED.items():
            arguments: dict[str, Any] = {"text": text, "metadata": {"tags": [tag]}, "hints": {"words": ["household"]}}
            ids.append(reply_results(await agent.call_tool("add_memory", arguments))[0]["id"])
        assert [await first(tag) for tag in TAGGED.values()] == [*TAGGED]
        changed = {"memory_id": ids[1], "metadata": {"tags": ["allotment"]}}
        await agent.call_tool("update_memory", changed)
        assert await first("allotment") == "Mika sleeps behind the stove"
        weak = reply_text(await agent.call_tool("search_memories", {"query": "kittens"}))
        assert "Weak matches" in weak
        history = reply_text(await agent.call_tool("get_history", {"memory_id": ids[1]}))
        assert "household" in history
        await agent.call_tool("update_memory", {"memory_id": ids[1], "hints": {"words": ["home"]}})
        assert await first("allotment") == "Mika sleeps behind the stove"
