"""Processes with Alice's memory, for tests that run many at once, or kill them.

    python -m tests.support.memory_process FOLDER ROLE ARGUMENTS

`spool NAME COUNT` spools what a session said; `take-in` takes it in until the process is ended; `jobs SETTINGS KIND…`
works on all jobs, or three days later begins one of these kinds and is killed; `learn FILE STATEMENT` learns a document
and is killed when it is about to send a statement with these words, in the middle of the transaction.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import Engine, event

from palimpsest.store import jobs as job_queries
from tests.support.environment import clean_environment
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.sessions import spooled
from tests.support.stores import ledger_variables


def start(folder: Path, role: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start this module in a role."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.memory_process", str(folder), role, *arguments],
        env={**clean_environment(folder), **ledger_variables(folder)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )


async def _spool(folder: Path, name: str, count: str) -> None:
    for number in range(int(count)):
        spooled(folder, "prompt", f"said by {name}, number {number}", session=name, message_id=str(number))


async def _take_in(folder: Path) -> None:
    async with memory_in(folder, background=True):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


async def _work_on_jobs(folder: Path, settings: str, *kinds: Any) -> None:
    clock = StoppedClock()
    clock.forward(days=3 if kinds else 0)
    async with memory_in(folder, clock, **json.loads(settings)) as memory:
        if kinds:
            assert memory.engine.ledger.run(job_queries.take, kinds, memory.engine.ledger.clock()) is not None
            os.kill(os.getpid(), signal.SIGKILL)
        await memory.care.retry_jobs()


async def _learn(folder: Path, file: str, fatal: str) -> None:
    async with memory_in(folder) as memory:

        @event.listens_for(Engine, "before_cursor_execute")
        def kill(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:  # pyright: ignore[reportUnusedFunction]
            if fatal in statement:
                os.kill(os.getpid(), signal.SIGKILL)

        await memory.documents.learn_file(ALICE, Path(file))


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    "spool": _spool,
    "take-in": _take_in,
    "jobs": _work_on_jobs,
    "learn": _learn,
}

if __name__ == "__main__":
    place, role, *rest = sys.argv[1:]
    anyio.run(ROLES[role], Path(place), *rest)
