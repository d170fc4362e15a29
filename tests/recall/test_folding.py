"""Folding: which hits only repeat another one."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Hit
from palimpsest.recall.hits import fold
from tests.support.scripted_model import NOW


def hit(hit_id: str, text: str | None = None, sources: Sequence[str] = ()) -> Hit:
    """Return a hit with an id, a text and the messages behind it."""
    return Hit(
        hit_id, "memory", f"tea {hit_id}" if text is None else text, 0.5, NOW, NOW, NOW, message_ids=tuple(sources)
    )


def test_hits_that_only_repeat_are_folded() -> None:
    """A hit is folded if every message behind it is behind hits above it, and only then."""
    hits = [
        hit("a", sources=["1", "2"]),
        hit("b", sources=["2"]),
        hit("c", sources=["2", "3"]),
        hit("d", sources=["3"]),
    ]

    assert [kept.id for kept in fold(hits)] == ["a", "c"]


def test_hits_without_sources_are_never_folded() -> None:
    """Memories in the caller's own words have no messages behind them."""
    assert [kept.id for kept in fold([hit("a"), hit("b"), hit("c", sources=["1"]), hit("d")])] == ["a", "b", "c", "d"]
    assert fold([]) == []


def test_the_same_text_twice_is_one_hit() -> None:
    """A text that is stored in two scopes, or twice, is returned once."""
    assert [kept.id for kept in fold([hit("a", "Tea at five"), hit("b", "tea  at FIVE"), hit("c", "No tea")])] == [
        "a",
        "c",
    ]
