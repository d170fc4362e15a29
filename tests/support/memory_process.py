"""Processes with Alice's memory, for tests that run many at once, or kill them.

    python -m tests.support.memory_process FOLDER ROLE ARGUMENTS

`take-in` takes in what hooks spooled until the process is ended; `learn STATEMENT FILE` learns a document, and
`add STATEMENT` adds a memory with relations. Both are killed when they are about to send a statement with these words,
in the middle of the transaction.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import Engine, event

from palimpsest.core.models import Relation
from palimpsest.memory import Memory
from tests.support.environment import clean_environment
from tests.support.memory import ALICE, add_text, memory_in
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


@asynccontextmanager
async def _killed_at(folder: Path, fatal: str) -> AsyncGenerator[Memory]:
    def kill(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if fatal in statement:
            os.kill(os.getpid(), signal.SIGKILL)

    async with memory_in(folder) as memory:
        event.listen(Engine, "before_cursor_execute", kill)
        yield memory


async def _learn(folder: Path, fatal: str, file: str) -> None:
    async with _killed_at(folder, fatal) as memory:
        await memory.documents.learn_file(ALICE, Path(file))


async def _add(folder: Path, fatal: str) -> None:
    async with _killed_at(folder, fatal) as memory:
        await add_text(memory, "Ana lives in Lyon", relations=[Relation("Ana", "lives in", "Lyon")])


ROLES: dict[str, Callable[..., Awaitable[None]]] = {"take-in": _take_in, "learn": _learn, "add": _add}

if __name__ == "__main__":
    place, role, *rest = sys.argv[1:]
    anyio.run(ROLES[role], Path(place), *rest)
