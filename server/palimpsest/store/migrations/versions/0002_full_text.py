"""Add the full-text table and the table of its terms."""

from alembic import op

from palimpsest.store.sqlite import full_text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables; they are filled once the schema is that of this version."""
    for statement in full_text.DDL:
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables; nothing is lost, for it can be made again."""
    op.execute("DROP TABLE lexical_terms")
    op.execute("DROP TABLE lexical")
