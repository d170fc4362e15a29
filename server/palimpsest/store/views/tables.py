"""The tables of what is kept beside memories and messages."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, LargeBinary, String, Table, Text, false

from palimpsest.store.mapping import UtcTime
from palimpsest.store.schema import metadata, scope_columns

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
