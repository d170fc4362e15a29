"""Keep for a while which questions were asked and what came back, and find memories by the time they are about."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables and the index."""
    about, living = sa.text("coalesce(happened_at, stated_at)"), sa.text("deleted_at IS NULL")
    op.create_index(
        "memories_by_time", "memories", ["user_id", about, "seq"], sqlite_where=living, postgresql_where=living
    )
    op.create_table(
        "recalls",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        *(
            sa.Column(name, sa.String(256), nullable=False, server_default="")
            for name in ("user_id", "project", "agent_id", "run_id")
        ),
        sa.Column("all_projects", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("caller", sa.String(256), nullable=False, server_default=""),
    )
    op.create_index("recalls_by_user", "recalls", ["user_id", "seq"])
    op.create_index("recalls_by_time", "recalls", ["at"])
    op.create_table(
        "recalled",
        sa.Column("recall_seq", sa.Integer, sa.ForeignKey("recalls.seq"), primary_key=True),
        sa.Column("owner_id", sa.String(36), primary_key=True),
        sa.Column("rank", sa.Integer, nullable=False),
    )
    op.create_index("recalled_by_owner", "recalled", ["owner_id", "recall_seq"])


def downgrade() -> None:
    """Drop the tables and the index. What was asked is lost; memories and messages stay."""
    op.drop_table("recalled")
    op.drop_table("recalls")
    op.drop_index("memories_by_time", "memories")
