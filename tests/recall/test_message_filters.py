"""Messages by speaker, session, words, role and date: the same in searches, lists and at an instant, and in pages."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from palimpsest.core.errors import InputError, MemoryNotFoundError, PalimpsestError
from palimpsest.core.models import PAGE, Message, Provenance, Scope
from palimpsest.memory import Memory
from palimpsest.store.apply import Write
from palimpsest.store.writes import Conversation
from tests.support.ledger_access import store_memory
from tests.support.memory import ALICE, messages_from

pytestmark = pytest.mark.anyio

SHED = Scope("alice", project="shed")

BREAD = "How long does rye bread keep?"
WEEK = "Rye bread keeps about a week."
BOAT = "My boat is blue, and so is the shed"
FINE = "A fine colour for a boat"
GREEN = "It is green now"
PAGE_TEXT = "Rye bread is made with rye flour, says page one"

SAID = (
    ("bread", "user", "Ana", BREAD, "2026-02-01T09:00:00Z"),
    ("bread", "assistant", "", WEEK, "2026-02-01T09:00:05Z"),
    ("boat", "user", "Bob", BOAT, "2026-03-01T09:00:00Z"),
    ("boat", "assistant", "", FINE, "2026-03-01T09:00:05Z"),
    ("boat", "user", "Bob", GREEN, "2026-03-02T09:00:00Z"),
    ("paper", PAGE, "", PAGE_TEXT, "2026-04-01T09:00:00Z"),
)

FOUND: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {BREAD, WEEK, BOAT, FINE, GREEN}),
    ({"role": PAGE}, {PAGE_TEXT}),
    ({"role": {"in": ["assistant", PAGE]}}, {WEEK, FINE, PAGE_TEXT}),
    ({"role": {"ne": "user"}}, {WEEK, FINE, PAGE_TEXT}),
    ({"speaker": "ana"}, {BREAD}),
    ({"speaker": {"ne": "Bob"}}, {BREAD, WEEK, FINE}),
    ({"NOT": {"speaker": {"in": ["Bob", "Ana"]}}}, {WEEK, FINE}),
    ({"at": "2026-03"}, {BOAT, FINE, GREEN}),
    ({"at": {"gte": "2026-02-01", "lt": "2026-03-01"}}, {BREAD, WEEK}),
    ({"at": {"in": ["2026-02", "2026-03-02"]}}, {BREAD, WEEK, GREEN}),
    ({"AND": [{"at": {"gte": "2026-03"}}, {"role": "user"}, {"speaker": "Bob"}]}, {BOAT, GREEN}),
    ({"OR": [{"speaker": "Ana"}, {"at": "2026-03-02"}]}, {BREAD, GREEN}),
    ({"words": "RYE breads"}, {BREAD, WEEK}),
    ({"words": "boat bread"}, set[str]()),
    ({"words": {"in": ["week", "green"]}}, {WEEK, GREEN}),
    ({"words": {"nin": ["bread", "boat"]}}, {GREEN}),
    ({"words": "?!"}, set[str]()),
]


def store(memory: Memory, client: str, name: str, messages: Sequence[Message]) -> Sequence[Message]:
    """Store the messages of a conversation with their vectors, and return them as they are stored."""
    embedder, texts = memory.engine.embedder, [message.content for message in messages]
    write = Write(
        ALICE,
        Provenance("test"),
        messages=tuple(messages),
        conversation=Conversation(client, name, name),
        vectors=dict(zip(texts, embedder.embed_passages(texts), strict=True)),
        embedder=embedder.fingerprint,
    )
    return memory.engine.ledger.apply(write).messages


async def stored(memory: Memory) -> dict[str, Message]:
    """Store two conversations and a document, and return the messages by text."""
    by_text: dict[str, Message] = {}
    for name, client in (("bread", "chat"), ("boat", "chat"), ("paper", "document")):
        of_name = [row[1:] for row in SAID if row[0] == name]
        inputs = [{"role": "user", "content": text, "name": speaker, "at": at} for _, speaker, text, at in of_name]
        messages = [replace(one, role=row[0]) for one, row in zip(messages_from(*inputs), of_name, strict=True)]
        if client == "document":
            messages = [replace(one, external_id="document:3af0:1") for one in messages]
        by_text |= {message.content: message for message in store(memory, client, name, messages)}
    return by_text


async def shown(memory: Memory, filters: Mapping[str, Any], scope: Scope = ALICE) -> set[str]:
    """Return the texts of the messages that a filter leaves: a search, a list and a search of this instant agree."""
    search = await memory.search(scope, "bread and boats", filters=filters, limit=50)
    past = await memory.search(scope, "bread and boats", filters=filters, limit=50, as_of=memory.engine.clock())
    texts = {hit.text for hit in search.hits}
    assert {hit.text for hit in past.hits} == texts
    assert {hit.text for hit in (await memory.list(scope, filters=filters)).hits} == texts
    return texts


async def pages_of(memory: Memory, filters: dict[str, Any], limit: int) -> tuple[list[str], list[str]]:
    """Return the texts of all pages of a list, and their notes."""
    texts: list[str] = []
    notes: list[str] = []
    cursor: str | None = None
    for _ in range(12):
        page = await memory.list(ALICE, filters=filters, limit=limit, cursor=cursor)
        texts += [hit.text for hit in page.hits]
        notes += page.notes
        if (cursor := page.cursor) is None:
            return texts, notes
    raise AssertionError("the list does not end")


async def test_messages_are_found_by_who_said_what_and_when(memory: Memory) -> None:
    messages = await stored(memory)
    for condition, expected in FOUND:
        assert await shown(memory, {"kind": "message", **condition}) == expected, condition
    assert PAGE_TEXT in {hit.text for hit in (await memory.search(ALICE, "rye bread")).hits}
    assert [row.title for row in (await memory.conversations.list(ALICE)).conversations] == ["boat", "bread"]
    # The first candidates are tested alone, but only if enough of them are messages.
    now = memory.engine.clock()
    contents = [f"Bread and boats, page {number}" for number in range(400)]
    pages = [
        Message(str(uuid.uuid4()), ALICE, PAGE, text, now, now, external_id=f"document:77ab:{number}")
        for number, text in enumerate(contents, start=1)
    ]
    store(memory, "document", "book", pages)
    assert await shown(memory, {"kind": "message"}) == messages.keys() - {PAGE_TEXT}
    assert await shown(memory, {"kind": "message", "role": "assistant"}) == {WEEK, FINE}
    # An import stores old conversations last. Pages go from the last one said, and show nothing twice.
    old = messages_from({"role": "user", "content": "Long ago", "at": "2020-01-01"}, at=memory.engine.clock())
    await memory.add_messages(old, infer=False)
    for extra in ({}, {"NOT": {"tags": "none"}}):
        texts, _ = await pages_of(memory, {"kind": "message", **extra}, 1)
        assert texts == [GREEN, FINE, BOAT, WEEK, BREAD, "Long ago"]
    for cursor in ("", "x", "/", "5", "2026-01-01/x", "x/5", "2026-13-01/5"):
        with pytest.raises(InputError, match="is not a cursor"):
            await memory.list(ALICE, filters={"kind": "message"}, cursor=cursor)


async def test_a_conversation_is_named_by_its_id_or_that_of_a_message(memory: Memory) -> None:
    """A hit shows the id of a message, so that of its conversation need not be known."""
    messages = await stored(memory)
    boat = messages[BOAT].session_id
    for name in (boat, boat[:8], boat.upper(), messages[GREEN].id[:8]):
        assert await shown(memory, {"kind": "message", "session": name}) == {BOAT, FINE, GREEN}
    both = {"kind": "message", "session": {"in": [boat, messages[BREAD].id]}, "role": "user"}
    assert await shown(memory, both) == {BREAD, BOAT, GREEN}
    assert await shown(memory, {"kind": "message", "session": {"ne": boat}}) == {BREAD, WEEK}
    memory_id = store_memory(memory, "User has a boat", sources=(messages[BOAT].id,), actor_id="Bob")
    assert await shown(memory, {"kind": "memory", "session": boat}) == {"User has a boat"}
    assert await shown(memory, {"kind": "memory", "session": messages[BREAD].id}) == set()
    assert await shown(memory, {"kind": "memory", "speaker": "bob"}) == {"User has a boat"}
    await memory.delete(ALICE, [memory_id])
    deleted = await memory.list(ALICE, filters={"session": boat}, deleted=True)
    assert [hit.id for hit in deleted.hits] == [memory_id]
    assert await shown(memory, {"kind": "message", "session": boat}) == {FINE, GREEN}, "what it said is forgotten"


async def test_a_wrong_conversation_or_speaker_is_told_with_the_known_ones(memory: Memory) -> None:
    messages = await stored(memory)
    boat = messages[BOAT].session_id
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"session": "00000000"}, rf"the newest are {boat[:8]} \(2026-03-02\), "),
        ({"session": "0000"}, "too short"),
        ({"speaker": {"gt": "A"}}, "cannot use 'gt'; use eq, ne, in, nin"),
        ({"words": " "}, "needs words that the text has"),
        ({"session": 12345678}, "or its first 8 characters, not 'int'"),
    ]
    for filters, text in wrong:
        with pytest.raises(PalimpsestError, match=text):
            await memory.list(ALICE, filters=filters)
        with pytest.raises(PalimpsestError, match=text):
            await memory.search(ALICE, "boat", filters=filters)
    for name, hint in (("Bobb", "did you mean 'Bob'?"), ("Zed", "known are 'Ana', 'Bob'")):
        page = await memory.list(ALICE, filters={"kind": "message", "speaker": name})
        assert page.notes == (f"nobody here is called '{name}'; {hint}",)
    # What belongs to another project is not filtered on.
    said = {"role": "user", "content": "Roof it", "name": "Odile"}
    await memory.add_messages(messages_from(said, scope=SHED, at=memory.engine.clock()), infer=False)
    (hit,) = (await memory.list(SHED, filters={"kind": "message", "speaker": "Odile"})).hits
    with pytest.raises(MemoryNotFoundError):
        await memory.list(ALICE, filters={"session": hit.id})
    page = await memory.list(ALICE, filters={"kind": "message", "speaker": "Odile"})
    assert page.hits == ()
    assert "'Ana', 'Bob'" in page.notes[0]


async def test_a_page_compares_a_bounded_number_of_entries(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palimpsest.recall.listing.MAX_TESTED", 4)
    monkeypatch.setattr("palimpsest.recall.listing.FILTERED_BATCH", 2)
    store_memory(memory, "The first one", metadata={"topic": "boats"})
    for number in range(9):
        store_memory(memory, f"Memory {number}")
    texts, notes = await pages_of(memory, {"topic": "boats"}, 2)
    assert texts == ["The first one"]
    assert notes
    assert all(note.endswith("entries were compared with the filter; the cursor goes on") for note in notes)
