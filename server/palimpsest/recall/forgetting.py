"""How well a memory is remembered: R = e^(-t / (S * tau)), as in MemoryBank (Zhong et al. 2023, section 2.3).

t are the days since the memory was last used or stated. S is its strength: 1, and 1 more for each use. tau are the days
in which a memory of its kind fades; in MemoryBank it is 1. (Its published code computes e^(-t / 5 * S), by which a
stronger memory fades faster. That is not meant.)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Literal, Self, TypeAlias

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.clock import times_in_zone
from palimpsest.core.filters import FADED
from palimpsest.core.models import LASTING, PINNED, USER_NAME, Candidate, Scope, tags_given
from palimpsest.recall.features import Column, Ranked
from palimpsest.store import usage
from palimpsest.store.memories import is_pinned
from palimpsest.store.usage import Trace
from palimpsest.text.display import counted

Mode: TypeAlias = Literal["off", "rank", "archive"]

# What keeps the memory that tells the user's name, with or without tags.
NAME = "identity"

# What a memory loses in the order that is wholly forgotten. It is what `score.CLEAR` calls a clear lead: what stands
# out from all others keeps its place, and of two that answer alike the one that is remembered is first.
WEIGHT = 0.5

SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How memories fade. `days` are those of tau, `days_by_tag` those of memories with a tag; the longest counts.

    A memory with an R below `bound` is faded. With "archive", the default search leaves faded memories out.
    """

    mode: Mode = "off"
    days: float = 30.0
    days_by_tag: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    bound: float = 0.05


OFF = RetentionSettings()


@dataclass(frozen=True, slots=True)
class Fading:
    """How well one memory is remembered, and why.

    `retention` is R and `strength` S. `days` are those of tau, and `tag` is the tag they come from, or "". `fades_at`
    is when R falls below the bound. `kept_by` says what keeps a memory that never fades, whose R is 1, or is "".
    """

    retention: float
    strength: int
    days: float
    tag: str
    last_at: datetime
    used_at: datetime | None
    fades_at: datetime | None
    kept_by: str = ""

    def in_zone(self, zone: tzinfo | None) -> Self:
        """Return the same with its times as times of a zone."""
        return times_in_zone(self, zone, "last_at", "used_at", "fades_at")


def fading_of(trace: Trace, forgetting: RetentionSettings, now: datetime) -> Fading:
    """Return how well a memory is remembered."""
    # The tag that has the most days.
    tags = {*trace.tags, *tags_given(trace.metadata)}
    of_tags = [(forgetting.days_by_tag[tag], tag) for tag in sorted(tags) if tag in forgetting.days_by_tag]
    days, tag = max(of_tags, key=lambda item: item[0], default=(forgetting.days, ""))
    kept_by = next((tag for tag in LASTING if tag in tags), "")
    if is_pinned(trace.metadata) or trace.metadata.get(USER_NAME):
        kept_by = PINNED if is_pinned(trace.metadata) else NAME
    retention, scale, fades_at = 1.0, trace.strength * days, None
    if not kept_by:
        retention = math.exp(-max((now - trace.last_at).total_seconds(), 0.0) / SECONDS_A_DAY / scale)
        if forgetting.bound > 0:
            with suppress(OverflowError):  # beyond the year 9999
                fades_at = trace.last_at + timedelta(days=-math.log(forgetting.bound) * scale)
    return Fading(retention, trace.strength, days, tag, trace.last_at, trace.used_at, fades_at, kept_by)


def retentions(traces: Iterable[Trace], forgetting: RetentionSettings, now: datetime) -> dict[str, float]:
    """Return R by owner. A message is remembered as well as the best of what was learned from it."""
    best: dict[str, float] = {}
    for trace in traces:
        retention = fading_of(trace, forgetting, now).retention
        best[trace.owner_id] = max(retention, best.get(trace.owner_id, 0.0))
    return best


def retention_of(
    conn: Connection, entries: Sequence[Candidate], forgetting: RetentionSettings, now: datetime
) -> Column | None:
    """Return R for each candidate, of shape (n,); None if memories do not fade. It takes one query.

    Messages that nothing was learned from do not fade: nobody has said what they are worth.
    """
    if forgetting.mode == "off":
        return None
    by_kind = {kind: [item.owner_id for item in entries if item.kind == kind] for kind in ("memory", "message")}
    best = retentions(usage.traces(conn, by_kind["memory"], by_kind["message"]), forgetting, now)
    return np.array([best.get(item.owner_id, 1.0) for item in entries])


def faded_owners(conn: Connection, scope: Scope, forgetting: RetentionSettings, now: datetime) -> frozenset[str]:
    """Return the ids of the faded memories and messages that a scope sees.

    They are the same in every mode, so that a person sees what "archive" would leave out.
    """
    best = retentions(usage.traces_in(conn, scope), forgetting, now)
    return frozenset(owner for owner, retention in best.items() if retention < forgetting.bound)


def left_out_note(ranked: Sequence[Ranked], kept: Sequence[Ranked], limit: int, is_match: Column) -> tuple[str, ...]:
    """Return a note on how many faded candidates would have been among the first hits, and are about the question."""
    rows = {item.row for item in kept}
    good = sum(bool(is_match[item.row]) and item.row not in rows for item in ranked[:limit])
    if not good:
        return ()
    verb, they = ("is", "it") if good == 1 else ("are", "them")
    return (f'{counted(good, "hit")} {verb} left out as faded; the filter {{"{FADED}": true}} finds {they}',)
