"""The readiness check. What `/health` says is tested with the rest of HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.support.http_server import HttpServer, run_http_server


def readiness(server: HttpServer) -> tuple[int, dict[str, str]]:
    """Return the status and the content of the readiness check."""
    answer = httpx2.get(f"{server.base}/ready")
    return answer.status_code, answer.json()


class TestReady:
    @pytest.mark.nightly
    def test_anybody_may_ask_and_learns_nothing_else(self, protected_server: HttpServer) -> None:
        """Guards proxies, which have no access token, and what is stored."""
        while (answer := readiness(protected_server)) == (503, {"status": "opening"}):
            pass
        assert answer == (200, {"status": "ready"})
        assert httpx2.post(f"{protected_server.base}/ready").status_code == 405

    @pytest.mark.nightly
    def test_a_memory_that_could_not_be_opened_is_opened_once_it_can_be(self, tmp_path: Path) -> None:
        """Guards a replica that starts before its database: no other request would come that opens the memory."""
        ledger = tmp_path / "data" / "ledger.db"
        ledger.parent.mkdir()
        ledger.write_text("this is not a database, " * 100)
        with run_http_server(tmp_path) as server:
            while httpx2.get(f"{server.base}/health").json()["status"] == "opening":
                pass
            assert readiness(server) == (503, {"status": "failed"})
            ledger.unlink()
            while (answer := readiness(server)) == (503, {"status": "failed"}):
                pass
            assert answer == (200, {"status": "ready"})
            assert httpx2.get(f"{server.base}/health").status_code == 200

    @pytest.mark.nightly
    @pytest.mark.parametrize("path", ["/health", "/ready"])
    def test_it_is_answered_whatever_else_an_address_sends(self, tmp_path: Path, path: str) -> None:
        """Guards the probes from the limit on requests."""
        with run_http_server(tmp_path, PALIMPSEST_HTTP__REQUESTS_PER_MINUTE="2") as server:
            statuses = [httpx2.get(f"{server.base}/mcp").status_code for _ in range(4)]
            assert statuses[-1] == 429
            assert httpx2.get(f"{server.base}{path}").status_code in (200, 503)
