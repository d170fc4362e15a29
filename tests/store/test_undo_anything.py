"""Random edits in random order: undo restores the earlier state, and no row of history is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.core.models import (
    EXPIRE,
    LINK,
    PAGE,
    PINNED,
    Annotation,
    Decision,
    Event,
    Fact,
    Kind,
    Link,
    Message,
    Provenance,
    Scope,
)
from palimpsest.store import documents, history
from palimpsest.store.documents import Gist, PagesRead
from palimpsest.store.rows import content_hash
from palimpsest.store.writes import Conversation
from tests.support.examples import examples
from tests.support.memory import ALICE
from tests.support.recorded_ledger import SCOPES, WEB, LiveEntries, RecordedLedger, memory_fields, recorded_ledger
from tests.support.stores import ledger_folder

TEXTS = ("User likes tea", "user  LIKES tea", "User likes coffee", "User likes water")
"""Few texts, two of them equal except for case and spaces, so that memories often have the same text."""

LONG = "User likes " + "very " * 130 + "strong tea"
"""Two of these are more than the pinned block may hold."""

LABELS: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"a": 1}},
    {"metadata": {"a": None, "b": [2]}},
    {"tags": ("x",)},
    {"metadata": {PINNED: True}},
    {"metadata": {PINNED: 2}},
)
DAYS = (None, datetime(2025, 1, 2, tzinfo=UTC), datetime(2027, 3, 4, tzinfo=UTC))


@dataclass(frozen=True)
class Step:
    """The next operation. `one` and `other` choose among the memories, messages or edits that exist."""

    what: str
    scope: Scope
    one: int
    other: int
    text: str
    labels: dict[str, Any]
    day: datetime | None


PEOPLE = ("add", "pin", "replace", "update", "delete", "restore", "say", "learn", "document")
BACKGROUND = (LINK, EXPIRE)

STEPS = st.builds(
    Step,
    what=st.sampled_from((*PEOPLE, *BACKGROUND, "embed", "undo", "since")),
    scope=st.sampled_from((ALICE, ALICE, WEB)),
    one=st.integers(0, 11),
    other=st.integers(0, 11),
    text=st.sampled_from(TEXTS),
    labels=st.sampled_from(LABELS),
    day=st.sampled_from(DAYS),
)


def _chosen(owners: Sequence[tuple[Kind, str]], *numbers: int) -> list[tuple[Kind, str]]:
    """Return the owners that the numbers choose, each once, or none if there are no owners."""
    return list(dict.fromkeys(owners[number % len(owners)] for number in numbers)) if owners else []


def _do(recorded: RecordedLedger, step: Step) -> None:
    """Carry out one step. Raises InputError if it is refused."""
    fact = Fact(step.text, happened_at=step.day, **step.labels)
    owners, living = recorded.entries_ever_seen(step.scope), recorded.live_entries()
    living_memories = [owner for owner in owners if owner[1] in living and owner[0] == "memory"]
    memory_ids = [memory_id for _, memory_id in _chosen(living_memories, step.one, step.other)]
    match step.what:
        case "add" | "pin":
            pinned = Fact(f"{LONG} {step.one}", metadata={PINNED: step.one})
            recorded.apply(step.scope, Decision(Event.ADD, fact if step.what == "add" else pinned))
        case "link" | "expire" if memory_ids:
            _do_in_background(recorded, step, memory_ids)
        case "replace":
            recorded.apply(step.scope, Decision(Event.ADD, fact, replaces=tuple(memory_ids)))
        case "update" if memory_ids:
            fact_of_update = fact if step.other % 3 else Fact("", happened_at=step.day, **step.labels)
            recorded.apply(step.scope, Decision(Event.UPDATE, fact_of_update, memory_ids[0]))
        case "delete":
            chosen = _chosen(owners, step.one, step.other, step.one + step.other)
            recorded.apply(
                step.scope, *(Decision(Event.DELETE, memory_id=owner_id, kind=kind) for kind, owner_id in chosen)
            )
        case "restore" if owners:
            ((kind, owner),) = _chosen(owners, step.one)
            recorded.apply(step.scope, Decision(Event.ADD, memory_id=owner, kind=kind))
        case "say":
            recorded.store_messages(*TEXTS[: 1 + step.one % 3], scope=step.scope)
        case "learn":
            sources = tuple(message.id for message in recorded.store_messages(step.text, scope=step.scope))
            facts = [Fact(text, sources, happened_at=step.day) for text in (step.text, *TEXTS[step.one % 4 :])]
            known = zip((Event.UPDATE, Event.DELETE, Event.NONE), memory_ids, strict=False)
            decisions = [Decision(event, facts[-1], memory_id) for event, memory_id in known]
            recorded.apply(step.scope, *decisions, Decision(Event.ADD, facts[0]), learned_from=sources)
        case "embed":
            recorded.embed_missing()
        case _:
            pass


def _learn_document(recorded: RecordedLedger, step: Step) -> None:
    """Keep a document of up to three pages, or bring it up to date: pages are added, deleted and restored."""
    wanted = {number: TEXTS[(step.other + number) % len(TEXTS)] for number in range(1, 2 + step.one % 3)}
    with recorded.ledger.read() as conn:
        stored = documents.pages_of_uri(conn, step.scope, "book")
    same = {page.number: page for page in reversed(stored) if page.digest == content_hash(wanted.get(page.number, ""))}
    kept = {page.id for page in same.values()}
    deleted = [page.id for page in stored if not page.is_deleted and page.id not in kept]
    restored = [page.id for page in same.values() if page.is_deleted]
    at = recorded.clock.at
    new = [
        Message(str(uuid4()), step.scope, PAGE, text, at, at, external_id=documents.external_id("book", number))
        for number, text in wanted.items()
        if number not in same
    ]
    recorded.apply(
        step.scope,
        *(Decision(Event.DELETE, memory_id=page, kind="message") for page in deleted),
        *(Decision(Event.ADD, memory_id=page, kind="message") for page in restored),
        messages=tuple(new),
        conversation=Conversation(documents.CLIENT, "book", "Book"),
        gists={page.id: Gist(f"gist of {page.content}") for page in new},
        pages_read=PagesRead("book", frozenset(stored)),
    )
    with recorded.ledger.read() as conn:
        pages = documents.pages_of_uri(conn, step.scope, "book")
    assert {page.number: page.digest for page in pages if not page.is_deleted} == {
        number: content_hash(text) for number, text in wanted.items()
    }


def _do_in_background(recorded: RecordedLedger, step: Step, memory_ids: Sequence[str]) -> None:
    """Link memories, the first with the others, or close one because its time has come."""
    if step.what == EXPIRE:
        closed = Decision(Event.DELETE, memory_id=memory_ids[0], ended_at=recorded.clock.at)
        recorded.apply(step.scope, closed, by=Provenance(EXPIRE))
        return
    tags = {memory.id: (*memory.tags, "of the background") for memory in recorded.live_memories()}
    links = tuple(Link(other, f"reason {step.one % 3}") for other in memory_ids[1:])
    annotations = [Annotation(memory_id, f"context {step.other % 3}", tags[memory_id], ()) for memory_id in memory_ids]
    annotations[0] = replace(annotations[0], links=links)
    recorded.apply(step.scope, by=Provenance(LINK), annotations=tuple(annotations))


def _undo(recorded: RecordedLedger, step: Step) -> None:
    """Undo one edit or the newest: what it changed is as it was before the edit. Undoing the undo restores the rest."""
    edits = recorded.edits(step.scope)
    number = edits[step.one % len(edits)].number if edits and step.other % 3 else None
    was = recorded.live_entries()
    recorded.undo(number, scope=step.scope)
    undone = recorded.edits()[0]
    number = int(undone.provenance.stage.removeprefix("undo "))
    then, now = recorded.states_by_edit[number], recorded.live_entries()
    is_asked_for = bool(edits) and step.other % 3
    (edit,) = (candidate for candidate in recorded.edits() if candidate.number == number)
    assert is_asked_for or edit.provenance.stage not in BACKGROUND, "nobody means what the background did"
    owners = {step.owner_id for step in edit.steps}
    assert {owner_id: now.get(owner_id) for owner_id in owners} == {owner_id: then.get(owner_id) for owner_id in owners}
    assert {owner_id: now[owner_id] for owner_id in now if owner_id not in owners} == {
        owner_id: was[owner_id] for owner_id in was if owner_id not in owners
    }
    if step.other % 2:
        recorded.undo(undone.number, scope=step.scope)
        assert recorded.live_entries() == was


def _undo_since(recorded: RecordedLedger, number: int, scope: Scope) -> None:
    """Undo everything since an instant: what the scope sees is as it was then, and the rest is unchanged."""
    was = recorded.live_entries()
    instant, then = (
        recorded.states_by_time[number % len(recorded.states_by_time)]
        if recorded.states_by_time
        else (recorded.clock.at, was)
    )
    try:
        recorded.undo(since=instant, scope=scope)
    except InputError as error:
        raise AssertionError("undo since an instant is never refused") from error
    seen = SCOPES if scope == WEB else (ALICE,)
    kept = {key: value for key, value in was.items() if value[0] not in seen}
    assert recorded.live_entries() == {key: value for key, value in then.items() if value[0] in seen} | kept


WAYS: dict[str, Callable[[RecordedLedger, Step], None]] = {
    "undo": _undo,
    "document": _learn_document,
    "since": lambda recorded, step: _undo_since(recorded, step.one, step.scope),
}
"""Steps that are more than a write."""


def _assert_history_knows_every_instant(recorded: RecordedLedger) -> None:
    """Compare what the history says of the time just before each write with what was recorded then."""
    for instant, then in recorded.states_by_time:
        with recorded.ledger.read() as conn:
            memories = history.memories_at(conn, WEB, instant - timedelta(seconds=1))
            messages = history.messages_at(conn, WEB, instant - timedelta(seconds=1))
        live: LiveEntries = {memory.id: memory_fields(memory) for memory in memories}
        assert live | {message.id: (message.scope, message.content) for message in messages} == then


def _assert_each_edit_is_undone_once(recorded: RecordedLedger) -> None:
    """Undo one edit after another until none is left, each exactly once."""
    stages: list[str] = []
    with contextlib.suppress(InputError):
        while len(stages) < 100:
            recorded.undo(scope=WEB)
            stages.append(recorded.edits()[0].provenance.stage)
    assert len(set(stages)) == len(stages)


@examples(20)
@given(steps=st.lists(STEPS, min_size=5, max_size=14), instants=st.lists(st.integers(0, 13), min_size=1, max_size=3))
def test_every_edit_can_be_undone_and_nothing_is_lost(steps: list[Step], instants: list[int]) -> None:
    with ledger_folder() as folder, recorded_ledger(folder) as recorded:
        rows = recorded.history_rows()
        for step in steps:
            was = recorded.live_entries()
            try:
                WAYS.get(step.what, _do)(recorded, step)
            except InputError:
                assert (recorded.live_entries(), recorded.history_rows()) == (was, rows)
            assert recorded.history_rows()[: len(rows)] == rows
            rows = recorded.history_rows()
        for number in instants:
            _undo_since(recorded, number, WEB)
        assert recorded.history_rows()[: len(rows)] == rows
        _assert_each_edit_is_undone_once(recorded)
        _assert_history_knows_every_instant(recorded)
        assert recorded.faults() == []
