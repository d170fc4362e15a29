"""Keep the vectors of relations."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Create their table. The background fills it."""
    op.create_table(
        "relation_vectors",
        sa.Column("seq", sa.Integer, sa.ForeignKey("relations.seq", ondelete="CASCADE"), primary_key=True),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("memory_id", sa.String(36), nullable=False),
        sa.Column("embedder", sa.String(128), nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_index("relation_vectors_by_user", "relation_vectors", ["user_id", "embedder", "seq"])
