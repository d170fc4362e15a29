"""The tables of what is kept beside memories and messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    func,
    text,
)

from palimpsest.core.models import PAGE
from palimpsest.store.rows import UtcTime

# The tables of the ledger. The full text is not among them: each database keeps it in its own way.

KNOWN_REVISIONS = ("0013",)
"""The revisions of the schema, oldest first, each a file in `migrations/versions`.

The first one is the schema of the first release. It was the thirteenth before it.
"""

HEAD = KNOWN_REVISIONS[-1]
"""The revision this version writes."""

metadata = MetaData()


def only_where(condition: str) -> dict[str, Any]:
    """Return the options of an index that holds only the rows for which an SQL condition is true.

    `postgres_schema.py` says the same to PostgreSQL. Said here, it would load SQLAlchemy's part for it everywhere.
    """
    return {"sqlite_where": text(condition)}


def scope_columns() -> list[Column[str]]:
    """Return the columns of a scope. An absent part is the empty string, because NULL escapes unique indexes."""
    return [
        Column(name, String(256), nullable=False, server_default="")
        for name in ("user_id", "project", "agent_id", "run_id")
    ]


meta = Table("meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text, nullable=False))

messages = Table(
    "messages",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    *scope_columns(),
    Column("role", String(16), nullable=False),
    Column("name", String(256), nullable=False, server_default=""),
    Column("content", Text, nullable=False),
    Column("content_hash", String(32), nullable=False),
    Column("external_id", String(256), nullable=False, server_default=""),
    Column("session_id", String(36), nullable=False),
    Column("said_at", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    # The edit that stored it. A repeated call is recognized by it.
    Column("change", Integer, nullable=False, server_default="0"),
    # Whether facts were extracted from it. If that failed, a repeated call extracts them.
    Column("learnt", Boolean, nullable=False, server_default=false()),
    Column("deleted_at", UtcTime),
)
Index("messages_by_scope", *[messages.c[n] for n in ("user_id", "project", "agent_id", "run_id", "seq")])
Index("messages_by_time", messages.c.user_id, messages.c.said_at, messages.c.seq)
Index("messages_by_text", messages.c.user_id, messages.c.content_hash)
Index("messages_by_session", messages.c.session_id, messages.c.seq)
Index("messages_by_name", messages.c.user_id, messages.c.name)
Index("messages_by_change", messages.c.change)
IS_PAGE = f"role = '{PAGE}' AND deleted_at IS NULL"
"""The condition for living pages of documents."""
Index("messages_that_are_pages", messages.c.user_id, messages.c.seq, **only_where(IS_PAGE))
Index(
    "messages_once",
    *[messages.c[n] for n in ("user_id", "project", "agent_id", "run_id", "external_id", "content_hash")],
    unique=True,
    **only_where("external_id != ''"),
)

conversations = Table(
    "conversations",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    # That of the messages. A conversation without a row is known by its messages alone.
    Column("session_id", String(36), nullable=False),
    *scope_columns(),
    # The program it was held in, such as claude-code or chatgpt, and the id it has there.
    Column("client", String(32), nullable=False, server_default=""),
    Column("external_id", String(256), nullable=False, server_default=""),
    Column("title", Text, nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
)
Index(
    "conversations_once",
    *[conversations.c[n] for n in ("user_id", "project", "agent_id", "run_id", "session_id")],
    unique=True,
)
Index(
    "conversations_by_client",
    *[conversations.c[n] for n in ("user_id", "project", "agent_id", "run_id", "client", "external_id")],
)

memories = Table(
    "memories",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    *scope_columns(),
    Column("text", Text, nullable=False),
    Column("content_hash", String(32), nullable=False),
    Column("keywords", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("actor_id", String(256), nullable=False, server_default=""),
    Column("role", String(16), nullable=False, server_default=""),
    Column("happened_at", UtcTime),
    Column("happened_precision", String(5), nullable=False, server_default=""),
    Column("stated_at", UtcTime, nullable=False),
    Column("valid_from", UtcTime),
    Column("valid_from_precision", String(5), nullable=False, server_default=""),
    Column("valid_until", UtcTime),
    Column("valid_until_precision", String(5), nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    Column("superseded_by", String(36)),
    # What the text names: [[name, type], …] and [[source, name, destination], …]. No list: not looked for yet.
    Column("entities", JSON(none_as_null=True)),
    Column("relations", JSON(none_as_null=True)),
    # A sentence on where it belongs, which search reads too, and [[memory id, reason], …].
    Column("context", Text, nullable=False, server_default=""),
    Column("links", JSON, nullable=False, server_default=text("'[]'")),
    # Whether its messages are hidden with it. A memory that was replaced or ended, or whose add was undone, is not.
    Column("is_forgotten", Boolean, nullable=False, server_default=false()),
    Column("revision", Integer, nullable=False),
)
Index(
    "memories_once",
    *[memories.c[n] for n in ("user_id", "project", "agent_id", "run_id", "content_hash")],
    unique=True,
    **only_where("deleted_at IS NULL"),
)
Index("memories_by_user", memories.c.user_id, memories.c.seq)
TELLS_A_NAME = "CAST(metadata AS TEXT) LIKE '%\"user_name\"%'"
"""The condition for memories that may tell the user's name. A search may need the name, and few memories tell it."""
Index("memories_telling_names", memories.c.user_id, memories.c.seq, **only_where(TELLS_A_NAME))
IS_MARKED = (
    "deleted_at IS NULL AND "
    "(CAST(metadata AS TEXT) LIKE '%\"pinned\"%' OR CAST(metadata AS TEXT) LIKE '%\"expires_at\"%')"
)
"""The condition for living memories that are pinned or end at a time, of which there are few."""
Index("memories_marked", memories.c.user_id, memories.c.seq, **only_where(IS_MARKED))
TIME_ABOUT = func.coalesce(memories.c.happened_at, memories.c.stated_at, type_=UtcTime())
"""The time that a memory is about, as `Memory.at`."""
Index("memories_by_time", memories.c.user_id, TIME_ABOUT, memories.c.seq, **only_where("deleted_at IS NULL"))

