"""Undo: every edit can be undone, and an undo is an edit itself. Random edits in random order are undone, too."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

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
from palimpsest.store import history as history_queries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import history, memories, message_history, messages
from tests.support.examples import examples
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.memory import ALICE, StoppedClock, messages_from
from tests.support.projections import direction
from tests.support.stores import ledger_folder, open_empty_ledger

BY_TEST = Provenance("test", caller="pytest")
WEB = Scope("alice", project="web")
SCOPES = (ALICE, WEB)

# Everything there is to living memories and messages, by id.
LiveEntries: TypeAlias = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class RecordedLedger(Graph):
    """A ledger whose clock moves on by a minute with every write, and its state before each write, by time and edit."""

    states_by_time: list[tuple[datetime, LiveEntries]] = field(default_factory=list[tuple[datetime, LiveEntries]])
    states_by_edit: dict[int, LiveEntries] = field(default_factory=dict[int, LiveEntries])

    def apply(self, write: Write) -> AppliedWrite:
        """Carry out a write, with a vector for every new text."""
        state, row_count = self.live_entries(), len(self.history_rows())
        texts = [decision.fact.text for decision in write.decisions if decision.fact is not None]
        texts += [message.content for message in write.messages]
        vectors = {text: direction(text.casefold()) for text in texts}
        applied = super().apply(replace(write, vectors=vectors, embedder="e"))
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

    def live_entries(self) -> LiveEntries:
        """Return the living memories and messages of all scopes."""
        with self.ledger.read() as conn:
            memories = [memory for place in SCOPES for memory in memory_queries.memories_of(conn, place)]
            messages = [message for place in SCOPES for message in message_queries.messages_of(conn, place)]
        return fields_of(memories, messages)

    def live_texts(self) -> list[str]:
        """Return the sorted texts of the living memories and messages."""
        return sorted(entry[1] for entry in self.live_entries().values())

    def history_rows(self) -> list[tuple[Any, ...]]:
        """Return every row of the history of memories and messages as it is stored, by the number of its edit."""
        rows: list[tuple[Any, ...]] = []
        with self.ledger.read() as conn:
            for table in (history, message_history):
                query = f"SELECT * FROM {table.name} ORDER BY seq"  # noqa: S608 - our own names
                rows += [(row.change, table.name, *row) for row in conn.exec_driver_sql(query)]
        return sorted(rows, key=lambda row: row[0])

    def owners(self, scope: Scope) -> list[tuple[Kind, str]]:
        """Return kind and id of every memory and message that the scope ever saw, oldest first."""
        steps = [step for edit in reversed(self.log(scope)) for step in edit.steps]
        return list(dict.fromkeys((step.kind, step.owner_id) for step in steps if step.kind != "entity"))


def fields_of(memories: Sequence[Memory], messages: Sequence[Message]) -> LiveEntries:
    """Return what undo must restore, by id."""
    entries: LiveEntries = {message.id: (message.scope, message.content) for message in messages}
    for each in memories:
        labels = json.dumps([each.metadata, each.keywords, each.tags], sort_keys=True)
        entries[each.id] = (each.scope, each.text, labels, each.happened_at, each.valid_from, each.context, each.links)
    return entries


@contextmanager
def recorded_ledger(folder: Path) -> Generator[RecordedLedger]:
    clock = StoppedClock()
    with closing(open_empty_ledger(folder, clock)) as ledger:
        yield RecordedLedger(ledger, clock)


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


# Few texts, two of them equal except for case and spaces, so that memories often have the same text. Of the last two,
# which are pinned, the block holds one.
TEXTS = ("User likes tea", "user  LIKES tea", "User likes coffee", "User likes water")
LONG = tuple("User likes " + "very " * 130 + drink for drink in ("strong tea", "weak tea"))
LABELS: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"a": 1}},
    {"metadata": {"a": None, "b": [2]}},
    {"tags": ("x",)},
    {"metadata": {PINNED: 2}},
)


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
    what=st.sampled_from(("add", "pin", "replace", "update", "delete", "restore", "say", "learn", "undo", "since")),
    scope=st.sampled_from((ALICE, ALICE, WEB)),
    one=st.integers(0, 11),
    other=st.integers(0, 11),
    text=st.sampled_from(TEXTS),
    labels=st.sampled_from(LABELS),
    day=st.sampled_from((None, datetime(2025, 1, 2, tzinfo=UTC), datetime(2027, 3, 4, tzinfo=UTC))),
)


def _do(recorded: RecordedLedger, step: Step) -> None:
    """Carry out one step. Raises InputError if it is refused."""
    fact, living = Fact(step.text, happened_at=step.day, **step.labels), recorded.live_entries()
    owners = recorded.owners(step.scope)
    chosen = [owners[number % len(owners)] for number in {step.one, step.other}] if owners else []
    memory_ids = tuple({owner_id for kind, owner_id in chosen if owner_id in living and kind == "memory"})
    match step.what:
        case "add":
            recorded.do(step.scope, Decision(Event.ADD, fact))
        case "pin":
            recorded.do(step.scope, Decision(Event.ADD, Fact(LONG[step.one % 2], metadata={PINNED: step.one})))
        case "replace":
            recorded.do(step.scope, Decision(Event.ADD, fact, replaces=memory_ids))
        case "update" if memory_ids:
            changed = fact if step.other % 3 else replace(fact, text="")
            recorded.do(step.scope, Decision(Event.UPDATE, changed, memory_ids[0]))
        case "delete":
            recorded.do(step.scope, *(Decision(Event.DELETE, memory_id=each, kind=kind) for kind, each in chosen))
        case "restore" if owners:
            kind, owner_id = chosen[0]
            recorded.do(step.scope, Decision(Event.ADD, memory_id=owner_id, kind=kind))
        case "say":
            recorded.store_messages(*TEXTS[: 1 + step.one % 3], scope=step.scope)
        case "learn":
            sources = tuple(message.id for message in recorded.store_messages(step.text, scope=step.scope))
            facts = [Fact(text, sources, happened_at=step.day) for text in (step.text, *TEXTS[step.one % 4 :])]
            known = zip((Event.UPDATE, Event.DELETE), memory_ids, strict=False)
            decisions = [Decision(event, facts[-1], memory_id) for event, memory_id in known]
            recorded.do(step.scope, *decisions, Decision(Event.ADD, facts[0]), learned_from=sources)
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
    (edit,) = (candidate for candidate in recorded.log() if candidate.number == number)
    changed = {step.owner_id for step in edit.steps}
    then, now = recorded.states_by_edit[number], recorded.live_entries()
    expected = {key: value for key, value in was.items() if key not in changed}
    assert now == expected | {key: value for key, value in then.items() if key in changed}
    if step.other % 2:
        recorded.undo(undone.number, scope=step.scope)
        assert recorded.live_entries() == was


def _undo_since(recorded: RecordedLedger, number: int, scope: Scope) -> None:
    """Undo everything since an instant: what the scope sees is as it was then, and the rest is unchanged."""
    was, times = recorded.live_entries(), recorded.states_by_time
    instant, then = times[number % len(times)] if times else (recorded.clock.at, was)
    try:
        recorded.undo(since=instant, scope=scope)
    except InputError as error:
        raise AssertionError("undo since an instant is never refused") from error
    seen = SCOPES if scope == WEB else (ALICE,)
    kept = {key: value for key, value in was.items() if value[0] not in seen}
    assert recorded.live_entries() == {key: value for key, value in then.items() if value[0] in seen} | kept


def _deleted_by_somebody(recorded: RecordedLedger) -> set[str]:
    """Return the ids of memories and messages that are deleted, and neither replaced nor deleted by an undo."""
    forgotten = select(memories.c.id, history.c.stage).join(history, history.c.memory_id == memories.c.id)
    deleted = select(messages.c.id, message_history.c.stage)
    deleted = deleted.join(message_history, message_history.c.message_id == messages.c.id)
    queries = (
        forgotten.where(memories.c.is_forgotten).order_by(history.c.seq),
        deleted.where(messages.c.deleted_at.is_not(None)).order_by(message_history.c.seq),
    )
    with recorded.ledger.read() as conn:
        last_stages = {row.id: row.stage for query in queries for row in conn.execute(query)}
    return {owner for owner, stage in last_stages.items() if not stage.startswith("undo")}


def _assert_history_knows_every_instant(recorded: RecordedLedger) -> None:
    """Compare what the history says of the time just before each write with what was recorded then.

    What somebody has deleted, and nobody brought back, is not shown again.
    """
    hidden = _deleted_by_somebody(recorded)
    for instant, then in recorded.states_by_time:
        before = instant - timedelta(seconds=1)
        with recorded.ledger.read() as conn:
            memories = history_queries.memories_at(conn, WEB, before)
            messages = history_queries.messages_at(conn, WEB, before)
        assert fields_of(memories, messages) == {key: value for key, value in then.items() if key not in hidden}


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
