"""What a person should know about what hooks captured. Blocking."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from palimpsest.capture import spool
from palimpsest.capture.intake import CAPTURING
from palimpsest.capture.transcripts.offsets import Offsets
from palimpsest.core.settings import Settings
from palimpsest.hook import paths
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import capture as capture_queries
from palimpsest.text.counting import counted

REASONS = {
    "full": "the spool was full; start a server, or run any command",
    "large": "the client gave more than a hook reads",
    "unreadable": "the client gave what a hook does not know",
}
"""Why hooks kept nothing, by their word for it."""


@dataclass(frozen=True, slots=True)
class Status:
    """What was found, in one line, and whether nothing needs a person."""

    text: str
    ok: bool


def status(settings: Settings, ledger: Ledger, now: datetime) -> Status:
    """Return what waits, what could not be read, and whether the model was asked as often as it may be today."""
    data_dir = settings.data_dir
    damaged = spool.damaged_files(data_dir)
    said = [f"hooks = {settings.hooks}", f"waiting: {counted(len(spool.waiting_files(data_dir)), 'record')}"]
    if damaged:
        folder = damaged[0].parent
        said.append(f"set aside because they cannot be read: {counted(len(damaged), 'record')} in {folder}")
    refused = _refused(data_dir)
    said += [f"not kept: {counted(number, 'time')}, {REASONS.get(why, why)}" for why, number in refused.items()]
    for client, unknown in Offsets.load(data_dir).unknown.items():
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(unknown.items()))
        said.append(f"unknown in transcripts of {client}, and left out: {listed}")
    limit = settings.learn.captured_calls_per_day
    with ledger.read() as conn:
        calls = capture_queries.calls_on(conn, now)
    if calls >= limit and settings.hooks in CAPTURING and calls:
        said.append(
            f"the {counted(limit, 'call')} of the model for today were made (learn.captured_calls_per_day); the rest "
            "is learned tomorrow (UTC)"
        )
    return Status("; ".join(said), ok=not damaged)


def _refused(data_dir: Path) -> Counter[str]:
    """Return how often hooks kept nothing, by reason."""
    try:
        lines = Path(paths.refused_file(str(data_dir))).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return Counter()
    return Counter(line.partition(" ")[2] for line in lines)
