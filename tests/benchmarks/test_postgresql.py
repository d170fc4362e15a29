"""The PostgreSQL server of tests and benchmarks, and the network to it: what they stand for really happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import psycopg
import pytest

import postgresql
from network import Network, network_to
from postgresql import Cluster, own_cluster
from tests.support.environment import clean_environment

pytestmark = pytest.mark.postgres

OWNER = """
import os, sys
from postgresql import start_for
print(start_for(os.getpid()).folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    with own_cluster() as started:
        started.create_database("things")
        yield started


@pytest.fixture
def network(cluster: Cluster) -> Generator[Network]:
    with network_to(cluster.port) as between:
        yield between


def connected(cluster: Cluster, network: Network | None = None) -> psycopg.Connection:
    address = cluster if network is None else replace(cluster, port=network.port)
    return psycopg.connect(address.url("things").replace("+psycopg", ""), autocommit=True)


def test_a_cut_network_ends_connections(cluster: Cluster, network: Network) -> None:
    """New connections can be made at once."""
    with connected(cluster, network) as conn:
        network.cut()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    with connected(cluster, network) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_frozen_network_gives_no_answer_until_it_thaws(cluster: Cluster, network: Network) -> None:
    answers: list[object] = []
    with connected(cluster, network) as conn:
        network.freeze()
        waiting = Thread(target=lambda: answers.append(conn.execute("SELECT 1").fetchone()))
        waiting.start()
        with connected(cluster) as other:
            assert other.execute("SELECT 2").fetchone() == (2,)
        assert answers == []
        network.thaw()
        waiting.join()
        assert answers == [(1,)]


def test_a_server_ends_with_its_owner(tmp_path: Path) -> None:
    """Nothing is left behind, even if the owner is killed."""
    path = str(Path(postgresql.__file__).parent)
    arguments = [sys.executable, "-c", OWNER]
    environment = {**clean_environment(tmp_path), "PYTHONPATH": path}
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        server = int((folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()[0])
        end = os.pidfd_open(server)
        owner.send_signal(signal.SIGKILL)
        assert select.select([end], [], [], 60)[0]
        os.close(end)
