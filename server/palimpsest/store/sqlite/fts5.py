"""Full text in SQLite: FTS5 over the search tokens of `text/tokenizer.py`.

The tokens of an entry lie in three columns with different weights: its own text, its context (the neighbours of a
message, the source messages of a memory) and the facts that cite it. A fourth column holds one token for each part of
the scope, so that FTS5 itself selects the rows of a user.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import DatabaseError, OperationalError

from palimpsest.core.errors import FullTextError
from palimpsest.core.models import Scope
from palimpsest.store import database
from palimpsest.store.rows import batched

CREATE = (
    # The ascii tokenizer takes every character beyond ASCII as part of a token, in every build of SQLite.
    "CREATE VIRTUAL TABLE lexical USING fts5(scope, own, context, facts, tokenize='ascii')",
    "CREATE VIRTUAL TABLE lexical_terms USING fts5vocab(lexical, col)",
)
DROP = ("DROP TABLE lexical_terms", "DROP TABLE lexical")

OPTIMIZE = "INSERT INTO lexical(lexical) VALUES ('optimize')"
"""Merges the full text into one segment, which no longer holds removed rows."""

WEIGHTS = (0.0, *database.COLUMN_WEIGHTS)
"""The weight of a match in each column. The scope only selects rows."""

MAJORITY_SHARE = 0.5
"""A user with more than this share of all entries is not matched in the full text: most rows are theirs anyway."""

SAMPLE = 1_000
"""Document counts are exact up to this number of rows and estimated above it."""

NO_LIMIT = -1
"""SQLite's LIMIT for every row."""


class SqliteFullText(database.FullText):
    """Implement `FullText` with FTS5."""

    def create(self, conn: Connection) -> None:
        """Create the empty full text."""
        for statement in CREATE:
            conn.execute(text(statement))

    def drop(self, conn: Connection) -> None:
        """Drop the full text."""
        for statement in DROP:
            conn.execute(text(statement))

    def put(self, conn: Connection, rows: Sequence[database.FullTextRow]) -> None:
        """Insert or replace the rows of entries."""
        self.remove(conn, [row.seq for row in rows])
        if rows:
            names = ("scope", "own", "context", "facts")
            conn.execute(_PUT, [{"seq": row.seq, **dict(zip(names, self.columns(row), strict=True))} for row in rows])

    def remove(self, conn: Connection, seqs: Sequence[int]) -> None:
        """Remove the rows of entries. Unknown numbers are ignored."""
        if seqs:
            conn.execute(_REMOVE, [{"seq": seq} for seq in seqs])

    def rows(self, conn: Connection) -> dict[int, database.FullTextColumns]:
        """Return every stored row by entry number."""
        rows = conn.execute(text("SELECT rowid, scope, own, context, facts FROM lexical"))
        return {int(seq): (scope, own, context, facts) for seq, scope, own, context, facts in rows}

    def scope_text(self, scope: Scope) -> str:
        """Return the tokens of a scope."""
        return " ".join(_scope_tokens(scope))

    def widened(self, conn: Connection, scope: Scope, user_entries: int) -> Scope | None:
        """Return the parts of the scope to search by; None to search without a scope.

        A part that most rows have is the most expensive one to match: the user, if most entries are theirs, and user
        and project if an agent or a run is given.
        """
        if scope.agent_id or scope.run_id:
            return Scope("", "", scope.agent_id, scope.run_id)
        newest: int = conn.execute(_NEWEST).scalar() or 0
        return None if user_entries > newest * MAJORITY_SHARE else scope

    def search(
        self,
        conn: Connection,
        scope: Scope | None,
        words: Iterable[str],
        limit: int | None,
        counts: Mapping[str, int] | None = None,
    ) -> dict[int, float]:
        """Return the BM25 score of the best rows by entry number, as `FullText.search` says.

        This is the weighted BM25 of FTS5 (Robertson & Zaragoza 2009, with k1 = 1.2 and b = 0.75). With `counts` the
        rarest words are searched, up to about `MAX_SCORED` rows.
        """
        searched = list(dict.fromkeys(words))[: database.MAX_QUERY_TOKENS]
        if counts is not None:
            searched = database.rarest([word for word in searched if word in counts], counts, database.MAX_SCORED)
        if not searched:
            return {}
        match = f"{_TEXTS} : ({' OR '.join(_quoted(word) for word in searched)})"
        if scope is not None:
            match = f"{_scope_match(scope)} AND {match}"
        weights = {f"w{column}": weight for column, weight in enumerate(WEIGHTS)}
        values = {"match": match, "limit": NO_LIMIT if limit is None else limit, **weights}
        with _damage_as_full_text_error():
            return {int(seq): float(score) for seq, score in conn.execute(_SCORED, values).all()}

    def with_all(self, conn: Connection, scope: Scope, words: Iterable[str]) -> list[int]:
        """Return the rows that `scope` sees whose own text has all of the words.

        Only the first `MAX_QUERY_TOKENS` words are looked for.
        """
        searched = list(dict.fromkeys(words))[: database.MAX_QUERY_TOKENS]
        match = f"{_scope_match(scope)} AND own : ({' AND '.join(map(_quoted, searched))})"
        with _damage_as_full_text_error():
            return [int(seq) for (seq,) in conn.execute(_MATCHING, {"match": match})]

    def document_counts(self, conn: Connection, user_id: str, words: Iterable[str]) -> dict[str, int]:
        """Return in about how many rows of all users each word occurs. Words that occur nowhere are left out.

        The first `SAMPLE` matches are counted. Beyond them the count is estimated from how densely they lie.
        """
        del user_id  # FTS5 counts the rows of a user only one by one
        counts: dict[str, int] = {}
        with _damage_as_full_text_error():
            for chunk in batched(dict.fromkeys(words)):
                newest = conn.execute(_NEWEST).scalar() or 0
                matches = tuple(f"{_TEXTS} : {_quoted(word)}" for word in chunk)
                rows = conn.exec_driver_sql(" UNION ALL ".join([_COUNTED] * len(chunk)), matches).all()
                for word, (number, last) in zip(chunk, rows, strict=True):
                    if number:
                        counts[word] = int(number if number < SAMPLE else number * max(newest / last, 1.0))
        return counts

    def words_in(self, conn: Connection, seqs: Sequence[int], words: frozenset[str]) -> dict[int, database.FoundWords]:
        """Return which of the words occur in each row."""
        with _damage_as_full_text_error():
            rows = conn.execute(_ROWS, {"seqs": json.dumps(sorted(seqs))}).all()
        return database.words_found(((seq, own, around) for seq, own, around in rows), words)

    def is_sound(self, conn: Connection, rows: Mapping[int, database.FullTextColumns]) -> bool:
        """Return whether the index of FTS5 has each word in as many rows as it occurs in."""
        expected = Counter(word for _, own, _, _ in rows.values() for word in set(own.split()))
        try:
            return self.own_text_counts(conn, expected) == expected
        except FullTextError:
            return False

    def own_text_counts(self, conn: Connection, words: Iterable[str]) -> dict[str, int]:
        """Return in exactly how many rows each word occurs in the entry's own text. Raises FullTextError."""
        with _damage_as_full_text_error():
            rows = conn.execute(_OWN_COUNTS, {"words": json.dumps(list(words))})
            return {str(word): int(number) for word, number in rows}


