"""A process that works on the jobs of Alice's memory, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio

from palimpsest.store import jobs as job_queries
from tests.support.environment import clean_environment
from tests.support.memory import StoppedClock, memory_in
from tests.support.stores import ledger_variables


def start(folder: Path, settings: dict[str, Any], *kinds: str) -> subprocess.Popen[bytes]:
    """Start a process that works on all jobs.

    With `kinds` it is three days later, and the process kills itself when it has begun a job of these kinds.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.job_process", str(folder), json.dumps(settings), *kinds],
        env={**clean_environment(folder), **ledger_variables(folder)},
        cwd=Path(__file__).parents[2],
    )


async def _work(folder: Path, settings: dict[str, Any], kinds: list[Any]) -> None:
    clock = StoppedClock()
    clock.forward(days=3 if kinds else 0)
    async with memory_in(folder, clock, **settings) as memory:
        if kinds:
            assert memory.engine.ledger.run(job_queries.take, kinds, memory.engine.ledger.clock()) is not None
            os.kill(os.getpid(), signal.SIGKILL)
        await memory.care.retry_jobs()


if __name__ == "__main__":
    place, values, *only = sys.argv[1:]
    anyio.run(_work, Path(place), json.loads(values), only)
