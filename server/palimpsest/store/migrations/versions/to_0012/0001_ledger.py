"""Create the first tables of the ledger."""

import sqlalchemy as sa
from alembic import op

from palimpsest.store.rows import UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, those that others refer to first."""
    _changes()
    _means()
    _memories()
    _messages()
    _meta()
    _summaries()
    _vectors()
    _history()
    _memory_sources()


def downgrade() -> None:
    """Drop the tables."""
    for table in (
        "memory_sources",
        "history",
        "vectors",
        "summaries",
        "meta",
        "messages",
        "memories",
        "means",
        "changes",
    ):
        op.drop_table(table)


def _scope_columns() -> list[sa.Column[str]]:
    return [
        sa.Column(name, sa.String(256), nullable=False, server_default="")
        for name in ("user_id", "project", "agent_id", "run_id")
    ]


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("unit_seq", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=256), nullable=False),
        sa.Column("op", sa.String(length=8), nullable=False),
        sa.Column("memory_id", sa.String(length=36), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "changes_of_memories",
        "changes",
        ["user_id", "seq"],
        unique=False,
        sqlite_where=sa.text("memory_id IS NOT NULL"),
        postgresql_where=sa.text("memory_id IS NOT NULL"),
    )


def _means() -> None:
    op.create_table(
        "means",
        sa.Column("user_id", sa.String(length=256), nullable=False),
        sa.Column("embedder", sa.String(length=128), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("total", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "embedder"),
    )


def _memories() -> None:
    op.create_table(
        "memories",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        *_scope_columns(),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.String(length=32), nullable=False),
        sa.Column("keywords", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("actor_id", sa.String(length=256), server_default="", nullable=False),
        sa.Column("role", sa.String(length=16), server_default="", nullable=False),
        sa.Column("happened_at", UtcTime(), nullable=True),
        sa.Column("valid_from", UtcTime(), nullable=False),
        sa.Column("valid_until", UtcTime(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("deleted_at", UtcTime(), nullable=True),
        sa.Column("superseded_by", sa.String(length=36), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("memories_by_user", "memories", ["user_id", "seq"], unique=False)
    op.create_index(
        "memories_once",
        "memories",
        ["user_id", "project", "agent_id", "run_id", "content_hash"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        *_scope_columns(),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=256), server_default="", nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.String(length=32), nullable=False),
        sa.Column("external_id", sa.String(length=256), server_default="", nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("said_at", UtcTime(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("messages_by_scope", "messages", ["user_id", "project", "agent_id", "run_id", "seq"], unique=False)
    op.create_index("messages_by_text", "messages", ["user_id", "content_hash"], unique=False)
    op.create_index("messages_by_session", "messages", ["session_id", "seq"], unique=False)
    op.create_index(
        "messages_once",
        "messages",
        ["user_id", "project", "agent_id", "run_id", "external_id", "content_hash"],
        unique=True,
        sqlite_where=sa.text("external_id != ''"),
        postgresql_where=sa.text("external_id != ''"),
    )


def _meta() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )


def _summaries() -> None:
    op.create_table(
        "summaries",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        *_scope_columns(),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=256), server_default="", nullable=False),
        sa.Column("prompt", sa.String(length=32), server_default="", nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "summaries_by_scope",
        "summaries",
        ["user_id", "project", "agent_id", "run_id", "kind", "id"],
        unique=False,
    )


def _vectors() -> None:
    op.create_table(
        "vectors",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("owner_id", sa.String(length=36), nullable=False),
        *_scope_columns(),
        sa.Column("live", sa.Boolean(), nullable=False),
        sa.Column("embedder", sa.String(length=128), server_default="", nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("vectors_by_embedder", "vectors", ["embedder", "live"], unique=False)
    op.create_index("vectors_by_owner", "vectors", ["kind", "owner_id"], unique=True)
    op.create_index(
        "vectors_by_user",
        "vectors",
        ["user_id", "live", "project", "agent_id", "run_id", "embedder"],
        unique=False,
    )


def _history() -> None:
    op.create_table(
        "history",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("memory_id", sa.String(length=36), nullable=False),
        sa.Column("old_memory", sa.Text(), nullable=True),
        sa.Column("new_memory", sa.Text(), nullable=True),
        sa.Column("event", sa.String(length=8), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("is_deleted", sa.Boolean(), nullable=False),
        sa.Column("actor_id", sa.String(length=256), server_default="", nullable=False),
        sa.Column("role", sa.String(length=16), server_default="", nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("stage", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=256), server_default="", nullable=False),
        sa.Column("prompt", sa.String(length=32), server_default="", nullable=False),
        sa.Column("caller", sa.String(length=256), server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.id"],
        ),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("history_by_memory", "history", ["memory_id", "seq"], unique=False)


def _memory_sources() -> None:
    op.create_table(
        "memory_sources",
        sa.Column("memory_id", sa.String(length=36), nullable=False),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("history_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["history_id"],
            ["history.id"],
        ),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.id"],
        ),
        sa.ForeignKeyConstraint(
            ["message_id"],
            ["messages.id"],
        ),
        sa.PrimaryKeyConstraint("memory_id", "message_id"),
    )
    op.create_index("memory_sources_by_message", "memory_sources", ["message_id"], unique=False)
