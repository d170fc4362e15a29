"""Page through memories, newest first, with the filters that searches take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palimpsest.core.errors import InputError
from palimpsest.core.filters import compile_filter
from palimpsest.core.models import Hit, Scope
from palimpsest.core.threads import end_if_cancelled
from palimpsest.recall.hits import cut_to_fit, hit_tokens, memory_hit, record
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries

MAX_CURSOR_DIGITS = 18
"""A cursor is a row number, which is below 10^18 as a 64-bit integer."""

FILTERED_BATCH = 200
"""How many memories are read at once if a filter is applied, which may drop most of them. Set by hand."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `cursor` requests the next page, after the last hit, and is None on the last page.

    `notes` are remarks for the caller.
    """

    hits: tuple[Hit, ...]
    cursor: str | None = None
    notes: tuple[str, ...] = ()


def page(
    ledger: Ledger,
    scope: Scope,
    limit: int,
    max_tokens: int,
    cursor: str | None,
    *,
    deleted: bool,
    filters: Mapping[str, Any] | None,
) -> Page:
    """Return a page of living or deleted memories. Blocking. Raises InputError.

    The page ends before the memory that is one too many for `limit` or `max_tokens`. Only a memory that is too long for
    a page of its own is cut.
    """
    test = compile_filter(filters) if filters else None
    size = FILTERED_BATCH if test is not None else limit + 1
    before = _row_number(cursor)
    hits: list[Hit] = []
    left = max_tokens
    with ledger.read() as conn:
        while True:
            end_if_cancelled()
            batch = memory_queries.list_memories(conn, scope, size, before=before, deleted=deleted)
            sources = message_queries.sources_of(conn, [memory.id for _, memory in batch])
            for row_number, memory in batch:
                hit = memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0)
                if test is not None and not test(record(hit)):
                    continue
                if not hits:
                    hit = cut_to_fit(hit, max_tokens)
                elif len(hits) == limit or hit_tokens(hit) > left:
                    return Page(tuple(hits), str(before))
                hits.append(hit)
                left -= hit_tokens(hit)
                before = row_number
            if len(batch) < size:
                return Page(tuple(hits))
            before = batch[-1][0] if len(hits) < limit else before


def _row_number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > MAX_CURSOR_DIGITS:
        raise InputError(f"'{cursor}' is not a cursor. Use the one that the previous page ended with.")
    return int(cursor)
