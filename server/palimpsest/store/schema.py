"""The tables of what is kept beside memories and messages."""

from typing import Any, NamedTuple

import sqlalchemy as sa

from palimpsest.core.models import PAGE
from palimpsest.store.rows import SCOPE, UtcTime, agree

# The tables of the ledger. The full text is not among them: each database keeps it in its own way.

# The revisions of the schema, oldest first, each a file in `migrations/versions`.
#
# The first one is the schema of the first release. It was the thirteenth before it.
KNOWN_REVISIONS = ("0013", "0014")

# The revision this version writes.
HEAD = KNOWN_REVISIONS[-1]

metadata = sa.MetaData()


def only_where(condition: str) -> dict[str, Any]:
    """Return the options of an index that holds only the rows for which an SQL condition is true.

    `postgres_schema.py` says the same to PostgreSQL. Said here, it would load SQLAlchemy's part for it everywhere.
    """
    return {"sqlite_where": sa.text(condition)}


def scope_columns() -> list[sa.Column[str]]:
    """Return the columns of a scope. An absent part is the empty string, because NULL escapes unique indexes."""
    return [sa.Column(name, sa.String(256), nullable=False, server_default="") for name in SCOPE]


def in_scope(table: sa.Table, *names: str) -> list[sa.Column[Any]]:
    """Return the columns of the scope of a table, and others after them, for an index."""
    return [table.c[name] for name in (*SCOPE, *names)]


def numbered_table(name: str, *columns: sa.Column[Any], **options: Any) -> sa.Table:
    """Return a table whose rows are numbered, as `seq`, in the order in which they are stored."""
    number = sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True)
    return sa.Table(name, metadata, number, *columns, **options)


meta = sa.Table(
    "meta", metadata, sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)

