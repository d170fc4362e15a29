"""What a kind of summary is: what it is made from, by which prompt, when it is due, and its form without a model.

The kinds themselves stand in modules of their own, and `registry.py` lists them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.clock import in_zone, shown_date
from palimpsest.core.models import Memory, Message, Scope, Summary, has_expired
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.text.shorten import shorten
from palimpsest.text.tokenizer import count_tokens

MAX_SOURCE_TOKENS = 12_000
"""How many tokens of memories go into one prompt. Set by hand, to fit the context of small models."""

MAX_SOURCE_MEMORIES = 500
"""How many memories are read for a summary: 24 tokens each fill `MAX_SOURCE_TOKENS`."""

ITEM_TOKENS = 10
"""What an item has beside its text: the names of its fields and its date, as JSON."""

MAX_MESSAGE_CHARS = 600
"""How much of a message is read for a summary. Set by hand: longer ones are mostly code, output and quotations."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Of which scope a summary is wanted, and when.

    `argument` is what follows the colon of the kind, such as a date. `embedder` is the fingerprint of the embedder
    whose vectors the ledger has.
    """

    scope: Scope
    argument: str
    now: datetime
    embedder: str


@dataclass(frozen=True, slots=True)
class Material:
    """What a model writes a summary from.

    `memories` is what the prompt calls memories: objects with at least `text` and `date`, newest first. Those that do
    not fit one prompt are read by several, the oldest first, each with the text of the one before as `previous`, which
    begins as the last summary. `name` is that of the person whose portrait it is. `sources` and `message_ids` are all
    that the text will rest on, as in `Summary`.
    """

    memories: tuple[Mapping[str, Any], ...] = ()
    messages: tuple[Message, ...] = ()
    previous: str = ""
    name: str = ""
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    message_ids: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to summarize."""
        return not self.memories and not self.messages


@dataclass(frozen=True, slots=True)
class Correction:
    """A memory that has changed since a summary was written that rests on it, and what its item says of that.

    `was` is what the memory said before, and `until` when it ended, if it holds no longer.
    """

    memory: Memory
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlainText:
    """The form of a summary that no model wrote. `of` says what it consists of, such as "memories"; "" if of nothing.

    `sources` are the memories that it shows, by id, with their revision.
    """

    text: str
    of: str
    sources: Mapping[str, int] = field(default_factory=dict[str, int])


def no_argument(conn: Connection, request: SummaryRequest) -> str:
    """Return the argument of a kind without one."""
    del conn
    return request.argument


def changes_since(conn: Connection, request: SummaryRequest, last: Summary) -> int:
    """Return how many changes of memories in the scope a summary does not include."""
    return summary_queries.count_changes_since(conn, request.scope, last.seq)


def nothing_due(conn: Connection, request: SummaryRequest, every: int) -> Sequence[str]:
    """Return no argument: a summary of this kind is written when it is asked for."""
    del conn, request, every
    return ()


