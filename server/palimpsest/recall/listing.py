"""Page through memories, or through messages, newest first, with the filters that searches take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from sqlalchemy import Connection

from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope, has_expired
from palimpsest.core.search.filters import compile_filter
from palimpsest.core.search.hits import Hit
from palimpsest.core.threads import end_if_cancelled
from palimpsest.recall.hits import cut_to_fit, hit_test, hit_tokens, memory_hit, message_hit
from palimpsest.recall.scoring.forgetting import OFF, Forgetting, faded_owners
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries

MAX_CURSOR_DIGITS = 18
"""A cursor is a row number, which is below 10^18 as a 64-bit integer."""

FILTERED_BATCH = 200
"""How many memories are read at once if a filter is applied, which may drop most of them. Set by hand."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `cursor` requests the next page, after the last hit, and is None on the last page.

    `notes` are remarks for the caller. If the scope has no memories, `conversations` and `messages` count what it has.
    """

    hits: tuple[Hit, ...]
    cursor: str | None = None
    notes: tuple[str, ...] = ()
    conversations: int = 0
    messages: int = 0


def page(
    ledger: Ledger,
    scope: Scope,
    limit: int,
    max_tokens: int,
    cursor: str | None,
    *,
    deleted: bool,
    filters: Mapping[str, Any] | None,
    forgetting: Forgetting = OFF,
) -> Page:
    """Return a page of living or deleted memories, or of messages if the filter asks for that `kind`. Blocking.

    The page ends before the hit that is one too many for `limit` or `max_tokens`. Only a hit that is too long for a
    page of its own is cut. What has faded is listed; `forgetting` says what has, for a filter. Raises InputError.
    """
    now = ledger.now()
    read = _read_messages if _asks_for_messages(filters) else _read_memories
    size = FILTERED_BATCH if filters else limit + 1
    before = _row_number(cursor)
    hits: list[Hit] = []
    left = max_tokens
    with ledger.read() as conn:
        faded = partial(faded_owners, conn, scope, forgetting, now)
        test = hit_test(conn, scope, filters, faded=faded) if filters else None
        while True:
            end_if_cancelled()
            batch = read(conn, scope, size, before, deleted=deleted)
            for row_number, hit in batch:
                if (
                    hit is None
                    or (not deleted and has_expired(hit.metadata, now))
                    or (test is not None and not test(hit))
                ):
                    continue
                if not hits:
                    hit = cut_to_fit(hit, max_tokens)  # noqa: PLW2901 - the rest of the text is not used
                elif len(hits) == limit or hit_tokens(hit) > left:
                    return Page(tuple(hits), str(before))
                hits.append(hit)
                left -= hit_tokens(hit)
                before = row_number
            if len(batch) < size:
                if hits or before is not None or deleted or memory_queries.count_memories(conn, scope):
                    return Page(tuple(hits))
                conversations, messages = conversation_queries.count_conversations(conn, scope)
                return Page((), conversations=conversations, messages=messages)
            before = batch[-1][0] if len(hits) < limit else before


def _asks_for_messages(filters: Mapping[str, Any] | None) -> bool:
    """Return whether a filter, or a part of it that must be true, wants the kind "message" and no other."""
    if not filters:
        return False
    if "kind" in filters:
        test = compile_filter({"kind": filters["kind"]})
        return test({"kind": "message", "metadata": {}}) and not test({"kind": "memory", "metadata": {}})
    parts: Any = filters.get("AND")
    return isinstance(parts, list) and any(_asks_for_messages(part) for part in cast("list[dict[str, Any]]", parts))


def _read_memories(
    conn: Connection, scope: Scope, size: int, before: int | None, *, deleted: bool
) -> list[tuple[int, Hit | None]]:
    """Return the next memories with their row numbers."""
    batch = memory_queries.list_memories(conn, scope, size, before=before, deleted=deleted)
    sources = message_queries.sources_of(conn, [memory.id for _, memory in batch])
    return [(number, memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0)) for number, memory in batch]


def _read_messages(
    conn: Connection, scope: Scope, size: int, before: int | None, *, deleted: bool
) -> list[tuple[int, Hit | None]]:
    """Return the next messages with their row numbers; None for a message that says what was forgotten."""
    batch = conversation_queries.list_messages(conn, scope, size, before=before, deleted=deleted)
    kept = {message.id for message in message_queries.without_forgotten(conn, [message for _, message in batch])}
    return [(number, message_hit(message, 0.0) if message.id in kept else None) for number, message in batch]


def _row_number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > MAX_CURSOR_DIGITS:
        raise InputError(f"'{cursor}' is not a cursor. Use the one that the previous page ended with.")
    return int(cursor)
