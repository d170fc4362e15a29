"""Full text over the tokens of `lexicon.py`: SQLite's FTS5. The only file that knows the dialect.

A row holds the tokens of a unit in three columns that count differently: its own text, its context (the
neighbouring turns of a message, the source turns of a memory) and the facts that cite it. A fourth column
holds one token for each part of the scope, so that a user's rows are cut out inside the index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, text

from palimpsest.ledger.rows import chunks
from palimpsest.records import Scope

DDL = (
    # The ascii tokenizer takes every character beyond ASCII as part of a token, on every build of SQLite.
    "CREATE VIRTUAL TABLE lexical USING fts5(scope, own, context, facts, tokenize='ascii')",
    "CREATE VIRTUAL TABLE lexical_terms USING fts5vocab(lexical, col)",
)

WEIGHTS = (0.0, 1.0, 0.4, 0.5)
"""How much a match in each column counts; measured by benchmarks/locomo.py."""

MAX_QUERY_TOKENS = 64

ALL = -1
"""As a limit: every row that matches."""


@dataclass(frozen=True, slots=True)
class LexicalRow:
    """Hold the tokens of one unit, by column."""

    seq: int
    scope: Scope
    own: Sequence[str]
    context: Sequence[str] = ()
    facts: Sequence[str] = ()


def put(conn: Connection, row: LexicalRow) -> None:
    """Write the row of a unit, over the one it had."""
    remove(conn, row.seq)
    conn.execute(
        text("INSERT INTO lexical(rowid, scope, own, context, facts) VALUES (:seq, :scope, :own, :context, :facts)"),
        {
            "seq": row.seq,
            "scope": " ".join(_scope_tokens(row.scope)),
            "own": " ".join(row.own),
            "context": " ".join(row.context),
            "facts": " ".join(row.facts),
        },
    )


def remove(conn: Connection, seq: int) -> None:
    """Take the row of a unit out; none there is no error."""
    conn.execute(text("DELETE FROM lexical WHERE rowid = :seq"), {"seq": seq})


def clear(conn: Connection) -> None:
    """Take every row out."""
    conn.execute(text("DELETE FROM lexical"))


def count(conn: Connection) -> int:
    """Return the number of rows."""
    return int(conn.execute(text("SELECT count(*) FROM lexical")).scalar_one())


def search(conn: Connection, scope: Scope, words: Iterable[str], limit: int) -> dict[int, float]:
    """Return BM25 scores (higher is better) by unit number for the best `limit` rows that `scope` sees.

    Weighted BM25 as FTS5 computes it (Robertson & Zaragoza 2009, k1 = 1.2, b = 0.75).
    """
    wanted = list(dict.fromkeys(words))[:MAX_QUERY_TOKENS]
    if not wanted:
        return {}
    match = f"{_scope_match(scope)} AND {{own context facts}} : ({' OR '.join(_quote(word) for word in wanted)})"
    rows = conn.execute(
        text(
            "SELECT rowid, -bm25(lexical, :w0, :w1, :w2, :w3) AS score FROM lexical "
            "WHERE lexical MATCH :match ORDER BY score DESC LIMIT :limit"
        ),
        {"match": match, "limit": limit, **{f"w{i}": weight for i, weight in enumerate(WEIGHTS)}},
    )
    return {int(seq): float(score) for seq, score in rows}


def frequencies(conn: Connection, words: Iterable[str]) -> dict[str, int]:
    """Return in how many units' own texts each word stands, whoever's they are; words in none are left out."""
    query = text("SELECT term, doc FROM lexical_terms WHERE col = 'own' AND term IN :words").bindparams(
        bindparam("words", expanding=True)
    )
    return {
        str(word): int(number)
        for chunk in chunks(list(words))
        for word, number in conn.execute(query, {"words": list(chunk)})
    }


def _scope_match(scope: Scope) -> str:
    """Return the condition for: this user, global or this project, and the agent and run where given."""
    user, project, agent, run = _scope_tokens(scope)
    parts = [user, f"({_scope_tokens(Scope(''))[1]} OR {project})" if scope.project else project]
    parts += [agent] if scope.agent_id else []
    parts += [run] if scope.run_id else []
    return f"scope : ({' AND '.join(parts)})"


def _scope_tokens(scope: Scope) -> list[str]:
    """Return one token for each part of a scope; hashed, so that no character of a name means anything here."""
    parts = (("u", scope.user_id), ("p", scope.project), ("a", scope.agent_id), ("r", scope.run_id))
    return [letter + hashlib.blake2b(value.encode(), digest_size=8).hexdigest() for letter, value in parts]


def _quote(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
