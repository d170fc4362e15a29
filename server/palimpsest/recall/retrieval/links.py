"""Follow the links of memories one hop (A-Mem, section 3.4): what a candidate is linked with is a candidate too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from palimpsest.store.queries.entries import CandidateRow
from palimpsest.store.views import links

MAX_ADDED = 40
"""How many candidates are added because they are linked with one. Set by hand: half of those that the meaning finds."""

ReadRows = Callable[[Sequence[int]], Sequence[CandidateRow]]
"""Reads those entries that are living and visible."""


def with_linked(
    conn: Connection, rows: Sequence[CandidateRow], read: ReadRows | None
) -> tuple[list[CandidateRow], list[tuple[int, int]]]:
    """Return candidates with those that are linked with one, by number, and the pairs of linked rows.

    Nothing is added without `read`. A pair is in the list in both directions.
    """
    ids = [row.candidate.owner_id for row in rows if row.candidate.kind == "memory"]
    linked = links.entries_linked_with(conn, ids) if ids else []
    known = {row.candidate.seq for row in rows}
    missing = list(dict.fromkeys(seq for _, _, seq in linked if seq not in known))[:MAX_ADDED]
    added = read(missing) if missing and read is not None else ()
    candidates = sorted((*rows, *added), key=lambda row: row.candidate.seq)
    place = {row.candidate.owner_id: number for number, row in enumerate(candidates) if row.candidate.kind == "memory"}
    pairs = [(place[one], place[other]) for one, other, _ in linked if one in place and other in place]
    return candidates, sorted({pair for one, other in pairs for pair in ((one, other), (other, one))})
