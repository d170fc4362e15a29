"""Full text in PostgreSQL: our own search tokens, found by a GIN index and scored by BM25.

PostgreSQL's own ranking (`ts_rank`) knows no inverse document frequency. So the rows keep what BM25 needs, and a small
table counts words for each user, under the lock of the user. A word is indexed together with its user: a search reads
nothing of other users, however many there are, and the score of a user's memory does not depend on theirs.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

from palimpsest.core.errors import FullTextError
from palimpsest.core.models import Scope
from palimpsest.store import database
from palimpsest.store.database import Counts
from palimpsest.store.rows import SCOPE, batched, scope_values, seen_values

# The columns of a row.
#
# `tokens` is how many it has, the parts of its scope included. `words` are its words, each as the number that `_key`
# gives, and `weights` the weighted number of times that each occurs.
TEXTS = (*SCOPE, "own", "context", "facts")
ARRAYS = {"words": "bigint[]", "weights": "float8[]"}
COLUMNS = ("seq", *TEXTS, "tokens", *ARRAYS)

CREATE = (
    f"""
    CREATE TABLE lexical (
        seq bigint PRIMARY KEY, tokens integer NOT NULL, words bigint[] NOT NULL, weights float8[] NOT NULL,
        {", ".join(f'{name} text COLLATE "C" NOT NULL' for name in TEXTS)}
    )
    """,
    "CREATE INDEX lexical_by_word ON lexical USING gin (words) WITH (fastupdate = off)",
    # In how many rows each word of a user occurs, by the number that `_key` gives, and what `ROWS` and `TOKENS` say.
    "CREATE TABLE lexical_counts (word bigint PRIMARY KEY, number bigint NOT NULL)",
)
DROP = ("DROP TABLE IF EXISTS lexical, lexical_counts",)

# In place of words: how many rows a user has, and how many tokens they have together.
ROWS, TOKENS = "", " "

# How many tokens the parts of a scope count. FTS5 counts them too, so the scores are the same in both databases.
SCOPE_TOKENS = 4

# The parameters of BM25, as in FTS5.
K1, B = 1.2, 0.75

# What a word counts that occurs in more than half of the rows, as in FTS5.
LEAST_RARITY = 1e-6


class PostgresFullText(database.FullText):
    """Implement `FullText` with tables of our own."""

    created_by = CREATE
    dropped_by = DROP

    def put(self, conn: Connection, rows: Sequence[database.FullTextRow]) -> None:
        """Insert or replace the rows of entries."""
        if rows:
            stored = self._stored(conn, [row.seq for row in rows])
            values = [_values(row) for row in rows]
            conn.execute(_PUT, values)
            new = [_counts_of(value["user_id"], value["words"], value["tokens"]) for value in values]
            self._count(conn, new, stored)

    def remove(self, conn: Connection, seqs: Sequence[int]) -> None:
        """Remove the rows of entries. Unknown numbers are ignored."""
        for chunk in batched(seqs):
            stored = self._stored(conn, chunk)
            conn.execute(_REMOVE, {"seqs": chunk})
            self._count(conn, (), stored)

    def rows(self, conn: Connection) -> dict[int, database.FullTextColumns]:
        """Return every stored row by entry number."""
        query = text(f"SELECT seq, {', '.join(TEXTS)} FROM lexical")  # noqa: S608 - likewise
        return {
            int(row.seq): (json.dumps(list(row[1:5])), row.own, row.context, row.facts) for row in conn.execute(query)
        }

    def scope_text(self, scope: Scope) -> str:
        """Return the parts of a scope as a JSON array."""
        return json.dumps(list(scope_values(scope).values()))

    def widened(self, conn: Connection, scope: Scope, user_entries: int) -> Scope | None:
        """Return the scope itself: only the rows of a user are read anyway."""
        del conn, user_entries
        return scope

    def search(
        self, conn: Connection, scope: Scope | None, words: Iterable[str], limit: int | None, counts: Counts = None
    ) -> dict[int, float]:
        """Return the BM25 score of the best rows by entry number, as `FullText.search` says.

        This is the weighted BM25 that FTS5 has (Robertson & Zaragoza 2009), over the rows of the user. Raises
        ValueError without a scope, because `widened` always returns one.
        """
        if scope is None:
            raise ValueError("the full text is searched within a scope")
        searched = database.searched_words(words, counts)
        known = self.document_counts(conn, scope.user_id, searched) if counts is None else counts
        found = {word: known[word] for word in searched if word in known}
        if not found:
            return {}
        totals = self.document_counts(conn, scope.user_id, (ROWS, TOKENS))
        if len(totals) < 2:  # noqa: PLR2004 - both
            raise FullTextError(
                "the full text is damaged: the rows of a user are not counted. Rebuild it with palimpsest rebuild"
            )
        values = {
            "words": [_key(scope.user_id, word) for word in found],
            "rarities": [_rarity(totals[ROWS], number) for number in found.values()],
            "average": totals[TOKENS] / totals[ROWS],
            "limit": limit,
            **seen_values(scope),
        }
        return {int(seq): float(score) for seq, score in conn.execute(_SCORED, values).all()}

    def with_all(self, conn: Connection, scope: Scope, words: Iterable[str]) -> list[int]:
        """Return the rows that `scope` sees whose own text has all of the words.

        Only the first `MAX_QUERY_TOKENS` words are looked for.
        """
        searched = database.searched_words(words)
        values = {"words": [_key(scope.user_id, word) for word in searched], **seen_values(scope)}
        padded = {word: f" {word} " for word in searched}
        rows = conn.execute(_MATCHING, values)
        return [int(seq) for seq, own in rows if len(database.words_in(own, padded)) == len(padded)]

    def document_counts(self, conn: Connection, user_id: str, words: Iterable[str]) -> dict[str, int]:
        """Return in how many rows of the user each word occurs. Words that occur nowhere are left out."""
        keys = {word: _key(user_id, word) for word in words}
        counted = {row.word: row.number for row in conn.execute(_COUNTED, {"words": list(keys.values())})}
        return {word: counted[key] for word, key in keys.items() if key in counted}

    def words_in(self, conn: Connection, seqs: Sequence[int], words: frozenset[str]) -> dict[int, database.FoundWords]:
        """Return which of the words occur in each row."""
        rows = conn.execute(_ROWS, {"seqs": sorted(seqs)})
        return database.words_found(((int(seq), own, around) for seq, own, around in rows), words)

    def is_sound(self, conn: Connection, rows: Mapping[int, database.FullTextColumns]) -> bool:
        """Return whether everything that is derived from the stored rows is as it should be."""
        expected = Counter[int]()
        for row in conn.execute(_ALL_DERIVED):
            columns = [column.split() for column in rows[row.seq][1:]]
            if {"tokens": row.tokens, "words": row.words, "weights": row.weights} != _derived(row.user_id, columns):
                return False
            expected.update(_counts_of(row.user_id, row.words, row.tokens))
        return {row.word: row.number for row in conn.execute(_ALL_COUNTS)} == expected

    def _stored(self, conn: Connection, seqs: Sequence[int]) -> list[dict[int, int]]:
        return [_counts_of(*row) for row in conn.execute(_STORED, {"seqs": list(seqs)})]

    def _count(self, conn: Connection, new: Iterable[dict[int, int]], gone: Iterable[dict[int, int]]) -> None:
        """Add the counts of new rows, and take away those of rows that are gone. What has no row is removed."""
        changes = Counter[int]()
        for counts in new:
            changes.update(counts)
        for counts in gone:
            changes.subtract(counts)
        changed = sorted(word for word, number in changes.items() if number)
        if changed:
            conn.execute(_COUNT, {"words": changed, "numbers": [changes[word] for word in changed]})
        if any(changes[word] < 0 for word in changed):
            conn.execute(_DROP_WORDS, {"words": changed})


_VALUES = (f"CAST(:{name} AS {ARRAYS[name]})" if name in ARRAYS else f":{name}" for name in COLUMNS)
_PUT = text(
    f"INSERT INTO lexical({', '.join(COLUMNS)}) VALUES ({', '.join(_VALUES)}) "  # noqa: S608 - names of our own
    f"ON CONFLICT (seq) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
)
_REMOVE = text("DELETE FROM lexical WHERE seq = ANY(CAST(:seqs AS bigint[]))")
_STORED = text("SELECT user_id, words, tokens FROM lexical WHERE seq = ANY(CAST(:seqs AS bigint[]))")
_COUNT = text(
    """
    INSERT INTO lexical_counts(word, number)
    SELECT * FROM unnest(CAST(:words AS bigint[]), CAST(:numbers AS bigint[]))
    ON CONFLICT (word) DO UPDATE SET number = lexical_counts.number + excluded.number
    """
)
_DROP_WORDS = text("DELETE FROM lexical_counts WHERE word = ANY(CAST(:words AS bigint[])) AND number <= 0")
_COUNTED = text("SELECT word, number FROM lexical_counts WHERE word = ANY(CAST(:words AS bigint[]))")
_ALL_DERIVED = text("SELECT seq, user_id, tokens, words, weights FROM lexical")
_ALL_COUNTS = text("SELECT word, number FROM lexical_counts")
_ROWS = text("SELECT seq, own, context || ' ' || facts FROM lexical WHERE seq = ANY(CAST(:seqs AS bigint[]))")
_SEEN = """
    user_id = :user_id AND project IN (:beside, :project)
    AND (:agent_id = '' OR agent_id IN (:shared, :agent_id)) AND (:run_id = '' OR run_id = :run_id)
