"""A Bolt server for all tests of the graph database, with a database for each process that runs tests."""

from __future__ import annotations

import os

import pytest

from tests.support.bolt_server import BoltServer, shared_bolt_server


@pytest.fixture(scope="session")
def bolt(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> BoltServer:
    """Return the server. It ends when the whole run has ended."""
    folder = tmp_path_factory.getbasetemp()
    if worker_id == "master":
        return shared_bolt_server(folder, os.getpid()).with_database(worker_id)
    return shared_bolt_server(folder.parent, os.getppid()).with_database(worker_id)
