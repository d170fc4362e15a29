"""Processes with Alice's memory, for tests that run many at once, or kill them.

    python -m tests.support.memory_process FOLDER ROLE ARGUMENTS

`take-in` takes in what hooks spooled until the process is ended; `learn FILE STATEMENT` learns a document and is killed
when it is about to send a statement with these words, in the middle of the transaction.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import Engine, event

from tests.support.environment import clean_environment
from tests.support.memory import ALICE, memory_in
from tests.support.stores import ledger_variables


def start(folder: Path, role: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start this module in a role."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.memory_process", str(folder), role, *arguments],
        env={**clean_environment(folder), **ledger_variables(folder)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )


async def _take_in(folder: Path) -> None:
    async with memory_in(folder, background=True):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


async def _learn(folder: Path, file: str, fatal: str) -> None:
    async with memory_in(folder) as memory:

        @event.listens_for(Engine, "before_cursor_execute")
        def kill(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:  # pyright: ignore[reportUnusedFunction]
            if fatal in statement:
                os.kill(os.getpid(), signal.SIGKILL)

        await memory.documents.learn_file(ALICE, Path(file))


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    "take-in": _take_in,
    "learn": _learn,
}

if __name__ == "__main__":
    place, role, *rest = sys.argv[1:]
    anyio.run(ROLES[role], Path(place), *rest)
