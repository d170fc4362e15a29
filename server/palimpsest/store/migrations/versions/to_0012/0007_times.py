"""Keep since when a memory holds apart from when it was said, how exactly such times are known, and what is forgotten.

A full stop at the end of a memory does not make it another one any more.
"""

import hashlib
import unicodedata

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

BATCH = 1_000

FULL_STOPS = " .!。।॥۔։።။។"  # noqa: RUF001 - full stops are meant

PRECISIONS = ("happened_precision", "valid_from_precision", "valid_until_precision")

SAID_AT = """
SELECT max(messages.said_at) FROM messages
JOIN memory_sources ON memory_sources.message_id = messages.id
WHERE memory_sources.memory_id = memories.id
"""

FORGOTTEN = """
UPDATE memories SET is_forgotten = true WHERE deleted_at IS NOT NULL AND superseded_by IS NULL AND EXISTS (
SELECT 1 FROM history WHERE history.memory_id = memories.id AND history.is_deleted AND history.stage NOT LIKE 'undo%')
"""

SAME_HASH = """
SELECT 1 FROM memories AS other
WHERE other.user_id = memories.user_id AND other.project = memories.project AND other.agent_id = memories.agent_id
AND other.run_id = memories.run_id AND other.content_hash = :hash AND other.deleted_at IS NULL
"""


def upgrade() -> None:
    """Rename the column that held when a memory was last said, and add the new ones.

    Where a memory has a time at which it happened, that column held this time. Its messages tell when it was said. A
    memory that was deleted by anything but an undo, and not replaced, is forgotten.
    """
    op.execute("ALTER TABLE memories RENAME COLUMN valid_from TO stated_at")
    op.add_column("memories", sa.Column("valid_from", sa.String(length=32)))
    for name in PRECISIONS:
        op.add_column("memories", sa.Column(name, sa.String(length=5), nullable=False, server_default=""))
    op.add_column("memories", sa.Column("is_forgotten", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute(
        f"UPDATE memories SET stated_at = coalesce(({SAID_AT}), stated_at) "  # noqa: S608 - no value of anybody's
        "WHERE happened_at IS NOT NULL"
    )
    op.execute("UPDATE memories SET valid_until = NULL WHERE superseded_by IS NULL")
    op.execute(FORGOTTEN)
    _hash_anew()


def _hash_anew() -> None:
    """Compute the hashes of memories anew. Of two living ones that are now the same, the newer keeps its old hash."""
    conn, last = op.get_bind(), 0
    query = sa.text("SELECT seq, text, content_hash FROM memories WHERE seq > :last ORDER BY seq LIMIT :n")
    change = sa.text(f"UPDATE memories SET content_hash = :hash WHERE seq = :seq AND NOT EXISTS ({SAME_HASH})")  # noqa: S608
    while rows := conn.execute(query, {"last": last, "n": BATCH}).all():
        changed = [{"seq": row.seq, "hash": _hash(row.text)} for row in rows]
        changed = [new for new, row in zip(changed, rows, strict=True) if new["hash"] != row.content_hash]
        if changed:
            conn.execute(change, changed)
        last = rows[-1].seq


def _hash(text: str) -> str:
    """Return the hash of a memory's text, as this version computes it."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return hashlib.blake2b((plain.rstrip(FULL_STOPS) or plain).encode(), digest_size=16).hexdigest()


def downgrade() -> None:
    """Drop what is new. A memory that says since when it holds then only has the time at which it was said."""
    op.drop_column("memories", "is_forgotten")
    for name in PRECISIONS:
        op.drop_column("memories", name)
    op.drop_column("memories", "valid_from")
    op.execute("ALTER TABLE memories RENAME COLUMN stated_at TO valid_from")
