"""Undo: every edit can be undone, and an undo is an edit itself. Random edits in random order are undone, too."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.core.models import (
    PINNED,
    AppliedWrite,
    Decision,
    Event,
    Fact,
    Kind,
    Memory,
    Message,
    Provenance,
    Scope,
    Undo,
)
from palimpsest.core.protocols import Vector
from palimpsest.store import contextual_keys
from palimpsest.store import entries as entry_queries
from palimpsest.store import history as history_queries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.documents import EmbeddedText
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import history, message_history
from tests.support.examples import examples
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.memory import ALICE, StoppedClock, messages_from
from tests.support.stores import ledger_folder, open_empty_ledger

BY_TEST = Provenance("test", caller="pytest")
WEB = Scope("alice", project="web")
SCOPES = (ALICE, WEB)
EMBEDDER = "e"

# Everything there is to living memories and messages, by id.
LiveEntries: TypeAlias = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class RecordedLedger(Graph):
    """A ledger whose clock moves on by a minute with every write, and its state before each write.

    `states_by_time` pairs an instant with the state just before it. `states_by_edit` maps the number of an edit to the
    state before it.
    """

    states_by_time: list[tuple[datetime, LiveEntries]] = field(default_factory=list[tuple[datetime, LiveEntries]])
    states_by_edit: dict[int, LiveEntries] = field(default_factory=dict[int, LiveEntries])

    def apply(self, write: Write) -> AppliedWrite:
        """Carry out a write, with a vector for every new text."""
        state, row_count = self.live_entries(), len(self.history_rows())
        texts = [decision.fact.text for decision in write.decisions if decision.fact is not None]
        texts += [message.content for message in write.messages]
        vectors = {text: _vector(text) for text in texts}
        applied = super().apply(replace(write, vectors=vectors, embedder=EMBEDDER))
        self.states_by_time.append((self.clock.at, state))
        rows = self.history_rows()
        if len(rows) > row_count:
            self.states_by_edit[rows[-1][0]] = state
        return applied

    def do(self, scope: Scope, *decisions: Decision, **rest: Any) -> AppliedWrite:
        """Carry out decisions in one write."""
        return self.apply(Write(scope, BY_TEST, decisions=decisions, **rest))

    def store_messages(self, *texts: str, scope: Scope = ALICE) -> tuple[Message, ...]:
        """Store messages of the user, dated now."""
        at = self.clock.at.isoformat()
        messages = messages_from(*({"role": "user", "content": text, "at": at} for text in texts), scope=scope)
        return self.do(scope, messages=messages).messages

    def live_entries(self, scope: Scope | None = None) -> LiveEntries:
        """Return the living memories and messages of a scope itself, or of all scopes."""
        with self.ledger.read() as conn:
            scopes = SCOPES if scope is None else (scope,)
            memories = [memory for place in scopes for memory in memory_queries.memories_of(conn, place)]
            messages = [message for place in scopes for message in message_queries.messages_of(conn, place)]
        entries: LiveEntries = {memory.id: memory_fields(memory) for memory in memories}
        return entries | {message.id: (message.scope, message.content) for message in messages}

    def live_texts(self, scope: Scope = ALICE) -> list[str]:
        """Return the sorted texts of the living memories and messages of a scope itself."""
        return sorted(entry[1] for entry in self.live_entries(scope).values())

    def history_rows(self) -> list[tuple[Any, ...]]:
        """Return every row of the history of memories and messages as it is stored, by the number of its edit."""
        with self.ledger.read() as conn:
            rows = [
                (row.change, table.name, *row)
                for table in (history, message_history)
                for row in conn.exec_driver_sql(f"SELECT * FROM {table.name} ORDER BY seq")  # noqa: S608 - our own names
            ]
        return sorted(rows, key=lambda row: row[0])

    def entries_ever_seen(self, scope: Scope) -> list[tuple[Kind, str]]:
        """Return kind and id of every memory and message that the scope sees, deleted or not, oldest first."""
        entries: dict[tuple[Kind, str], None] = {}
        for edit in reversed(self.log(scope)):
            entries |= {(step.kind, step.owner_id): None for step in edit.steps if step.kind != "entity"}
        return list(entries)

    def embed_missing(self) -> None:
        """Give vectors to entries without one, as the server does after a write that restored some."""
        with self.ledger.read() as conn:
            entries = entry_queries.missing_vectors(conn, EMBEDDER, 100, after=0, only_failed=True)
        embedded = {seq: EmbeddedText(text, EMBEDDER, _vector(text)) for seq, text in entries.items()}
        self.ledger.run(contextual_keys.give_vectors, self.ledger.full_text, embedded, self.ledger.clock())


def memory_fields(memory: Memory) -> tuple[Any, ...]:
    """Return what undo must restore of a memory."""
    labels = json.dumps([memory.metadata, memory.keywords, memory.tags], sort_keys=True)
    return memory.scope, memory.text, labels, memory.happened_at, memory.valid_from, memory.context, memory.links


def _vector(text: str) -> Vector:
    raw = np.random.default_rng(list(text.casefold().encode())).normal(size=8)
    return (raw / np.linalg.norm(raw)).astype(np.float32)


@contextmanager
def recorded_ledger(folder: Path) -> Generator[RecordedLedger]:
    """Yield an empty recorded ledger in a folder."""
    clock = StoppedClock()
    ledger = open_empty_ledger(folder, clock)
    try:
        yield RecordedLedger(ledger, clock)
    finally:
        ledger.close()


@pytest.fixture
def recorded(tmp_path: Path) -> Generator[RecordedLedger]:
    with recorded_ledger(tmp_path) as opened:
        yield opened


CASES = graph_cases(Path(__file__).with_name("undo_cases.json"))


@pytest.mark.parametrize("case", CASES)
def test_undo(ledger: Ledger, clock: StoppedClock, case: str) -> None:
    GraphCase(Graph(ledger, clock)).play(*CASES[case], ["sound"])


def test_an_old_fact_that_came_late_is_undone_once(recorded: RecordedLedger) -> None:
    """It was stored as closed, and after the undo nothing says that the newer memory replaced it."""
    rome = recorded.add("User lives in Rome")
    late = Decision(Event.NONE, memory_id=rome, outdated=(Fact("User lives in Oslo"),))
    (_, oslo) = recorded.do(ALICE, late).outcomes
    assert [change.memory.id for change in recorded.undo().outcomes] == [oslo.memory.id]
    with recorded.ledger.read() as conn:
        assert history_queries.predecessors(conn, rome) == []
        undone = memory_queries.memories_by_id(conn, [oslo.memory.id])[oslo.memory.id]
    assert not undone.is_forgotten
    recorded.undo()
    assert recorded.live_texts() == [], "the next undo goes one edit further back"
    recorded.undo(3)
    with recorded.ledger.read() as conn:
        (old,) = history_queries.predecessors(conn, rome)
    assert (old.memory.text, old.memory.valid_until) == ("User lives in Oslo", oslo.memory.valid_until)


def test_forgetting_a_memory_forgets_what_it_replaced_until_it_is_undone(recorded: RecordedLedger) -> None:
    """One undo brings back the memory, and the turns behind it and behind those that it replaced."""
    first, second = recorded.store_messages("I'm married to Mark", "Mark and I divorced")
    old = recorded.add("User is married to Mark", sources=(first.id,))
    divorce = Fact("User and Mark divorced", sources=(second.id,))
    (new,) = recorded.do(ALICE, Decision(Event.ADD, divorce, replaces=(old,))).outcomes
    messages = [first.id, second.id]
    forget = Decision(Event.DELETE, memory_id=new.memory.id, forgets=True)
    forgotten = recorded.do(ALICE, forget).outcomes
    assert [change.memory.text for change in forgotten] == ["User and Mark divorced", "User is married to Mark"]
    with recorded.ledger.read() as conn:
        assert message_queries.outdated_or_forgotten(conn, messages) == (set(), set(messages))
    (again,) = recorded.do(ALICE, forget).outcomes
    assert again.event is Event.NONE
    recorded.undo()
    with recorded.ledger.read() as conn:
        assert message_queries.outdated_or_forgotten(conn, messages) == ({first.id}, set())
    assert "User and Mark divorced" in recorded.live_texts()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("scope", [Scope("bob"), Scope("alice", agent_id="coder")])
def test_an_edit_of_another_scope_is_refused(recorded: RecordedLedger, scope: Scope) -> None:
    recorded.add("Theirs", scope=scope)
    recorded.store_messages("Theirs too", scope=scope)
    other_scope = Scope("alice", run_id="r1") if scope.user_id == "alice" else ALICE
    rows = recorded.history_rows()
    for request in (Undo(edit=1), Undo(edit=2), Undo()):
        with pytest.raises(InputError, match="in this scope"):
            recorded.do(other_scope, undo=request)
    assert recorded.undo(since=datetime(2020, 1, 1, tzinfo=UTC), scope=other_scope).outcomes == ()
    assert recorded.history_rows() == rows


# Few texts, two of them equal except for case and spaces, so that memories often have the same text.
TEXTS = ("User likes tea", "user  LIKES tea", "User likes coffee", "User likes water")

# Two of these are more than the pinned block may hold.
LONG = "User likes " + "very " * 130 + "strong tea"

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


STEPS = st.builds(
    Step,
    what=st.sampled_from(
        ("add", "pin", "replace", "update", "delete", "restore", "say", "learn", "embed", "undo", "since")
    ),
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
            recorded.do(step.scope, Decision(Event.ADD, fact if step.what == "add" else pinned))
        case "replace":
            recorded.do(step.scope, Decision(Event.ADD, fact, replaces=tuple(memory_ids)))
        case "update" if memory_ids:
            fact_of_update = fact if step.other % 3 else Fact("", happened_at=step.day, **step.labels)
            recorded.do(step.scope, Decision(Event.UPDATE, fact_of_update, memory_ids[0]))
        case "delete":
            chosen = _chosen(owners, step.one, step.other, step.one + step.other)
            recorded.do(
                step.scope, *(Decision(Event.DELETE, memory_id=owner_id, kind=kind) for kind, owner_id in chosen)
            )
        case "restore" if owners:
            ((kind, owner),) = _chosen(owners, step.one)
            recorded.do(step.scope, Decision(Event.ADD, memory_id=owner, kind=kind))
        case "say":
            recorded.store_messages(*TEXTS[: 1 + step.one % 3], scope=step.scope)
        case "learn":
            sources = tuple(message.id for message in recorded.store_messages(step.text, scope=step.scope))
            facts = [Fact(text, sources, happened_at=step.day) for text in (step.text, *TEXTS[step.one % 4 :])]
            known = zip((Event.UPDATE, Event.DELETE, Event.NONE), memory_ids, strict=False)
            decisions = [Decision(event, facts[-1], memory_id) for event, memory_id in known]
            recorded.do(step.scope, *decisions, Decision(Event.ADD, facts[0]), learned_from=sources)
        case "embed":
            recorded.embed_missing()
        case "undo":
            _undo(recorded, step)
        case "since":
            _undo_since(recorded, step.one, step.scope)
        case _:
            pass


def _undo(recorded: RecordedLedger, step: Step) -> None:
    """Undo one edit or the newest: what it changed is as it was before the edit. Undoing the undo restores the rest."""
    edits = recorded.log(step.scope)
    number = edits[step.one % len(edits)].number if edits and step.other % 3 else None
    was = recorded.live_entries()
    recorded.undo(number, scope=step.scope)
    undone = recorded.log()[0]
    number = int(undone.provenance.stage.removeprefix("undo "))
    then, now = recorded.states_by_edit[number], recorded.live_entries()
    (edit,) = (candidate for candidate in recorded.log() if candidate.number == number)
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


def _assert_history_knows_every_instant(recorded: RecordedLedger) -> None:
    """Compare what the history says of the time just before each write with what was recorded then."""
    for instant, then in recorded.states_by_time:
        with recorded.ledger.read() as conn:
            memories = history_queries.memories_at(conn, WEB, instant - timedelta(seconds=1))
            messages = history_queries.messages_at(conn, WEB, instant - timedelta(seconds=1))
        live: LiveEntries = {memory.id: memory_fields(memory) for memory in memories}
        assert live | {message.id: (message.scope, message.content) for message in messages} == then


def _assert_each_edit_is_undone_once(recorded: RecordedLedger) -> None:
    """Undo one edit after another until none is left, each exactly once."""
    stages: list[str] = []
    with contextlib.suppress(InputError):
        while len(stages) < 100:
            recorded.undo(scope=WEB)
            stages.append(recorded.log()[0].provenance.stage)
    assert len(set(stages)) == len(stages)


@examples(20)
@given(steps=st.lists(STEPS, min_size=5, max_size=14), instants=st.lists(st.integers(0, 13), min_size=1, max_size=3))
def test_every_edit_can_be_undone_and_nothing_is_lost(steps: list[Step], instants: list[int]) -> None:
    with ledger_folder() as folder, recorded_ledger(folder) as recorded:
        rows = recorded.history_rows()
        for step in steps:
            was = recorded.live_entries()
            try:
                _do(recorded, step)
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
