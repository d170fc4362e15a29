"""Notes on a filter that finds nothing for a reason that its writer cannot see: a key that no memory has."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.entities import name_key
from palimpsest.core.models import Scope
from palimpsest.core.search.filters import MAX_SHOWN_CHARS, METADATA, fields_filtered, metadata_keys, texts_of
from palimpsest.core.search.hits import Hit
from palimpsest.store.graph.names import entities_named, names_beginning
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.text.shorten import shorten

MAX_KEYS = 8
"""How many of the keys that exist are named. Set by hand: what a person reads at a glance."""

NEAR_BEGINNING = 2
"""How many first characters a name has in common with those it is compared with. Set by hand: few names are misspelt
there, and among ten thousand about a hundred begin so."""

MAX_NEAR = 3
"""How many of these a note names. Set by hand."""

MAX_COMPARED = 500
"""How many names an unknown one is compared with. Set by hand: a tenth of a second."""

LAST_INSTANT = datetime.max.replace(tzinfo=UTC)


def filter_notes(
    ledger: Ledger, scope: Scope, filters: Mapping[str, Any] | None, hits: Sequence[Hit], *, deleted: bool | None
) -> tuple[str, ...]:
    """Return the notes on the keys of a valid filter that no memory has, given the hits. Blocking.

    `deleted`: whether deleted memories were looked at instead of living ones; None for both. The ledger is read only
    if the hits leave a doubt.
    """
    if not filters:
        return ()
    unknown = _unknown_names(ledger, scope, texts_of(filters, "entity"), deleted=deleted)
    unknown += () if hits else _unknown_speakers(ledger, scope, texts_of(filters, "speaker"))
    seen = {key for hit in hits for key in hit.metadata}
    doubtful = [key for key in metadata_keys(filters) if key not in seen]
    fields = [] if hits else fields_filtered(filters)
    if not doubtful and not fields:
        return unknown
    with ledger.read() as conn:
        known = Counter(memory_queries.metadata_keys(conn, scope, deleted=deleted))
    return (*unknown, *_missing(doubtful, known), *_hidden(fields, known))


def _unknown_names(ledger: Ledger, scope: Scope, names: Sequence[str], *, deleted: bool | None) -> tuple[str, ...]:
    """Return the notes on names that nobody and nothing has that memories speak of."""
    if not names:
        return ()
    with ledger.read() as conn:
        # What is forgotten is found as well if deleted memories are looked at.
        known = entities_named(conn, scope, names, as_of=None if deleted is False else LAST_INSTANT)
        unknown = [name for name in names if name_key(name) not in known]
        near = {name: _near_names(conn, scope, name_key(name)) for name in unknown}
    return tuple(
        f"no memory here speaks of '{shorten(name, MAX_SHOWN_CHARS)}'"
        + (f"; did you mean {_quoted(near[name])}?" if near[name] else "")
        for name in unknown
    )


def _unknown_speakers(ledger: Ledger, scope: Scope, names: Sequence[str]) -> tuple[str, ...]:
    """Return the notes on names under which nobody said anything that the scope sees."""
    if not names:
        return ()
    with ledger.read() as conn:
        every = message_queries.speakers(conn, scope.user_id)
        known = {name_key(name): name for name in every if message_queries.has_speaker(conn, scope, name)}
    return tuple(
        f"nobody here is called '{shorten(name, MAX_SHOWN_CHARS)}'; {_speakers(name_key(name), known)}"
        for name in names
        if name_key(name) not in known
    )


def _speakers(key: str, known: Mapping[str, str]) -> str:
    """Return which speakers there are, or those of nearly this name."""
    if not known:
        return "messages here have no names of speakers; filter on role instead"
    near = [known[name] for name in difflib.get_close_matches(key, known, n=MAX_NEAR)]
    return f"did you mean {_quoted(near)}?" if near else f"known are {_quoted(list(known.values())[:MAX_KEYS])}"


def _near_names(conn: Connection, scope: Scope, key: str) -> list[str]:
    """Return the names that are most like one, or share a word with it, of those that begin like it."""
    beginning = names_beginning(conn, scope, key[:NEAR_BEGINNING], MAX_COMPARED)
    names = {name_key(name): name for name in beginning}
    near = difflib.get_close_matches(key, names, n=MAX_NEAR)
    words = set(key.split())
    sharing = [other for other in names if other not in near and words & set(other.split())]
    return [names[other] for other in (*near, *sharing)][:MAX_NEAR]


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
