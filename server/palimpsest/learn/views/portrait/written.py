"""What a model writes a portrait from: the newest memories, and the last portrait that still holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.models import Memory
from palimpsest.learn.views.kinds import Material, SummaryRequest, corrections, fitting, memory_item, revisions
from palimpsest.store.queries import summaries as summary_queries

Item = Callable[[Memory], Mapping[str, Any]]


def material(
    conn: Connection, request: SummaryRequest, kind: str, memories: Sequence[Memory], item: Item = memory_item
) -> Material:
    """Return the memories that fit one prompt, and the last portrait of a kind of which nothing was deleted.

    What is old but lasting is carried on by the last portrait, so the new one rests on what that one rests on, too.
    What has changed since is shown as it was.
    """
    _, last = summary_queries.base_summary(conn, request.scope, kind)
    zone = request.now.tzinfo
    kept = [memory.in_zone(zone) for memory in fitting(memories)]
    changed = corrections(conn, request.scope, last, zone)
    corrected = [each.memory for each in changed.values()]
    return Material(
        (
            *({**item(each.memory), **each.parts} for each in changed.values()),
            *(item(memory) for memory in kept if memory.id not in changed),
        ),
        previous="" if last is None else last.text,
        sources={**({} if last is None else last.sources), **revisions((*corrected, *kept))},
        message_ids=() if last is None else last.message_ids,
    )
