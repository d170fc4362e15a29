"""Fixtures of the ledger tests: an empty ledger and its graph."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from palimpsest.store.ledger import Ledger
from tests.support.graph import Graph
from tests.support.memory import StoppedClock
from tests.support.stores import open_empty_ledger


@pytest.fixture
def ledger(tmp_path: Path, clock: StoppedClock) -> Generator[Ledger]:
    opened = open_empty_ledger(tmp_path, clock)
    yield opened
    opened.close()


@pytest.fixture
def graph(ledger: Ledger, clock: StoppedClock) -> Graph:
    """Return a graph in an empty ledger."""
    return Graph(ledger, clock)
