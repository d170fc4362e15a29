"""The kind `session`: what was learned from one conversation, with the turns it came from.

LoCoMo calls these observations, and found them to be the best unit of recall in its own study.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Message, Summary, has_expired
from palimpsest.learn.views import listing
from palimpsest.learn.views.kinds import (
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    fitting,
    memory_item,
    revisions,
    spread,
)
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import summaries as summary_queries

MAX_MESSAGES = 500
MAX_MESSAGE_TOKENS = 6_000
"""How many messages of a conversation are read, and how many tokens of them, spread over it. Set by hand."""

MAX_TURNS = 3
"""How many turns stand beside an observation. Set by hand: more would be longer than what was learned."""

NO_CONVERSATION = "There is no conversation yet."


def _material(conn: Connection, request: SummaryRequest) -> Material:
    messages = _messages(conn, request)
    turns = _observations(conn, request, messages)
    memories = fitting([memory for memory, _ in turns])[::-1]
    by_id = {memory.id: names for memory, names in turns}
    return Material(
        tuple({**memory_item(memory), "turns": list(by_id[memory.id])} for memory in memories),
        spread(messages, MAX_MESSAGE_TOKENS),
        sources=revisions(memories),
        message_ids=tuple(message.id for message in messages),
    )


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    messages = _messages(conn, request)
    observations = _observations(conn, request, messages)
    lines = [(f"- {listing.shown_text(memory)} ({', '.join(turns)})", memory) for memory, turns in observations]
    plain = listing.lines_of(conn, request, lines, () if lines else messages)
    return plain if plain.text else PlainText(NO_CONVERSATION, "")


def _messages(conn: Connection, request: SummaryRequest) -> list[Message]:
    if not request.argument:
        return []
    return summary_queries.messages_of_session(conn, request.scope, request.argument, MAX_MESSAGES)


def _observations(
    conn: Connection, request: SummaryRequest, messages: Sequence[Message]
) -> list[tuple[Memory, tuple[str, ...]]]:
    """Return what was learned from messages and still holds, in their order, with the turns it came from."""
    learned = memory_queries.memories_from(conn, [message.id for message in messages])
    memories: dict[str, Memory] = {}
    turns: dict[str, list[str]] = {}
    for message in messages:
        for memory in learned.get(message.id, ()):
            is_seen = memory.deleted_at is None and memory.scope.project in (
                request.scope.beside,
                request.scope.project,
            )
            if is_seen and not has_expired(memory.metadata, request.now):
                memories[memory.id] = memory.in_zone(request.now.tzinfo)
                turns.setdefault(memory.id, []).append(message.external_id or message.id[: listing.SHORT_ID])
    return [(memory, tuple(turns[memory.id][:MAX_TURNS])) for memory in memories.values()]


def _resolved(conn: Connection, request: SummaryRequest) -> str:
    """Return the id of a conversation; without one, that of the last. "" if there is none."""
    if request.argument:
        return conversation_queries.find_conversation(conn, request.scope, request.argument, request.now.tzinfo)
    return summary_queries.last_session(conn, request.scope)


def _missed(conn: Connection, request: SummaryRequest, last: Summary) -> int:
    return summary_queries.count_in_session_since(conn, request.scope, last, request.argument)


SESSION = SummaryKind(
    "session",
    "session",
    _material,
    _plain,
    argument="ID",
    resolved=_resolved,
    missed=_missed,
    keeps_plain=True,
    has_pinned=False,
)
