"""A process that learns a document and kills itself in the middle of the transaction, like a machine that stops.

python -m tests.support.learning_process FOLDER FILE STATEMENT
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import Engine, event

from tests.support.environment import clean_environment
from tests.support.memory import ALICE, memory_in
from tests.support.stores import ledger_variables


def killed_at(folder: Path, file: Path, statement: str) -> None:
    """Learn a file in a process that kills itself when it is about to send a statement with these words."""
    command = [sys.executable, "-m", "tests.support.learning_process", str(folder), str(file), statement]
    done = subprocess.run(
        command,
        env={**clean_environment(folder), **ledger_variables(folder)},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


async def _learn(folder: Path, file: Path, fatal: str) -> None:
    async with memory_in(folder) as memory:

        @event.listens_for(Engine, "before_cursor_execute")
        def kill(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:  # pyright: ignore[reportUnusedFunction]
            if fatal in statement:
                os.kill(os.getpid(), signal.SIGKILL)

        await memory.documents.learn_file(ALICE, file)


if __name__ == "__main__":
    anyio.run(_learn, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
