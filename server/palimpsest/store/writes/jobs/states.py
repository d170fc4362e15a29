"""The states of a job: waiting, and when it is tried again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

PAUSES = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2))
"""How long a job rests after each failure; after one more failure it has failed for good. Set by hand: a busy endpoint
answers after a minute, one that is restarted after half an hour, and what lasts longer needs a person."""


def tried_again(due_at: datetime) -> dict[str, Any]:
    """Return the state of a job that is tried as if it had never failed."""
    return {"state": "waiting", "due_at": due_at, "attempts": 0, "error": "", "finished_at": None, "reported": False}


def failed(row: Row[Any], now: datetime) -> dict[str, Any]:
    """Return the state of a job after a failure."""
    attempts = row.attempts + 1
    if attempts > len(PAUSES):
        return {"attempts": attempts, "state": "failed", "finished_at": now, "reported": False}
    return {"attempts": attempts, "due_at": now + PAUSES[attempts - 1]}
