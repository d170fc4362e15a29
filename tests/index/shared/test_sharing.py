"""Several processes, and one index on a Chroma server."""

from __future__ import annotations

import pytest

from palimpsest.index.chroma_server import SharedProjection
from palimpsest.store.ledger import Ledger
from tests.support.projections import add, direction, facts, has_all, nearest
from tests.support.shared_index_process import SharedIndexProcess


class TestFollowing:
    def test_users_have_collections_of_their_own(self, ledger: Ledger, projection: SharedProjection) -> None:
        """A query of a user never returns the entries of another, and a user without entries has none."""
        add(ledger, "the same", user="ana")
        add(ledger, "the same", user="bert")
        projection.open()
        found = [projection.query(user, direction("the same"), 9) for user in ("ana", "bert", "nobody")]
        assert [hits.entries for hits in found if hits is not None] == [(1,), (2,), ()]
        assert has_all(ledger, projection, "ana", "bert")


class TestDeath:
    @pytest.mark.nightly
    def test_another_process_takes_over_from_a_killed_follower(
        self, ledger: Ledger, other: SharedIndexProcess, projection: SharedProjection
    ) -> None:
        """Killed between vectors and checkpoint: the batch is applied again, and nothing is left out."""
        add(ledger, *facts(3))
        projection.open()
        other.do("open")
        add(ledger, *facts(5, 3))
        other.pause_at("catch_up save")
        projection.catch_up()
        other.kill()
        found = nearest(ledger, projection, "fact 7", 1)
        assert found is not None
        assert (found[0], set(found)) == (8, {4, 5, 6, 7, 8}), "the vectors are there, and the log tells of them too"
        projection.catch_up()
        assert nearest(ledger, projection, "fact 7", 1) == [8]
        assert has_all(ledger, projection)
