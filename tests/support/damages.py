"""Damage in the rows of a ledger, as SQL statements, and what a verification finds of it."""

from __future__ import annotations

SEARCHED = "are searched by another text than they have"
NOTHING = "entries belong to no memory or message"
MEAN = "the mean of a user's vectors is wrong"
HISTORY = "differ from the last row of their history"
WORDS = "the full text does not find the words of its rows"
STATES = "have other mentions or relations than they state"
STRAY = "mentions belong to no memory, message or entity of their scope"
MERGED = "are merged into an entity that cannot stand for them"
NAMES = "names belong to no entity"
PARTS = (SEARCHED, NOTHING, MEAN, HISTORY, WORDS, STATES, STRAY, MERGED, NAMES, "relations belong to no memory")

ENTRY = "(SELECT seq FROM vectors WHERE kind = 'memory' AND live ORDER BY seq LIMIT 1)"
"""The entry of a memory that came from a message. In the statements below, @entry stands for it."""

NAMED = "(SELECT id FROM memories WHERE CAST(relations AS text) LIKE '%lives in%')"
"""The memory that states a relation. In the statements below, @named stands for it."""

DAMAGES: dict[str, tuple[str, set[str]]] = {
    "an entry is missing": ("DELETE FROM vectors WHERE seq = @entry", {SEARCHED, NOTHING, MEAN}),
    "the last entry is missing": (
        "DELETE FROM vectors WHERE seq = (SELECT max(seq) FROM vectors)",
        {SEARCHED, NOTHING, MEAN},
    ),
    "an entry has no owner": (
        "INSERT INTO vectors(kind, owner_id, user_id, live, embedder, key, vector) "
        "SELECT 'memory', '0', user_id, true, embedder, key, vector FROM vectors WHERE seq = @entry",
        {NOTHING, MEAN},
    ),
    "a key is that of another entry": (
        "UPDATE vectors SET key = (SELECT key FROM vectors WHERE user_id = 'bob') WHERE seq = @entry",
        {SEARCHED, MEAN},
    ),
    "a key is missing": ("UPDATE vectors SET key = NULL WHERE seq = @entry", {SEARCHED, MEAN}),
    "a key is too short": ("UPDATE vectors SET key = substr(key, 1, 8) WHERE seq = @entry", {SEARCHED, MEAN}),
    "a key is truncated": ("UPDATE vectors SET key = substr(key, 1, 7) WHERE seq = @entry", {SEARCHED, MEAN}),
    "a live entry is marked deleted": ("UPDATE vectors SET live = false WHERE seq = @entry", {SEARCHED}),
    "deleted entries are marked live": ("UPDATE vectors SET live = true", {SEARCHED}),
    "an entry is in another project": ("UPDATE vectors SET project = 'web' WHERE seq = @entry", {SEARCHED}),
    "an entry is another user's": ("UPDATE vectors SET user_id = 'eve' WHERE seq = @entry", {SEARCHED, MEAN}),
    "a mean has a wrong count": ("UPDATE means SET units = units + 1", {MEAN}),
    "a mean has a wrong sum": ("UPDATE means SET total = (SELECT total FROM means WHERE user_id = 'bob')", {MEAN}),
    "a mean is truncated": ("UPDATE means SET total = substr(total, 1, 7)", {MEAN}),
    "the means are missing": ("DELETE FROM means", {MEAN}),
    "history has another text": ("UPDATE history SET new_memory = '?' WHERE new_memory IS NOT NULL", {HISTORY}),
    "history does not know a deletion": ("UPDATE history SET is_deleted = false, new_memory = '?'", {HISTORY}),
    "a message has no history": ("DELETE FROM message_history WHERE seq = 1", {HISTORY}),
    "history does not know the deletion of a message": (
        "DELETE FROM message_history WHERE event = 'DELETE'",
        {HISTORY},
    ),
    "a memory has no mentions": ("DELETE FROM mentions WHERE owner_id = @named", {STATES}),
    "an entity is missing": ("DELETE FROM entities WHERE name = 'Ana'", {STRAY, NAMES}),
    "a mention is of another user": (
        "UPDATE mentions SET entity_id = (SELECT min(id) FROM entities WHERE user_id = 'bob') WHERE name = 'Ana'",
        {STRAY, STATES},
    ),
    "a mention is of an entity of a project": ("UPDATE entities SET project = 'web' WHERE name = 'Ana'", {STRAY}),
    "a mention has no memory": (
        "UPDATE mentions SET owner_id = '0' WHERE owner_id = @named AND name = 'Ana'",
        {STRAY, STATES},
    ),
    "a mention of a message has no message": (
        "INSERT INTO mentions(kind, owner_id, key, name, entity_id, current) "
        "SELECT 'message', '0', key, name, entity_id, true FROM mentions LIMIT 1",
        {STRAY},
    ),
    "an earlier name counts as current": ("UPDATE mentions SET current = true", {STATES}),
    "a name does not count as current": ("UPDATE mentions SET current = false", {STATES}),
    "a relation is missing": ("DELETE FROM relations", {STATES}),
    "a relation is turned around": (
        "UPDATE relations SET source_id = destination_id, destination_id = source_id",
        {STATES},
    ),
    "a relation has another name": ("UPDATE relations SET name = 'hates', key = 'hates'", {STATES}),
    "a relation has no memory": (
        "INSERT INTO relations(memory_id, position, source_id, key, name, destination_id) "
        "SELECT '0', 0, source_id, key, name, destination_id FROM relations",
        {"relations belong to no memory"},
    ),
    "an entity is merged into a missing one": ("UPDATE entities SET merged_into = '0' WHERE name = 'Ana'", {MERGED}),
    "an entity is merged into another user's": (
        "UPDATE entities SET merged_into = (SELECT min(id) FROM entities WHERE user_id = 'bob') WHERE name = 'Ana'",
        {MERGED},
    ),
    "entities are merged in a circle": (
        "UPDATE entities SET merged_into = CASE name WHEN 'Ana' THEN (SELECT id FROM entities WHERE name = 'Lyon') "
        "ELSE (SELECT id FROM entities WHERE name = 'Ana' AND user_id = 'alice') END WHERE name IN ('Ana', 'Lyon')",
        {MERGED},
    ),
    "a name has no entity": (
        "INSERT INTO entity_aliases(entity_id, key, name, user_id) VALUES ('0', 'ana', 'Ana', 'alice')",
        {NAMES},
    ),
    "a name is another user's": ("UPDATE entity_aliases SET user_id = 'eve' WHERE name = 'Ana'", {NAMES}),
    "several damages at once": (
        "UPDATE vectors SET key = substr(key, 1, 8) WHERE seq = @entry; DELETE FROM means; "
        "DELETE FROM message_history WHERE seq = 1",
        {SEARCHED, MEAN, HISTORY},
    ),
}

