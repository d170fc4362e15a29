"""The rolling summary of a scope: written anew every K changes in the background, and on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from palimpsest.core.clock import iso
from palimpsest.core.errors import InputError, ModelError, PromptError
from palimpsest.core.models import Memory, Message, Provenance, Scope, Summary
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.llm.summarize import summarize
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.writes.apply import Write
from palimpsest.text.tokenizer import count_tokens

SummaryKind: TypeAlias = Literal["overall", "recent"]
"""`overall`: what is known lastingly. `recent`: what went on in the last days."""

KINDS: tuple[str, ...] = get_args(SummaryKind)

MAX_SOURCE_TOKENS = 12_000
"""What of the newest memories and messages goes into one summary."""

MAX_LISTED_TOKENS = 600
NOTHING = "Nothing is known yet."
RECENT = timedelta(days=14)
RECENT_MESSAGES = 40


@dataclass(frozen=True, slots=True)
class Summarized:
    """Hold a summary as it is given out. `changes_since` is how many changes it does not know of yet."""

    text: str
    kind: str
    changes_since: int
    notes: tuple[str, ...] = ()


async def get_summary(engine: Engine, scope: Scope, kind: str, *, refresh: bool, caller: str) -> Summarized:
    """Return the summary of a kind, written now where it is missing, outdated and asked for, or both.

    Without a model that answers it is a list of the newest memories, and says so. Raises InputError for an unknown
    kind.
    """
    kind = kind.strip().lower()
    if kind not in KINDS:
        raise InputError(f"there is no summary '{kind}'; there are {', '.join(KINDS)}")
    last, behind, lost = await engine.run(lambda: _last(engine, scope, kind))
    if engine.model is None:
        if last is not None and not behind:  # written while a model was there, and nothing has changed since
            return Summarized(last.text, kind, 0)
        return await _listed(engine, scope, kind, "there is no language model to ask")
    # What went on lately also changes by itself; a summary that may name what was deleted is not given out again.
    stale = lost or (refresh and (behind > 0 or kind == "recent"))
    if last is not None and not stale:
        return Summarized(last.text, kind, behind)
    try:
        text = await write_summary(engine, engine.model, scope, kind, caller)
    except (ModelError, PromptError) as error:
        if last is None or lost:
            return await _listed(engine, scope, kind, f"the summary could not be written ({error})")
        return Summarized(last.text, kind, behind, (f"the summary could not be refreshed: {error}",))
    return Summarized(NOTHING if text is None else text, kind, 0)


async def _listed(engine: Engine, scope: Scope, kind: str, why: str) -> Summarized:
    text = await engine.run(lambda: _listing(engine, scope, kind))
    return Summarized(text, kind, 0, () if text == NOTHING else (f"{why}: these are the memories themselves",))


async def write_summary(engine: Engine, model: LanguageModel, scope: Scope, kind: str, caller: str) -> str | None:
    """Write the summary of a scope anew and return it; None when there is nothing to summarize.

    Raises ModelError and PromptError; the last summary stays then.
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
    await engine.run(lambda: engine.ledger.apply(write))
    return text


async def changes_missed(engine: Engine, scope: Scope, kind: str) -> int:
    """Return how many changes the summary of a scope does not know of."""
    _, behind, _ = await engine.run(lambda: _last(engine, scope, kind))
    return behind


def _last(engine: Engine, scope: Scope, kind: str) -> tuple[Summary | None, int, bool]:
    """Return the last summary, how many changes it has missed, and whether a deletion is among them."""
    with engine.ledger.read() as conn:
        last = summary_queries.latest_summary(conn, scope, kind)
        seq = last.seq if last else 0
        return (
            last,
            summary_queries.count_changes_since(conn, scope, seq),
            summary_queries.has_deletions_since(conn, scope, seq),
        )


def _sources(engine: Engine, scope: Scope, kind: str) -> tuple[int, list[Memory], list[Message], str]:
    """Return the head of the log, the newest memories and messages that fit, and the previous summary."""
    with engine.ledger.read() as conn:
        seq = log_queries.newest_log_number(conn)
        last = summary_queries.latest_summary(conn, scope, kind)
        memories = [memory for _, memory in memory_queries.list_memories(conn, scope, 500)]
        messages: list[Message] = []
        if kind == "recent":
            since = engine.clock() - RECENT
            memories = [memory for memory in memories if memory.updated_at >= since]
            messages = message_queries.messages_since(conn, scope, since, RECENT_MESSAGES)
    fitting = _fitting([memory.text for memory in memories], MAX_SOURCE_TOKENS)
    return seq, memories[:fitting], messages, last.text if last else ""


def _listing(engine: Engine, scope: Scope, kind: str) -> str:
    """Return the newest memories as lines of text, within the budget."""
    with engine.ledger.read() as conn:
        found = [memory for _, memory in memory_queries.list_memories(conn, scope, 200)]
        total = memory_queries.count_memories(conn, scope)
    if kind == "recent":
        found = [memory for memory in found if memory.updated_at >= engine.clock() - RECENT]
        total = len(found)
    if not found:
        return NOTHING
    lines = _within([f"- {iso(memory.at)[:10]} {one_line(memory.text)}" for memory in found], MAX_LISTED_TOKENS)
    left = f"\n({total - len(lines)} more memories are not shown.)" if total > len(lines) else ""
    return "\n".join(lines) + left


def _within(lines: Sequence[str], budget: int) -> list[str]:
    """Return the lines that fit a budget of tokens, without those that do not; where none does, the first."""
    kept: list[str] = []
    for line in lines:
        cost = count_tokens(line)
        if cost <= budget:
            kept.append(line)
            budget -= cost
    return kept or list(lines[:1])


def _fitting(texts: Sequence[str], budget: int) -> int:
    """Return how many of the texts, from the first on, fit a budget of tokens; at least one."""
    for number, text in enumerate(texts):
        budget -= count_tokens(text)
        if budget < 0:
            return max(number, 1)
    return len(texts)