messages = numbered_table(
    "messages",
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    *scope_columns(),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("name", sa.String(256), nullable=False, server_default=""),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("content_hash", sa.String(32), nullable=False),
    sa.Column("external_id", sa.String(256), nullable=False, server_default=""),
    sa.Column("session_id", sa.String(36), nullable=False),
    sa.Column("said_at", UtcTime, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    # The edit that stored it. A repeated call is recognized by it.
    sa.Column("change", sa.Integer, nullable=False, server_default="0"),
    # Whether facts were extracted from it. If that failed, a repeated call extracts them.
    sa.Column("learnt", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("deleted_at", UtcTime),
)
sa.Index("messages_by_scope", *in_scope(messages, "seq"))
sa.Index("messages_by_time", messages.c.user_id, messages.c.said_at, messages.c.seq)
sa.Index("messages_by_text", messages.c.user_id, messages.c.content_hash)
sa.Index("messages_by_session", messages.c.session_id, messages.c.seq)
sa.Index("messages_by_name", messages.c.user_id, messages.c.name)
sa.Index("messages_by_change", messages.c.change)
# The condition for living pages of documents.
IS_PAGE = f"role = '{PAGE}' AND deleted_at IS NULL"
sa.Index("messages_that_are_pages", messages.c.user_id, messages.c.seq, **only_where(IS_PAGE))
IS_NAMED = only_where("external_id != ''")
sa.Index("messages_once", *in_scope(messages, "external_id", "content_hash"), unique=True, **IS_NAMED)

conversations = numbered_table(
    "conversations",
    # That of the messages. A conversation without a row is known by its messages alone.
    sa.Column("session_id", sa.String(36), nullable=False),
    *scope_columns(),
    # The program it was held in, such as claude-code or chatgpt, and the id it has there.
    sa.Column("client", sa.String(32), nullable=False, server_default=""),
    sa.Column("external_id", sa.String(256), nullable=False, server_default=""),
    sa.Column("title", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcTime, nullable=False),
)
sa.Index("conversations_once", *in_scope(conversations, "session_id"), unique=True)
# The condition by which messages are joined with the row of their conversation.
OF_CONVERSATION = agree(messages, conversations, (*SCOPE, "session_id"))
sa.Index("conversations_by_client", *in_scope(conversations, "client", "external_id"))

memories = numbered_table(
    "memories",
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    *scope_columns(),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("content_hash", sa.String(32), nullable=False),
    sa.Column("keywords", sa.JSON, nullable=False),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("actor_id", sa.String(256), nullable=False, server_default=""),
    sa.Column("role", sa.String(16), nullable=False, server_default=""),
    sa.Column("happened_at", UtcTime),
    sa.Column("happened_precision", sa.String(5), nullable=False, server_default=""),
    sa.Column("stated_at", UtcTime, nullable=False),
    sa.Column("valid_from", UtcTime),
    sa.Column("valid_from_precision", sa.String(5), nullable=False, server_default=""),
    sa.Column("valid_until", UtcTime),
    sa.Column("valid_until_precision", sa.String(5), nullable=False, server_default=""),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
    sa.Column("superseded_by", sa.String(36)),
    # What the text names: [[name, type], …] and [[source, name, destination], …]. No list: not looked for yet.
    sa.Column("entities", sa.JSON(none_as_null=True)),
    sa.Column("relations", sa.JSON(none_as_null=True)),
    # A sentence on where it belongs, which search reads too, and [[memory id, reason], …].
    sa.Column("context", sa.Text, nullable=False, server_default=""),
    sa.Column("links", sa.JSON, nullable=False, server_default=sa.text("'[]'")),
    # Whether its messages are hidden with it. A memory that was replaced or ended, or whose add was undone, is not.
    sa.Column("is_forgotten", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("revision", sa.Integer, nullable=False),
)
sa.Index("memories_once", *in_scope(memories, "content_hash"), unique=True, **only_where("deleted_at IS NULL"))
sa.Index("memories_by_user", memories.c.user_id, memories.c.seq)
# The condition for memories that may tell the user's name. A search may need the name, and few memories tell it.
TELLS_A_NAME = "CAST(metadata AS TEXT) LIKE '%\"user_name\"%'"
sa.Index("memories_telling_names", memories.c.user_id, memories.c.seq, **only_where(TELLS_A_NAME))
# The condition for living memories that are pinned or end at a time, of which there are few.
IS_MARKED = (
    "deleted_at IS NULL AND "
    "(CAST(metadata AS TEXT) LIKE '%\"pinned\"%' OR CAST(metadata AS TEXT) LIKE '%\"expires_at\"%')"
)
sa.Index("memories_marked", memories.c.user_id, memories.c.seq, **only_where(IS_MARKED))
# The time that a memory is about, as `Memory.at`.
TIME_ABOUT = sa.func.coalesce(memories.c.happened_at, memories.c.stated_at, type_=UtcTime())
sa.Index("memories_by_time", memories.c.user_id, TIME_ABOUT, memories.c.seq, **only_where("deleted_at IS NULL"))

memory_sources = sa.Table(
    "memory_sources",
    metadata,
    sa.Column("memory_id", sa.String(36), sa.ForeignKey("memories.id"), primary_key=True),
    sa.Column("message_id", sa.String(36), sa.ForeignKey("messages.id"), primary_key=True),
    sa.Column("history_id", sa.String(36), sa.ForeignKey("history.id"), nullable=False),
)
sa.Index("memory_sources_by_message", memory_sources.c.message_id)

history = numbered_table(
    "history",
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    sa.Column("memory_id", sa.String(36), sa.ForeignKey("memories.id"), nullable=False),
    sa.Column("old_memory", sa.Text),
    sa.Column("new_memory", sa.Text),
    sa.Column("event", sa.String(8), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
    sa.Column("actor_id", sa.String(256), nullable=False, server_default=""),
    sa.Column("role", sa.String(16), nullable=False, server_default=""),
    # The rest of the memory after this edit: metadata, keywords, tags, times.
    sa.Column("state", sa.JSON, nullable=False),
    sa.Column("stage", sa.String(32), nullable=False),
    sa.Column("model", sa.String(256), nullable=False, server_default=""),
    sa.Column("prompt", sa.String(32), nullable=False, server_default=""),
    sa.Column("caller", sa.String(256), nullable=False, server_default=""),
    # The number of the edit, by which it can be undone.
    sa.Column("change", sa.Integer, nullable=False, server_default="0"),
    # When it was imported from another tool. `updated_at` is then the date that the other tool gives.
    sa.Column("recorded_at", UtcTime),
)
sa.Index("history_by_memory", history.c.memory_id, history.c.seq)
sa.Index("history_by_change", history.c.change)

# The condition for messages of conversations. The others are pages of documents, which nobody said.
IS_SAID = messages.c.role != PAGE

message_history = numbered_table(
    "message_history",
    sa.Column("message_id", sa.String(36), sa.ForeignKey("messages.id"), nullable=False),
    sa.Column("event", sa.String(8), nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("stage", sa.String(32), nullable=False),
    sa.Column("caller", sa.String(256), nullable=False, server_default=""),
    sa.Column("change", sa.Integer, nullable=False),
    # When it was imported from another tool.
    sa.Column("recorded_at", UtcTime),
)
sa.Index("message_history_by_message", message_history.c.message_id, message_history.c.seq)
sa.Index("message_history_by_change", message_history.c.change)

purged = sa.Table(
    "purged",
    metadata,
    # The id of a memory or message that was purged. An import does not bring it back unless it is told to.
    sa.Column("owner_id", sa.String(36), primary_key=True),
)

summaries = sa.Table(
    "summaries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    *scope_columns(),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("model", sa.String(256), nullable=False, server_default=""),
    sa.Column("prompt", sa.String(32), nullable=False, server_default=""),
    sa.Column("created_at", UtcTime, nullable=False),
)
sa.Index("summaries_by_scope", *in_scope(summaries, "kind", "id"))

# Its number is that of the entry: also the row of the full text and the key in a vector index.
vectors = numbered_table(
    "vectors",
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("owner_id", sa.String(36), nullable=False),
    *scope_columns(),
    sa.Column("live", sa.Boolean, nullable=False),
    # Empty if the embedder failed. Such an entry is found by its words until it is embedded.
    sa.Column("embedder", sa.String(128), nullable=False, server_default=""),
    # Whether the vector is only that of the first window of a long text. The rest is embedded in the background.
    sa.Column("partial", sa.Boolean, nullable=False, server_default=sa.false()),
    # `vector` is that of the text alone, and `key` the one that is searched (`contextual_keys.py`), both float16.
    # An empty key is the same as the vector.
    sa.Column("vector", sa.LargeBinary),
    sa.Column("key", sa.LargeBinary),
)
# The conditions by which the entry of a memory, or of a message, is joined.
IS_MEMORY = sa.and_(vectors.c.kind == "memory", vectors.c.owner_id == memories.c.id)
IS_MESSAGE = sa.and_(vectors.c.kind == "message", vectors.c.owner_id == messages.c.id)
sa.Index("vectors_by_owner", vectors.c.kind, vectors.c.owner_id, unique=True)
sa.Index("vectors_by_user", *[vectors.c[n] for n in ("user_id", "live", "project", "agent_id", "run_id", "embedder")])
sa.Index("vectors_by_embedder", vectors.c.embedder, vectors.c.live, vectors.c.partial)

means = sa.Table(
    "means",
    metadata,
    sa.Column("user_id", sa.String(256), primary_key=True),
    sa.Column("embedder", sa.String(128), primary_key=True),
    sa.Column("units", sa.Integer, nullable=False),
    # The float64 sum of the living keys. Search subtracts their mean.
    sa.Column("total", sa.LargeBinary, nullable=False),
)

jobs = numbered_table(
    "jobs",
    sa.Column("kind", sa.String(32), nullable=False),
    *scope_columns(),
    # What the work is about, as its kind defines it.
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("due_at", UtcTime, nullable=False),
    # How often it failed.
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    # waiting, done or failed.
    sa.Column("state", sa.String(8), nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("result", sa.JSON, nullable=False),
    sa.Column("finished_at", UtcTime),
    # Whether a reply has said how it ended, or that it failed.
    sa.Column("reported", sa.Boolean, nullable=False, server_default=sa.false()),
)
sa.Index("jobs_once", jobs.c.kind, *in_scope(jobs), unique=True, **only_where("state != 'done'"))
sa.Index("jobs_due", jobs.c.state, jobs.c.due_at)
# The condition for jobs that have ended or failed once, and that no reply has told of.
UNREPORTED = "NOT reported AND (state != 'waiting' OR attempts > 0)"
sa.Index("jobs_unreported", jobs.c.user_id, **only_where(UNREPORTED))

project_aliases = sa.Table(
    "project_aliases",
    metadata,
    sa.Column("user_id", sa.String(256), primary_key=True),
    # path (the root of a repository), remote (host and path of one), or name (an older name of the project).
    sa.Column("kind", sa.String(8), primary_key=True),
    sa.Column("alias", sa.Text, primary_key=True),
    sa.Column("project", sa.String(256), nullable=False),
    # Another project that may be the same one, as a note says; "" if there is none.
    sa.Column("other_project", sa.String(256), nullable=False, server_default=""),
    # When the repository at a path was created, in seconds since 1970; 0 if that is not known.
    sa.Column("repository_created", sa.Integer, nullable=False, server_default="0"),
    # Whether a reply has told of it, or need not.
    sa.Column("reported", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)
sa.Index("project_aliases_by_project", project_aliases.c.user_id, project_aliases.c.project)

# Its numbers are never used twice, even after the newest rows were deleted.
index_log = numbered_table(
    "changes",
    sa.Column("unit_seq", sa.Integer, nullable=False),
    sa.Column("user_id", sa.String(256), nullable=False),
    sa.Column("op", sa.String(8), nullable=False),
    # Set if a memory itself changed and not only its context. Decisions are checked against these rows.
    sa.Column("memory_id", sa.String(36)),
    sa.Column("at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)
sa.Index("changes_of_memories", index_log.c.user_id, index_log.c.seq, **only_where("memory_id IS NOT NULL"))

entities = numbered_table(
    "entities",
    sa.Column("id", sa.String(36), nullable=False, unique=True),
    sa.Column("user_id", sa.String(256), nullable=False),
    sa.Column("project", sa.String(256), nullable=False, server_default=""),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("type", sa.String(16), nullable=False),
    sa.Column("is_user", sa.Boolean, nullable=False, server_default=sa.false()),
    # The entity that this one is the same as. Mentions and relations keep the id they were stored with.
    sa.Column("merged_into", sa.String(36)),
    sa.Column("created_at", UtcTime, nullable=False),
)
sa.Index("entities_by_user", entities.c.user_id, entities.c.project)
sa.Index("entities_by_target", entities.c.merged_into, **only_where("merged_into IS NOT NULL"))
# The condition for the user's own entity in the words of its index, which only a query in the same words uses.
IS_USER = "is_user"
sa.Index("entities_once", entities.c.user_id, unique=True, **only_where(IS_USER))

entity_history = numbered_table(
    "entity_history",
    sa.Column("entity_id", sa.String(36), nullable=False),
    # merge, split, rename or undo.
    sa.Column("event", sa.String(8), nullable=False),
    # What the edit changed of the entity, before and after it.
    sa.Column("before", sa.JSON, nullable=False),
    sa.Column("after", sa.JSON, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("stage", sa.String(64), nullable=False),
    sa.Column("caller", sa.String(256), nullable=False, server_default=""),
    # The number of the edit, by which it can be undone.
    sa.Column("change", sa.Integer, nullable=False),
    # A line for the log of edits.
    sa.Column("text", sa.Text, nullable=False, server_default=""),
)
sa.Index("entity_history_by_entity", entity_history.c.entity_id, entity_history.c.seq)
sa.Index("entity_history_by_change", entity_history.c.change)


# The tables of the graph. Entities belong to a user or to one of the user's projects.
#
# What a memory states stands in the memory itself, by names. `mentions` says which entity each of these names means,
# and `relations` is the same with entities in place of names. Both follow every change of the memory in its
# transaction, and have no times of their own: a relation holds, and is known, as long as its memory is.

entity_aliases = sa.Table(
    "entity_aliases",
    metadata,
    sa.Column("entity_id", sa.String(36), primary_key=True),
    # The name as `name_key` gives it, and as it was written.
    sa.Column("key", sa.String(256), primary_key=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("user_id", sa.String(256), nullable=False),
    # Whether an edit gave it. The others live as long as something mentions the entity by them.
    sa.Column("given", sa.Boolean, nullable=False, server_default=sa.false()),
)
sa.Index("entity_aliases_by_key", entity_aliases.c.user_id, entity_aliases.c.key)

mentions = numbered_table(
    "mentions",
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("owner_id", sa.String(36), nullable=False),
    sa.Column("key", sa.String(256), nullable=False),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("entity_id", sa.String(36), nullable=False),
    # Whether the present text states the name. An earlier version of a memory keeps what its names mean.
    sa.Column("current", sa.Boolean, nullable=False),
)
sa.Index("mentions_once", mentions.c.kind, mentions.c.owner_id, mentions.c.key, unique=True)
sa.Index("mentions_by_entity", mentions.c.entity_id, mentions.c.current)

relations = numbered_table(
    "relations",
    sa.Column("memory_id", sa.String(36), nullable=False),
    # The place in the memory's own list.
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("source_id", sa.String(36), nullable=False),
    sa.Column("key", sa.String(256), nullable=False),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("destination_id", sa.String(36), nullable=False),
)
sa.Index("relations_once", relations.c.memory_id, relations.c.position, unique=True)
sa.Index("relations_by_source", relations.c.source_id, relations.c.key)
sa.Index("relations_by_destination", relations.c.destination_id)

# The vector of a relation in words, and the embedder it is of. It goes with its relation: the background makes it anew.
relation_vectors = sa.Table(
    "relation_vectors",
    metadata,
    sa.Column("seq", sa.Integer, sa.ForeignKey("relations.seq", ondelete="CASCADE"), primary_key=True),
    sa.Column("user_id", sa.String(256), nullable=False),
    sa.Column("memory_id", sa.String(36), nullable=False),
    sa.Column("embedder", sa.String(128), nullable=False),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)
sa.Index("relation_vectors_by_user", *[relation_vectors.c[n] for n in ("user_id", "embedder", "seq")])


class History(NamedTuple):
    """A history: the kind and the table of what it tells of, its rows, and their column with the id of that."""

    kind: str
    owners: sa.Table
    rows: sa.Table
    owner_id: sa.Column[str]


HISTORIES = (
    History("memory", memories, history, history.c.memory_id),
    History("message", messages, message_history, message_history.c.message_id),
    History("entity", entities, entity_history, entity_history.c.entity_id),
)


summary_sources = sa.Table(
    "summary_sources",
    metadata,
    sa.Column("summary_id", sa.Integer, sa.ForeignKey("summaries.id"), primary_key=True),
    # memory or message.
    sa.Column("kind", sa.String(8), primary_key=True),
    sa.Column("owner_id", sa.String(36), primary_key=True),
    # That of the memory when the summary was written; 0 for a message.
    sa.Column("revision", sa.Integer, nullable=False),
)
sa.Index("summary_sources_by_owner", summary_sources.c.owner_id)

memory_links = sa.Table(
    "memory_links",
    metadata,
    # What `memories.links` says of living memories, to be read from both ends.
    sa.Column("memory_id", sa.String(36), primary_key=True),
    sa.Column("other_id", sa.String(36), primary_key=True),
)
sa.Index("memory_links_by_other", memory_links.c.other_id)

memory_uses = sa.Table(
    "memory_uses",
    metadata,
    sa.Column("memory_id", sa.String(36), primary_key=True),
    # 1, and 1 more for each use.
    sa.Column("strength", sa.Integer, nullable=False),
    sa.Column("used_at", UtcTime, nullable=False),
)

gists = sa.Table(
    "gists",
    metadata,
    # A page of a document: a message with the role "document".
    sa.Column("message_id", sa.String(36), primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    # Empty if no model wrote it. Such a gist is made of sentences of its page, and has no vector of its own.
    sa.Column("model", sa.String(256), nullable=False, server_default=""),
    sa.Column("prompt", sa.String(32), nullable=False, server_default=""),
    # The vector of the text, float16, and the embedder it is of: "" if it has none yet.
    sa.Column("vector", sa.LargeBinary),
    sa.Column("embedder", sa.String(128), nullable=False, server_default=""),
)

recalls = numbered_table(
    "recalls",
    # That of the search.
    *scope_columns(),
    # Whether the search went through all projects of the user.
    sa.Column("all_projects", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("caller", sa.String(256), nullable=False, server_default=""),
)
sa.Index("recalls_by_user", recalls.c.user_id, recalls.c.seq)
sa.Index("recalls_by_time", recalls.c.at)

recalled = sa.Table(
    "recalled",
    metadata,
    sa.Column("recall_seq", sa.Integer, sa.ForeignKey("recalls.seq"), primary_key=True),
    # A memory or a message that came back.
    sa.Column("owner_id", sa.String(36), primary_key=True),
    # 1 is the best.
    sa.Column("rank", sa.Integer, nullable=False),
)
sa.Index("recalled_by_owner", recalled.c.owner_id, recalled.c.recall_seq)
