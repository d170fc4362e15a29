"""Keep who and what memories speak of, and the relations that they state."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables. What the memories of before name is looked for in the background."""
    op.add_column("memories", sa.Column("entities", sa.JSON))
    op.add_column("memories", sa.Column("relations", sa.JSON))
    telling = sa.text("CAST(metadata AS TEXT) LIKE '%\"user_name\"%'")
    op.create_index(
        "memories_telling_names", "memories", ["user_id", "seq"], sqlite_where=telling, postgresql_where=telling
    )
    _create_entities()
    _create_statements()


def _create_entities() -> None:
    op.create_table(
        "entities",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("project", sa.String(256), nullable=False, server_default=""),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("is_user", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("merged_into", sa.String(36)),
        sa.Column("vector", sa.LargeBinary),
        sa.Column("embedder", sa.String(128), nullable=False, server_default=""),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
    merged, own = sa.text("merged_into IS NOT NULL"), sa.text("is_user")
    op.create_index("entities_by_user", "entities", ["user_id", "project"])
    op.create_index("entities_by_embedder", "entities", ["embedder"])
    op.create_index("entities_by_target", "entities", ["merged_into"], sqlite_where=merged, postgresql_where=merged)
    op.create_index("entities_once", "entities", ["user_id"], unique=True, sqlite_where=own, postgresql_where=own)
    op.create_table(
        "entity_aliases",
        sa.Column("entity_id", sa.String(36), primary_key=True),
        sa.Column("key", sa.String(256), primary_key=True),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("given", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index("entity_aliases_by_key", "entity_aliases", ["user_id", "key"])
    op.create_table(
        "entity_history",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("entity_id", sa.String(36), nullable=False),
        sa.Column("event", sa.String(8), nullable=False),
        sa.Column("before", sa.JSON, nullable=False),
        sa.Column("after", sa.JSON, nullable=False),
        sa.Column("updated_at", sa.String(32), nullable=False),
        sa.Column("stage", sa.String(64), nullable=False),
        sa.Column("caller", sa.String(256), nullable=False, server_default=""),
        sa.Column("change", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("entity_history_by_entity", "entity_history", ["entity_id", "seq"])
    op.create_index("entity_history_by_change", "entity_history", ["change"])


def _create_statements() -> None:
    op.create_table(
        "mentions",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("owner_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(256), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("entity_id", sa.String(36), nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
    )
    op.create_index("mentions_once", "mentions", ["kind", "owner_id", "key"], unique=True)
    op.create_index("mentions_by_entity", "mentions", ["entity_id", "current"])
    op.create_table(
        "relations",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("memory_id", sa.String(36), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("source_id", sa.String(36), nullable=False),
        sa.Column("key", sa.String(256), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("destination_id", sa.String(36), nullable=False),
    )
    op.create_index("relations_once", "relations", ["memory_id", "position"], unique=True)
    op.create_index("relations_by_source", "relations", ["source_id", "key"])
    op.create_index("relations_by_destination", "relations", ["destination_id"])


def downgrade() -> None:
    """Drop the tables. Merges, names and what models read of relations are lost; the memories stay."""
    for table in ("relations", "mentions", "entity_history", "entity_aliases", "entities"):
        op.drop_table(table)
    op.drop_index("memories_telling_names", "memories")
    op.drop_column("memories", "relations")
    op.drop_column("memories", "entities")
