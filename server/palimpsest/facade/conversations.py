"""Conversations of an open memory: list them, and read one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from palimpsest.core.clock import exact_iso
from palimpsest.core.errors import InputError
from palimpsest.core.models import Message, Scope
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import conversations as queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.conversations import ConversationSummary
from palimpsest.store.queries.id_lookup import HIDDEN


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of the list of conversations. `cursor` requests the next page, and is None on the last page."""

    conversations: Sequence[ConversationSummary]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page of the messages of a conversation, oldest first. `cursor` is as in `ConversationPage`.

    A message with a forgotten fact stands there without its text.
    """

    id: str
    messages: Sequence[Message]
    cursor: str | None = None


class Conversations:
    """The conversations in a memory, as `memory.conversations`. Every method raises PalimpsestError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(self, scope: Scope, *, limit: int = 20, cursor: str | None = None) -> ConversationPage:
        """Return a page of conversations, the one with the newest message first."""
        after = None if cursor is None else _position(cursor)

        def read() -> ConversationPage:
            with self._engine.ledger.read() as conn:
                found = queries.list_conversations(conn, scope, limit + 1, after)
            last = found[limit - 1] if len(found) > limit else None
            return ConversationPage(found[:limit], last and f"{exact_iso(last.ended_at)}/{last.id}")

        return await self._engine.run(read)

    async def read(
        self, scope: Scope, conversation_id: str, *, limit: int = 20, cursor: str | None = None
    ) -> MessagePage:
        """Return a page of the messages of a conversation, which is named by its id or the beginning of it."""
        if cursor is not None and not cursor.isdecimal():
            raise _not_a_cursor(cursor)

        def read() -> MessagePage:
            with self._engine.ledger.read() as conn:
                session_id = queries.find_conversation(conn, scope, conversation_id)
                found = queries.messages_in(conn, scope, session_id, limit + 1, int(cursor or 0))
                shown = [message for _, message in found[:limit]]
                kept = {message.id for message in message_queries.without_forgotten(conn, shown)}
            texts = [message if message.id in kept else replace(message, content=HIDDEN) for message in shown]
            return MessagePage(session_id, texts, str(found[limit - 1][0]) if len(found) > limit else None)

        return await self._engine.run(read)


def _position(cursor: str) -> tuple[datetime, str]:
    at, _, session_id = cursor.partition("/")
    try:
        instant = datetime.fromisoformat(at)
    except ValueError:
        raise _not_a_cursor(cursor) from None
    if instant.tzinfo is None or not session_id:
        raise _not_a_cursor(cursor)
    return instant, session_id


def _not_a_cursor(cursor: str) -> InputError:
    return InputError(f"'{cursor}' is not a cursor. Use the one that the previous page ended with.")
