"""Export a memory, and interrupt an export or import."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from palimpsest.memory import Memory
from tests.support.ledger_access import ignore_progress


async def exported(memory: Memory) -> bytes:
    """Return the export of a memory's user."""
    stream = StringIO()
    await memory.care.export(stream, ignore_progress)
    return stream.getvalue().encode()


async def exporting(memory: Memory, file: Path) -> None:
    await memory.care.export(file, ignore_progress)


class CutOffError(Exception):
    """Stands for a power cut."""


@dataclass
class Interrupted:
    """A progress callback that raises CutOffError once `at` items are done."""

    at: int

    def __call__(self, done: int, _total: int) -> None:
        """Raise if enough is done."""
        if done >= self.at:
            raise CutOffError
