"""Add the full-text table."""

from alembic import op

from palimpsest.ledger import lexical, units

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table and fill it from the memories and messages there are."""
    for statement in lexical.DDL:
        op.execute(statement)
    units.rebuild_lexical(op.get_bind())


def downgrade() -> None:
    """Drop the table; nothing is lost, for it can be made again."""
    op.execute("DROP TABLE lexical")
