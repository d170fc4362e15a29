"""Sort memories into the sections of a portrait without a model, and show the most central and recent of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection

from palimpsest.core.models import EXPIRES_AT, USER_NAME, Memory
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import one_line
from palimpsest.learn.views.extractive import Passage, most_telling
from palimpsest.learn.views.kinds import PlainText, SummaryRequest, revisions
from palimpsest.learn.views.listing import NOTHING
from palimpsest.learn.views.portrait.signs import Signs
from palimpsest.learn.views.portrait.vectors import centred_vectors
from palimpsest.store.views.pinned import is_pinned
from palimpsest.text.dates.finder import dates_in
from palimpsest.text.shorten import shorten_to_tokens
from palimpsest.text.tokenizer import count_tokens

READ = 1_000
"""How many of the newest memories are sorted: some tenths of a second at most. Set by hand."""

HALF_LIFE = timedelta(days=180)
"""Within a section, a fact that was said this long ago has half the recency of a new one. Set by hand."""

LINE_TOKENS = 60
"""How much of one memory is shown. A fact is a sentence; a long note would take the room of many. Set by hand."""

OTHER_DATE = timedelta(days=500)
"""A text means another day to whoever reads it this much later, if it counts from its own date."""

NAME_WEIGHT = 3.0
"""What the user is called comes first. Set by hand."""

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
    if tagged := next((section.heading for section in sections if not section.tags.isdisjoint(memory.tags)), ""):
        return tagged
    counts = {section.heading: section.signs.count(memory.text) for section in sections}
    for heading, more in (bonus or {}).items():
        counts[heading] += more
    best = max(counts, key=lambda heading: counts[heading])
    return best if counts[best] else ALSO


def portrait(
    conn: Connection, request: SummaryRequest, memories: Sequence[Memory], headings: Mapping[str, int], place: Place
) -> PlainText:
    """Return the most central and recent memories of each section. `headings` are in order, each with its tokens."""
    sorted_in: dict[str, list[Memory]] = {heading: [] for heading in headings}
    for memory in memories:
        if heading := place(memory):
            sorted_in[heading].append(memory)
    vectors = centred_vectors(conn, request.embedder, request.scope, "memory", [memory.id for memory in memories])
    lines: list[str] = []
    shown: list[Memory] = []
    for heading, tokens in headings.items():
        found = sorted_in[heading]
        passages = [_passage(memory, vectors.get(memory.id)) for memory in found]
        chosen = [found[position] for position in most_telling(passages, tokens, now=request.now, half_life=HALF_LIFE)]
        if chosen:
            lines += [f"{heading}:", *map(line_of, chosen)]
            shown += chosen
    if left := sum(map(len, sorted_in.values())) - len(shown):
        lines.append(f"({left:,} more {'memory is' if left == 1 else 'memories are'} not shown.)")
    return PlainText("\n".join(lines) if shown else NOTHING, "memories" if shown else "", revisions(shown))


def _passage(memory: Memory, vector: Vector | None) -> Passage:
    weight = NAME_WEIGHT if USER_NAME in memory.metadata else 1.0
    return Passage(memory.text, memory.at, vector, weight, tokens=count_tokens(f"{line_of(memory)}\n"))


def line_of(memory: Memory) -> str:
    """Return a memory as a line, with its date if the text counts from it."""
    text = shorten_to_tokens(one_line(memory.text), LINE_TOKENS)
    counts_from_it = dates_in(text, memory.at) != dates_in(text, memory.at + OTHER_DATE)
    return f"- {memory.date} {text}" if counts_from_it else f"- {text}"


def lasting(memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories that do not expire and are not pinned, which stand above every portrait."""
    return [memory for memory in memories if EXPIRES_AT not in memory.metadata and not is_pinned(memory.metadata)]
