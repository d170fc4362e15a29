"""Mark vectors that are only those of the first window of a long text."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the mark, and the index by which the marked rows are found. No vector was partial before."""
    op.add_column("vectors", sa.Column("partial", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.drop_index("vectors_by_embedder", "vectors")
    op.create_index("vectors_by_embedder", "vectors", ["embedder", "live", "partial"], unique=False)


def downgrade() -> None:
    """Drop both. Vectors that are partial then count as whole."""
    op.drop_index("vectors_by_embedder", "vectors")
    op.create_index("vectors_by_embedder", "vectors", ["embedder", "live"], unique=False)
    op.drop_column("vectors", "partial")
