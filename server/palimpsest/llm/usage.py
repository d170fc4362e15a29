"""How many tokens a call of a model took, as its endpoint says. Whoever counts calls asks for it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_counts: ContextVar[list[int] | None] = ContextVar("_counts", default=None)


def report_tokens(tokens: int) -> None:
    """Say how many tokens a call took, prompt and reply together."""
    counts = _counts.get()
    if counts is not None:
        counts.append(tokens)


@contextmanager
def reported_tokens() -> Generator[list[int]]:
    """Return a list that gets what is reported in the block; it stays empty if the endpoint says nothing."""
    counts: list[int] = []
    token = _counts.set(counts)
    try:
        yield counts
    finally:
        _counts.reset(token)
