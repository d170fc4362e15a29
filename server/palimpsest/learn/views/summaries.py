"""The summary of a scope: refreshed in the background after a number of changes, and on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from palimpsest.core.errors import InputError, ModelError, PromptError
from palimpsest.core.models import Memory, Message, Provenance, Scope, Summary
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.views.about.text import ABOUT, text_about
from palimpsest.llm.views.summarize import summarize
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.queries.conversations import ConversationSummary
from palimpsest.store.writes.apply import Write
from palimpsest.text.counting import counted
from palimpsest.text.shorten import shorten
from palimpsest.text.tokenizer import count_tokens, lines_within

SummaryKind: TypeAlias = Literal["overall", "recent"]
"""`overall`: lasting knowledge. `recent`: what happened in the last days."""

KINDS: tuple[str, ...] = get_args(SummaryKind)

MAX_SOURCE_TOKENS = 12_000
"""How much of the newest memories goes into one summary. Set by hand, to fit the context of small models."""

MAX_SOURCE_MEMORIES = 500
"""How many memories are read for a summary: 24 tokens each fill `MAX_SOURCE_TOKENS`."""

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

RECENT = timedelta(days=14)
"""How far back the summary of the kind `recent` looks. Set by hand."""

RECENT_MESSAGES = 40
"""How many messages of that time it reads at most. Set by hand."""


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary for the caller. `changes_since` is how many changes of memories were made since it was written.

    `lines` are what a text about an entity rests on.
    """

    text: str
    kind: str
    changes_since: int
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


async def get_summary(engine: Engine, scope: Scope, kind: str, *, refresh: bool, caller: str) -> SummaryResult:
    """Return the summary of a kind. It is written now if it is missing, or if it is outdated and `refresh` is set.

    If no model answers, return a list of the newest memories, with a note. The kind "about:NAME" is what is known about
    somebody or something, and never outdated. Raises InputError for an unknown kind or name.
    """
    kind = kind.strip()
    if kind.lower().startswith(ABOUT):
        known = await text_about(engine, scope, kind[len(ABOUT) :], caller)
        return SummaryResult(known.text, kind, 0, known.notes, known.lines)
    kind = kind.lower()
    if kind not in KINDS:
        raise InputError(f"there is no summary '{kind[:80]}'; there are {', '.join(KINDS)} and {ABOUT}NAME")
    last, missed, is_corrected = await engine.run(lambda: _last(engine, scope, kind))
    if engine.model is None:
        if last is not None and not missed:  # written while there was a model, and nothing has changed since
            return SummaryResult(last.text, kind, 0)
        return await _listed(engine, scope, kind, "there is no language model to ask")
    # A summary that may say what was deleted, replaced or reworded since is not returned again. The recent summary also
    # ages by itself.
    is_stale = is_corrected or (refresh and (missed > 0 or kind == "recent"))
    if last is not None and not is_stale:
        return SummaryResult(last.text, kind, missed)
    try:
        text = await write_summary(engine, engine.model, scope, kind, caller)
    except (ModelError, PromptError) as error:
        if last is None or is_corrected:
            return await _listed(engine, scope, kind, f"the summary could not be written ({error})")
        return SummaryResult(last.text, kind, missed, (f"the summary could not be refreshed: {error}",))
    return (
        await _listed(engine, scope, kind, "nothing was learned yet") if text is None else SummaryResult(text, kind, 0)
    )


async def _listed(engine: Engine, scope: Scope, kind: str, reason: str) -> SummaryResult:
    text, what = await engine.run(lambda: _listing(engine, scope, kind))
    return SummaryResult(text, kind, 0, () if text == NOTHING else (f"{reason}: these are the {what} themselves",))


async def write_summary(engine: Engine, model: LanguageModel, scope: Scope, kind: str, caller: str) -> str | None:
    """Write a new summary of a scope and return it; None if there is nothing to summarize.

    Raises ModelError and PromptError; the last summary is kept then.
    """
    seq, memories, messages, previous = await engine.run(lambda: _sources(engine, scope, kind))
    if not memories and not messages:
        return None
    prompt = engine.prompts.get("summarize")
    await engine.report_progress(f"asking the model for the summary of {len(memories)} memories")
    text = await summarize(
        model, prompt, kind=kind, previous=previous, memories=memories, messages=messages, now=engine.clock()
    )
    write = Write(
        scope,
        Provenance("summarize", model.name, prompt.fingerprint, caller),
        summary=Summary(scope, kind, text, seq, engine.clock()),
    )
    await engine.write(lambda: engine.ledger.apply(write))
    return text


