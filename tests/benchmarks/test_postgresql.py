"""The PostgreSQL server of tests and benchmarks, and the network to it: what they stand for really happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import postgresql
from tests.support.environment import clean_environment

pytestmark = pytest.mark.postgres

OWNER = """
import os, sys
from postgresql import start_for
print(start_for(os.getpid()).folder, flush=True)
sys.stdin.read()
"""


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
