"""Keep what is made of memories: what summaries rest on, context and links, uses, gists of pages.

Messages are listed by the time they were said.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

MARKED = (
    "deleted_at IS NULL AND "
    "(CAST(metadata AS TEXT) LIKE '%\"pinned\"%' OR CAST(metadata AS TEXT) LIKE '%\"expires_at\"%')"
)

PAGES = "role = 'document' AND deleted_at IS NULL"

EARLIER_JOBS = ("learn", "capture")
EARLIER_KIND_CHARS = 32


def upgrade() -> None:
    """Create the tables. A summary of before is outdated by every later correction in its scope."""
    op.add_column("memories", sa.Column("context", sa.Text, nullable=False, server_default=""))
    op.add_column("memories", sa.Column("links", sa.JSON, nullable=False, server_default=sa.text("'[]'")))
    marked = sa.text(MARKED)
    op.create_index("memories_marked", "memories", ["user_id", "seq"], sqlite_where=marked, postgresql_where=marked)
    op.create_index("messages_by_time", "messages", ["user_id", "said_at", "seq"])
    pages = sa.text(PAGES)
    op.create_index(
        "messages_that_are_pages", "messages", ["user_id", "seq"], sqlite_where=pages, postgresql_where=pages
    )
    with op.batch_alter_table("summaries") as summaries:
        summaries.alter_column(
            "kind", type_=sa.String(64), existing_type=sa.String(EARLIER_KIND_CHARS), existing_nullable=False
        )
    op.create_table(
        "summary_sources",
        sa.Column("summary_id", sa.Integer, sa.ForeignKey("summaries.id"), primary_key=True),
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("owner_id", sa.String(36), primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_index("summary_sources_by_owner", "summary_sources", ["owner_id"])
    op.create_table(
        "memory_links",
        sa.Column("memory_id", sa.String(36), primary_key=True),
        sa.Column("other_id", sa.String(36), primary_key=True),
    )
    op.create_index("memory_links_by_other", "memory_links", ["other_id"])
    op.create_table(
        "memory_uses",
        sa.Column("memory_id", sa.String(36), primary_key=True),
        sa.Column("strength", sa.Integer, nullable=False),
        sa.Column("used_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "gists",
        sa.Column("message_id", sa.String(36), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("model", sa.String(256), nullable=False, server_default=""),
        sa.Column("prompt", sa.String(32), nullable=False, server_default=""),
        sa.Column("vector", sa.LargeBinary),
        sa.Column("embedder", sa.String(128), nullable=False, server_default=""),
    )


def downgrade() -> None:
    """Drop the tables. Links, uses and gists are lost; memories, messages and pages stay.

    So do jobs and summaries of kinds that an earlier version does not know. What a job had begun with waits again.
    """
    for table in ("gists", "memory_uses", "memory_links", "summary_sources"):
        op.drop_table(table)
    _keep_earlier_jobs(op.get_bind())
    op.execute(sa.text("DELETE FROM summaries WHERE length(kind) > :chars").bindparams(chars=EARLIER_KIND_CHARS))
    with op.batch_alter_table("summaries") as summaries:
        summaries.alter_column(
            "kind", type_=sa.String(EARLIER_KIND_CHARS), existing_type=sa.String(64), existing_nullable=False
        )
    op.drop_index("messages_that_are_pages", "messages")
    op.drop_index("messages_by_time", "messages")
    op.drop_index("memories_marked", "memories")
    op.drop_column("memories", "links")
    op.drop_column("memories", "context")


def _keep_earlier_jobs(conn: sa.Connection) -> None:
    jobs = sa.table("jobs", sa.column("seq"), sa.column("kind"), sa.column("payload", sa.JSON))
    conn.execute(sa.delete(jobs).where(jobs.c.kind.not_in(EARLIER_JOBS)))
    for row in conn.execute(sa.select(jobs)).all():
        stored = {key: value for key, value in row.payload.items() if key not in ("taken", "asked")}
        begun = row.payload.get("taken", {})
        payload = {**stored, **{key: [*value, *stored.get(key, [])] for key, value in begun.items()}}
        conn.execute(sa.update(jobs).where(jobs.c.seq == row.seq).values(payload=payload))
