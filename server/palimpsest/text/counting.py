"""Say how many there are of something, in English."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the right number, as in "1 memory" and "2 memories"."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"
