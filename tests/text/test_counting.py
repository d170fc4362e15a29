"""Counts in texts for people."""

from __future__ import annotations

import pytest

from palimpsest.text.display import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "memory", "0 memories"),
        (1, "memory", "1 memory"),
        (2, "memory", "2 memories"),
        (1, "message", "1 message"),
        (3, "key", "3 keys"),
        (12_000, "full-text row", "12,000 full-text rows"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, noun: str, text: str) -> None:
    """One is not many, and none are."""
    assert counted(count, noun) == text
