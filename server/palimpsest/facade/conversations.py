"""Conversations of an open memory: list them, and read one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import accumulate

from palimpsest.core.clock import exact_iso, in_zone
from palimpsest.core.errors import InputError
from palimpsest.core.models import Message, Scope
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import conversations as queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.conversations import ConversationSummary
from palimpsest.store.queries.id_lookup import HIDDEN
from palimpsest.text.tokenizer import count_tokens


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of the list of conversations. `cursor` requests the next page, and is None on the last page."""

    conversations: Sequence[ConversationSummary]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page of the messages of a conversation, oldest first. `cursor` is as in `ConversationPage`.

    A message with a forgotten fact stands there without its text. `about` is what is known of the whole conversation,
    and None for a document.
    """

    id: str
    messages: Sequence[Message]
    cursor: str | None = None
    about: ConversationSummary | None = None


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
            shown = [_of_zone(each, self._engine.clock().tzinfo) for each in found[:limit]]
            return ConversationPage(shown, last and f"{exact_iso(last.ended_at)}/{last.id}")

        return await self._engine.run(read)

    async def ids(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of conversations that begin with a string, the newest conversation first."""
        return await self._engine.read(lambda conn: queries.ids_beginning(conn, scope, beginning, limit))

    async def read(
        self,
        scope: Scope,
        conversation_id: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        max_tokens: int | None = None,
    ) -> MessagePage:
        """Return a page of the messages of a conversation.

        It is named by its id, by that of one of its messages, or by the beginning of one. The page ends before the
        message that is one too many for `limit` or `max_tokens`; no message is cut.
        """
        if cursor is not None and not cursor.isdecimal():
            raise _not_a_cursor(cursor)

        zone = self._engine.clock().tzinfo

        def read() -> MessagePage:
            with self._engine.ledger.read() as conn:
                session_id = queries.find_conversation(conn, scope, conversation_id, zone)
                found = queries.messages_in(conn, scope, session_id, limit + 1, int(cursor or 0))
                shown = found[: _fitting([message for _, message in found[:limit]], max_tokens)]
                kept = {message.id for message in message_queries.without_forgotten(conn, [each for _, each in shown])}
                about = queries.list_conversations(conn, scope, 1, only=session_id)
            texts = [message if message.id in kept else replace(message, content=HIDDEN) for _, message in shown]
            texts = [message.in_zone(zone) for message in texts]
            next_cursor = str(shown[-1][0]) if len(found) > len(shown) else None
            return MessagePage(session_id, texts, next_cursor, _of_zone(about[0], zone) if about else None)

        return await self._engine.run(read)


def _of_zone(summary: ConversationSummary, zone: tzinfo | None) -> ConversationSummary:
    return replace(summary, began_at=in_zone(summary.began_at, zone), ended_at=in_zone(summary.ended_at, zone))


def _fitting(messages: Sequence[Message], max_tokens: int | None) -> int:
    """Return how many of the first messages fit the tokens, at least one."""
    if max_tokens is None:
        return len(messages)
    total = accumulate(count_tokens(message.content) for message in messages)
    return max(1, sum(tokens <= max_tokens for tokens in total))


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
