"""The pauses of the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from palimpsest.server.http.http_server import THRESHOLDS, keep_pauses_short

pytestmark = pytest.mark.anyio


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collector")
async def test_what_is_loaded_is_excluded_from_collections() -> None:
    """A full collection then visits only what requests create."""
    loaded: list[object] = []
    assert any(known is loaded for known in gc.get_objects())

    await keep_pauses_short(loaded_seconds=0)

    assert not any(known is loaded for known in gc.get_objects())
    assert gc.get_threshold() == THRESHOLDS
