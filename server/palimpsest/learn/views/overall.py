"""The kind `overall`: lasting knowledge.

It is written from the last one and what came since: the summaries of days (the two levels of MemoryBank) and memories
of days that have none. So what was told once and is lasting is carried on (the recursive summary of MemGPT). What has
changed since is shown as it is and as it was, so that the last one is brought up to date. If something that it rests on
was deleted, the next begins with an older one which that does not concern, and if there is none with what was said
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Summary
from palimpsest.learn.views.days import DAY
from palimpsest.learn.views.kinds import (
    MAX_SOURCE_MEMORIES,
    MAX_SOURCE_TOKENS,
    Material,
    PlainText,
    SummaryKind,
    SummaryRequest,
    corrections,
    holding,
    how_many_fit,
    item_tokens,
    memory_item,
    revisions,
)
from palimpsest.learn.views.portrait.overview import overview
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import summaries as summary_queries

MAX_PROMPTS = 4
"""How many prompts one summary reads at most. What does not fit them is read by the next one. Set by hand: about a year
of days, after a correction of something old."""

MAX_UNREAD = 2_000
MAX_DAYS = 400
"""How many memories and days are looked at for that: more than fit."""


def _material(conn: Connection, request: SummaryRequest) -> Material:
    scope = request.scope
    base_id, base = summary_queries.base_summary(conn, scope, OVERALL.name)
    days = summary_queries.summaries_beyond(conn, scope, f"{DAY.name}:", base_id, MAX_DAYS)
    in_days = {memory_id for day in days for memory_id in day.sources}
    unread = holding(summary_queries.memories_beyond(conn, scope, base_id, MAX_UNREAD), request.now)
    parts: list[tuple[str, Summary | Memory]] = [(_date_of(day), day) for day in days]
    parts += [(f"{memory.stated_at:%Y-%m-%d}", memory) for memory in unread if memory.id not in in_days]
    parts.sort(key=lambda part: part[0], reverse=True)
    changed = corrections(conn, scope, base, request.now.tzinfo)
    parts = parts[: how_many_fit([part.text for _, part in parts], MAX_PROMPTS * MAX_SOURCE_TOKENS)]
    items = [_day_item(part) if isinstance(part, Summary) else memory_item(part) for _, part in parts]
    items = [*({**memory_item(item.memory), **item.parts} for item in changed.values()), *items]
    sources = dict(base.sources) if base is not None else {}
    sources |= revisions(item.memory for item in changed.values())
    message_ids = list(base.message_ids) if base is not None else []
    for _, part in parts:
        if isinstance(part, Summary):
            sources |= part.sources
            message_ids += part.message_ids
        else:
            sources[part.id] = part.revision
    shown = {part.id for _, part in parts if isinstance(part, Memory)} | changed.keys()
    known = _known(conn, request, shown, _room(items))
    return Material(
        (*items, *map(memory_item, known)),
        previous=base.text if base is not None else "",
        sources=sources | revisions(known),
        message_ids=tuple(dict.fromkeys(message_ids)),
    )


def _known(conn: Connection, request: SummaryRequest, shown: set[str], room: int) -> Sequence[Memory]:
    """Return the newest memories that are not shown yet and fit: the model can hold the last summary against them."""
    newest = [memory for _, memory in memory_queries.list_memories(conn, request.scope, MAX_SOURCE_MEMORIES)]
    others = [memory for memory in holding(newest, request.now) if memory.id not in shown]
    texts = [memory.text for memory in others]
    return others[: how_many_fit(texts, room)] if texts and item_tokens(texts[0]) <= room else ()


def _room(items: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tokens are left of one prompt; none if the items need several."""
    return MAX_SOURCE_TOKENS - sum(item_tokens(item["text"]) for item in items)


def _day_item(day: Summary) -> Mapping[str, Any]:
    return {"text": day.text, "date": _date_of(day), "of": "the whole day"}


def _date_of(day: Summary) -> str:
    return day.kind.removeprefix(f"{DAY.name}:")


def _plain(conn: Connection, request: SummaryRequest) -> PlainText:
    return overview(conn, request)


def _due(conn: Connection, request: SummaryRequest, every: int) -> Sequence[str]:
    last = summary_queries.latest_summary(conn, request.scope, OVERALL.name)
    missed = summary_queries.count_changes_since(conn, request.scope, last.seq if last else 0)
    return ("",) if missed >= every else ()


OVERALL = SummaryKind("overall", "summarize", _material, _plain, due=_due)
