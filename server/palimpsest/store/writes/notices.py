"""Notices about a new version, of which each ledger's people are told once, by whichever process is first."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from palimpsest.store.schema import meta

OPENAI_VARIABLES = "told_openai_variables"
"""The key in `meta` that exists once people know that OpenAI's variables alone are not followed.

A new ledger has it from the beginning: only who used an earlier version can expect that they are."""

IN_NEW_LEDGERS = (OPENAI_VARIABLES,)


def is_told(conn: Connection, key: str) -> bool:
    """Return whether people were told of a notice."""
    return conn.execute(select(meta.c.value).where(meta.c.key == key)).first() is not None


def mark_told(conn: Connection, key: str) -> bool:
    """Record that people are told of a notice now. Return False if they were told before."""
    if is_told(conn, key):
        return False
    conn.execute(insert(meta).values(key=key, value="yes"))
    return True
