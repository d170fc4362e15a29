"""Full text in PostgreSQL: our own search tokens, found by a GIN index and scored by BM25.

PostgreSQL's own ranking (`ts_rank`) knows no inverse document frequency. So the rows keep what BM25 needs, and two
small tables count words for each user, under the lock of the user. A word is indexed together with its user: a search
reads nothing of other users, however many there are, and the score of a user's memory does not depend on theirs.
"""

from __future__ import annotations

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
from palimpsest.store.rows import batched, scope_values, seen_values

CREATE = (
    """
    CREATE TABLE lexical (
        seq bigint PRIMARY KEY,
        user_id text COLLATE "C" NOT NULL,
        project text COLLATE "C" NOT NULL,
        agent_id text COLLATE "C" NOT NULL,
        run_id text COLLATE "C" NOT NULL,
        own text COLLATE "C" NOT NULL,
        context text COLLATE "C" NOT NULL,
        facts text COLLATE "C" NOT NULL,
        -- How many tokens it has, the parts of its scope included.
        tokens integer NOT NULL,
        -- Each word of it as the number that `_key` gives, and the weighted number of times that it occurs.
        words bigint[] NOT NULL,
        weights float8[] NOT NULL
    )
    """,
    "CREATE INDEX lexical_by_word ON lexical USING gin (words) WITH (fastupdate = off)",
    # In how many rows of a user each word occurs.
    """
    CREATE TABLE lexical_words (
        user_id text COLLATE "C" NOT NULL,
        word text COLLATE "C" NOT NULL,
        rows bigint NOT NULL,
        PRIMARY KEY (user_id, word)
    )
    """,
    # How many rows each user has, and how many tokens they have together.
    """
    CREATE TABLE lexical_users (user_id text COLLATE "C" PRIMARY KEY, rows bigint NOT NULL, tokens bigint NOT NULL)
    """,
)
DROP = ("DROP TABLE IF EXISTS lexical, lexical_words, lexical_users",)

SCOPE_TOKENS = 4
"""How many tokens the parts of a scope count. FTS5 counts them too, so the scores are the same in both databases."""

K1, B = 1.2, 0.75
"""The parameters of BM25, as in FTS5."""

LEAST_RARITY = 1e-6
"""What a word counts that occurs in more than half of the rows, as in FTS5."""