@dataclass(frozen=True, slots=True)
class SummaryKind:
    """A kind of summary.

    `prompt` is the name of its prompt file, whose inputs are in `llm/views/summarize.py`. `argument` says what follows
    the colon, such as "DATE"; nothing if it is empty. The functions read the ledger and block:

    - `material` returns what a model gets, and `plain` the form without a model.
    - `resolved` returns the argument in full, as the summary is stored under it: "2026-11-21" for "today". Raises
      InputError.
    - `missed` returns how much of what was said the last summary does not include.
    - `due` returns the arguments of the summaries that the background should write now; `every` is the setting
      `summary.every`. A kind without an argument returns an empty one.

    With `ages` the text becomes outdated by time alone, so that a refresh always writes it again. With `keeps_plain`
    the plain form stands below the text of a model. With `has_pinned` the pinned block heads it. With `is_of_user` it
    is the same in every project.
    """

    name: str
    prompt: str
    material: Callable[[Connection, SummaryRequest], Material]
    plain: Callable[[Connection, SummaryRequest], PlainText]
    argument: str = ""
    resolved: Callable[[Connection, SummaryRequest], str] = no_argument
    missed: Callable[[Connection, SummaryRequest, Summary], int] = changes_since
    due: Callable[[Connection, SummaryRequest, int], Sequence[str]] = nothing_due
    ages: bool = False
    keeps_plain: bool = False
    has_pinned: bool = True
    is_of_user: bool = False

    def scope_of(self, scope: Scope) -> Scope:
        """Return the scope that a summary wanted in a scope is made for and kept under."""
        return scope.general if self.is_of_user else scope

    def stored_as(self, argument: str) -> str:
        """Return the kind under which the ledger keeps a summary, such as day:2026-11-21."""
        return f"{self.name}:{argument}" if argument else self.name


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary for the caller. `changes_since` is how many changes of memories were made since it was written.

    `sources` are the ids of the memories that it rests on. `lines` are what a text about an entity rests on. A text
    that `is_plain` was not written by a model. One that `is_cut` leaves out memories or messages for lack of room.
    """

    text: str
    kind: str
    changes_since: int
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    is_plain: bool = False
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class LiveKind:
    """A kind of which the ledger is read each time, so that it is never outdated and never due.

    `answer` gets what follows the colon, which `argument` describes, and who asks. Raises InputError and LedgerError.
    """

    name: str
    argument: str
    answer: Callable[[Engine, Scope, str, str], Awaitable[SummaryResult]]


def holding(memories: Iterable[Memory], now: datetime) -> list[Memory]:
    """Return the memories that have not ended yet, whether or not those that have are closed, in the zone of `now`."""
    return [memory.in_zone(now.tzinfo) for memory in memories if not has_expired(memory.metadata, now)]


def memory_item(memory: Memory) -> Mapping[str, Any]:
    """Return a memory as prompts of summaries have it."""
    return {"text": memory.text, "date": memory.date}


def corrections(conn: Connection, scope: Scope, last: Summary | None, zone: tzinfo | None) -> dict[str, Correction]:
    """Return what has changed since of what a summary rests on, by the ids of the memories, with times of a zone."""
    changed = [] if last is None else summary_queries.changed_behind(conn, scope, last)
    in_its_zone = [(memory.in_zone(zone), was) for memory, was in changed]
    return {memory.id: Correction(memory, _correction(memory, was, zone)) for memory, was in in_its_zone}


def _correction(memory: Memory, was: str, zone: tzinfo | None) -> Mapping[str, str]:
    parts = {"was": was} if was != memory.text else {}
    if memory.deleted_at is None:
        return parts
    return {**parts, "until": memory.until or shown_date(in_zone(memory.deleted_at, zone))}


def revisions(memories: Iterable[Memory]) -> dict[str, int]:
    """Return memories by id with their revision, as a summary stores what it rests on."""
    return {memory.id: memory.revision for memory in memories}


def fitting(memories: Sequence[Memory], budget: int = MAX_SOURCE_TOKENS) -> Sequence[Memory]:
    """Return the memories, from the first on, that fit a token budget; at least one."""
    return memories[: how_many_fit([memory.text for memory in memories], budget)]


def item_tokens(text: str) -> int:
    """Return how many tokens an item with a text has in a prompt."""
    return count_tokens(text) + ITEM_TOKENS


def how_many_fit(texts: Sequence[str], budget: int) -> int:
    """Return how many of the texts, from the first on, fit a token budget; at least one, if there is one."""
    for number, text in enumerate(texts):
        budget -= item_tokens(text)
        if budget < 0:
            return max(number, 1)
    return len(texts)


def spread(messages: Sequence[Message], budget: int) -> tuple[Message, ...]:
    """Return messages that fit a token budget, spread over all of them, each cut to `MAX_MESSAGE_CHARS`."""
    cut = [replace(message, content=shorten(message.content, MAX_MESSAGE_CHARS)) for message in messages]
    while len(cut) > 1 and sum(count_tokens(message.content) for message in cut) > budget:
        cut = cut[::2]
    return tuple(cut)


def material_of(memories: Sequence[Memory], messages: Sequence[Message], message_tokens: int) -> Material:
    """Return memories, and as many of the messages as fit a token count, as what a summary is written from.

    The text rests on all of the messages, because which of them fit is chance.
    """
    return Material(
        tuple(map(memory_item, memories)),
        spread(messages, message_tokens),
        sources=revisions(memories),
        message_ids=tuple(message.id for message in messages),
    )
