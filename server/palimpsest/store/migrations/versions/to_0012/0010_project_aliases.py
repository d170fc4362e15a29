"""Keep what a project is known by: paths, remotes and older names."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table. It is filled as repositories are opened: the projects of before keep their names."""
    op.create_table(
        "project_aliases",
        sa.Column("user_id", sa.String(256), primary_key=True),
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("alias", sa.Text, primary_key=True),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("other_project", sa.String(256), nullable=False, server_default=""),
        sa.Column("repository_created", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reported", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
    op.create_index("project_aliases_by_project", "project_aliases", ["user_id", "project"])


def downgrade() -> None:
    """Drop the table. Projects are named by their remote or folder again."""
    op.drop_table("project_aliases")
