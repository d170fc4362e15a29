"""Page through memories, or through messages, newest first, with the filters that searches take."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, cast

from sqlalchemy import Connection

from palimpsest.core.clock import exact_iso, parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.filters import MESSAGES
from palimpsest.core.models import Hit, Scope, has_expired
from palimpsest.core.threads import end_if_cancelled
from palimpsest.recall.hits import HitFilter, cut_to_fit, hit_filter, hit_tokens, memory_hit, message_hits
from palimpsest.recall.retention import OFF, Forgetting, faded_owners
from palimpsest.store import memories
from palimpsest.store import messages as message_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.messages import EVERY_MESSAGE, MessagePosition

MAX_CURSOR_DIGITS = 18
"""The number of a row is below 10^18 as a 64-bit integer."""

FILTERED_BATCH = 200
"""How many memories are read at once if a filter is applied, which may drop most of them. Set by hand."""

MAX_TESTED = 10_000
"""How many entries a filter tests for one page, so that no page takes long: about half a second. Set by hand."""


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
    forgetting: Forgetting = OFF,
) -> Page:
    """Return a page of living or deleted memories, or of messages if the filter asks for that `kind`. Blocking.

    The page ends before the hit that is one too many for `limit` or `max_tokens`. Only a hit that is too long for a
    page of its own is cut. What has faded is listed; `forgetting` says what has, for a filter. Raises InputError.
    """
    now = ledger.now(scope.user_id)
    with ledger.read() as conn:
        beside = 0
        if deleted and not filters and not cursor:
            beside = message_queries.count_deleted_messages(conn, scope)
        faded = partial(faded_owners, conn, scope, forgetting, now)
        filtered = partial(hit_filter, conn, ledger.full_text, scope, deleted=deleted, faded=faded)
        found = filtered(filters, now.tzinfo or UTC) if filters else None
        source = _Source(conn, scope, found, now, deleted=deleted)
        position = source.position(cursor)
        size = FILTERED_BATCH if source.is_tested else limit + 1
        hits: list[Hit] = []
        last = position
        left, tested = max_tokens, 0
        while True:
            end_if_cancelled()
            batch = source.read(size, position)
            for at, hit in batch:
                if hit is None:
                    continue
                if not hits:
                    hit = cut_to_fit(hit, max_tokens)  # noqa: PLW2901 - the rest of the text is not used
                elif len(hits) == limit or hit_tokens(hit) > left:
                    return Page(tuple(hits), source.cursor(last), deleted_messages=beside)
                hits.append(hit)
                left -= hit_tokens(hit)
                last = at
            if len(batch) < size:
                if hits or cursor or deleted or source.is_of_messages:
                    return Page(tuple(hits), deleted_messages=beside)
                return _empty(conn, scope)
            position = batch[-1][0]
            tested += size
            if source.is_tested and tested >= MAX_TESTED:
                return Page(tuple(hits), source.cursor(position), () if len(hits) == limit else (_NOT_DONE,))


_NOT_DONE = f"{MAX_TESTED:,} entries were compared with the filter; the cursor goes on"


def _empty(conn: Connection, scope: Scope) -> Page:
    """Return an empty page, which says what there is besides if the scope has no memories."""
    if memories.count_memories(conn, scope):
        return Page(())
    conversations, messages = message_queries.count_conversations(conn, scope)
    return Page((), conversations=conversations, messages=messages)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a list is made of: memories, or messages if the filter asks for them and nothing else."""

    conn: Connection
    scope: Scope
    found: HitFilter | None
    now: datetime
    deleted: bool

    @property
    def is_tested(self) -> bool:
        """Return whether what is read has to be tested, because the ledger cannot look up all that the filter asks."""
        return self.found is not None and not (self.is_of_messages and self.found.is_exact)

    @property
    def is_of_messages(self) -> bool:
        """Return whether the list is one of messages."""
        return self.found is not None and self.found.kinds == MESSAGES

    def position(self, cursor: str | None) -> Position | None:
        """Return where a page begins, from the cursor of the page before it. Raises InputError."""
        if cursor is None:
            return None
        at, _, row = cursor.rpartition("/")
        is_row = row.isdecimal() and len(row) <= MAX_CURSOR_DIGITS
        if is_row and bool(at) == self.is_of_messages:
            with suppress(InputError):
                return MessagePosition(parse_instant(at, "cursor"), int(row)) if at else int(row)
        raise InputError(f"'{cursor}' is not a cursor of this list. Use the one that the previous page ended with.")

    def cursor(self, position: Position | None) -> str:
        """Return the cursor for what comes after a position."""
        return f"{exact_iso(position.said_at)}/{position.row}" if isinstance(position, tuple) else str(position)

    def read(self, size: int, after: Position | None) -> list[tuple[Position, Hit | None]]:
        """Return the next entries with their positions; None for what the list does not show."""
        if self.is_of_messages:
            return self._messages(size, cast("MessagePosition | None", after))
        return self._memories(size, cast("int | None", after))

    def _messages(self, size: int, after: MessagePosition | None) -> list[tuple[Position, Hit | None]]:
        """Return messages. One that says what was forgotten is not shown."""
        bounds = EVERY_MESSAGE if self.found is None else self.found.messages
        batch = message_queries.list_messages(
            self.conn, self.scope, size, after=after, deleted=self.deleted, bounds=bounds
        )
        hits = {hit.id: hit for hit in message_hits(self.conn, [message for _, message in batch])}
        matching = [message for _, message in batch if self._matches(hits[message.id])]
        kept = {message.id for message in message_queries.without_forgotten(self.conn, matching)}
        return [(position, hits[message.id] if message.id in kept else None) for position, message in batch]

    def _memories(self, size: int, before: int | None) -> list[tuple[Position, Hit | None]]:
        batch = memories.list_memories(self.conn, self.scope, size, before=before, deleted=self.deleted)
        sources = message_queries.sources_of(self.conn, [memory.id for _, memory in batch])
        hits = [
            (row, replace(memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0), superseded_by=successor))
            for row, memory in batch
            for successor in [memory.superseded_by or "" if self.deleted else ""]
        ]
        return [(row, hit if self._is_current(hit) and self._matches(hit) else None) for row, hit in hits]

    def _is_current(self, hit: Hit) -> bool:
        return self.deleted or not has_expired(hit.metadata, self.now)

    def _matches(self, hit: Hit) -> bool:
        return self.found is None or self.found.test(hit)
