"""Fixtures of the ledger tests: an empty ledger in each database, and a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from palimpsest.store.ledger import Ledger
from tests.support.databases import DATABASES
from tests.support.memory import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture(params=DATABASES)
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: StoppedClock) -> Generator[Ledger]:
    """Yield an empty ledger in each database."""
    opened = DATABASES[request.param](tmp_path, clock)
    yield opened
    opened.close()
