"""The vectors of memories and messages in the form in which they are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.models import Kind, Scope
from palimpsest.core.protocols import Vector
from palimpsest.recall.retrieval.features import Centre, centred
from palimpsest.store.queries import vectors as vector_queries


def centred_vectors(
    conn: Connection, embedder: str, scope: Scope, kind: Kind, owner_ids: Sequence[str]
) -> dict[str, Vector]:
    """Return the centred unit vectors of texts, each of shape (dims,), by the id of the memory or message.

    `embedder` is the fingerprint of the embedder. Texts that it has not embedded yet are left out.
    """
    own = vector_queries.own_vectors(conn, embedder, kind, owner_ids)
    if not own:
        return {}
    stored = vector_queries.centre(conn, scope.user_id, embedder)
    mean = Centre.of(embedder, stored.entries, stored.mean).passage
    return dict(zip(own, centred(np.stack(list(own.values())), mean), strict=True))