class PostgresFullText(database.FullText):
    """Implement `FullText` with tables of our own."""

    created_by = CREATE
    dropped_by = DROP

    def put(self, conn: Connection, rows: Sequence[database.FullTextRow]) -> None:
        """Insert or replace the rows of entries."""
        if not rows:
            return
        counted = _Counts()
        counted.add(self._stored(conn, [row.seq for row in rows]), -1)
        values = [_values(row) for row in rows]
        counted.add(values, 1)
        conn.execute(_PUT, values)
        counted.write(conn)

    def remove(self, conn: Connection, seqs: Sequence[int]) -> None:
        """Remove the rows of entries. Unknown numbers are ignored."""
        for chunk in batched(seqs):
            counted = _Counts()
            counted.add(self._stored(conn, chunk), -1)
            conn.execute(_REMOVE, {"seqs": chunk})
            counted.write(conn)

    def rows(self, conn: Connection) -> dict[int, database.FullTextColumns]:
        """Return every stored row by entry number."""
        query = text("SELECT seq, user_id, project, agent_id, run_id, own, context, facts FROM lexical")
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
        self,
        conn: Connection,
        scope: Scope | None,
        words: Iterable[str],
        limit: int | None,
        counts: Mapping[str, int] | None = None,
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
        totals = conn.execute(_TOTALS, {"user_id": scope.user_id}).one_or_none()
        if totals is None:
            raise FullTextError(
                "the full text is damaged: the rows of a user are not counted. Rebuild it with palimpsest rebuild"
            )
        rows, tokens = totals
        values = {
            "words": [_key(scope.user_id, word) for word in found],
            "rarities": [_rarity(rows, number) for number in found.values()],
            "average": tokens / rows,
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
        values = {"user_id": user_id, "words": list(dict.fromkeys(words))}
        counted = {str(word): int(number) for word, number in conn.execute(_COUNTED, values)}
        return {word: counted[word] for word in values["words"] if word in counted}

    def words_in(self, conn: Connection, seqs: Sequence[int], words: frozenset[str]) -> dict[int, database.FoundWords]:
        """Return which of the words occur in each row."""
        rows = conn.execute(_ROWS, {"seqs": sorted(seqs)})
        return database.words_found(((int(seq), own, around) for seq, own, around in rows), words)

    def is_sound(self, conn: Connection, rows: Mapping[int, database.FullTextColumns]) -> bool:
        """Return whether everything that is derived from the stored rows is as it should be."""
        counted = _Counts()
        for row in conn.execute(_ALL_DERIVED):
            scope, *columns = rows[row.seq]
            user_id = json.loads(scope)[0]
            derived = _derived(user_id, [column.split() for column in columns])
            if {"tokens": row.tokens, "words": row.words, "weights": row.weights} != derived:
                return False
            own, context, facts = columns
            stored = {"user_id": user_id, "own": own, "context": context, "facts": facts, "tokens": row.tokens}
            counted.add([stored], 1)
        return counted.are_stored(conn)

    def _stored(self, conn: Connection, seqs: Sequence[int]) -> list[dict[str, Any]]:
        rows = conn.execute(_STORED, {"seqs": list(seqs)})
        return [dict(row) for row in rows.mappings()]


class _Counts:
    """How much the counts of words and users change."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[str, str]] = Counter()
        self._users: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()

    def add(self, rows: Iterable[Mapping[str, Any]], sign: int) -> None:
        """Count rows that are stored, or with the sign -1 rows that are removed."""
        for row in rows:
            user_id = row["user_id"]
            for word in set(row["own"].split()).union(row["context"].split(), row["facts"].split()):
                self._rows[user_id, word] += sign
            self._users[user_id] += sign
            self._tokens[user_id] += sign * row["tokens"]

    def write(self, conn: Connection) -> None:
        """Write the changes. A word or a user that has no row any more is removed."""
        changed = sorted(key for key, number in self._rows.items() if number)
        if changed:
            values = {
                "users": [user_id for user_id, _ in changed],
                "words": [word for _, word in changed],
                "rows": [self._rows[key] for key in changed],
            }
            conn.execute(_COUNT_WORDS, values)
            if any(self._rows[key] < 0 for key in changed):
                conn.execute(_DROP_WORDS, {"users": values["users"], "words": values["words"]})
        for user_id in sorted(self._users):
            rows, tokens = self._users[user_id], self._tokens[user_id]
            if rows or tokens:
                conn.execute(_COUNT_USER, {"user_id": user_id, "rows": rows, "tokens": tokens})
            if rows < 0:
                conn.execute(_DROP_USER, {"user_id": user_id})

    def are_stored(self, conn: Connection) -> bool:
        """Return whether the tables have these counts and no others."""
        words = {(row.user_id, row.word): row.rows for row in conn.execute(_ALL_WORDS)}
        users = {row.user_id: (row.rows, row.tokens) for row in conn.execute(_ALL_USERS)}
        return words == self._rows and users == {
            user_id: (rows, self._tokens[user_id]) for user_id, rows in self._users.items()
        }


_PUT = text(
    """
    INSERT INTO lexical(seq, user_id, project, agent_id, run_id, own, context, facts, tokens, words, weights)
    VALUES (:seq, :user_id, :project, :agent_id, :run_id, :own, :context, :facts, :tokens,
        CAST(:words AS bigint[]), CAST(:weights AS float8[]))
    ON CONFLICT (seq) DO UPDATE SET user_id = excluded.user_id, project = excluded.project,
        agent_id = excluded.agent_id, run_id = excluded.run_id, own = excluded.own, context = excluded.context,
        facts = excluded.facts, tokens = excluded.tokens, words = excluded.words, weights = excluded.weights
    """
)
_REMOVE = text("DELETE FROM lexical WHERE seq = ANY(CAST(:seqs AS bigint[]))")
_STORED = text("SELECT user_id, own, context, facts, tokens FROM lexical WHERE seq = ANY(CAST(:seqs AS bigint[]))")
_COUNT_WORDS = text(
    """
    INSERT INTO lexical_words(user_id, word, rows)
    SELECT * FROM unnest(CAST(:users AS text[]), CAST(:words AS text[]), CAST(:rows AS bigint[]))
    ON CONFLICT (user_id, word) DO UPDATE SET rows = lexical_words.rows + excluded.rows
    """
)
_DROP_WORDS = text(
    """
    DELETE FROM lexical_words USING unnest(CAST(:users AS text[]), CAST(:words AS text[])) AS gone(user_id, word)
    WHERE lexical_words.user_id = gone.user_id AND lexical_words.word = gone.word AND lexical_words.rows <= 0
    """
)
_COUNT_USER = text(
    """
    INSERT INTO lexical_users(user_id, rows, tokens) VALUES (:user_id, :rows, :tokens)
    ON CONFLICT (user_id) DO UPDATE
    SET rows = lexical_users.rows + excluded.rows, tokens = lexical_users.tokens + excluded.tokens
    """
)
_DROP_USER = text("DELETE FROM lexical_users WHERE user_id = :user_id AND rows <= 0")
_TOTALS = text("SELECT rows, tokens FROM lexical_users WHERE user_id = :user_id")
_COUNTED = text("SELECT word, rows FROM lexical_words WHERE user_id = :user_id AND word = ANY(CAST(:words AS text[]))")
_ALL_DERIVED = text("SELECT seq, tokens, words, weights FROM lexical")
_ALL_WORDS = text("SELECT user_id, word, rows FROM lexical_words")
_ALL_USERS = text("SELECT user_id, rows, tokens FROM lexical_users")
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


def _key(user_id: str, word: str) -> int:
    """Return the number by which a word of a user is indexed. Two words may share one, which is improbable."""
    digest = hashlib.blake2b(f"{user_id}\0{word}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _rarity(rows: int, number: int) -> float:
    """Return how much a word counts that occurs in so many of the rows: its inverse document frequency."""
    return max(math.log((rows - number + 0.5) / (number + 0.5)), LEAST_RARITY)
