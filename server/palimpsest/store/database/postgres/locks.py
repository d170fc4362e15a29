"""Advisory locks: whose turn it is to write for a user, to change the schema, to work in the background.

Each is a pair of numbers. PostgreSQL releases them when a transaction or a connection ends, also when its client is
killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from palimpsest.store.database.protocols import Work

LEDGER = 0x70616C69
"""The first number of locks that belong to the whole ledger. The letters "pali", so that others do not choose it."""

USER = 0x70616C75
"""The first number of the locks of users."""

WHOLE, INDEX_LOG, SCHEMA = 0, 1, 2
"""The second number: writing to all users' rows, the end of the index log, changing the schema."""

WORKS: Mapping[Work, int] = {"embedding": 10, "jobs": 11, "graph": 12, "index": 13}
"""The second number of each work in the background."""


def work_lock(work: Work) -> str:
    """Return the arguments of the lock of a work in the background."""
    return ledger_lock(WORKS[work])


def ledger_lock(number: int) -> str:
    """Return the arguments of a lock of the whole ledger."""
    return f"{LEDGER}, {number}"


def user_lock(user_id: str) -> str:
    """Return the arguments of the lock of a user. Two users may share one, which only lets them wait for each other."""
    digest = hashlib.blake2b(user_id.encode(), digest_size=4).digest()
    return f"{USER}, {int.from_bytes(digest, 'big', signed=True)}"
