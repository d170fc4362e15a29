"""Store keys in half precision, and a key that is the same as the vector of the text as an empty one."""

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BATCH = 1_000


def upgrade() -> None:
    """Drop the keys and their sums. Both are rebuilt after the migration."""
    op.execute("UPDATE vectors SET key = NULL WHERE key IS NOT NULL")
    op.execute("DELETE FROM means")


def downgrade() -> None:
    """Store every key in single precision. The lost digits stay lost, and the sums stay as they are."""
    conn, last = op.get_bind(), 0
    query = sa.text("SELECT seq, key, vector FROM vectors WHERE seq > :last AND key IS NOT NULL ORDER BY seq LIMIT :n")
    while rows := conn.execute(query, {"last": last, "n": BATCH}).all():
        values = [{"seq": row.seq, "key": _single_precision(row.key or row.vector)} for row in rows]
        conn.execute(sa.text("UPDATE vectors SET key = :key WHERE seq = :seq"), values)
        last = rows[-1].seq


def _single_precision(blob: bytes) -> bytes:
    key = np.frombuffer(blob, dtype=np.float16).astype(np.float32)
    return (key / max(float(np.linalg.norm(key)), 1e-9)).astype(np.float32).tobytes()
