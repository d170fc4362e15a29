"""Say which of two statements that contradict each other is the later one, and so the one that holds.

The model does not decide this, because it orders dates badly. The times are those of section 2.2 of the Zep paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from palimpsest.core.clock import Precision, TimeSpan, span_of
from palimpsest.core.models import Fact
from palimpsest.llm.decisions.verdicts import KnownEntry

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Statement:
    """When something was said, None if that is not known, and since when it holds, if it says so."""

    said_at: datetime | None
    valid_from: datetime | None = None
    precision: Precision = ""

    @classmethod
    def of_fact(cls, fact: Fact) -> Statement:
        """Return the times of a fact."""
        return cls(fact.said_at, fact.valid_from, fact.valid_from_precision)

    @classmethod
    def of_entry(cls, entry: KnownEntry) -> Statement:
        """Return the times of a stored memory: when it was last said, and since when it holds."""
        return cls(entry.said_at, entry.memory.valid_from, entry.memory.valid_from_precision)

    def is_plan(self, now: datetime | None) -> bool:
        """Return whether it begins to hold in the future. What holds today is no contradiction to it."""
        return now is not None and self.valid_from is not None and self.valid_from > now

    def span(self, now: datetime | None) -> TimeSpan:
        """Return since when it holds, as exactly as that is known, or else when it was said.

        The latter also counts for a plan. What was said at no known time came last.
        """
        if self.valid_from is None or self.is_plan(now):
            said_at = self.said_at or _LATEST
            return TimeSpan(said_at, said_at)
        return span_of(self.valid_from, self.precision)


def later(first: Statement, second: Statement, now: datetime | None) -> int:
    """Return 1 if the first of two statements is the later one, -1 if the second one is, and 0 if neither is.

    If both say since when they hold, these times decide, unless they overlap; else the times at which they were said
    decide: "since 2015" does not make a fact as old as that. Of two that were said at one time ("in Oslo since 2025,
    before that in Rome"), the one that names a beginning is the later one.
    """
    has_beginnings = first.valid_from is not None, second.valid_from is not None
    if all(has_beginnings):
        first_span, second_span = first.span(now), second.span(now)
        if first_span.first > second_span.last:
            return 1
        if second_span.first > first_span.last:
            return -1
    first_said, second_said = first.said_at or _LATEST, second.said_at or _LATEST
    if first_said == second_said:
        return has_beginnings[0] - has_beginnings[1]
    return 1 if first_said > second_said else -1


def is_later(fact: Fact, entry: KnownEntry, now: datetime | None) -> bool:
    """Return whether a fact is later than the memory it contradicts. If neither is, the fact is: it came later."""
    return later(Statement.of_fact(fact), Statement.of_entry(entry), now) >= 0


def held_until(fact: Fact, successor: KnownEntry, now: datetime | None) -> tuple[datetime, Precision]:
    """Return until when a fact held that the memory `successor` ended: the first known time of that after the fact's.

    A memory may be older than the fact by its first mention, and later by its last one. Also return how exactly the
    time is known.
    """
    began = Statement.of_fact(fact).span(now).first
    times: tuple[tuple[datetime, Precision], ...] = (
        (successor.memory.valid_from or _EARLIEST, successor.memory.valid_from_precision),
        (successor.memory.stated_at, ""),
        (successor.said_at, ""),
    )
    return min((time for time in times if time[0] > began), default=times[-1])
