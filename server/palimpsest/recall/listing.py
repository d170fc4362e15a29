"""Page through memories, newest first, with the filters that searches take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.errors import InputError
from palimpsest.core.filters import compile_filter
from palimpsest.core.models import Hit, Scope
from palimpsest.recall.hits import memory_hit, record
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries

MAX_CURSOR_DIGITS = 18
PAGE = 200
"""How many memories are read at once where a filter is applied."""


@dataclass(frozen=True, slots=True)
class Page:
    """Hold one page of a listing; `cursor` asks for the next one and is None at the end."""

    hits: tuple[Hit, ...]
    cursor: str | None = None


def page(
    ledger: Ledger, scope: Scope, limit: int, cursor: str | None, *, deleted: bool, filters: Mapping[str, Any] | None
) -> Page:
    """Return a page of memories, living or deleted. Blocking. Raises InputError."""
    test = compile_filter(filters) if filters else None
    size = PAGE if test is not None else limit + 1
    row = _row_number(cursor)
    hits: list[Hit] = []
    with ledger.read() as conn:
        while True:
            found = memory_queries.list_memories(conn, scope, size, before=row, deleted=deleted)
            sources = message_queries.sources_of(conn, [memory.id for _, memory in found])
            for number, memory in found:
                hit = memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0)
                if test is not None and not test(record(hit)):
                    continue
                if len(hits) == limit:
                    return Page(tuple(hits), str(row))
                hits.append(hit)
                row = number
            if len(found) < size:
                return Page(tuple(hits))
            row = found[-1][0] if len(hits) < limit else row


def _row_number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > MAX_CURSOR_DIGITS:
        raise InputError(f"'{cursor}' is no cursor; take it from the reply of list_memories")
    return int(cursor)
