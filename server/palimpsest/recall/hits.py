"""Memories and messages as hits: what a search or a listing returns, and what a filter sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection

from palimpsest.core.models import PAGE, Memory, Message, Scope
from palimpsest.core.search.hits import Candidate, DocumentPage, Hit
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.views import documents as document_queries
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted
from palimpsest.text.shorten import shorten_to_tokens
from palimpsest.text.tokenizer import count_tokens

LINE_TOKENS = 14
"""About what the id, the date and the speaker of a hit's line cost, in tokens."""

CUT_LINE_TOKENS = LINE_TOKENS + 6
"""The same for a hit that is cut, whose line ends with the length of the whole text."""

ADDRESS_TOKENS = 7
"""About what the address of a page costs, which the line of a cut page ends with."""

MIN_BEST_TOKENS = 30
"""How much of the best hit is shown at least. With its line it is 50 tokens, the smallest budget of a search."""

MIN_CUT_TOKENS = 60
"""How much of another hit is shown at least, or it is left out. Set by hand: about three sentences, which are enough to
see what a text is about; less would take room from shorter hits and say little."""

MAX_WEAK = 5
"""How many hits are shown at most if probably none answers. Set by hand: enough for an answer in other words, and few
enough that an agent does not read a page of what it did not ask for."""


def memory_hit(memory: Memory, text: str, sources: Sequence[Message], score: float) -> Hit:
    """Return a memory as a hit."""
    return Hit(
        id=memory.id,
        kind="memory",
        text=text,
        score=score,
        at=memory.at,
        at_precision=memory.at_precision,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        sources=tuple(source.source for source in sources),
        message_ids=tuple(source.id for source in sources),
        role=memory.role,
        name=memory.actor_id,
        tags=memory.tags,
        metadata=memory.metadata,
        project=memory.scope.project,
        is_event_date=memory.is_event_date,
    )


def message_hit(message: Message, score: float, document: DocumentPage | None = None) -> Hit:
    """Return a message as a hit; `document` says which page it is, if it is one."""
    return Hit(
        id=message.id,
        kind="message",
        text=message.content,
        score=score,
        at=message.said_at,
        created_at=message.created_at,
        updated_at=message.created_at,
        sources=(message.source,),
        message_ids=(message.id,),
        role=message.role,
        name=message.name,
        project=message.scope.project,
        session=message.session_id,
        document=document,
    )


def message_hits(conn: Connection, messages: Sequence[Message]) -> list[Hit]:
    """Return messages as hits, in their order. Pages of documents take one more query."""
    pages = [message.id for message in messages if message.role == PAGE]
    places = document_queries.places(conn, pages) if pages else {}
    return [message_hit(message, 0.0, places.get(message.id)) for message in messages]


HitTest: TypeAlias = Callable[[Hit], bool]


def hits_of(conn: Connection, candidates: Sequence[Candidate]) -> dict[int, Hit]:
    """Return the hits of candidates by entry number; those deleted or erased meanwhile are left out."""
    memory_ids = [candidate.owner_id for candidate in candidates if candidate.kind == "memory"]
    message_ids = [candidate.owner_id for candidate in candidates if candidate.kind == "message"]
    memories = memory_queries.memories_by_id(conn, memory_ids)
    messages = message_queries.messages_by_id(conn, message_ids)
    sources = message_queries.sources_of(conn, memory_ids)
    hits = {
        memory.id: memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0)
        for memory in memories.values()
        if memory.deleted_at is None
    }
    living = [message for message in messages.values() if message.deleted_at is None]
    hits |= {hit.id: hit for hit in message_hits(conn, living)}
    return {candidate.seq: hits[candidate.owner_id] for candidate in candidates if candidate.owner_id in hits}


def hits_at(conn: Connection, scope: Scope, instant: datetime) -> list[Hit]:
    """Return everything that was believed at an instant: the memories, then the messages, as they were then.

    Messages with a fact that had been forgotten by then are left out.
    """
    memories = {memory.id: memory for memory in history_queries.memories_at(conn, scope, instant)}
    sources = message_queries.sources_of(conn, list(memories))
    hits = [memory_hit(memory, memory.text, sources.get(memory.id, ()), 0.0) for memory in memories.values()]
    messages = history_queries.messages_at(conn, scope, instant)
    citing = memory_queries.memories_from(conn, [message.id for message in messages])
    for hit in message_hits(conn, messages):
        facts = [fact for fact in citing.get(hit.id, ()) if fact.created_at <= instant]
        if not any(fact.id not in memories and fact.is_forgotten for fact in facts):
            hits.append(hit)
    return hits


def relevant(hits: Sequence[Hit], min_relevance: float) -> list[Hit]:
    """Return the hits whose relevance is at least `min_relevance`."""
    return [hit for hit in hits if hit.relevance >= min_relevance]


def irrelevant_note(count: int, min_relevance: float) -> str:
    """Return the note on how many hits `relevant` left out."""
    left_out = f"{counted(count, 'hit')} {'is' if count == 1 else 'are'} left out"
    return f"{left_out} because the relevance is below the setting min_relevance = {min_relevance:g}"


def strongest(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits to show if probably nothing that is stored answers the query: the best few."""
    return list(hits[:MAX_WEAK])


def within_budget(hits: Sequence[Hit], max_tokens: int) -> list[Hit]:
    """Return the hits that fit `max_tokens` together; a hit that is too long is cut, or left out if too little fits.

    The first hit is always there. A hit that is cut leaves the hits below it the room they need, up to half of what is
    left.
    """
    kept: list[Hit] = []
    left = max_tokens
    needed = sum(map(hit_tokens, hits))
    for hit in hits:
        cost = hit_tokens(hit)
        needed -= cost  # now what the hits below need
        if cost > left:
            least = (MIN_CUT_TOKENS if kept else MIN_BEST_TOKENS) + CUT_LINE_TOKENS
            if kept and left < least:
                continue
            share = max(left // 2, left - needed)
            hit = cut_to_fit(hit, max(share, least))  # noqa: PLW2901 - the rest of the text is not used
        kept.append(hit)
        left -= hit_tokens(hit)
    return kept


def cut_to_fit(hit: Hit, max_tokens: int) -> Hit:
    """Return a hit that costs at most `max_tokens`, with the beginning of its text only if the whole is too long.

    At least `MIN_BEST_TOKENS` of the text are kept.
    """
    if hit_tokens(hit) <= max_tokens:
        return hit
    text = shorten_to_tokens(hit.text, max(max_tokens - CUT_LINE_TOKENS - _place_tokens(hit), MIN_BEST_TOKENS))
    return hit if text == hit.text else replace(hit, text=text, length=hit.length or len(hit.text))


def hit_tokens(hit: Hit) -> int:
    """Return what one hit costs in a reply, in tokens: its text as replies show it, and the rest of its line."""
    return (
        count_tokens(visible(hit.text)) + _place_tokens(hit) + (LINE_TOKENS if hit.length is None else CUT_LINE_TOKENS)
    )


def _place_tokens(hit: Hit) -> int:
    """Return what the name of a page costs."""
    return 0 if hit.document is None else count_tokens(visible(str(hit.document))) + ADDRESS_TOKENS
