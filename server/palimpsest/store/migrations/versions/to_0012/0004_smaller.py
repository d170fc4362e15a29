"""Index the names of speakers, and store each text's own vector in half precision."""

from collections.abc import Callable

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BATCH = 1_000


def upgrade() -> None:
    """Add the index and convert the vectors. The keys are rebuilt after the migration."""
    op.create_index("messages_by_name", "messages", ["user_id", "name"])
    _each_vector(lambda blob: np.frombuffer(blob, dtype=np.float32).astype(np.float16).tobytes())


def downgrade() -> None:
    """Drop the index and convert the vectors to single precision. The lost digits stay lost."""
    op.drop_index("messages_by_name", "messages")
    _each_vector(lambda blob: np.frombuffer(blob, dtype=np.float16).astype(np.float32).tobytes())


def _each_vector(change: Callable[[bytes], bytes]) -> None:
    conn, last = op.get_bind(), 0
    query = sa.text("SELECT seq, vector FROM vectors WHERE seq > :last AND vector IS NOT NULL ORDER BY seq LIMIT :n")
    while rows := conn.execute(query, {"last": last, "n": BATCH}).all():
        values = [{"seq": row.seq, "vector": change(row.vector)} for row in rows]
        conn.execute(sa.text("UPDATE vectors SET vector = :vector WHERE seq = :seq"), values)
        last = rows[-1].seq
