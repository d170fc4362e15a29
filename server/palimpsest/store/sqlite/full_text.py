"""Full text over the tokens of `lexicon.py`: SQLite's FTS5. The only file that knows the dialect.

A row holds the tokens of a unit in three columns that count differently: its own text, its context (the
neighbouring turns of a message, the source turns of a memory) and the facts that cite it. A fourth column
holds one token for each part of the scope, so that a user's rows are cut out inside the index.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import Connection, text
from sqlalchemy.exc import DatabaseError, OperationalError

from palimpsest.core.errors import FullTextError
from palimpsest.core.models import Scope
from palimpsest.store.mapping import chunks

DDL = (
    # The ascii tokenizer takes every character beyond ASCII as part of a token, on every build of SQLite.
    "CREATE VIRTUAL TABLE lexical USING fts5(scope, own, context, facts, tokenize='ascii')",
    "CREATE VIRTUAL TABLE lexical_terms USING fts5vocab(lexical, col)",
)

MERGE = "INSERT INTO lexical(lexical) VALUES ('optimize')"
"""Merges the index into one piece, in which nothing is left of rows that were taken out."""

WEIGHTS = (0.0, 1.0, 0.4, 0.5)
"""How much a match in each column counts; measured by benchmarks/locomo.py."""

MAX_QUERY_TOKENS = 64

MAX_SCORED = 2_000
"""About how many rows one search scores; a millisecond for every thousand."""

SAMPLE = 1_000

ALL = -1
"""As a limit: every row that matches."""


@dataclass(frozen=True, slots=True)
class FullTextRow:
    """Hold the tokens of one unit, by column."""

    seq: int
    scope: Scope
    own: Sequence[str]
    context: Sequence[str] = ()
    facts: Sequence[str] = ()


Words: TypeAlias = tuple[str, str, str, str]
"""The four columns of a stored row: scope, own, context, facts."""


def words_of(row: FullTextRow) -> Words:
    """Return a row as it is stored."""
    return (" ".join(_scope_tokens(row.scope)), " ".join(row.own), " ".join(row.context), " ".join(row.facts))


def rows(conn: Connection) -> dict[int, Words]:
    """Return every stored row by its unit."""
    found = conn.execute(text("SELECT rowid, scope, own, context, facts FROM lexical"))
    return {int(seq): (scope, own, context, facts) for seq, scope, own, context, facts in found}


def put(conn: Connection, found: Sequence[FullTextRow]) -> None:
    """Write the rows of units, over those they had."""
    remove(conn, [row.seq for row in found])
    if found:
        columns = ("scope", "own", "context", "facts")
        conn.execute(_PUT, [{"seq": row.seq, **dict(zip(columns, words_of(row), strict=True))} for row in found])


def remove(conn: Connection, seqs: Sequence[int]) -> None:
    """Take the rows of units out; none there is no error."""
    if seqs:
        conn.execute(_REMOVE, [{"seq": seq} for seq in seqs])


_PUT = text("INSERT INTO lexical(rowid, scope, own, context, facts) VALUES (:seq, :scope, :own, :context, :facts)")
_REMOVE = text("DELETE FROM lexical WHERE rowid = :seq")


def clear(conn: Connection) -> None:
    """Begin an empty table; one that is damaged is taken away with it."""
    for statement in ("DROP TABLE lexical_terms", "DROP TABLE lexical", *DDL):
        conn.execute(text(statement))


def count(conn: Connection) -> int:
    """Return the number of rows."""
    return int(conn.execute(text("SELECT count(*) FROM lexical")).scalar_one())


def search(
    conn: Connection, scope: Scope | None, words: Iterable[str], limit: int, frequency: Mapping[str, int] | None = None
) -> dict[int, float]:
    """Return BM25 scores (higher is better) by unit number for the best `limit` rows that `scope` sees.

    Without a scope everybody's rows are searched, and the caller has to take out what is not to be seen: that saves
    going through all rows of a scope, which are counted like those of any other word.

    Raises FullTextError. Weighted BM25 as FTS5 computes it (Robertson & Zaragoza 2009, k1 = 1.2, b = 0.75). With the
    `frequency` of the words only rare ones are looked for, as far as about `MAX_SCORED` rows go: what stands everywhere
    tells no row from another, and costs the most.
    """
    wanted = list(dict.fromkeys(words))[:MAX_QUERY_TOKENS]
    if frequency is not None:
        wanted = _rare([word for word in wanted if word in frequency], frequency)
    if not wanted:
        return {}
    match = f"{_TEXTS} : ({' OR '.join(_quote(word) for word in wanted)})"
    if scope is not None:
        match = f"{_scope_match(scope)} AND {match}"
    values = {"match": match, "limit": limit, **{f"w{i}": weight for i, weight in enumerate(WEIGHTS)}}
    with _readable():
        return {int(seq): float(score) for seq, score in conn.execute(_SCORED, values).all()}


_SCORED = text(
    "SELECT rowid, -bm25(lexical, :w0, :w1, :w2, :w3) AS score FROM lexical "
    "WHERE lexical MATCH :match ORDER BY score DESC LIMIT :limit"
)


def _rare(words: Sequence[str], frequency: Mapping[str, int]) -> list[str]:
    """Return the rarest words that together stand in about `MAX_SCORED` rows, at least one if there is one."""
    taken: list[str] = []
    rows = 0
    for word in sorted(words, key=lambda word: frequency[word]):
        rows += frequency[word]
        if taken and rows > MAX_SCORED:
            break
        taken.append(word)
    return taken


def spread(conn: Connection, words: Iterable[str]) -> dict[str, int]:
    """Return in about how many units, whoever's they are, each word stands; words in none are left out.

    Counted up to `SAMPLE`, and from there on estimated by how densely the first of them lie. Raises FullTextError.
    """
    wanted = list(dict.fromkeys(words))
    found: dict[str, int] = {}
    with _readable():
        for chunk in chunks(wanted):
            newest = conn.execute(_NEWEST).scalar() or 0
            matches = tuple(f"{_TEXTS} : {_quote(word)}" for word in chunk)
            counted = conn.exec_driver_sql(" UNION ALL ".join([_COUNTED] * len(chunk)), matches).all()
            for word, (number, last) in zip(chunk, counted, strict=True):
                if number:
                    found[word] = int(number if number < SAMPLE else number * max(newest / last, 1.0))
    return found


def words(conn: Connection, seqs: Sequence[int], wanted: frozenset[str]) -> dict[int, frozenset[str]]:
    """Return which of the wanted words stand in each unit, in any column. Raises FullTextError."""
    with _readable():
        return {
            seq: wanted.intersection(texts.split())
            for seq, texts in conn.execute(_ROWS, {"seqs": json.dumps(sorted(seqs))}).all()
        }


# FTS5 keeps the columns as they came in a table of its own (https://www.sqlite.org/fts5.html, appendix B), which is
# read in half the time.
_ROWS = text(
    "SELECT id, c1 || ' ' || c2 || ' ' || c3 FROM lexical_content WHERE id IN (SELECT value FROM json_each(:seqs))"
)


def frequencies(conn: Connection, words: Iterable[str]) -> dict[str, int]:
    """Return in how many units' own texts each word stands, whoever's they are; words in none are left out."""
    with _readable():
        return {
            str(word): int(number)
            for chunk in chunks(list(words))
            for word, number in conn.execute(_FREQUENCIES, {"words": json.dumps(list(chunk))})
        }


_FREQUENCIES = text(
    "SELECT term, doc FROM lexical_terms WHERE col = 'own' AND term IN (SELECT value FROM json_each(:words))"
)


@contextmanager
def _readable() -> Generator[None]:
    """Raise what SQLite says of a damaged full text as ours: it can be made anew, and the rest goes on without it."""
    try:
        yield
    except DatabaseError as error:
        if isinstance(error, OperationalError):
            raise
        raise FullTextError(f"the full text is damaged ({error.orig}); palimpsest rebuild makes it anew") from error


_NEWEST = text("SELECT max(seq) FROM vectors")
_TEXTS = "{own context facts}"
_COUNTED = f"SELECT count(*), max(rowid) FROM (SELECT rowid FROM lexical WHERE lexical MATCH ? LIMIT {SAMPLE})"  # noqa: S608 - a number of ours


def _scope_match(scope: Scope) -> str:
    """Return the condition for: this user, global or this project, and the agent and run where given.

    With an empty user only for agent and run.
    """
    user, project, agent, run = _scope_tokens(scope)
    both = f"({_scope_tokens(Scope(''))[1]} OR {project})" if scope.project else project
    parts = [user, both] if scope.user_id else []
    parts += [agent] if scope.agent_id else []
    parts += [run] if scope.run_id else []
    return f"scope : ({' AND '.join(parts)})"


def _scope_tokens(scope: Scope) -> list[str]:
    """Return one token for each part of a scope; hashed, so that no character of a name means anything here."""
    parts = (("u", scope.user_id), ("p", scope.project), ("a", scope.agent_id), ("r", scope.run_id))
    return [letter + hashlib.blake2b(value.encode(), digest_size=8).hexdigest() for letter, value in parts]


def _quote(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
