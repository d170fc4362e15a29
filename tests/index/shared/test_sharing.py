"""Several projections, and one index on a Chroma server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palimpsest.core.errors import VectorIndexError
from palimpsest.index.chroma_server import SharedIndex, SharedProjection
from palimpsest.store.ledger import Ledger
from tests.support.chroma_server import ChromaProcess
from tests.support.projections import add, direction, facts, has_all, nearest


@pytest.mark.nightly
def test_users_have_collections_of_their_own(ledger: Ledger, projection: SharedProjection) -> None:
    """A query of a user never returns the entries of another, and a user without entries has none."""
    add(ledger, "the same", user="ana")
    add(ledger, "the same", user="bert")
    projection.open()
    found = [projection.query(user, direction("the same"), 9) for user in ("ana", "bert", "nobody")]
    assert [hits.entries for hits in found if hits is not None] == [(1,), (2,), ()]
    assert has_all(ledger, projection, "ana", "bert")


def test_vectors_whose_checkpoint_was_not_saved_are_applied_again(
    ledger: Ledger,
    chroma: ChromaProcess,
    share: Callable[[ChromaProcess], SharedProjection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards against a process that ends between both: whoever follows leaves nothing out."""

    def ends(*_: object) -> None:
        raise VectorIndexError("this process has ended")

    first, second = share(chroma), share(chroma)
    add(ledger, *facts(3))
    first.open()
    second.open()
    add(ledger, *facts(5, 3))
    with monkeypatch.context() as patch:
        patch.setattr(SharedIndex, "save", ends)
        with pytest.raises(VectorIndexError):
            first.catch_up()
    found = nearest(ledger, second, "fact 7", 1)
    assert found is not None
    assert (found[0], set(found)) == (8, {4, 5, 6, 7, 8}), "the vectors are there, and the log tells of them too"
    second.catch_up()
    assert nearest(ledger, second, "fact 7", 1) == [8]
    assert has_all(ledger, second)
