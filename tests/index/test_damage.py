"""Damaged indexes and failing writes: what is set aside, rebuilt and reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from palimpsest.index.sync import FILE_NAME
from palimpsest.store.ledger import Ledger
from tests.support.projections import (
    Indexes,
    add,
    agrees,
    build,
    direction,
    facts,
    opened,
)

Break: TypeAlias = Callable[[Indexes, Path], object]


def lose_a_vector(indexes: Indexes, folder: Path) -> None:
    with closing(indexes.open(folder)) as behind:
        behind.delete("bert", behind.query("bert", direction("fact 1"), 1))


def store_a_vector_of_nobody(indexes: Indexes, folder: Path) -> None:
    with closing(indexes.open(folder)) as behind:
        behind.upsert("nobody", [999], direction("nothing")[np.newaxis])


def with_number(number: object) -> Break:
    def change(_indexes: Indexes, folder: Path) -> None:
        path = folder / FILE_NAME
        path.write_text(json.dumps({**json.loads(path.read_text()), "log_number": number}))

    return change


BROKEN: dict[str, dict[str, Break]] = {
    "exact": {
        "a vector too few": lose_a_vector,
        "a vector too many": store_a_vector_of_nobody,
        "no checkpoint": lambda _, folder: (folder / FILE_NAME).unlink(),
        "a torn checkpoint": lambda _, folder: (folder / FILE_NAME).write_text('{"ledger": "tor'),
        **{f"{number!r} for a number": with_number(number) for number in ("5", None, [1])},
    },
    "chroma": {
        "a vector too few": lose_a_vector,
        "a vector too many": store_a_vector_of_nobody,
        "no checkpoint": lambda _, folder: (folder / FILE_NAME).unlink(),
        "no database": lambda _, folder: (folder / "chroma.sqlite3").unlink(),
        # Chroma remembers a failed attempt to open a folder, which must not block the rebuild.
        "garbage for a database": lambda _, folder: (folder / "chroma.sqlite3").write_bytes(b"garbage" * 999),
    },
}


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind, faults in BROKEN.items() for fault in faults])
def test_a_damaged_index_is_set_aside_and_rebuilt(ledger: Ledger, root: Path, kind: str, fault: str) -> None:
    """A folder in an unknown state is kept for inspection."""
    indexes = Indexes(kind)
    for user in ("ana", "bert"):
        add(ledger, *facts(4), user=user)
    build(ledger, indexes, root)
    BROKEN[kind][fault](indexes, root / "0")
    left = {path.name for path in (root / "0").iterdir()}
    with opened(ledger, indexes.open, root) as projection:
        assert (projection.state, projection.fault, projection.count()) == ("ready", "", 8)
        assert agrees(ledger, indexes.last, "ana", "bert")
    assert left <= {path.name for path in (root / "0.aside").iterdir()}
    build(ledger, indexes, root)
    assert indexes.last.upserted == [], "the new checkpoint is valid"
