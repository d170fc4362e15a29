"""Keep work that is done later, so that it survives a restart."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of jobs. Of each kind, a scope has one that is not done."""
    scope = ("user_id", "project", "agent_id", "run_id")
    op.create_table(
        "jobs",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(32), nullable=False),
        *(sa.Column(name, sa.String(256), nullable=False, server_default="") for name in scope),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("due_at", sa.String(32), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("error", sa.Text, nullable=False, server_default=""),
        sa.Column("result", sa.JSON, nullable=False),
        sa.Column("finished_at", sa.String(32)),
        sa.Column("reported", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    unfinished = sa.text("state != 'done'")
    unreported = sa.text("NOT reported AND (state != 'waiting' OR attempts > 0)")
    op.create_index(
        "jobs_once", "jobs", ["kind", *scope], unique=True, sqlite_where=unfinished, postgresql_where=unfinished
    )
    op.create_index("jobs_due", "jobs", ["state", "due_at"])
    op.create_index("jobs_unreported", "jobs", ["user_id"], sqlite_where=unreported, postgresql_where=unreported)


def downgrade() -> None:
    """Drop the table. What waited is learned from if its messages are sent again."""
    op.drop_table("jobs")
