"""A Chroma server that a test may break, and processes and projections that share an index."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from palimpsest.index.chroma_server import SharedProjection
from palimpsest.learn.engine import open_shared_projection
from palimpsest.store.ledger import Ledger
from tests.support.chroma_server import ChromaProcess
from tests.support.projections import EMBEDDER


@pytest.fixture
def own_chroma(tmp_path: Path) -> Generator[ChromaProcess]:
    """Yield a server for one test alone, which may kill it."""
    server = ChromaProcess(tmp_path / "chroma")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def share(ledger: Ledger, tmp_path: Path) -> Generator[Callable[[ChromaProcess], SharedProjection]]:
    """Yield what opens a projection of the ledger onto a server. It is closed at the end."""
    with ExitStack() as stack:

        def connect(server: ChromaProcess) -> SharedProjection:
            projection = open_shared_projection(server.settings(tmp_path), ledger, EMBEDDER)
            stack.callback(projection.close)
            return projection

        yield connect


@pytest.fixture
def projection(chroma: ChromaProcess, share: Callable[[ChromaProcess], SharedProjection]) -> SharedProjection:
    """Return a projection of this process onto the same index, which is not open yet."""
    return share(chroma)


@pytest.fixture
def own(own_chroma: ChromaProcess, share: Callable[[ChromaProcess], SharedProjection]) -> SharedProjection:
    """Return a projection onto the server that the test may break, which is not open yet."""
    return share(own_chroma)
