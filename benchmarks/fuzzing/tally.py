"""The counts of a run, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing.calls import Sent

SHOWN_BYTES = 400


@dataclass
class Tally:
    """What was sent to one server, how it was answered, and what went wrong.

    `slowest`: the seconds of the slowest answer, and the kind of what it answered. `peak`: the most resident memory of
    the server in MB.
    """

    name: str
    sent: Counter[str] = field(default_factory=Counter[str])
    answers: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    slowest: tuple[float, str] = (0.0, "")
    peak: float = 0.0

    def fail(self, what: str, inputs: Sequence[Sent]) -> None:
        """Note a failure, with the inputs that led to it."""
        shown = "".join(f"\n    {sent.kind}: {_shown(sent.data)}" for sent in inputs)
        self.failures.append(f"{self.name}: {what}{shown}")

    def took(self, seconds: float, kind: str) -> None:
        """Note how long an answer took."""
        self.slowest = max(self.slowest, (seconds, kind))

    def measure(self, process_id: int) -> None:
        """Note the peak of the server's resident memory. Linux only."""
        status = Path(f"/proc/{process_id}/status").read_text("utf-8")
        self.peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6


def _shown(data: bytes) -> str:
    rest = len(data) - SHOWN_BYTES
    return f"{data[:SHOWN_BYTES]!r}" + (f" and {rest:,} bytes" if rest > 0 else "")
