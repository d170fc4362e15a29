"""The queries use only SQL that SQLite and PostgreSQL both have."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import ClauseElement, Connection, event
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import FunctionElement

from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Provenance, Scope, Summary
from palimpsest.store import queries
from palimpsest.store.database.postgres import dialect
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import (
    capture,
    conversations,
    edits,
    entries,
    history,
    id_lookup,
    index_log,
    jobs,
    memories,
    messages,
    summaries,
    vectors,
)
from palimpsest.store.writes.apply import Write
from tests.support.memory import ALICE, StoppedClock, messages_from

FUNCTIONS = {
    "coalesce",
    "count",
    "json_elements",
    "json_numbers",
    "length",
    "max",
    "min",
    "replace",
    "rtrim",
    "substr",
    "sum",
}
"""Functions that both databases have. Those of `store/mapping.py` are written by each dialect."""


dialect.register()

AGENT = Scope("alice", "web", "coder", "r1")
NOW = StoppedClock().at
SUMMARY = Summary(ALICE, "overall", "Plays the cello.", 0, NOW)
CHANGED = replace(SUMMARY, sources={"3a": 1})
BOUNDS = conversations.MessageBounds(["user"], ["Ana"], ["3a"], NOW, NOW, [1, 2], ["3a"], has_pages=False)


def learning(message: Message) -> jobs.Job:
    """Return a job that learns from a message."""
    payload = {jobs.MESSAGES: [message.id]}
    return jobs.Job(1, "learn", ALICE, payload, NOW, NOW, 0, "done", "", {}, NOW)


CALLS: dict[Callable[..., object], Callable[[Connection, Memory, Message], object]] = {
    capture.calls_on: lambda conn, _, __: capture.calls_on(conn, NOW),
    capture.purged: lambda conn, _, message: capture.purged(conn, [message.id]),
    capture.undone: lambda conn, _, message: capture.undone(conn, [message.id]),
    capture.with_texts: lambda conn, _, __: capture.with_texts(conn, "alice", ["3a"]),
    conversations.list_conversations: lambda conn, _, __: conversations.list_conversations(conn, AGENT, 9, (NOW, "3a")),
    conversations.count_conversations: lambda conn, _, __: conversations.count_conversations(conn, AGENT),
    conversations.find_conversation: lambda conn, _, message: conversations.find_conversation(
        conn, ALICE, message.id, None
    ),
    conversations.messages_in: lambda conn, _, message: conversations.messages_in(conn, ALICE, message.id, 9),
    conversations.ids_beginning: lambda conn, _, __: conversations.ids_beginning(conn, AGENT, "3a", 9),
    conversations.list_messages: lambda conn, _, __: conversations.list_messages(
        conn, AGENT, 9, after=conversations.MessagePosition(NOW, 9), bounds=BOUNDS
    ),
    conversations.living_messages: lambda conn, _, __: list(conversations.living_messages(conn, AGENT, BOUNDS)),
    conversations.message_entries: lambda conn, _, __: conversations.message_entries(conn, AGENT, BOUNDS),
    conversations.message_entries_among: lambda conn, _, __: conversations.message_entries_among(
        conn, AGENT, BOUNDS, [1]
    ),
    conversations.memories_of_sessions: lambda conn, _, __: conversations.memories_of_sessions(conn, ["3a"]),
    edits.edits: lambda conn, _, __: edits.edits(conn, AGENT, 9, before=9),
    entries.candidates: lambda conn, _, __: entries.candidates(conn, ALICE, "e", [1, 2], NOW),
    entries.memories_at: lambda conn, _, __: entries.memories_at(conn, AGENT, [1, 2]),
    entries.is_narrow: lambda conn, _, __: entries.is_narrow(conn, AGENT),
    entries.living_memories: lambda conn, _, __: list(entries.living_memories(conn, AGENT)),
    history.versions_of: lambda conn, memory, _: history.versions_of(conn, memory.id),
    history.memories_at: lambda conn, _, __: history.memories_at(conn, ALICE, NOW),
    history.predecessors: lambda conn, memory, _: history.predecessors(conn, memory.id),
    history.messages_at: lambda conn, _, __: history.messages_at(conn, ALICE, NOW),
    history.owners_of_passage: lambda conn, _, __: history.owners_of_passage(conn, ALICE, "cello"),
    id_lookup.find: lambda conn, memory, _: id_lookup.find(conn, ALICE, memory.id),
    id_lookup.find_shown: lambda conn, memory, _: id_lookup.find_shown(conn, ALICE, memory.id),
    id_lookup.find_memory: lambda conn, memory, _: id_lookup.find_memory(conn, ALICE, memory.id),
    id_lookup.ids_beginning: lambda conn, _, __: id_lookup.ids_beginning(conn, ALICE, "3a", 9),
    id_lookup.shown: lambda conn, _, message: id_lookup.shown(conn, message),
    index_log.newest_log_number: lambda conn, _, __: index_log.newest_log_number(conn),
    index_log.log_rows_after: lambda conn, _, __: index_log.log_rows_after(conn, 0, 9),
    index_log.log_signature: lambda conn, _, __: index_log.log_signature(conn, 1),
    conversations.count_deleted_messages: lambda conn, _, __: conversations.count_deleted_messages(conn, ALICE),
    conversations.row_before: lambda conn, _, message: conversations.row_before(conn, AGENT, message.id, 0),
    edits.states_around: lambda conn, _, __: edits.states_around(conn, AGENT, [1]),
    index_log.epoch: lambda conn, _, __: index_log.epoch(conn),
    index_log.has_changed_since: lambda conn, _, __: index_log.has_changed_since(conn, "alice", 0),
    index_log.changed_memories: lambda conn, _, __: index_log.changed_memories(conn, 0, 9),
    index_log.newest_position: lambda conn, _, __: index_log.newest_position(conn),
    index_log.entries_changed_since: lambda conn, _, __: index_log.entries_changed_since(conn, "alice", 0, 9),
    jobs.due_job: lambda conn, _, __: jobs.due_job(conn, NOW, jobs.ORDER),
    jobs.next_due_at: lambda conn, _, __: jobs.next_due_at(conn, jobs.ORDER),
    jobs.jobs_of: lambda conn, _, __: jobs.jobs_of(conn, "alice"),
    jobs.jobs_seen: lambda conn, _, __: jobs.jobs_seen(conn, AGENT, 9),
    jobs.unreported_jobs: lambda conn, _, __: jobs.unreported_jobs(conn, AGENT),
    jobs.count_unfinished: lambda conn, _, __: jobs.count_unfinished(conn),
    jobs.count_states: lambda conn, _, __: jobs.count_states(conn, NOW),
    jobs.model_use: lambda conn, _, __: jobs.model_use(conn, NOW),
    jobs.memories_of_job: lambda conn, _, message: jobs.memories_of_job(conn, learning(message)),
    memories.count_before: lambda conn, _, __: memories.count_before(conn, ALICE, 1),
    memories.list_memories: lambda conn, _, __: memories.list_memories(conn, ALICE, 9, before=9),
    memories.rows_of: lambda conn, memory, _: memories.rows_of(conn, [memory.id]),
    memories.count_memories: lambda conn, _, __: memories.count_memories(conn, ALICE),
    memories.count_living: lambda conn, _, __: memories.count_living(conn, "alice"),
    history.is_in_names: lambda conn, _, __: history.is_in_names(conn, "alice"),
    memories.memories_of: lambda conn, _, __: memories.memories_of(conn, AGENT),
    memories.metadata_keys: lambda conn, _, __: list(memories.metadata_keys(conn, AGENT, deleted=None)),
    memories.newest_of_project: lambda conn, _, __: memories.newest_of_project(conn, AGENT, 9),
    memories.projects_of: lambda conn, _, __: memories.projects_of(conn, "alice"),
    memories.memories_by_id: lambda conn, memory, _: memories.memories_by_id(conn, [memory.id]),
    memories.memories_from: lambda conn, _, message: memories.memories_from(conn, [message.id]),
    memories.messages_of: lambda conn, memory, _: memories.messages_of(conn, [memory.id]),
    memories.hashes_known: lambda conn, _, __: memories.hashes_known(conn, "alice", ["h"]),
    memories.captured_memories: lambda conn, _, __: memories.captured_memories(conn, ALICE, 9),
    memories.memories_telling_name: lambda conn, _, __: memories.memories_telling_name(conn, ALICE),
    memories.name_of_user: lambda conn, _, __: memories.name_of_user(conn, ALICE),
    memories.counts: lambda conn, _, __: memories.counts(conn, ALICE),
    messages.last_conversation: lambda conn, _, __: messages.last_conversation(conn, AGENT),
    messages.messages_by_id: lambda conn, _, message: messages.messages_by_id(conn, [message.id]),
    messages.messages_of: lambda conn, _, __: messages.messages_of(conn, AGENT),
    messages.messages_before: lambda conn, _, message: messages.messages_before(conn, ALICE, message.id, 9),
    messages.sessions_with_forgotten: lambda conn, _, message: messages.sessions_with_forgotten(conn, [message.id]),
    messages.without_forgotten: lambda conn, _, message: messages.without_forgotten(conn, [message]),
    messages.messages_since: lambda conn, _, __: messages.messages_since(conn, ALICE, NOW, 9),
    messages.sources_of: lambda conn, memory, _: messages.sources_of(conn, [memory.id]),
    messages.awaiting_extraction: lambda conn, _, message: messages.awaiting_extraction(conn, [message.id]),
    messages.outdated_or_forgotten: lambda conn, _, message: messages.outdated_or_forgotten(conn, [message.id]),
    messages.speakers: lambda conn, _, __: messages.speakers(conn, "alice"),
    messages.has_speaker: lambda conn, _, __: messages.has_speaker(conn, ALICE, "Ana"),
    summaries.latest_summary: lambda conn, _, __: summaries.latest_summary(conn, ALICE, "overall"),
    summaries.newest_number: lambda conn, _, __: summaries.newest_number(conn, "alice"),
    summaries.kinds_with_passage: lambda conn, _, __: summaries.kinds_with_passage(conn, "cello"),
    summaries.newest_texts: lambda conn, _, __: summaries.newest_texts(conn, ALICE, 9),
    summaries.current_summary: lambda conn, _, __: summaries.current_summary(conn, ALICE, "overall"),
    summaries.base_summary: lambda conn, _, __: summaries.base_summary(conn, ALICE, "overall"),
    summaries.memories_behind: lambda conn, _, __: summaries.memories_behind(conn, ALICE, "overall"),
    summaries.messages_behind: lambda conn, _, __: summaries.messages_behind(conn, ALICE, "overall"),
    summaries.summaries_beyond: lambda conn, _, __: summaries.summaries_beyond(conn, ALICE, "day:", None, 9),
    summaries.memories_beyond: lambda conn, _, __: summaries.memories_beyond(conn, ALICE, 1, 9),
    summaries.changed_behind: lambda conn, _, __: summaries.changed_behind(conn, ALICE, CHANGED),
    summaries.memories_of_time: lambda conn, _, __: summaries.memories_of_time(conn, ALICE, NOW, NOW, 9),
    summaries.memories_said: lambda conn, _, __: summaries.memories_said(conn, ALICE, NOW, NOW, 9),
    summaries.messages_said: lambda conn, _, __: summaries.messages_said(conn, ALICE, NOW, NOW, 9),
    summaries.messages_of_session: lambda conn, _, message: summaries.messages_of_session(conn, ALICE, message.id, 9),
    summaries.last_session: lambda conn, _, __: summaries.last_session(conn, ALICE),
    summaries.dates_with_something_said: lambda conn, _, __: summaries.dates_with_something_said(
        conn, ALICE, NOW, NOW, UTC
    ),
    summaries.count_said: lambda conn, _, __: summaries.count_said(conn, ALICE, NOW, NOW),
    summaries.count_said_since: lambda conn, _, __: summaries.count_said_since(conn, ALICE, SUMMARY, NOW, NOW),
    summaries.count_in_session_since: lambda conn, _, __: summaries.count_in_session_since(conn, ALICE, SUMMARY, "s"),
    summaries.count_changes_since: lambda conn, _, __: summaries.count_changes_since(conn, ALICE, 0),
    summaries.has_corrections_since: lambda conn, _, __: summaries.has_corrections_since(conn, ALICE, 0),
    vectors.keys_of: lambda conn, _, __: vectors.keys_of(conn, "e", [1, 2]),
    vectors.own_vectors: lambda conn, memory, _: vectors.own_vectors(conn, "e", "memory", [memory.id]),
    vectors.scope_keys: lambda conn, _, __: list(vectors.scope_keys(conn, AGENT, "e", "memory")),
    vectors.some_keys: lambda conn, _, __: list(vectors.some_keys(conn, "e", [1, 2])),
    vectors.user_keys: lambda conn, _, __: list(vectors.user_keys(conn, "alice", "e")),
    vectors.centre: lambda conn, _, __: vectors.centre(conn, "alice", "e"),
    vectors.indexed_keys: lambda conn, _, __: vectors.indexed_keys(conn, "e", 0, 9),
    vectors.count_indexed: lambda conn, _, __: vectors.count_indexed(conn, "e"),
    vectors.missing_vectors: lambda conn, _, __: vectors.missing_vectors(conn, "e", 9, only_failed=True),
    vectors.count_missing_vectors: lambda conn, _, __: vectors.count_missing_vectors(conn, "e"),
    vectors.waiting: lambda conn, _, __: vectors.waiting(conn, "e"),
    vectors.has_partial_vectors: lambda conn, _, __: vectors.has_partial_vectors(conn, "e"),
    vectors.has_missing_vectors: lambda conn, _, __: vectors.has_missing_vectors(conn, "e"),
}
"""A call of every query."""


def test_every_query_is_called_here() -> None:
    """A new query must be added to `CALLS`."""
    public = {
        function
        for module in _modules()
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert {function for function in public if "conn" in inspect.signature(function).parameters} == CALLS.keys()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("call", CALLS.values(), ids=[function.__name__ for function in CALLS])
def test_a_query_runs_and_is_understood_by_postgresql(
    ledger: Ledger, call: Callable[[Connection, Memory, Message], object]
) -> None:
    """Whatever the statement is built from, PostgreSQL can compile it and has its functions."""
    (message,) = messages_from({"role": "user", "content": "I play the cello", "name": "Ana"})
    ledger.apply(Write(ALICE, Provenance("test"), messages=(message,)))
    decision = Decision(Event.ADD, Fact("User plays the cello", sources=(message.id,)))
    (outcome,) = ledger.apply(Write(ALICE, Provenance("test"), decisions=(decision,))).outcomes
    executed: list[ClauseElement] = []
    with ledger.read() as conn:

        def record(_conn: Connection, statement: ClauseElement, *_: object) -> None:
            executed.append(statement)

        event.listen(conn, "before_execute", record)
        call(conn, outcome.memory, message)
    assert executed
    for statement in executed:
        _assert_portable(statement)


def test_every_statement_of_a_module_is_understood_by_postgresql() -> None:
    """Also the statements that no call above executes."""
    statements = [value for module in _modules() for value in vars(module).values() if isinstance(value, ClauseElement)]
    assert len(statements) > 10
    for statement in statements:
        _assert_portable(statement)


def _assert_portable(statement: ClauseElement) -> None:
    sql = str(statement.compile(dialect=dialect.LedgerDialect()))
    functions: set[str] = {
        element.name for element in visitors.iterate(statement) if isinstance(element, FunctionElement)
    }
    assert functions <= FUNCTIONS, sql


def _modules() -> Iterator[ModuleType]:
    names: list[Any] = [module.name for module in pkgutil.iter_modules(queries.__path__)]
    return (importlib.import_module(f"{queries.__name__}.{name}") for name in names)