memory_sources = Table(
    "memory_sources",
    metadata,
    Column("memory_id", String(36), ForeignKey("memories.id"), primary_key=True),
    Column("message_id", String(36), ForeignKey("messages.id"), primary_key=True),
    Column("history_id", String(36), ForeignKey("history.id"), nullable=False),
)
Index("memory_sources_by_message", memory_sources.c.message_id)

history = Table(
    "history",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    Column("memory_id", String(36), ForeignKey("memories.id"), nullable=False),
    Column("old_memory", Text),
    Column("new_memory", Text),
    Column("event", String(8), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("is_deleted", Boolean, nullable=False),
    Column("actor_id", String(256), nullable=False, server_default=""),
    Column("role", String(16), nullable=False, server_default=""),
    # The rest of the memory after this edit: metadata, keywords, tags, times.
    Column("state", JSON, nullable=False),
    Column("stage", String(32), nullable=False),
    Column("model", String(256), nullable=False, server_default=""),
    Column("prompt", String(32), nullable=False, server_default=""),
    Column("caller", String(256), nullable=False, server_default=""),
    # The number of the edit, by which it can be undone.
    Column("change", Integer, nullable=False, server_default="0"),
    # When it was imported from another tool. `updated_at` is then the date that the other tool gives.
    Column("recorded_at", UtcTime),
)
Index("history_by_memory", history.c.memory_id, history.c.seq)
Index("history_by_change", history.c.change)

IS_SAID = messages.c.role != PAGE
"""The condition for messages of conversations. The others are pages of documents, which nobody said."""

message_history = Table(
    "message_history",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("message_id", String(36), ForeignKey("messages.id"), nullable=False),
    Column("event", String(8), nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("stage", String(32), nullable=False),
    Column("caller", String(256), nullable=False, server_default=""),
    Column("change", Integer, nullable=False),
    # When it was imported from another tool.
    Column("recorded_at", UtcTime),
)
Index("message_history_by_message", message_history.c.message_id, message_history.c.seq)
Index("message_history_by_change", message_history.c.change)

purged = Table(
    "purged",
    metadata,
    # The id of a memory or message that was purged. An import does not bring it back unless it is told to.
    Column("owner_id", String(36), primary_key=True),
)

summaries = Table(
    "summaries",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    *scope_columns(),
    Column("kind", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("model", String(256), nullable=False, server_default=""),
    Column("prompt", String(32), nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
)
Index(
    "summaries_by_scope",
    *[summaries.c[n] for n in ("user_id", "project", "agent_id", "run_id", "kind", "id")],
)

vectors = Table(
    "vectors",
    metadata,
    # The number of the entry. It is also the row of the full text and the key in a vector index.
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(8), nullable=False),
    Column("owner_id", String(36), nullable=False),
    *scope_columns(),
    Column("live", Boolean, nullable=False),
    # Empty if the embedder failed. Such an entry is found by its words until it is embedded.
    Column("embedder", String(128), nullable=False, server_default=""),
    # Whether the vector is only that of the first window of a long text. The rest is embedded in the background.
    Column("partial", Boolean, nullable=False, server_default=false()),
    # `vector` is that of the text alone, and `key` the one that is searched (`contextual_keys.py`), both float16.
    # An empty key is the same as the vector.
    Column("vector", LargeBinary),
    Column("key", LargeBinary),
)
Index("vectors_by_owner", vectors.c.kind, vectors.c.owner_id, unique=True)
Index(
    "vectors_by_user",
    *[vectors.c[n] for n in ("user_id", "live", "project", "agent_id", "run_id", "embedder")],
)
Index("vectors_by_embedder", vectors.c.embedder, vectors.c.live, vectors.c.partial)

means = Table(
    "means",
    metadata,
    Column("user_id", String(256), primary_key=True),
    Column("embedder", String(128), primary_key=True),
    Column("units", Integer, nullable=False),
    # The float64 sum of the living keys. Search subtracts their mean.
    Column("total", LargeBinary, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(32), nullable=False),
    *scope_columns(),
    # What the work is about, as its kind defines it.
    Column("payload", JSON, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("due_at", UtcTime, nullable=False),
    # How often it failed.
    Column("attempts", Integer, nullable=False, server_default="0"),
    # waiting, done or failed.
    Column("state", String(8), nullable=False),
    Column("error", Text, nullable=False, server_default=""),
    Column("result", JSON, nullable=False),
    Column("finished_at", UtcTime),
    # Whether a reply has said how it ended, or that it failed.
    Column("reported", Boolean, nullable=False, server_default=false()),
)
Index(
    "jobs_once",
    *[jobs.c[n] for n in ("kind", "user_id", "project", "agent_id", "run_id")],
    unique=True,
    **only_where("state != 'done'"),
)
Index("jobs_due", jobs.c.state, jobs.c.due_at)
UNREPORTED = "NOT reported AND (state != 'waiting' OR attempts > 0)"
"""The condition for jobs that have ended or failed once, and that no reply has told of."""
Index("jobs_unreported", jobs.c.user_id, **only_where(UNREPORTED))

project_aliases = Table(
    "project_aliases",
    metadata,
    Column("user_id", String(256), primary_key=True),
    # path (the root of a repository), remote (host and path of one), or name (an older name of the project).
    Column("kind", String(8), primary_key=True),
    Column("alias", Text, primary_key=True),
    Column("project", String(256), nullable=False),
    # Another project that may be the same one, as a note says; "" if there is none.
    Column("other_project", String(256), nullable=False, server_default=""),
    # When the repository at a path was created, in seconds since 1970; 0 if that is not known.
    Column("repository_created", Integer, nullable=False, server_default="0"),
    # Whether a reply has told of it, or need not.
    Column("reported", Boolean, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)
Index("project_aliases_by_project", project_aliases.c.user_id, project_aliases.c.project)

index_log = Table(
    "changes",
    metadata,
    # Numbers are never used twice, even after the newest rows were deleted.
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("unit_seq", Integer, nullable=False),
    Column("user_id", String(256), nullable=False),
    Column("op", String(8), nullable=False),
    # Set if a memory itself changed and not only its context. Decisions are checked against these rows.
    Column("memory_id", String(36)),
    Column("at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)
Index("changes_of_memories", index_log.c.user_id, index_log.c.seq, **only_where("memory_id IS NOT NULL"))

entities = Table(
    "entities",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(36), nullable=False, unique=True),
    Column("user_id", String(256), nullable=False),
    Column("project", String(256), nullable=False, server_default=""),
    Column("name", String(256), nullable=False),
    Column("type", String(16), nullable=False),
    Column("is_user", Boolean, nullable=False, server_default=false()),
    # The entity that this one is the same as. Mentions and relations keep the id they were stored with.
    Column("merged_into", String(36)),
    # Vectors of names were kept here; nothing reads or writes them any more.
    Column("vector", LargeBinary),
    Column("embedder", String(128), nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
)
Index("entities_by_user", entities.c.user_id, entities.c.project)
Index("entities_by_embedder", entities.c.embedder)
Index("entities_by_target", entities.c.merged_into, **only_where("merged_into IS NOT NULL"))
IS_USER = "is_user"
"""The condition for the user's own entity in the words of its index, which only a query in the same words uses."""
Index("entities_once", entities.c.user_id, unique=True, **only_where(IS_USER))

entity_history = Table(
    "entity_history",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("entity_id", String(36), nullable=False),
    # merge, split, rename or undo.
    Column("event", String(8), nullable=False),
    # What the edit changed of the entity, before and after it.
    Column("before", JSON, nullable=False),
    Column("after", JSON, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("stage", String(64), nullable=False),
    Column("caller", String(256), nullable=False, server_default=""),
    # The number of the edit, by which it can be undone.
    Column("change", Integer, nullable=False),
    # A line for the log of edits.
    Column("text", Text, nullable=False, server_default=""),
)
Index("entity_history_by_entity", entity_history.c.entity_id, entity_history.c.seq)
Index("entity_history_by_change", entity_history.c.change)


# The tables of the graph. Entities belong to a user or to one of the user's projects.
#
# What a memory states stands in the memory itself, by names. `mentions` says which entity each of these names means,
# and `relations` is the same with entities in place of names. Both follow every change of the memory in its
# transaction, and have no times of their own: a relation holds, and is known, as long as its memory is.

__all__ = ["IS_USER", "entities", "entity_aliases", "entity_history", "mentions", "relations"]

entity_aliases = Table(
    "entity_aliases",
    metadata,
    Column("entity_id", String(36), primary_key=True),
    # The name as `name_key` gives it, and as it was written.
    Column("key", String(256), primary_key=True),
    Column("name", String(256), nullable=False),
    Column("user_id", String(256), nullable=False),
    # Whether an edit gave it. The others live as long as something mentions the entity by them.
    Column("given", Boolean, nullable=False, server_default=false()),
)
Index("entity_aliases_by_key", entity_aliases.c.user_id, entity_aliases.c.key)

mentions = Table(
    "mentions",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(8), nullable=False),
    Column("owner_id", String(36), nullable=False),
    Column("key", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    Column("entity_id", String(36), nullable=False),
    # Whether the present text states the name. An earlier version of a memory keeps what its names mean.
    Column("current", Boolean, nullable=False),
)
Index("mentions_once", mentions.c.kind, mentions.c.owner_id, mentions.c.key, unique=True)
Index("mentions_by_entity", mentions.c.entity_id, mentions.c.current)

relations = Table(
    "relations",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("memory_id", String(36), nullable=False),
    # The place in the memory's own list.
    Column("position", Integer, nullable=False),
    Column("source_id", String(36), nullable=False),
    Column("key", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    Column("destination_id", String(36), nullable=False),
)
Index("relations_once", relations.c.memory_id, relations.c.position, unique=True)
Index("relations_by_source", relations.c.source_id, relations.c.key)
Index("relations_by_destination", relations.c.destination_id)


class History(NamedTuple):
    """A history: the kind and the table of what it tells of, its rows, and their column with the id of that."""

    kind: str
    owners: Table
    rows: Table
    owner_id: Column[str]


HISTORIES = (
    History("memory", memories, history, history.c.memory_id),
    History("message", messages, message_history, message_history.c.message_id),
    History("entity", entities, entity_history, entity_history.c.entity_id),
)


summary_sources = Table(
    "summary_sources",
    metadata,
    Column("summary_id", Integer, ForeignKey("summaries.id"), primary_key=True),
    # memory or message.
    Column("kind", String(8), primary_key=True),
    Column("owner_id", String(36), primary_key=True),
    # That of the memory when the summary was written; 0 for a message.
    Column("revision", Integer, nullable=False),
)
Index("summary_sources_by_owner", summary_sources.c.owner_id)

memory_links = Table(
    "memory_links",
    metadata,
    # What `memories.links` says of living memories, to be read from both ends.
    Column("memory_id", String(36), primary_key=True),
    Column("other_id", String(36), primary_key=True),
)
Index("memory_links_by_other", memory_links.c.other_id)

memory_uses = Table(
    "memory_uses",
    metadata,
    Column("memory_id", String(36), primary_key=True),
    # 1, and 1 more for each use.
    Column("strength", Integer, nullable=False),
    Column("used_at", UtcTime, nullable=False),
)

gists = Table(
    "gists",
    metadata,
    # A page of a document: a message with the role "document".
    Column("message_id", String(36), primary_key=True),
    Column("text", Text, nullable=False),
    # Empty if no model wrote it. Such a gist is made of sentences of its page, and has no vector of its own.
    Column("model", String(256), nullable=False, server_default=""),
    Column("prompt", String(32), nullable=False, server_default=""),
    # The vector of the text, float16, and the embedder it is of: "" if it has none yet.
    Column("vector", LargeBinary),
    Column("embedder", String(128), nullable=False, server_default=""),
)

recalls = Table(
    "recalls",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    # That of the search.
    *scope_columns(),
    # Whether the search went through all projects of the user.
    Column("all_projects", Boolean, nullable=False, server_default=false()),
    Column("question", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("caller", String(256), nullable=False, server_default=""),
)
Index("recalls_by_user", recalls.c.user_id, recalls.c.seq)
Index("recalls_by_time", recalls.c.at)

recalled = Table(
    "recalled",
    metadata,
    Column("recall_seq", Integer, ForeignKey("recalls.seq"), primary_key=True),
    # A memory or a message that came back.
    Column("owner_id", String(36), primary_key=True),
    # 1 is the best.
    Column("rank", Integer, nullable=False),
)
Index("recalled_by_owner", recalled.c.owner_id, recalled.c.recall_seq)
