"""Notes on a filter that finds nothing for a reason that its writer cannot see: a key that no memory has."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palimpsest.core.filters import METADATA, fields_filtered, metadata_keys
from palimpsest.core.models import Hit, Scope
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries

MAX_KEYS = 8
"""How many of the keys that exist are named. Set by hand: what a person reads at a glance."""


def filter_notes(
    ledger: Ledger, scope: Scope, filters: Mapping[str, Any] | None, hits: Sequence[Hit], *, deleted: bool | None
) -> tuple[str, ...]:
    """Return the notes on the keys of a valid filter that no memory has, given the hits. Blocking.

    `deleted`: whether deleted memories were looked at instead of living ones; None for both. The ledger is read only
    if the hits leave a doubt.
    """
    if not filters:
        return ()
    seen = {key for hit in hits for key in hit.metadata}
    doubtful = [key for key in metadata_keys(filters) if key not in seen]
    fields = [] if hits else fields_filtered(filters)
    if not doubtful and not fields:
        return ()
    with ledger.read() as conn:
        known = Counter(memory_queries.metadata_keys(conn, scope, deleted=deleted))
    return (*_missing(doubtful, known), *_hidden(fields, known))


def _missing(keys: Sequence[str], known: Counter[str]) -> Iterator[str]:
    for key in keys:
        if key in known:
            continue
        near = difflib.get_close_matches(key.lower(), {name.lower(): name for name in known}, n=3)
        names = [name for name in known if name.lower() in near] or [name for name, _ in known.most_common(MAX_KEYS)]
        if not known:
            others = "none has metadata"
        elif near:
            others = f"did you mean {_quoted(names)}?"
        else:
            others = f"keys that are used: {_quoted(names)}"
        yield f"no memory here has the key '{key}'; {others}"


def _hidden(fields: Sequence[str], known: Counter[str]) -> Iterator[str]:
    for name in fields:
        if name in known:
            yield f"'{name}' is a field of every memory; the key of that name in the metadata is '{METADATA}{name}'"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
