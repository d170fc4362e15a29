"""Memories before the messages they were learned from, or directly below them."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Hit
from palimpsest.recall.fold import FOLLOWED, FoldWords, memories_first
from tests.support.scripted_model import NOW


def memory(hit_id: str, text: str, *message_ids: str, score: float = 0.4) -> Hit:
    """Return a memory that was learned from messages."""
    return Hit(hit_id, "memory", text, score, NOW, NOW, NOW, message_ids=message_ids, sources=message_ids)


def message(hit_id: str, text: str, score: float = 0.9) -> Hit:
    """Return a message."""
    return Hit(hit_id, "message", text, score, NOW, NOW, NOW, role="user", message_ids=(hit_id,))


BIKE = message("t", "Finally! The Brompton is mine, 900 euros at Velo Sommer, I rode it home through the rain")
BOUGHT = memory("m", "User bought a Brompton bike.", "t")
SINGS, PAINTS = memory("a", "User sings.", score=0.6), memory("b", "User paints.", score=0.5)


def ids(hits: Sequence[Hit], below: Sequence[Hit], query: str) -> list[str]:
    """Return the ids of the hits as they are placed for a query."""
    return [hit.id for hit in memories_first(hits, below, FoldWords.of(hits, query))]


def test_a_memory_takes_the_place_of_its_message_and_the_message_that_of_the_memory() -> None:
    """A memory can be read on its own. What the message holds beyond it is still there, and no other hit moves."""
    hits = [BIKE, SINGS, BOUGHT, PAINTS]
    placed = memories_first(hits, (), FoldWords.of(hits, "Does the user own a Brompton?"))
    assert [hit.id for hit in placed] == ["m", "a", "t", "b"]
    assert [hit.score for hit in placed] == [hit.score for hit in hits]


def test_a_message_with_a_word_that_was_asked_for_stays_and_its_memory_follows() -> None:
    """The memory lacks the price, which only the message tells."""
    assert ids([BIKE, SINGS, BOUGHT, PAINTS], (), "How many euros was the Brompton?") == ["t", "m", "a", "b"]


def test_a_memory_that_ranks_below_all_hits_is_shown_too() -> None:
    """What was learned from a good hit is worth its place, however it ranks by itself."""
    assert ids([BIKE, SINGS], [BOUGHT], "Does the user own a Brompton?") == ["m", "a", "t"]
    assert ids([BIKE, SINGS], [BOUGHT], "How many euros was the Brompton?") == ["t", "m", "a"]


def test_a_message_further_down_moves_no_memory_up() -> None:
    """There a memory would take the place of another hit."""
    others = [memory(f"x{number}", f"User sings song {number}.", score=0.95) for number in range(FOLLOWED)]
    hits = [*others, BIKE, SINGS, BOUGHT]
    assert ids(hits, (), "How many euros was the Brompton?") == [hit.id for hit in hits]


def test_a_message_below_one_of_its_memories_stays() -> None:
    """One memory above it is enough."""
    rode = memory("r", "User rode home through the rain.", "t")
    assert ids([BOUGHT, BIKE, rode], (), "What about the rain?") == ["m", "t", "r"]


def test_a_memory_that_repeats_a_hit_is_not_added() -> None:
    """A reply says nothing twice."""
    same = memory("s", "user bought a Brompton bike", "t9")
    assert ids([BIKE, same], [BOUGHT], "Does the user own a Brompton?") == ["t", "s"]


def test_a_memory_without_the_one_word_that_was_asked_for_stays_below() -> None:
    """Guards a search for a name: the memory that has it is above what else was learned from who spoke of it."""
    said = message("d", "Daniel, my brother, lives in Bergen.")
    brother, wrist = memory("b", "User's brother lives in Bergen.", "d"), memory("w", "Daniel broke his wrist.")
    for query in ("Daniel", "Who is Daniel?"):
        assert ids([said, wrist], [brother], query) == ["d", "w"]
    spoken = Hit("d", "message", said.text, 0.9, NOW, NOW, NOW, name="Daniel", role="user", message_ids=("d",))
    assert ids([spoken, wrist, brother], (), "Daniel") == ["d", "w", "b"]