"""
_MATCHING = text(f"SELECT seq, own FROM lexical WHERE words @> CAST(:words AS bigint[]) AND {_SEEN} ORDER BY seq")  # noqa: S608 - no value of anybody's
_SCORED = text(
    f"""
    SELECT seq, (
        SELECT sum(sought.rarity * occurrence.weight * ({K1} + 1)
            / (occurrence.weight + {K1} * (1 - {B} + {B} * tokens / CAST(:average AS float8))))
        FROM unnest(CAST(:words AS bigint[]), CAST(:rarities AS float8[])) AS sought(word, rarity)
        CROSS JOIN LATERAL (SELECT weights[array_position(words, sought.word)] AS weight) AS occurrence
    ) AS score
    FROM lexical WHERE words && CAST(:words AS bigint[]) AND {_SEEN}
    ORDER BY score DESC, seq LIMIT CAST(:limit AS bigint)
    """  # noqa: S608 - no value of anybody's
)


def _values(row: database.FullTextRow) -> dict[str, Any]:
    """Return a row as it is stored."""
    return {
        "seq": row.seq,
        "own": " ".join(row.own),
        "context": " ".join(row.context),
        "facts": " ".join(row.facts),
        **_derived(row.scope.user_id, (row.own, row.context, row.facts)),
        **scope_values(row.scope),
    }


def _derived(user_id: str, columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return what a search needs of the tokens of a row: of its own text, of its context and of the facts."""
    weights: dict[str, float] = {}
    for weight, tokens in zip(database.COLUMN_WEIGHTS, columns, strict=True):
        for word, number in Counter(tokens).items():
            weights[word] = weights.get(word, 0.0) + weight * number
    return {
        "tokens": sum(map(len, columns)) + SCOPE_TOKENS,
        "words": [_key(user_id, word) for word in weights],
        "weights": list(weights.values()),
    }


def _counts_of(user_id: str, words: Sequence[int], tokens: int) -> dict[int, int]:
    """Return what a row adds to the counts."""
    return {**dict.fromkeys(words, 1), _key(user_id, ROWS): 1, _key(user_id, TOKENS): tokens}


def _key(user_id: str, word: str) -> int:
    """Return the number by which a word of a user is indexed. Two words may share one, which is improbable."""
    digest = hashlib.blake2b(f"{user_id}\0{word}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _rarity(rows: int, number: int) -> float:
    """Return how much a word counts that occurs in so many of the rows: its inverse document frequency."""
    return max(math.log((rows - number + 0.5) / (number + 0.5)), LEAST_RARITY)
