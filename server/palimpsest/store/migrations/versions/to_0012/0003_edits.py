"""Number the edits, give messages a history, and record which messages were learned from."""

from itertools import groupby

import sqlalchemy as sa
from alembic import op

from palimpsest.store.rows import UtcTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BATCH = 1_000


def upgrade() -> None:
    """Add the columns and the table, and number the existing rows: one edit for each instant."""
    op.add_column("messages", sa.Column("change", sa.Integer(), server_default="0", nullable=False))
    op.add_column("messages", sa.Column("learnt", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("messages", sa.Column("deleted_at", UtcTime(), nullable=True))
    op.add_column("history", sa.Column("change", sa.Integer(), server_default="0", nullable=False))
    op.create_table(
        "message_history",
        sa.Column("seq", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("event", sa.String(length=8), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("stage", sa.String(length=32), nullable=False),
        sa.Column("caller", sa.String(length=256), server_default="", nullable=False),
        sa.Column("change", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"]),
        sa.PrimaryKeyConstraint("seq"),
    )
    _number(op.get_bind())
    op.create_index("messages_by_change", "messages", ["change"])
    op.create_index("history_by_change", "history", ["change"])
    op.create_index("message_history_by_change", "message_history", ["change"])
    op.create_index("message_history_by_message", "message_history", ["message_id", "seq"])


def downgrade() -> None:
    """Drop what was added. Which messages were deleted is lost with it."""
    op.drop_table("message_history")
    op.drop_index("history_by_change", "history")
    op.drop_index("messages_by_change", "messages")
    op.drop_column("history", "change")
    for column in ("deleted_at", "learnt", "change"):
        op.drop_column("messages", column)


def _number(conn: sa.Connection) -> None:
    """Give every row of history and every message the number of its edit. Cited messages were learned from."""
    rows = conn.exec_driver_sql(
        "SELECT created_at AS at, user_id, 0 AS part, seq FROM messages "
        "UNION ALL SELECT h.updated_at, m.user_id, 1, h.seq FROM history h JOIN memories m ON m.id = h.memory_id "
        "ORDER BY 1, 2, 3, 4"
    ).all()
    edits = groupby(rows, key=lambda row: tuple(row)[:3])
    numbered = [(number, part, seq) for number, ((_, _, part), group) in enumerate(edits, 1) for *_, seq in group]
    for part, table in ((0, "messages"), (1, "history")):
        values = [{"number": number, "seq": seq} for number, of, seq in numbered if of == part]
        statement = sa.text(f"UPDATE {table} SET change = :number WHERE seq = :seq")  # noqa: S608 - two names of our own
        for start in range(0, len(values), BATCH):
            conn.execute(statement, values[start : start + BATCH])
    conn.exec_driver_sql(
        "INSERT INTO message_history(message_id, event, updated_at, stage, change) "
        "SELECT id, 'ADD', created_at, 'keep', change FROM messages ORDER BY seq"
    )
    conn.exec_driver_sql("UPDATE messages SET learnt = true WHERE id IN (SELECT message_id FROM memory_sources)")
