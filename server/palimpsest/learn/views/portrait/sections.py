"""Sort memories into the sections of a portrait without a model, and show the most central and recent of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from palimpsest.core.models import EXPIRES_AT, Memory
from palimpsest.core.protocols import Vector
from palimpsest.learn.views.extractive import Passage, most_telling
from palimpsest.learn.views.kinds import PlainText, SummaryRequest, revisions
from palimpsest.learn.views.listing import NOTHING, dated, omitted, shown_text
from palimpsest.learn.views.portrait.ranks import MUST, Rank, rank_of
from palimpsest.learn.views.portrait.signs import Signs
from palimpsest.llm.names import is_about_user
from palimpsest.recall.retrieval.stored_vectors import centred_vectors
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.views.pinned import is_pinned, pinned_memories
from palimpsest.text.dates.finder import date_and_sense, dates_in
from palimpsest.text.stopwords import is_denial
from palimpsest.text.tokenizer import count_tokens, query_tokens

READ = 5_000
"""How many of the newest memories are sorted: some years of a life, in a second at most. Set by hand."""

COMPARED = 300
"""How many memories of a section are compared with each other: some hundredths of a second. Set by hand."""

HALF_LIFE = timedelta(days=180)
"""Within a section, a fact that was said this long ago has half the recency of a new one. Set by hand."""

OTHER_DATE = timedelta(days=500)
"""A text means another day to whoever reads it this much later, if it counts from its own date."""

PASSING_WEIGHT = 0.4
PASSING_AFTER = timedelta(days=14)
"""A text that counts from its own date ("on 16 April", "this week") mostly tells what passes. So long after it was said
it is worth this part of another one, and no less, because birthdays are told like that, too. Set by hand."""

NAME_WEIGHT = 3.0
"""What the user is called, who they are and what is dangerous for them comes first. Set by hand."""

REDUNDANT = 0.8
"""Which share of its words a pinned memory has of one that is not shown again below it. Set by hand."""

ALSO = "Also"
"""The last section, of what belongs to none."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its heading, the tags of its memories, the signs of those without tags, and its room in tokens."""

    heading: str
    tags: frozenset[str]
    signs: Signs
    tokens: int = 120


Place = Callable[[Memory], str]
"""Returns the heading under which a memory belongs; "" leaves it out."""


