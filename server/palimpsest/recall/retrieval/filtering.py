"""Filters of searches and lists, with what they look up in the ledger: names, conversations and words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.clock import span_of
from palimpsest.core.errors import FullTextError
from palimpsest.core.models import Scope
from palimpsest.core.search.bounds import Bounds, bounds_of
from palimpsest.core.search.filters import FADED, MESSAGES, compile_filter, fields_named, plain, texts_of
from palimpsest.core.search.hits import Hit
from palimpsest.core.threads import end_if_cancelled
from palimpsest.recall.hits import HitTest, memory_hit, message_hit
from palimpsest.store.database.protocols import FullText
from palimpsest.store.graph.owners import owners_mentioning
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.conversations import MessageBounds
from palimpsest.text.tokenizer import search_tokens


@dataclass(frozen=True, slots=True)
class HitFilter:
    """A filter of one scope. `test` decides about each hit.

    `kinds` are those of the hits that match, and no message outside of `messages` does. If it `is_exact`, all messages
    within them match.
    """

    test: HitTest
    kinds: AbstractSet[str]
    messages: MessageBounds
    is_exact: bool

    @property
    def leaves_most_messages(self) -> bool:
        """Return whether messages are asked for, and most of them by a test of columns alone, such as their role."""
        return self.kinds == MESSAGES and self.is_exact and self.messages.leave_most


def hit_filter(
    conn: Connection,
    full_text: FullText,
    scope: Scope,
    filters: Mapping[str, Any],
    zone: tzinfo,
    *,
    as_of: datetime | None = None,
    deleted: bool = False,
    faded: Callable[[], AbstractSet[str]] = frozenset,
) -> HitFilter:
    """Return a filter for what is stored now, for what is deleted, or for what was stored at an instant.

    Days are those of `zone`. Of the graph only the mentions of the entities that the filter names are read. `faded`
    returns the ids of what faded, and is called if the filter asks for them. Raises InputError, and
    MemoryNotFoundError for a conversation that the scope does not see.
    """
    test = compile_filter(filters, zone)
    is_past = deleted or as_of is not None
    sessions = {
        plain("session", text): conversation_queries.find_conversation(conn, scope, text, zone, deleted=is_past)
        for text in texts_of(filters, "session")
    }
    names, fields = texts_of(filters, "entity"), fields_named(filters)
    owners = owners_mentioning(conn, scope, names, as_of) if names else {}
    looked_up = _LookedUp(
        fields,
        faded() if FADED in fields else frozenset[str](),
        owners,
        sessions,
        conversation_queries.memories_of_sessions(conn, sessions.values()) if sessions else {},
        {plain("words", text): frozenset(search_tokens(text)) for text in texts_of(filters, "words")},
        zone,
    )
    bounds = bounds_of(filters, zone)
    speakers = _names_of(conn, scope, bounds.speakers)
    messages = MessageBounds(
        bounds.roles,
        speakers,
        None if bounds.sessions is None else [sessions[session] for session in bounds.sessions],
        bounds.said_from,
        bounds.said_until,
        None if is_past else _entries_with(conn, full_text, scope, bounds),
        None
        if bounds.entities is None
        else frozenset[str]().union(*(owners.get(name, ()) for name in bounds.entities)),
        bounds.has_pages,
    )
    is_exact = bounds.is_exact and (bounds.speakers is None) == (speakers is None)
    return HitFilter(lambda hit: test(looked_up.record(hit)), bounds.kinds, messages, is_exact)


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """What a filter names, as it is found in the ledger.

    `faded` are the ids of what faded, if the filter asks for them, and `owners` those of what mentions the entity of
    each name. `sessions` are the conversations by the texts that name them, `learned` the ids of the memories that were
    learned in each, and `words` the search tokens of each text.
    """

    fields: AbstractSet[str]
    faded: AbstractSet[str]
    owners: Mapping[str, AbstractSet[str]]
    sessions: Mapping[str, str]
    learned: Mapping[str, AbstractSet[str]]
    words: Mapping[str, AbstractSet[str]]
    zone: tzinfo

    def record(self, hit: Hit) -> dict[str, Any]:
        """Return what the filter sees of a hit."""
        record: dict[str, Any] = {"role": hit.role, "kind": hit.kind, "tags": hit.tags, "metadata": hit.metadata}
        if "at" in self.fields:
            record["at"] = span_of(hit.at, hit.at_precision, self.zone)
        if "created_at" in self.fields:
            record["created_at"] = span_of(hit.created_at, "")
        if "speaker" in self.fields:
            record["speaker"] = plain("speaker", hit.name)
        record[FADED] = hit.id in self.faded
        record["entity"] = [name for name, mentioning in self.owners.items() if hit.id in mentioning]
        record["session"] = [text for text, session in self.sessions.items() if self._is_of(hit, session)]
        if self.words:
            tokens = frozenset(search_tokens(hit.text))
            record["words"] = [text for text, words in self.words.items() if words and words <= tokens]
        return record

    def _is_of(self, hit: Hit, session: str) -> bool:
        return hit.session == session or hit.id in self.learned[session]


def _names_of(conn: Connection, scope: Scope, speakers: AbstractSet[str] | None) -> Collection[str] | None:
    """Return the names as messages have them of the speakers sought. Return None for all names, if there are many."""
    if speakers is None:
        return None
    names = message_queries.speakers(conn, scope.user_id)
    if len(names) >= message_queries.MAX_SPEAKERS:
        return None
    return [name for name in names if plain("speaker", name) in speakers]


def _entries_with(conn: Connection, full_text: FullText, scope: Scope, bounds: Bounds) -> Collection[int] | None:
    """Return the entries that have the words of a filter and perhaps others; None if they cannot be looked up."""
    words = {word for text in bounds.words for word in search_tokens(text)}
    if not words:
        return None
    try:
        return full_text.with_all(conn, scope, words)
    except FullTextError:
        return None  # every text is read instead


def passing(conn: Connection, scope: Scope, found: HitFilter) -> set[int]:
    """Return the living entries of the scope that pass a filter."""
    entries: set[int] = set()
    if "memory" in found.kinds:
        for seq, memory in entry_queries.living_memories(conn, scope):
            end_if_cancelled()
            if found.test(memory_hit(memory, memory.text, (), 0.0)):
                entries.add(seq)
    if "message" not in found.kinds:
        return entries
    if found.is_exact:
        return entries | conversation_queries.message_entries(conn, scope, found.messages)
    for seq, message in conversation_queries.living_messages(conn, scope, found.messages):
        end_if_cancelled()
        if found.test(message_hit(message, 0.0)):
            entries.add(seq)
    return entries
