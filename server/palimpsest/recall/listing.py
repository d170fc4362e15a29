"""Page through memories, or through messages, newest first, with the filters that searches take."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, cast

from sqlalchemy import Connection

from palimpsest.core.clock import TimeSpan, exact_iso, parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.filters import MESSAGES
from palimpsest.core.models import Hit, Scope, has_expired
from palimpsest.core.threads import end_if_cancelled
from palimpsest.recall.forgetting import OFF, RetentionSettings, faded_owners
from palimpsest.recall.hits import HitFilter, cut_to_fit, hit_filter, hit_tokens, memory_hits, message_hits
from palimpsest.store import memories
from palimpsest.store import messages as message_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.messages import MessagePosition

# The number of a row is below 10^18 as a 64-bit integer.
MAX_CURSOR_DIGITS = 18

# How many memories are read at once if a filter is applied, which may drop most of them.
FILTERED_BATCH = 200

# How many entries a filter tests for one page, so that no page takes long: about half a second.
MAX_TESTED = 10_000


# Where a page ended: memories are in the order in which they were stored, messages in that of when they were said.
Position: TypeAlias = int | MessagePosition


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


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What to list, and how much of it.

    A page ends before the hit that is one too many for `limit` or `max_tokens`, and begins after the `cursor` of the
    one before. What has faded is listed; `forgetting` says what has, for a filter. With `held_at` the memories are
    those that held in the world then, living or replaced.
    """

    scope: Scope
    limit: int
    max_tokens: int
    cursor: str | None = None
    deleted: bool = False
    filters: Mapping[str, Any] | None = None
    forgetting: RetentionSettings = OFF
    held_at: TimeSpan | None = None


def page(ledger: Ledger, request: ListRequest) -> Page:
    """Return a page of living or deleted memories, or of messages if the filter asks for that `kind`. Blocking.

    Only a hit that is too long for a page of its own is cut. Raises InputError.
    """
    scope, limit, max_tokens, cursor = request.scope, request.limit, request.max_tokens, request.cursor
    deleted, now = request.deleted, ledger.now(scope.user_id)
    if request.held_at is not None and deleted:
        raise InputError("held_at asks for what held, and deleted for what was deleted; give one of them")
    with ledger.read() as conn:
        counts_messages = deleted and not request.filters and not cursor
        deleted_messages = message_queries.count_deleted_messages(conn, scope) if counts_messages else 0
        found = None
        if request.filters:
            faded = partial(faded_owners, conn, scope, request.forgetting, now)
            zone = now.tzinfo or UTC
            found = hit_filter(conn, ledger.full_text, scope, request.filters, zone, deleted=deleted, faded=faded)
        is_of_messages = found is not None and found.kinds == MESSAGES
        listed, is_tested = _listed(conn, request, found, now)
        last = position = None if cursor is None else _position(cursor, is_of_messages=is_of_messages)
        size = FILTERED_BATCH if is_tested else limit + 1
        hits: list[Hit] = []
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


def _listed(
    conn: Connection, request: ListRequest, found: HitFilter | None, now: datetime
) -> tuple[Callable[[int, Position | None], list[tuple[Position, Hit | None]]], bool]:
    """Return what reads the next entries, and whether each of them is tested: the ledger cannot look up everything."""
    held_at, deleted = request.held_at, request.deleted
    if found is None or found.kinds != MESSAGES:
        read = partial(_memories, conn, request.scope, found, deleted=deleted, now=now, held_at=held_at)
        return read, found is not None or held_at is not None
    if held_at is not None:
        raise InputError("held_at asks what held in the world, and a message was said at one time; filter by at")
    return partial(_messages, conn, request.scope, found, deleted=deleted), not found.is_exact


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
    conn: Connection, scope: Scope, found: HitFilter, size: int, after: Position | None, *, deleted: bool
) -> list[tuple[Position, Hit | None]]:
    """Return the next messages with their positions; None for one that does not match or says what was forgotten."""
    after = cast("MessagePosition | None", after)
    batch = message_queries.list_messages(conn, scope, size, after=after, deleted=deleted, bounds=found.messages)
    hits = {hit.id: hit for hit in message_hits(conn, [message for _, message in batch])}
    matching = [message for _, message in batch if found.test(hits[message.id])]
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
    held_at: TimeSpan | None,
) -> list[tuple[Position, Hit | None]]:
    """Return the next memories with their positions; None for one that does not match or has expired."""
    before, of_ended = cast("int | None", before), found is not None and found.with_closed
    with_closed = held_at is not None or of_ended
    batch = memories.list_memories(conn, scope, size, before=before, deleted=deleted, with_closed=with_closed)
    hits = memory_hits(conn, [memory for _, memory in batch])
    if held_at is not None:
        held = [memory.may_hold_in(held_at) for _, memory in batch]
    else:
        held = [deleted or of_ended or not has_expired(hit.metadata, now) for hit in hits]
    is_shown = [holds and (found is None or found.test(hit)) for hit, holds in zip(hits, held, strict=True)]
    return [(row, hit if shown else None) for (row, _), hit, shown in zip(batch, hits, is_shown, strict=True)]