_PUT = text("INSERT INTO lexical(rowid, scope, own, context, facts) VALUES (:seq, :scope, :own, :context, :facts)")
_REMOVE = text("DELETE FROM lexical WHERE rowid = :seq")
_SCORED = text(
    "SELECT rowid, -bm25(lexical, :w0, :w1, :w2, :w3) AS score FROM lexical "
    "WHERE lexical MATCH :match ORDER BY score DESC LIMIT :limit"
)
_MATCHING = text("SELECT rowid FROM lexical WHERE lexical MATCH :match")
_NEWEST = text("SELECT max(seq) FROM vectors")
_TEXTS = "{own context facts}"
_COUNTED = f"SELECT count(*), max(rowid) FROM (SELECT rowid FROM lexical WHERE lexical MATCH ? LIMIT {SAMPLE})"  # noqa: S608 - SAMPLE is our own number
# FTS5 keeps the columns as they were given in a table of its own (https://www.sqlite.org/fts5.html, appendix B).
# Reading that table takes half the time.
_ROWS = text("SELECT id, c1, c2 || ' ' || c3 FROM lexical_content WHERE id IN (SELECT value FROM json_each(:seqs))")
_OWN_COUNTS = text(
    "SELECT term, doc FROM lexical_terms WHERE col = 'own' AND term IN (SELECT value FROM json_each(:words))"
)


@contextmanager
def _damage_as_full_text_error() -> Generator[None]:
    """Raise FullTextError for a damaged full text. It can be rebuilt, and everything else works without it."""
    try:
        yield
    except DatabaseError as error:
        if isinstance(error, OperationalError):
            raise
        raise FullTextError(f"the full text is damaged ({error.orig}). Rebuild it with palimpsest rebuild") from error


def _scope_match(scope: Scope) -> str:
    """Return the FTS5 condition for the rows that a scope sees.

    These are the user's rows, global or of the project, and of the agent and run if given. A scope with an empty user
    selects by agent and run alone.
    """
    user, project, agent, run = _scope_tokens(scope)
    beside = _scope_tokens(Scope("", scope.beside))[1]
    global_or_project = f"({beside} OR {project})" if beside != project else project
    parts = [user, global_or_project] if scope.user_id else []
    parts += [agent] if scope.agent_id else []
    parts += [run] if scope.run_id else []
    return f"scope : ({' AND '.join(parts)})"


def _scope_tokens(scope: Scope) -> list[str]:
    """Return one token for each part of a scope. It is a hash, so that no character of a name is FTS5 syntax."""
    parts = (("u", scope.user_id), ("p", scope.project), ("a", scope.agent_id), ("r", scope.run_id))
    return [letter + hashlib.blake2b(value.encode(), digest_size=8).hexdigest() for letter, value in parts]


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
