"""The form of the summary `overall` without a model: what is lasting, and of the rest what is central and recent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Connection

from palimpsest.core.models import EXPIRES_AT, Memory
from palimpsest.learn.views.kinds import PlainText, SummaryRequest, revisions
from palimpsest.learn.views.listing import (
    MAX_LISTED_CONVERSATIONS,
    MAX_LISTED_TOKENS,
    NOTHING,
    dated,
    held_memories,
    named,
    omitted,
    topics_of,
)
from palimpsest.learn.views.portrait import profile
from palimpsest.learn.views.portrait.sections import READ, Room, in_order_of_rank, line_of, most_telling_of, not_pinned
from palimpsest.store.queries import conversations as conversation_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.text.tokenizer import count_tokens

LASTING = {profile.IDENTITY: 90, profile.PEOPLE: 90, profile.WORK: 60, profile.PREFERENCES: 60, profile.HELP: 60}
"""The sections of a profile that are lasting, each with its tokens, which nothing that is said later can take. Set by
hand: three fifths of the whole."""

REST = MAX_LISTED_TOKENS - sum(LASTING.values())
"""The tokens of all else: half of them for the project, if there is one."""

HALF_LIFE = timedelta(days=30)
"""What is not lasting was said lately, or is central: what was said this long ago has half the recency. Set by hand."""

USER, PROJECT, ALSO = "About the user", "About the project", "Also"


def overview(conn: Connection, request: SummaryRequest) -> PlainText:
    """Return all memories if they fit; else the lasting ones, and the most telling of the others.

    Who the user is comes first, then the newest. What a pinned memory says is not repeated.
    """
    held = not_pinned(conn, request, held_memories(conn, request, READ))
    held = in_order_of_rank(held, memory_queries.name_of_user(conn, request.scope))
    lines = [dated(memory) for memory in held]
    shown: Sequence[Memory] = held
    if sum(count_tokens(f"{line}\n") for line in lines) > MAX_LISTED_TOKENS:
        lines, shown = _most_telling(conn, request, held)
        total = len(held) if len(held) < READ else memory_queries.count_memories(conn, request.scope)
        lines += omitted(total - len(shown), "memory")
    conversations = conversation_queries.list_conversations(conn, request.scope, MAX_LISTED_CONVERSATIONS)
    total = conversation_queries.count_conversations(conn, request.scope)[0]
    topics = topics_of(conversations, total, request.now.tzinfo)
    of = named(memories=shown, conversations=topics)
    return PlainText("\n".join((*lines, *topics)) or NOTHING, of, revisions(shown))


def _most_telling(
    conn: Connection, request: SummaryRequest, held: Sequence[Memory]
) -> tuple[list[str], Sequence[Memory]]:
    """Return the most telling memories under their headings as lines, and these memories."""
    groups = _grouped(conn, request, held)
    others = (PROJECT, ALSO) if request.scope.project else (ALSO,)
    rooms = {heading: Room(tokens) for heading, tokens in LASTING.items()}
    rooms |= {heading: Room(REST // len(others), HALF_LIFE) for heading in others}
    chosen = most_telling_of(conn, request, groups, rooms)
    name = memory_queries.name_of_user(conn, request.scope)
    about_user = in_order_of_rank((memory for heading in LASTING for memory in chosen[heading]), name)
    lines = [f"{USER}:", *map(line_of, about_user)] if about_user else []
    for heading in (PROJECT, ALSO):
        newest = sorted(chosen.get(heading, ()), key=lambda memory: memory.stated_at, reverse=True)
        title = f"{heading} {request.scope.project}" if heading == PROJECT else heading
        lines += [f"{title}:", *map(dated, newest)] if newest else []
    return lines, [memory for some in chosen.values() for memory in some]


def _grouped(conn: Connection, request: SummaryRequest, held: Sequence[Memory]) -> Mapping[str, Sequence[Memory]]:
    """Return the memories of each section, of the project and of all else."""
    place = profile.place_of_user(conn, request, held)
    groups: dict[str, list[Memory]] = {heading: [] for heading in (*LASTING, PROJECT, ALSO)}
    for memory in held:
        if memory.scope.project:
            groups[PROJECT].append(memory)
        else:
            heading = ALSO if EXPIRES_AT in memory.metadata else place(memory)
            groups[heading].append(memory)
    return groups
