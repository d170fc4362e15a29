"""Fixtures of the index tests: a ledger, a folder for indexes, and indexes of each kind."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from palimpsest.store.ledger import Ledger
from tests.support.chroma_server import ChromaProcess
from tests.support.ledger_access import ledger_in
from tests.support.projections import Indexes


@pytest.fixture(scope="session")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Generator[ChromaProcess]:
    """Yield the server. Each ledger has its own collections."""
    server = ChromaProcess(tmp_path_factory.mktemp("chroma"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["exact", "chroma"])
def indexes(request: pytest.FixtureRequest) -> Indexes:
    return Indexes(request.param)


@pytest.fixture
def exact() -> Indexes:
    """Yield exact indexes, for tests in which the kind does not matter."""
    return Indexes("exact")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def ledger(tmp_path: Path) -> Generator[Ledger]:
    with ledger_in(tmp_path) as opened:
        yield opened
