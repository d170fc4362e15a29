"""Processes that spool, and processes that take in until the spool is empty, for tests of many at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio

from tests.support.environment import clean_environment
from tests.support.memory import memory_in
from tests.support.sessions import spooled
from tests.support.stores import ledger_variables


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start this module with a role: `spool NAME COUNT` or `take-in`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.capture_process", str(folder), *arguments],
        env={**clean_environment(folder), **ledger_variables(folder)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )


def _spool(folder: Path, name: str, count: int) -> None:
    for number in range(count):
        spooled(folder, "prompt", f"said by {name}, number {number}", session=name, message_id=str(number))


async def _take_in(folder: Path) -> None:
    async with memory_in(folder, background=True):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    place, role, *rest = sys.argv[1:]
    if role == "spool":
        _spool(Path(place), rest[0], int(rest[1]))
    else:
        anyio.run(_take_in, Path(place))
