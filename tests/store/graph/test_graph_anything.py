"""Random changes of memories and entities, and undos: the graph says what the memories say, and undo restores it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.core.models import (
    Decision,
    EntityEdit,
    EntityType,
    Event,
    Fact,
    Merge,
    NamedEntity,
    Provenance,
    Relation,
    Rename,
    Scope,
    Split,
)
from palimpsest.store.apply import Write
from tests.support.examples import examples
from tests.support.graph import Graph
from tests.support.memory import ALICE, StoppedClock
from tests.support.stores import ledger_folder, open_empty_ledger

WEB = Scope("alice", project="web")
NAMES = ("Tom", "Ana", "Tom Baker", "User", "Acme")
TYPES: tuple[EntityType, ...] = ("person", "other", "organization")
MOST_EDITS = 40
"""More than the steps of an example make."""

TEXTS = ("{0} knows {1}", "Another {0} knows {1}", "{0} (the plumber) knows {1}", "{1} no longer knows {0}")


@dataclass(frozen=True)
class Step:
    """The next operation. The numbers choose among names, memories, entities or edits."""

    what: str
    scope: Scope
    one: int
    other: int
    text: str
    metadata: dict[str, Any]


STEPS = st.builds(
    Step,
    what=st.sampled_from(
        ("add", "add", "replace", "change", "delete", "restore", "merge", "split", "rename", "both", "undo", "undo")
    ),
    scope=st.sampled_from((ALICE, ALICE, WEB)),
    one=st.integers(0, 9),
    other=st.integers(0, 9),
    text=st.sampled_from(TEXTS),
    metadata=st.sampled_from(({}, {}, {}, {"user_name": "Tom"})),
)


def _fact(step: Step) -> Fact:
    one, other = NAMES[step.one % len(NAMES)], NAMES[step.other % len(NAMES)]
    named = (NamedEntity(one, TYPES[step.other % len(TYPES)]), NamedEntity(other))
    relations = (Relation(one, "knows", other),) if step.one % 2 else ()
    return Fact(step.text.format(one, other), entities=named, relations=relations, metadata=step.metadata)


def _decisions(graph: Graph, step: Step) -> tuple[Decision, ...]:
    memory_ids = graph.all_memories(step.scope)
    if step.what in {"add", "both"} or not memory_ids:
        return (Decision(Event.ADD, _fact(step)),)
    memory_id = memory_ids[step.one % len(memory_ids)]
    match step.what:
        case "replace" if memory_id in graph.living():
            return (Decision(Event.ADD, _fact(step), replaces=(memory_id,)),)
        case "change":
            return (Decision(Event.UPDATE, _fact(step), memory_id),)
        case "delete":
            return (Decision(Event.DELETE, memory_id=memory_id),)
        case "restore":
            return (Decision(Event.ADD, memory_id=memory_id),)
        case _:
            return ()


def _edits(graph: Graph, step: Step) -> tuple[EntityEdit, ...]:
    ids, memory_ids = graph.all_entities(step.scope), graph.all_memories(step.scope)
    if not ids or not memory_ids:
        return ()
    one, other = ids[step.one % len(ids)], ids[step.other % len(ids)]
    match step.what:
        case "merge" | "both":
            return (Merge(one, other),)
        case "split":
            return (Split(one, (memory_ids[step.other % len(memory_ids)],), NAMES[step.one % len(NAMES)]),)
        case "rename":
            return (Rename(one, NAMES[step.other % len(NAMES)], TYPES[step.one % len(TYPES)]),)
        case _:
            return ()


def _undo(graph: Graph, step: Step) -> None:
    """Undo one edit or the newest. Undoing the undo restores everything."""
    log = graph.log(step.scope)
    number = log[step.one % len(log)].number if log and step.other % 2 else None
    before = graph.state_without_types()
    graph.undo(number, scope=step.scope)
    newest = graph.log()[0]
    assert newest.provenance.stage.startswith("undo ")
    if step.other % 3 == 0:
        graph.undo(newest.number, scope=step.scope)
        assert graph.state_without_types() == before


@pytest.mark.nightly
@examples(12)
@given(steps=st.lists(STEPS, min_size=5, max_size=14))
def test_the_graph_says_what_the_memories_say_and_undo_restores_it(steps: list[Step]) -> None:
    """Everything since an instant is undone exactly, one edit after another is undone, and no row is damaged."""
    with ledger_folder() as folder:
        clock = StoppedClock()
        graph = Graph(open_empty_ledger(folder, clock), clock)
        try:
            _check(graph, steps)
        finally:
            graph.ledger.close()


def _check(graph: Graph, steps: list[Step]) -> None:
    states = [(graph.clock.at, graph.state_without_types())]
    for step in steps:
        before = graph.state_without_types()
        try:
            if step.what == "undo":
                _undo(graph, step)
            else:
                is_edit = step.what in {"merge", "split", "rename"}
                decisions = () if is_edit else _decisions(graph, step)
                edits = _edits(graph, step)
                graph.apply(Write(step.scope, Provenance("test"), decisions=decisions, entity_edits=edits))
        except InputError:
            assert graph.state_without_types() == before
        assert graph.faults() == []
        states.append((graph.clock.at, graph.state_without_types()))
    instant, then = states[len(states) // 2]
    graph.undo(since=instant + timedelta(seconds=1), scope=WEB)
    assert graph.state_without_types() == then
    stages: list[str] = []
    with contextlib.suppress(InputError):
        while len(stages) < MOST_EDITS:
            graph.undo(scope=WEB)
            stages.append(graph.log()[0].provenance.stage)
    assert len(set(stages)) == len(stages)
    assert graph.faults() == []