async def missed_changes(engine: Engine, scope: Scope, kind: str) -> int:
    """Return how many changes of memories were made since the summary of a scope was written."""
    _, missed, _ = await engine.run(lambda: _last(engine, scope, kind))
    return missed


def _last(engine: Engine, scope: Scope, kind: str) -> tuple[Summary | None, int, bool]:
    """Return the last summary, how many changes were made since, and whether a correction is among them."""
    with engine.ledger.read() as conn:
        last = summary_queries.latest_summary(conn, scope, kind)
        seq = last.seq if last else 0
        return (
            last,
            summary_queries.count_changes_since(conn, scope, seq),
            summary_queries.has_corrections_since(conn, scope, seq),
        )


def _sources(engine: Engine, scope: Scope, kind: str) -> tuple[int, list[Memory], list[Message], str]:
    """Return the end of the index log, the newest memories and messages that fit, and the last summary if current."""
    with engine.ledger.read() as conn:
        seq = log_queries.newest_log_number(conn)
        last = summary_queries.latest_summary(conn, scope, kind)
        is_current = last is not None and not summary_queries.has_corrections_since(conn, scope, last.seq)
        memories = [memory for _, memory in memory_queries.list_memories(conn, scope, MAX_SOURCE_MEMORIES)]
        messages: list[Message] = []
        if kind == "recent":
            since = engine.clock() - RECENT
            memories = [memory for memory in memories if memory.updated_at >= since]
            messages = message_queries.messages_since(conn, scope, since, RECENT_MESSAGES)
    fitting = _fitting([memory.text for memory in memories], MAX_SOURCE_TOKENS)
    return seq, memories[:fitting], messages, last.text if last is not None and is_current else ""


def _listing(engine: Engine, scope: Scope, kind: str) -> tuple[str, str]:
    """Return the newest memories and conversations as lines of text, within the token budget, and what they are."""
    with engine.ledger.read() as conn:
        memories = [memory for _, memory in memory_queries.list_memories(conn, scope, MAX_LISTED_MEMORIES)]
        total = memory_queries.count_memories(conn, scope)
        conversations = conversation_queries.list_conversations(conn, scope, MAX_LISTED_CONVERSATIONS)
        total_conversations, _ = conversation_queries.count_conversations(conn, scope)
    if kind == "recent":
        since = engine.clock() - RECENT
        memories = [memory for memory in memories if memory.updated_at >= since]
        conversations = [conversation for conversation in conversations if conversation.ended_at >= since]
        total, total_conversations = len(memories), len(conversations)
    lines = lines_within([f"- {memory.date} {one_line(memory.text)}" for memory in memories], MAX_LISTED_TOKENS)
    lines += [f"({total - len(lines)} more memories are not shown.)"] if total > len(lines) else []
    topics = lines_within([_topic(conversation) for conversation in conversations], MAX_TOPIC_TOKENS)
    if topics:
        lines += ["Conversations:", *topics]
        left = total_conversations - len(topics)
        lines += [f"({left} more conversations are not shown.)"] if left else []
    named = (("memories", memories), ("conversations", topics))
    return "\n".join(lines) or NOTHING, " and ".join(name for name, some in named if some)


def _topic(conversation: ConversationSummary) -> str:
    """Return a line on a conversation: its title, or the first words of it."""
    first = "" if conversation.first is None else shorten(one_line(conversation.first.content), MAX_TOPIC_CHARS)
    what = conversation.title or (f'"{first}"' if first else "untitled")
    return f"- {conversation.ended_at:%Y-%m-%d} {what} ({counted(conversation.messages, 'message')})"


def _fitting(texts: Sequence[str], budget: int) -> int:
    """Return how many of the texts, from the first on, fit a token budget; at least one."""
    for number, text in enumerate(texts):
        budget -= count_tokens(text)
        if budget < 0:
            return max(number, 1)
    return len(texts)
