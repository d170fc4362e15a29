"""How calls of tools end, for those who count and log them. Nothing here holds what a call was about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import ValidationError

from palimpsest.core.errors import InputError, PalimpsestError

CallOutcome: TypeAlias = Literal["ok", "refused", "failed", "timed_out", "cancelled"]
"""`refused` means that what was asked for is not valid, `failed` that it is and could not be done."""

UNKNOWN = "unknown"
"""Stands for every name that no tool has, because there is no end of those."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended, after how many seconds. `user_id` and `request_id` are "" if there is none."""

    tool: str
    outcome: CallOutcome
    seconds: float
    user_id: str
    request_id: str


OnCall: TypeAlias = Callable[[CallEnd], None]


def outcome_of(error: BaseException) -> CallOutcome:
    """Return what an error makes of a call. One that no error of ours caused is the caller's."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, InputError | ValidationError):
            return "refused"
        if isinstance(seen, TimeoutError):
            return "timed_out"
        if isinstance(seen, PalimpsestError) or (seen.__cause__ is None and seen is not error):
            return "failed"
        seen = seen.__cause__
    return "refused"
