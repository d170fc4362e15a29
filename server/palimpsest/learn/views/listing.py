"""The plainest form of a summary: the newest memories and conversations themselves, a line each. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from palimpsest.core.models import Message, Scope
from palimpsest.core.validation import one_line
from palimpsest.learn.views.kinds import PlainText, revisions
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries.conversations import ConversationSummary
from palimpsest.store.views.pinned import is_pinned, pinned_memories
from palimpsest.text.counting import counted
from palimpsest.text.shorten import shorten
from palimpsest.text.tokenizer import lines_within

MAX_LISTED_TOKENS = 600
"""How long a list of memories in place of a summary may be. Set by hand; it takes space in an agent's context."""

MAX_LISTED_MEMORIES = 200
"""How many memories are read for such a list, of which far fewer fit."""

MAX_LISTED_CONVERSATIONS = 50
MAX_TOPIC_TOKENS = 300
MAX_TOPIC_CHARS = 80
"""How many conversations are read for such a list, how long their lines may be together, and how much of a first
message stands for a title. Set by hand."""

NOTHING = "Nothing is known yet."


def newest(conn: Connection, scope: Scope, since: datetime | None = None) -> PlainText:
    """Return the newest memories and conversations as lines of text, within the token budget."""
    memories = [memory for _, memory in memory_queries.list_memories(conn, scope, MAX_LISTED_MEMORIES)]
    memories = [memory for memory in memories if not is_pinned(memory.metadata)]  # these stand above the list
    total = memory_queries.count_memories(conn, scope) - len(pinned_memories(conn, scope))
    conversations = conversation_queries.list_conversations(conn, scope, MAX_LISTED_CONVERSATIONS)
    total_conversations, _ = conversation_queries.count_conversations(conn, scope)
    if since is not None:
        memories = [memory for memory in memories if memory.updated_at >= since]
        conversations = [conversation for conversation in conversations if conversation.ended_at >= since]
        total, total_conversations = len(memories), len(conversations)
    lines = _within([f"- {memory.date} {one_line(memory.text)}" for memory in memories], total, "more memories")
    topics = lines_within([_topic(conversation) for conversation in conversations], MAX_TOPIC_TOKENS)
    if topics:
        lines += ["Conversations:", *topics]
        left = total_conversations - len(topics)
        lines += [f"({left} more conversations are not shown.)"] if left else []
    named = (("memories", memories), ("conversations", topics))
    of = " and ".join(name for name, some in named if some)
    return PlainText("\n".join(lines) or NOTHING, of, revisions(memories))


def lines_of(memories: Sequence[str], messages: Sequence[Message]) -> tuple[str, str]:
    """Return the lines of memories, or if there are none the first words of messages, and what these are."""
    if memories:
        return "\n".join(_within(memories, len(memories), "more memories")), "memories"
    said = [
        f"- {message.name or message.role}: {shorten(one_line(message.content), MAX_TOPIC_CHARS)}"
        for message in messages
    ]
    return "\n".join(_within(said, len(said), "more messages")), "messages" if said else ""


def _within(lines: Sequence[str], total: int, more: str) -> list[str]:
    """Return the lines that fit, and one that says how many of all do not."""
    shown = lines_within(lines, MAX_LISTED_TOKENS)
    left = total - len(shown)
    return [*shown, f"({left} {more} are not shown.)"] if left else list(shown)


def _topic(conversation: ConversationSummary) -> str:
    """Return a line on a conversation: its title, or the first words of it."""
    first = "" if conversation.first is None else shorten(one_line(conversation.first.content), MAX_TOPIC_CHARS)
    what = conversation.title or (f'"{first}"' if first else "untitled")
    return f"- {conversation.ended_at:%Y-%m-%d} {what} ({counted(conversation.messages, 'message')})"
