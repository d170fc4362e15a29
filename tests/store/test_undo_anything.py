"""Whatever was done in whatever order, undo gives what there was, and no row of history is lost on it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Kind, Scope
from palimpsest.store.queries import history as history_queries
from tests.support.examples import examples
from tests.support.memory import ALICE
from tests.support.recorded_ledger import SCOPES, WEB, LiveEntries, RecordedLedger, memory_fields, recorded_ledger

TEXTS = ("User likes tea", "user  LIKES tea", "User likes coffee", "User likes water")
"""Few, and two of them the same but for case and spaces, so that texts meet and move between memories."""

LABELS: tuple[dict[str, Any], ...] = ({}, {"metadata": {"a": 1}}, {"metadata": {"a": None, "b": [2]}}, {"tags": ("x",)})
DAYS = (None, datetime(2025, 1, 2, tzinfo=UTC), datetime(2027, 3, 4, tzinfo=UTC))


@dataclass(frozen=True)
class Step:
    """What is done next; `one` and `other` choose among what there is."""

    what: str
    scope: Scope
    one: int
    other: int
    text: str
    labels: dict[str, Any]
    day: datetime | None


STEPS = st.builds(
    Step,
    what=st.sampled_from(("add", "replace", "update", "delete", "restore", "say", "learn", "embed", "undo", "since")),
    scope=st.sampled_from((ALICE, ALICE, WEB)),
    one=st.integers(0, 11),
    other=st.integers(0, 11),
    text=st.sampled_from(TEXTS),
    labels=st.sampled_from(LABELS),
    day=st.sampled_from(DAYS),
)


def _chosen(owners: Sequence[tuple[Kind, str]], *numbers: int) -> list[tuple[Kind, str]]:
    """Return some of what there is, each once; nothing where there is nothing."""
    return list(dict.fromkeys(owners[number % len(owners)] for number in numbers)) if owners else []


def _do(book: RecordedLedger, step: Step) -> None:
    """Carry out one step on what there is. Raises InputError where it is refused."""
    fact = Fact(step.text, happened_at=step.day, **step.labels)
    there, living = book.owners(step.scope), book.living()
    alive = [owner for owner in there if owner[1] in living and owner[0] == "memory"]
    mine = [memory_id for _, memory_id in _chosen(alive, step.one, step.other)]
    match step.what:
        case "add":
            book.apply(step.scope, Decision(Event.ADD, fact))
        case "replace":
            book.apply(step.scope, Decision(Event.ADD, fact, replaces=tuple(mine)))
        case "update" if mine:
            said = fact if step.other % 3 else Fact("", happened_at=step.day, **step.labels)
            book.apply(step.scope, Decision(Event.UPDATE, said, mine[0]))
        case "delete":
            gone = _chosen(there, step.one, step.other, step.one + step.other)
            book.apply(step.scope, *(Decision(Event.DELETE, memory_id=each, kind=kind) for kind, each in gone))
        case "restore" if there:
            ((kind, owner),) = _chosen(there, step.one)
            book.apply(step.scope, Decision(Event.ADD, memory_id=owner, kind=kind))
        case "say":
            book.say(*TEXTS[: 1 + step.one % 3], scope=step.scope)
        case "learn":
            sources = tuple(message.id for message in book.say(step.text, scope=step.scope))
            facts = [Fact(text, sources, happened_at=step.day) for text in (step.text, *TEXTS[step.one % 4 :])]
            known = zip((Event.UPDATE, Event.DELETE, Event.NONE), mine, strict=False)
            decided = [Decision(event, facts[-1], each) for event, each in known]
            book.apply(step.scope, *decided, Decision(Event.ADD, facts[0]), learned_from=sources)
        case "embed":
            book.embed()
        case _:
            pass


def _undo(book: RecordedLedger, step: Step) -> None:
    """Take back one edit, or the newest in effect: what it changed is as before it; and back again is as after it."""
    edits = book.log(step.scope)
    number = edits[step.one % len(edits)].number if edits and step.other % 3 else None
    was = book.living()
    book.undo(number, scope=step.scope)
    undone = book.log()[0]
    number = int(undone.provenance.stage.removeprefix("undo "))
    then, now = book.edits[number], book.living()
    (edit,) = (each for each in book.log() if each.number == number)
    owners = {each.owner_id for each in edit.steps}
    assert {each: now.get(each) for each in owners} == {each: then.get(each) for each in owners}
    assert {each: now[each] for each in now if each not in owners} == {
        each: was[each] for each in was if each not in owners
    }
    if step.other % 2:
        book.undo(undone.number, scope=step.scope)
        assert book.living() == was


def _undo_since(book: RecordedLedger, number: int, scope: Scope) -> None:
    """Take back all since an instant: everything the scope sees is what it was then, the rest as it is."""
    was = book.living()
    instant, then = book.before[number % len(book.before)] if book.before else (book.clock.at, was)
    try:
        book.undo(since=instant, scope=scope)
    except InputError as error:
        raise AssertionError("the way back to an instant is never barred") from error
    seen = SCOPES if scope == WEB else (ALICE,)
    kept = {key: value for key, value in was.items() if value[0] not in seen}
    assert book.living() == {key: value for key, value in then.items() if value[0] in seen} | kept


WAYS: dict[str, Callable[[RecordedLedger, Step], None]] = {
    "undo": _undo,
    "since": lambda book, step: _undo_since(book, step.one, step.scope),
}
"""How steps are carried out that are more than a write."""


def _answers_for_every_instant(book: RecordedLedger) -> None:
    """Hold what is believed as of every instant, just before a write, against what there was then."""
    for instant, then in book.before:
        with book.ledger.read() as conn:
            believed = history_queries.memories_at(conn, WEB, instant - timedelta(seconds=1))
            said = history_queries.messages_at(conn, WEB, instant - timedelta(seconds=1))
        found: LiveEntries = {memory.id: memory_fields(memory) for memory in believed}
        assert found | {message.id: (message.scope, message.content) for message in said} == then


def _walks_back_to_the_end(book: RecordedLedger) -> None:
    """Take back one edit after another until there is none left; each of them once."""
    taken: list[str] = []
    with contextlib.suppress(InputError):
        while len(taken) < 100:
            book.undo(scope=WEB)
            taken.append(book.log()[0].provenance.stage)
    assert len(set(taken)) == len(taken)


@examples(40)
@given(
    steps=st.lists(STEPS, min_size=5, max_size=14),
    instants=st.lists(st.integers(0, 13), min_size=1, max_size=3),
)
def test_whatever_was_done_can_be_taken_back_and_nothing_is_lost(steps: list[Step], instants: list[int]) -> None:
    """Guards undo as a whole: the way back, the way forth again, `since`, `as_of`, history and the search's rows."""
    with tempfile.TemporaryDirectory() as folder, recorded_ledger(Path(folder)) as book:
        rows = book.rows()
        for step in steps:
            was = book.living()
            try:
                WAYS.get(step.what, _do)(book, step)
            except InputError:
                assert (book.living(), book.rows()) == (was, rows)
            assert book.rows()[: len(rows)] == rows
            rows = book.rows()
        for number in instants:
            _undo_since(book, number, WEB)
        assert book.rows()[: len(rows)] == rows
        _walks_back_to_the_end(book)
        _answers_for_every_instant(book)
        assert book.faults() == []
