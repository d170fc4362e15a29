"""The queries use only SQL that SQLite and PostgreSQL both have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from types import ModuleType
from typing import Any

from sqlalchemy import ClauseElement, Connection, event
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import FunctionElement

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope, Summary
from palimpsest.store import entries, history, jobs, memories, messages, schema, summaries
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
    "next_number",
    "replace",
    "rtrim",
    "substr",
    "sum",
}
"""Functions that both databases have. Those of `store/rows.py` are written by each dialect."""


postgres_schema.register()

AGENT = Scope("alice", "web", "coder", "r1")
NOW = StoppedClock().at
SUMMARY = Summary(ALICE, "overall", "Plays the cello.", 0, NOW, sources={"3a": 1})
BOUNDS = messages.MessageBounds(["user"], ["Ana"], ["3a"], NOW, NOW, [1, 2], ["3a"], has_pages=False)


MODULES = (entries, history, jobs, memories, messages, summaries)
WRITES = {
    jobs: "enqueue enqueue_all insert_job queue_enrichment queue_session begin_call end_call erase move replace_owner "
    "take progress finish interrupt postpone retry mark_reported",
    summaries: "put store erase_of",
    entries: "set_meta begin_epoch next_edit_number reserve_edit_numbers",
}
"""The functions that are no queries."""

VALUES: dict[str, Any] = {
    **dict.fromkeys(("now", "soon", "since", "until", "instant", "day"), NOW),
    **dict.fromkeys(("limit", "count", "row", "after", "base_id", "log_number", "summary_id", "edit"), 1),
    **dict.fromkeys(("seqs", "numbers"), (1, 2)),
    **dict.fromkeys(("hashes", "content_hashes"), ("3a",)),
    **dict.fromkeys(("last", "summary"), SUMMARY),
    **dict.fromkeys(("prefix", "name", "session_id", "client", "session", "role"), "3a"),
    "user_id": "alice",
    "embedder": "e",
    "kind": "memory",
    "kinds": jobs.ORDER,
    "passage": "cello",
    "key": "epoch",
    "zone": UTC,
    "bounds": BOUNDS,
    "deleted": None,
    "may_exceed": True,
    "blocks": {ALICE: 1},
    "unit": "month",
    "days": memories.Days(NOW.date(), NOW.date(), UTC),
    "at": schema.memories.c.created_at,
    "list_conversations.after": (NOW, "3a"),
    "list_messages.after": messages.MessagePosition(NOW, 9),
    "list_messages.bounds": BOUNDS,
    "list_memories.before": 9,
    "edits.before": 9,
    "living_at.before": 9,
    "memories_at.memory_ids": ["3a"],
    "scope_keys.kind": "memory",
    "missing_vectors.only_failed": True,
}
"""What is passed as a parameter of a name; with the name of a query before it, of this query alone."""


def test_every_query_runs_and_is_understood_by_postgresql(ledger: Ledger) -> None:
    """Whatever the statement is built from, PostgreSQL can compile it and has its functions."""
    (message,) = messages_from({"role": "user", "content": "I play the cello", "name": "Ana"})
    ledger.apply(Write(ALICE, Provenance("test"), messages=(message,)))
    decision = Decision(Event.ADD, Fact("User plays the cello", sources=(message.id,)))
    (outcome,) = ledger.apply(Write(ALICE, Provenance("test"), decisions=(decision,))).outcomes
    memory_id, message_id = outcome.memory.id, message.id
    values = {
        **VALUES,
        **dict.fromkeys(("owner_id", "memory_id"), memory_id),
        **dict.fromkeys(("message_id", "conversation_id"), message_id),
        **dict.fromkeys(("ids", "owner_ids", "memory_ids", "message_ids", "session_ids"), (memory_id, message_id)),
        "message": message,
        "found": [message],
        "memory": outcome.memory,
        "closed": [replace(outcome.memory, superseded_by=memory_id)],
        "job": jobs.Job(1, "learn", ALICE, {jobs.MESSAGES: [message_id]}, NOW, NOW, 0, "done", "", {}, NOW),
    }
    queries = [query for module in MODULES for query in queries_of(module)]
    assert len(queries) > 120
    for query in queries:
        executed: list[ClauseElement] = []
        with ledger.read() as conn:

            def record(
                _conn: Connection, statement: ClauseElement, *_: object, told: list[ClauseElement] = executed
            ) -> None:
                told.append(statement)

            event.listen(conn, "before_execute", record)
            for scope in (ALICE, AGENT):
                with suppress(MemoryNotFoundError):
                    found = query(**arguments(query, {**values, "conn": conn, "scope": scope}))
                    _ = list(found) if inspect.isgenerator(found) or hasattr(found, "__next__") else found
        assert executed, query.__name__
        for statement in executed:
            _assert_portable(statement)


def queries_of(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the public functions of a module that read through a connection."""
    return [
        function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and next(iter(inspect.signature(function).parameters), "") == "conn"
        and not name.startswith("_")
        and name not in WRITES.get(module, "").split()
    ]


def arguments(query: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return what to pass to a query."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(query).parameters.items():
        own = f"{query.__name__}.{name}"
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if own in values or parameter.default is parameter.empty:
            given[name] = values[own if own in values else name]
    return given


def test_every_statement_of_a_module_is_understood_by_postgresql() -> None:
    """Also the statements that no call above executes."""
    statements = [value for module in MODULES for value in vars(module).values() if isinstance(value, ClauseElement)]
    assert len(statements) > 10
    for statement in statements:
        _assert_portable(statement)


def _assert_portable(statement: ClauseElement) -> None:
    sql = str(statement.compile(dialect=postgres_schema.LedgerDialect()))
    functions: set[str] = {
        element.name for element in visitors.iterate(statement) if isinstance(element, FunctionElement)
    }
    assert functions <= FUNCTIONS, sql
