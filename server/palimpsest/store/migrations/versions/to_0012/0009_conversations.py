"""Keep what is known of conversations, when imports from other tools were made, and the ids of what was purged."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

RECORDED = """
UPDATE {table} SET recorded_at = (
SELECT min(changes.at) FROM changes JOIN vectors ON vectors.seq = changes.unit_seq
WHERE vectors.kind = '{kind}' AND vectors.owner_id = {table}.{owner})
WHERE stage = 'import'
"""
"""An entry gets its first row in the index log in the transaction that imports it."""


def upgrade() -> None:
    """Create the tables and the columns. The index log tells when older imports were made."""
    scope = ("user_id", "project", "agent_id", "run_id")
    op.create_table(
        "conversations",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("session_id", sa.String(36), nullable=False),
        *(sa.Column(name, sa.String(256), nullable=False, server_default="") for name in scope),
        sa.Column("client", sa.String(32), nullable=False, server_default=""),
        sa.Column("external_id", sa.String(256), nullable=False, server_default=""),
        sa.Column("title", sa.Text, nullable=False, server_default=""),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
    op.create_index("conversations_once", "conversations", [*scope, "session_id"], unique=True)
    op.create_index("conversations_by_client", "conversations", [*scope, "client", "external_id"])
    op.create_table("purged", sa.Column("owner_id", sa.String(36), primary_key=True))
    op.create_index("changes_by_unit", "changes", ["unit_seq", "at"])
    for table, kind, owner in (("history", "memory", "memory_id"), ("message_history", "message", "message_id")):
        op.add_column(table, sa.Column("recorded_at", sa.String(32)))
        op.execute(RECORDED.format(table=table, kind=kind, owner=owner))
    op.drop_index("changes_by_unit", "changes")


def downgrade() -> None:
    """Drop what is new. Titles are lost, and the log shows imports at the date of their content again."""
    for table in ("history", "message_history"):
        op.drop_column(table, "recorded_at")
    op.drop_table("purged")
    op.drop_table("conversations")
