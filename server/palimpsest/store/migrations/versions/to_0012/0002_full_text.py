"""Add the full text."""

from alembic import context, op

from palimpsest.store.database import FullText

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the empty full text. It is filled after the last migration."""
    _full_text().create(op.get_bind())


def downgrade() -> None:
    """Drop the full text. It can be rebuilt from the entries."""
    _full_text().drop(op.get_bind())


def _full_text() -> FullText:
    """Return the full text of the database under migration, which `env.py` was given."""
    return context.config.attributes["full_text"]
