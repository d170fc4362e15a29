"""Servers over HTTP that the tests of one folder share. Each test has users of its own."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.http_server import METRICS_TOKEN, HttpServer, new_access_token, run_http_server


@pytest.fixture(scope="package")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    """Run a server that needs no access token. All tests are one caller, so it may send as much as it likes."""
    with run_http_server(tmp_path_factory.mktemp("open"), PALIMPSEST_HTTP__REQUESTS_PER_MINUTE="100000") as running:
        yield running


@pytest.fixture(scope="package")
def protected_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    """Run a server with numbers that requires an access token, because one exists."""
    folder = tmp_path_factory.mktemp("guarded")
    new_access_token(folder / "data", "nobody")
    numbers = {"PALIMPSEST_HTTP__METRICS": "true", "PALIMPSEST_HTTP__METRICS_TOKEN": METRICS_TOKEN}
    with run_http_server(folder, **numbers) as running:
        yield running
