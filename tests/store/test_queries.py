"""The queries use only SQL that SQLite and PostgreSQL both have."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from types import ModuleType

import pytest
from sqlalchemy import ClauseElement, Connection, event
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import FunctionElement

from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Provenance, Scope, Summary
from palimpsest.store import entries, history, jobs, memories, messages, summaries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from palimpsest.store.postgres import postgres_schema
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
"""Functions that both databases have. Those of `store/rows.py` are written by each dialect."""


postgres_schema.register()

AGENT = Scope("alice", "web", "coder", "r1")
NOW = StoppedClock().at
SUMMARY = Summary(ALICE, "overall", "Plays the cello.", 0, NOW)
CHANGED = replace(SUMMARY, sources={"3a": 1})
BOUNDS = messages.MessageBounds(["user"], ["Ana"], ["3a"], NOW, NOW, [1, 2], ["3a"], has_pages=False)


def learning(message: Message) -> jobs.Job:
    """Return a job that learns from a message."""
    payload = {jobs.MESSAGES: [message.id]}
    return jobs.Job(1, "learn", ALICE, payload, NOW, NOW, 0, "done", "", {}, NOW)


CALLS: dict[Callable[..., object], Callable[[Connection, Memory, Message], object]] = {
    messages.calls_on: lambda conn, _, __: messages.calls_on(conn, NOW),
    messages.purged: lambda conn, _, message: messages.purged(conn, [message.id]),
    messages.undone: lambda conn, _, message: messages.undone(conn, [message.id]),
    messages.with_texts: lambda conn, _, __: messages.with_texts(conn, "alice", ["3a"]),
    messages.list_conversations: lambda conn, _, __: messages.list_conversations(conn, AGENT, 9, (NOW, "3a")),
    messages.count_conversations: lambda conn, _, __: messages.count_conversations(conn, AGENT),
    messages.find_conversation: lambda conn, _, message: messages.find_conversation(conn, ALICE, message.id, None),
    messages.messages_in: lambda conn, _, message: messages.messages_in(conn, ALICE, message.id, 9),
    messages.ids_beginning: lambda conn, _, __: messages.ids_beginning(conn, AGENT, "3a", 9),
    messages.list_messages: lambda conn, _, __: messages.list_messages(
        conn, AGENT, 9, after=messages.MessagePosition(NOW, 9), bounds=BOUNDS
    ),
    messages.living_messages: lambda conn, _, __: list(messages.living_messages(conn, AGENT, BOUNDS)),
    messages.message_entries: lambda conn, _, __: messages.message_entries(conn, AGENT, BOUNDS),
    messages.message_entries_among: lambda conn, _, __: messages.message_entries_among(conn, AGENT, BOUNDS, [1]),
    messages.memories_of_sessions: lambda conn, _, __: messages.memories_of_sessions(conn, ["3a"]),
    history.edits: lambda conn, _, __: history.edits(conn, AGENT, 9, before=9),
    entries.candidates: lambda conn, _, __: entries.candidates(conn, ALICE, "e", [1, 2], NOW),
    entries.memories_at: lambda conn, _, __: entries.memories_at(conn, AGENT, [1, 2]),
    entries.is_narrow: lambda conn, _, __: entries.is_narrow(conn, AGENT),
    entries.living_memories: lambda conn, _, __: list(entries.living_memories(conn, AGENT)),
    history.versions_of: lambda conn, memory, _: history.versions_of(conn, memory.id),
    history.memories_at: lambda conn, _, __: history.memories_at(conn, ALICE, NOW),
    history.predecessors: lambda conn, memory, _: history.predecessors(conn, memory.id),
    history.messages_at: lambda conn, _, __: history.messages_at(conn, ALICE, NOW),
    history.owners_of_passage: lambda conn, _, __: history.owners_of_passage(conn, ALICE, "cello"),
    entries.find: lambda conn, memory, _: entries.find(conn, ALICE, memory.id),
    entries.find_shown: lambda conn, memory, _: entries.find_shown(conn, ALICE, memory.id),
    entries.find_memory: lambda conn, memory, _: entries.find_memory(conn, ALICE, memory.id),
    entries.ids_beginning: lambda conn, _, __: entries.ids_beginning(conn, ALICE, "3a", 9),
    entries.shown: lambda conn, _, message: entries.shown(conn, message),
    entries.newest_log_number: lambda conn, _, __: entries.newest_log_number(conn),
    entries.log_rows_after: lambda conn, _, __: entries.log_rows_after(conn, 0, 9),
    entries.log_signature: lambda conn, _, __: entries.log_signature(conn, 1),
    messages.count_deleted_messages: lambda conn, _, __: messages.count_deleted_messages(conn, ALICE),
    messages.row_before: lambda conn, _, message: messages.row_before(conn, AGENT, message.id, 0),
    history.states_around: lambda conn, _, __: history.states_around(conn, AGENT, [1]),
    entries.epoch: lambda conn, _, __: entries.epoch(conn),
    entries.has_changed_since: lambda conn, _, __: entries.has_changed_since(conn, "alice", 0),
    entries.changed_memories: lambda conn, _, __: entries.changed_memories(conn, 0, 9),
    entries.newest_position: lambda conn, _, __: entries.newest_position(conn),
    entries.entries_changed_since: lambda conn, _, __: entries.entries_changed_since(conn, "alice", 0, 9),
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
    entries.keys_of: lambda conn, _, __: entries.keys_of(conn, "e", [1, 2]),
    entries.own_vectors: lambda conn, memory, _: entries.own_vectors(conn, "e", "memory", [memory.id]),
    entries.scope_keys: lambda conn, _, __: list(entries.scope_keys(conn, AGENT, "e", "memory")),
    entries.some_keys: lambda conn, _, __: list(entries.some_keys(conn, "e", [1, 2])),
    entries.user_keys: lambda conn, _, __: list(entries.user_keys(conn, "alice", "e")),
    entries.centre: lambda conn, _, __: entries.centre(conn, "alice", "e"),
    entries.indexed_keys: lambda conn, _, __: entries.indexed_keys(conn, "e", 0, 9),
    entries.count_indexed: lambda conn, _, __: entries.count_indexed(conn, "e"),
    entries.missing_vectors: lambda conn, _, __: entries.missing_vectors(conn, "e", 9, only_failed=True),
    entries.count_missing_vectors: lambda conn, _, __: entries.count_missing_vectors(conn, "e"),
    entries.waiting: lambda conn, _, __: entries.waiting(conn, "e"),
    entries.has_partial_vectors: lambda conn, _, __: entries.has_partial_vectors(conn, "e"),
    entries.has_missing_vectors: lambda conn, _, __: entries.has_missing_vectors(conn, "e"),
}
"""A call of every query."""


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
    sql = str(statement.compile(dialect=postgres_schema.LedgerDialect()))
    functions: set[str] = {
        element.name for element in visitors.iterate(statement) if isinstance(element, FunctionElement)
    }
    assert functions <= FUNCTIONS, sql


def _modules() -> Iterator[ModuleType]:
    names = ("memories", "messages", "entries", "history", "jobs", "summaries")
    return (importlib.import_module(f"palimpsest.store.{name}") for name in names)
