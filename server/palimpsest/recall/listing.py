"""Page through memories, or through messages, newest first, with the filters that searches take."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, cast

from sqlalchemy import Connection

from palimpsest.core.clock import exact_iso, parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.filters import MESSAGES
from palimpsest.core.models import Hit, Scope, has_expired
from palimpsest.core.threads import end_if_cancelled
from palimpsest.recall.forgetting import OFF, RetentionSettings, faded_owners
from palimpsest.recall.hits import HitFilter, cut_to_fit, hit_filter, hit_tokens, memory_hits, message_hits
from palimpsest.store import memories
from palimpsest.store import messages as message_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.messages import EVERY_MESSAGE, MessagePosition

MAX_CURSOR_DIGITS = 18
"""The number of a row is below 10^18 as a 64-bit integer."""

FILTERED_BATCH = 200
"""How many memories are read at once if a filter is applied, which may drop most of them."""

MAX_TESTED = 10_000
"""How many entries a filter tests for one page, so that no page takes long: about half a second."""


Position: TypeAlias = int | MessagePosition
"""Where a page ended: memories are in the order in which they were stored, messages in that of when they were said."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `cursor` requests the next page, after the last hit, and is None on the last page.

    `notes` are remarks for the caller. If the scope has no memories, `conversations` and `messages` count what it has.
    `deleted_messages` counts the deleted messages of the scope on the first page of its deleted memories.
    """

    hits: tuple[Hit, ...]
    cursor: str | None = None
    notes: tuple[str, ...] = ()
    conversations: int = 0
    messages: int = 0
    deleted_messages: int = 0


def page(
    ledger: Ledger,
    scope: Scope,
    limit: int,
    max_tokens: int,
    cursor: str | None,
    *,
    deleted: bool,
    filters: Mapping[str, Any] | None,
    forgetting: RetentionSettings = OFF,
) -> Page:
    """Return a page of living or deleted memories, or of messages if the filter asks for that `kind`. Blocking.

    The page ends before the hit that is one too many for `limit` or `max_tokens`. Only a hit that is too long for a
    page of its own is cut. What has faded is listed; `forgetting` says what has, for a filter. Raises InputError.
    """
    now = ledger.now(scope.user_id)
    with ledger.read() as conn:
        deleted_messages = 0
        if deleted and not filters and not cursor:
            deleted_messages = message_queries.count_deleted_messages(conn, scope)
        found = None
        if filters:
            faded = partial(faded_owners, conn, scope, forgetting, now)
            zone = now.tzinfo or UTC
            found = hit_filter(conn, ledger.full_text, scope, filters, zone, deleted=deleted, faded=faded)
        is_of_messages = found is not None and found.kinds == MESSAGES
        # The ledger cannot look up all that other filters ask.
        is_tested = found is not None and not (is_of_messages and found.is_exact)
        listed = partial(
            _messages if is_of_messages else partial(_memories, now=now), conn, scope, found, deleted=deleted
        )
        position = None if cursor is None else _position(cursor, is_of_messages=is_of_messages)
        size = FILTERED_BATCH if is_tested else limit + 1
        hits: list[Hit] = []
        last = position
        left, tested = max_tokens, 0
        while True:
            end_if_cancelled()
            batch = listed(size, position)
            for at, hit in batch:
                if hit is None:
                    continue
                if not hits:
                    hit = cut_to_fit(hit, max_tokens)  # noqa: PLW2901 - the rest of the text is not used
                elif len(hits) == limit or hit_tokens(hit) > left:
                    return Page(tuple(hits), _cursor(last), deleted_messages=deleted_messages)
                hits.append(hit)
                left -= hit_tokens(hit)
                last = at
            if len(batch) < size:
                if hits or cursor or deleted or is_of_messages or memories.count_memories(conn, scope):
                    return Page(tuple(hits), deleted_messages=deleted_messages)
                conversations, messages = message_queries.count_conversations(conn, scope)
                return Page((), conversations=conversations, messages=messages)
            position = batch[-1][0]
            tested += size
            if is_tested and tested >= MAX_TESTED:
                return Page(tuple(hits), _cursor(position), () if len(hits) == limit else (_NOT_DONE,))


_NOT_DONE = f"{MAX_TESTED:,} entries were compared with the filter; the cursor goes on"


def _position(cursor: str, *, is_of_messages: bool) -> Position:
    """Return where a page begins, from the cursor of the page before it. Raises InputError."""
    at, _, row = cursor.rpartition("/")
    is_row = row.isdecimal() and len(row) <= MAX_CURSOR_DIGITS
    if is_row and bool(at) == is_of_messages:
        with suppress(InputError):
            return MessagePosition(parse_instant(at, "cursor"), int(row)) if at else int(row)
    raise InputError(f"'{cursor}' is not a cursor of this list. Use the one that the previous page ended with.")


def _cursor(position: Position | None) -> str:
    """Return the cursor for what comes after a position."""
    return f"{exact_iso(position.said_at)}/{position.row}" if isinstance(position, tuple) else str(position)


def _messages(
    conn: Connection, scope: Scope, found: HitFilter | None, size: int, after: Position | None, *, deleted: bool
) -> list[tuple[Position, Hit | None]]:
    """Return the next messages with their positions; None for one that does not match or says what was forgotten."""
    bounds = EVERY_MESSAGE if found is None else found.messages
    after = cast("MessagePosition | None", after)
    batch = message_queries.list_messages(conn, scope, size, after=after, deleted=deleted, bounds=bounds)
    hits = {hit.id: hit for hit in message_hits(conn, [message for _, message in batch])}
    matching = [message for _, message in batch if found is None or found.test(hits[message.id])]
    kept = {message.id for message in message_queries.without_forgotten(conn, matching)}
    return [(position, hits[message.id] if message.id in kept else None) for position, message in batch]


def _memories(
    conn: Connection,
    scope: Scope,
    found: HitFilter | None,
    size: int,
    before: Position | None,
    *,
    deleted: bool,
    now: datetime,
) -> list[tuple[Position, Hit | None]]:
    """Return the next memories with their positions; None for one that does not match or has expired."""
    batch = memories.list_memories(conn, scope, size, before=cast("int | None", before), deleted=deleted)
    hits = memory_hits(conn, [memory for _, memory in batch])
    is_shown = [(deleted or not has_expired(hit.metadata, now)) and (found is None or found.test(hit)) for hit in hits]
    return [(row, hit if shown else None) for (row, _), hit, shown in zip(batch, hits, is_shown, strict=True)]