def by_tags_and_signs(sections: Sequence[Section], memory: Memory, bonus: Mapping[str, int] | None = None) -> str:
    """Return the heading of the section that a memory belongs to: by its tags, else by most signs, else `ALSO`.

    `bonus` are further signs by heading. Of equals the first section wins.
    """
    if tagged := next((section.heading for section in sections if not section.tags.isdisjoint(memory.all_tags)), ""):
        return tagged
    counts = {section.heading: section.signs.count(memory.text) for section in sections}
    for heading, more in (bonus or {}).items():
        counts[heading] += more
    best = max(counts, key=lambda heading: counts[heading])
    return best if counts[best] else ALSO


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens a group of memories has. What was said a `half_life` ago has half the recency of what is new."""

    tokens: int
    half_life: timedelta = HALF_LIFE


def portrait(
    conn: Connection, request: SummaryRequest, memories: Sequence[Memory], headings: Mapping[str, int], place: Place
) -> PlainText:
    """Return the most central and recent memories of each section. `headings` are in order, each with its tokens."""
    sorted_in: dict[str, list[Memory]] = {heading: [] for heading in headings}
    for memory in not_pinned(conn, request, memories):
        if heading := place(memory):
            sorted_in[heading].append(memory.in_zone(request.now.tzinfo))
    rooms = {heading: Room(tokens) for heading, tokens in headings.items()}
    chosen = most_telling_of(conn, request, sorted_in, rooms)
    name = memory_queries.name_of_user(conn, request.scope)
    chosen = {heading: in_order_of_rank(some, name) for heading, some in chosen.items()}
    lines = [line for heading, some in chosen.items() if some for line in (f"{heading}:", *map(line_of, some))]
    shown = [memory for some in chosen.values() for memory in some]
    lines += omitted(sum(map(len, sorted_in.values())) - len(shown), "memory")
    return PlainText("\n".join(lines) if shown else NOTHING, "memories" if shown else "", revisions(shown))


def most_telling_of(
    conn: Connection, request: SummaryRequest, groups: Mapping[str, Sequence[Memory]], rooms: Mapping[str, Room]
) -> dict[str, list[Memory]]:
    """Return the most central and recent memories of each group, within its room, the most telling first.

    What a group does not need of its room is shared by those that need more.
    """
    compared = {name: sorted(groups[name], key=_certainty, reverse=True)[:COMPARED] for name in rooms}
    ids = [memory.id for some in compared.values() for memory in some]
    vectors = centred_vectors(conn, request.embedder, request.scope, "memory", ids)

    def choose(name: str, tokens: int) -> list[Memory]:
        passages = [_passage(memory, vectors.get(memory.id), request.now) for memory in compared[name]]
        positions = most_telling(passages, tokens, now=request.now, half_life=rooms[name].half_life)
        return [compared[name][position] for position in positions]

    chosen = {name: choose(name, room.tokens) for name, room in rooms.items()}
    left = sum(room.tokens for room in rooms.values()) - sum(_costs(some) for some in chosen.values())
    short = [name for name, room in rooms.items() if _costs(compared[name]) > room.tokens]
    for number, name in enumerate(short):
        before = _costs(chosen[name])
        chosen[name] = choose(name, before + left // (len(short) - number))
        left -= _costs(chosen[name]) - before
    return chosen


def in_order_of_rank(memories: Iterable[Memory], user_name: str) -> list[Memory]:
    """Return memories in their order, but those that say who the user is in front, and the name before all."""

    def place(memory: Memory) -> int:
        rank = rank_of(memory, user_name)
        return -1 if rank is Rank.NAME else min(rank, Rank.HELP)

    return sorted(memories, key=place)


def not_pinned(conn: Connection, request: SummaryRequest, memories: Iterable[Memory]) -> list[Memory]:
    """Return the memories that no pinned one says already."""
    pinned = [_words_of(memory) for memory in pinned_memories(conn, request.scope)]
    return [memory for memory in memories if not _is_said(_words_of(memory), pinned)]


def _words_of(memory: Memory) -> tuple[AbstractSet[str], bool]:
    """Return the words that say something in a memory, and whether it denies something."""
    return frozenset(query_tokens(memory.text)), is_denial(memory.text)


def _is_said(told: tuple[AbstractSet[str], bool], pinned: Iterable[tuple[AbstractSet[str], bool]]) -> bool:
    words, denies = told
    return any(
        denies == is_denied and len(words & of_pinned) >= REDUNDANT * max(len(words), 1)
        for of_pinned, is_denied in pinned
    )


def _certainty(memory: Memory) -> int:
    """Return how surely a memory belongs where it was sorted: by its tags, or else if it is about the user."""
    return 2 if memory.all_tags else 1 if is_about_user(memory.text) else 0


def _passage(memory: Memory, vector: Vector | None, now: datetime) -> Passage:
    weight = NAME_WEIGHT if rank_of(memory, "") <= MUST else 1.0
    if now - memory.at > PASSING_AFTER and _counts_from_its_date(memory):
        weight *= PASSING_WEIGHT
    return Passage(memory.text, memory.at, vector, weight, tokens=_cost(memory))


def _cost(memory: Memory) -> int:
    return count_tokens(f"{dated(memory)}\n")


def _costs(memories: Iterable[Memory]) -> int:
    return sum(map(_cost, memories))


def line_of(memory: Memory) -> str:
    """Return a memory as a line, with its date if the text counts from it."""
    text = shown_text(memory)
    return f"- {date_and_sense(memory, text)} {text}" if _counts_from_its_date(memory) else f"- {text}"


def _counts_from_its_date(memory: Memory) -> bool:
    """Return whether a text means another day to whoever reads it later."""
    then, later = (dates_in(memory.text, at, guesses=True) for at in (memory.at, memory.at + OTHER_DATE))
    return then != later


def lasting(memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories that do not expire and are not pinned, which stand above every portrait."""
    return [memory for memory in memories if EXPIRES_AT not in memory.metadata and not is_pinned(memory.metadata)]
