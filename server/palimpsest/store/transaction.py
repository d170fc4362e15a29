"""The context of one write, the numbers of edits, and the entries of new texts."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Integer, bindparam, cast, func, insert, select, update

from palimpsest.core.models import Kind, Memory, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.contextual_keys import TouchedEntries
from palimpsest.store.entries import set_meta
from palimpsest.store.memories import GrownBlocks
from palimpsest.store.rows import next_number, packed, scope_values
from palimpsest.store.schema import HISTORIES, meta, vectors

EDITS = "edits"
"""The key in `meta` of the highest edit number that was used by erased rows or reserved for an import."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The context of one write.

    `edit` is the number of the edit. `touched` collects the entries that are indexed again at the end. `vectors` maps
    texts to their vectors of `embedder`, and `partial` are those of them of which only the first window was embedded.
    `entity_edits` collects a line about each edit of entities, `pinned` what becomes of pinned blocks, and `notes` what
    else the caller must know. `told_names` are the deleted memories that told the user's name.
    """

    conn: Connection
    scope: Scope
    provenance: Provenance
    now: datetime
    edit: int
    touched: TouchedEntries = field(default_factory=TouchedEntries)
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    embedder: str = ""
    partial: AbstractSet[str] = frozenset()
    entity_edits: list[str] = field(default_factory=list[str])
    pinned: GrownBlocks = field(default_factory=GrownBlocks)
    notes: list[str] = field(default_factory=list[str])
    told_names: list[Memory] = field(default_factory=list[Memory])


def next_edit_number(conn: Connection) -> int:
    """Return the number of the next edit. Numbers of erased edits and reserved numbers are not used again."""
    return int(conn.execute(_NEXT).scalar_one())


_NEXT = select(
    next_number(
        *(func.coalesce(select(func.max(of.rows.c.change)).scalar_subquery(), 0) for of in HISTORIES),
        func.coalesce(select(cast(meta.c.value, Integer)).where(meta.c.key == EDITS).scalar_subquery(), 0),
    )
)


def reserve_edit_numbers(conn: Connection, newest: int) -> None:
    """Reserve the edit numbers up to `newest`."""
    set_meta(conn, EDITS, newest)
    next_edit_number(conn)  # a database that counts by itself goes on from there


def put_entry(tx: Transaction, kind: Kind, owner_id: str, scope: Scope, text: str, beginning: str = "") -> None:
    """Insert or replace the entry of a memory or message with the vector of its text, if there is one.

    If only its `beginning` has a vector, that stands in for it. `contextual_keys.index` writes the key and the
    full-text row.
    """
    old = tx.conn.execute(_ENTRY, {"kind": kind, "owner": owner_id}).one_or_none()
    vector, is_partial = tx.vectors.get(text), text in tx.partial
    if vector is None and beginning:
        vector, is_partial = tx.vectors.get(beginning), True
    values = {
        "live": True,
        "embedder": tx.embedder if vector is not None else "",
        "partial": vector is not None and is_partial,
        "vector": None if vector is None else packed(vector),
        "key": None,
    }
    if old is None:
        tx.conn.execute(_INSERT, {"kind": kind, "owner_id": owner_id, **scope_values(scope), **values})
        return
    tx.touched.move(old.user_id, old.embedder, old.key, old.vector, -1)
    tx.conn.execute(update(vectors).where(vectors.c.seq == old.seq).values(**values))


_INSERT = insert(vectors)
_ENTRY = select(vectors).where(vectors.c.kind == bindparam("kind"), vectors.c.owner_id == bindparam("owner"))