IN_THE_FULL_TEXT_OF_SQLITE: dict[str, tuple[str, set[str]]] = {
    "a full-text row is missing": ("DELETE FROM lexical WHERE rowid = @entry", {SEARCHED}),
    "a full-text row has other words": ("UPDATE lexical SET own = 'other words' WHERE rowid = @entry", {SEARCHED}),
    "a full-text row has another context": (
        "UPDATE lexical SET context = 'other words' WHERE rowid = @entry",
        {SEARCHED},
    ),
    "a full-text row belongs to no entry": (
        "INSERT INTO lexical(rowid, scope, own, context, facts) VALUES (999, 'a', 'b', 'c', 'd')",
        {NOTHING},
    ),
    "a row is deleted but its words stay": ("DELETE FROM lexical_content WHERE id = @entry", {SEARCHED, WORDS}),
    "a row is changed but its words stay": (
        "UPDATE lexical_content SET c1 = 'other words' WHERE id = @entry",
        {SEARCHED, WORDS},
    ),
    "the words are missing": ("DELETE FROM lexical_data WHERE id > 10", {WORDS}),
    "the words are unreadable": ("UPDATE lexical_data SET block = zeroblob(9) WHERE id > 10", {WORDS}),
    "words and keys at once": (
        "UPDATE vectors SET key = substr(key, 1, 8) WHERE seq = @entry; DELETE FROM lexical_data WHERE id > 10",
        {SEARCHED, MEAN, WORDS},
    ),
}

IN_THE_FULL_TEXT_OF_POSTGRESQL: dict[str, tuple[str, set[str]]] = {
    "a row is missing": ("DELETE FROM lexical WHERE seq = @entry", {SEARCHED, WORDS}),
    "a row has other words": ("UPDATE lexical SET own = 'other words' WHERE seq = @entry", {SEARCHED, WORDS}),
    "a row has another context": ("UPDATE lexical SET context = 'other words' WHERE seq = @entry", {SEARCHED, WORDS}),
    "a row belongs to no entry": (
        "INSERT INTO lexical(seq, user_id, project, agent_id, run_id, own, context, facts, tokens, words, weights) "
        "SELECT 999, user_id, project, agent_id, run_id, own, context, facts, tokens, words, weights "
        "FROM lexical WHERE seq = @entry",
        {NOTHING, WORDS},
    ),
    "a row is not found by its words": ("UPDATE lexical SET words = '{}' WHERE seq = @entry", {WORDS}),
    "a word is counted too often": ("UPDATE lexical_words SET rows = rows + 1", {WORDS}),
    "a word is not counted": ("DELETE FROM lexical_words", {WORDS}),
    "the rows of a user are not counted": ("DELETE FROM lexical_users", {WORDS}),
}


def damaged(statements: str) -> str:
    """Return statements with what stands for an entry and for a memory."""
    return statements.replace("@entry", ENTRY).replace("@named", NAMED)
