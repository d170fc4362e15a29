"""The form of summaries without a model: memories, messages and conversations themselves, a line each. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from sqlalchemy import Connection

from palimpsest.core.clock import in_zone, shown_date
from palimpsest.core.models import Kind, Memory, Message
from palimpsest.core.validation import one_line
from palimpsest.learn.views.extractive import Passage, most_telling
from palimpsest.learn.views.kinds import PlainText, SummaryRequest, holding, revisions
from palimpsest.recall.retrieval.stored_vectors import centred_vectors
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.queries.conversations import ConversationSummary
from palimpsest.store.views.pinned import is_pinned
from palimpsest.text.counting import counted
from palimpsest.text.dates.finder import date_and_sense
from palimpsest.text.shorten import shorten, shorten_to_tokens
from palimpsest.text.tokenizer import count_tokens, lines_within

MAX_LISTED_TOKENS = 600
"""How long a list of memories in place of a summary may be. Set by hand; it takes space in an agent's context."""

LINE_TOKENS = 60
"""How much of one memory is shown. A fact is a sentence; a long note would take the room of many. Set by hand."""

MAX_LISTED_MEMORIES = 200
"""How many memories are read for such a list, of which far fewer fit."""

MAX_LISTED_CONVERSATIONS = 50
MAX_TOPIC_TOKENS = 300
MAX_TOPIC_CHARS = 80
"""How many conversations are read for such a list, how long their lines may be together, and how much of a first
message stands for a title. Set by hand."""

SHORT_ID = 8
"""How much of a message's own id is shown: enough for `get_history`."""

NOT_SHOWN, MORE = " not shown.)", " more)"
"""How a line ends that says how many are left out: of a list, and of what is known about somebody."""

NOTHING = "Nothing is known yet."


def newest(conn: Connection, request: SummaryRequest, since: datetime) -> PlainText:
    """Return what was said, happened or was talked about since a time as lines of text, within the token budget."""
    scope, until = request.scope, request.now + timedelta(days=1)
    found = summary_queries.memories_of_time(conn, scope, since, until, MAX_LISTED_MEMORIES)
    memories = [memory for memory in holding(found, request.now) if not is_pinned(memory.metadata)]
    conversations = conversation_queries.list_conversations(conn, scope, MAX_LISTED_CONVERSATIONS)
    conversations = [conversation for conversation in conversations if conversation.ended_at >= since]
    by_line = {dated(memory): memory for memory in memories}
    shown = lines_within(list(by_line), MAX_LISTED_TOKENS)
    topics = topics_of(conversations, len(conversations), request.now.tzinfo)
    lines = [*shown, *omitted(len(by_line) - len(shown), "memory"), *topics]
    of = named(memories=memories, conversations=topics)
    return PlainText("\n".join(lines) or NOTHING, of, revisions(by_line[line] for line in shown))


def held_memories(conn: Connection, request: SummaryRequest, limit: int) -> list[Memory]:
    """Return the newest memories that hold now and are not pinned, which stand above every list. Newest first."""
    listed = (memory for _, memory in memory_queries.list_memories(conn, request.scope, limit))
    return [memory for memory in holding(listed, request.now) if not is_pinned(memory.metadata)]


def dated(memory: Memory) -> str:
    """Return the line of a memory with its date."""
    text = shown_text(memory)
    return f"- {date_and_sense(memory, text)} {text}"


def shown_text(memory: Memory) -> str:
    """Return the text of a memory on one line, cut if it is long."""
    return shorten_to_tokens(one_line(memory.text), LINE_TOKENS)


def named(**parts: Sequence[object]) -> str:
    """Return what a list consists of, such as "memories and conversations"; "" if of nothing."""
    return " and ".join(name for name, some in parts.items() if some)


def topics_of(conversations: Sequence[ConversationSummary], total: int, zone: tzinfo | None) -> list[str]:
    """Return a line on each conversation that fits, with its day in a zone, under a heading; nothing without any."""
    topics = lines_within([_topic(conversation, zone) for conversation in conversations], MAX_TOPIC_TOKENS)
    return ["Conversations:", *topics, *omitted(total - len(topics), "conversation")] if topics else []


def omitted(count: int, noun: str) -> list[str]:
    """Return the line that says how many are not shown; nothing if all are."""
    return [f"({counted(count, f'more {noun}')} {'is' if count == 1 else 'are'}{NOT_SHOWN}"] if count else []


def is_cut(text: str) -> bool:
    """Return whether a list says that it does not show all."""
    return any(line.endswith((NOT_SHOWN, MORE)) for line in text.splitlines())


def lines_of(
    conn: Connection, request: SummaryRequest, memories: Sequence[tuple[str, Memory]], messages: Sequence[Message]
) -> PlainText:
    """Return the lines of memories, then of messages, in the order they are given.

    If not all fit, those are shown that say most together. Without any the text is empty.
    """
    shown, left = _telling(conn, request, "memory", memories)
    said, unsaid = _telling(conn, request, "message", [(_words(message), message.as_memory) for message in messages])
    lines = [*(line for line, _ in shown), *omitted(left, "memory")]
    lines += ["Messages:"] if shown and said else []
    lines += [*(line for line, _ in said), *omitted(unsaid, "message")]
    of = named(memories=shown, messages=said)
    return PlainText("\n".join(lines), of, revisions(memory for _, memory in shown))


def _words(message: Message) -> str:
    """Return the line of a message: the beginning of its id, who said it, and what, cut if it is long."""
    said = shorten_to_tokens(one_line(message.content), LINE_TOKENS)
    return f"- [{message.id[:SHORT_ID]}] {message.name or message.role}: {said}"


def _telling(
    conn: Connection, request: SummaryRequest, kind: Kind, lines: Sequence[tuple[str, Memory]]
) -> tuple[Sequence[tuple[str, Memory]], int]:
    """Return the lines that fit and say most together, in their order, and how many are left out."""
    costs = [count_tokens(f"{line}\n") for line, _ in lines]
    if sum(costs) <= MAX_LISTED_TOKENS or not lines:
        return lines, 0
    vectors = centred_vectors(conn, request.embedder, request.scope, kind, [owner.id for _, owner in lines])
    passages = [
        Passage(line, owner.at, vectors.get(owner.id), tokens=cost)
        for (line, owner), cost in zip(lines, costs, strict=True)
    ]
    positions = sorted(most_telling(passages, MAX_LISTED_TOKENS)) or [0]
    return [lines[position] for position in positions], len(lines) - len(positions)


def _topic(conversation: ConversationSummary, zone: tzinfo | None) -> str:
    """Return a line on a conversation: its title, or the first words of it."""
    first = "" if conversation.first is None else shorten(one_line(conversation.first.content), MAX_TOPIC_CHARS)
    what = conversation.title or (f'"{first}"' if first else "untitled")
    day = shown_date(in_zone(conversation.ended_at, zone))
    return f"- {day} {what} ({counted(conversation.messages, 'message')})"
