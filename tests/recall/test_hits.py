"""What a reply shows of the hits: within the token budget, cut and not dropped, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palimpsest.core.models import Hit
from palimpsest.recall.hits import (
    LINE_TOKENS,
    FoldWords,
    cut_to_fit,
    fold,
    hit_tokens,
    holds_more,
    same_words_key,
)
from palimpsest.text.display import visible
from palimpsest.text.tokenizer import count_tokens
from tests.support.scripted_model import NOW


def memory(hit_id: str, text: str, *message_ids: str, score: float = 0.4) -> Hit:
    """Return a memory that was learned from messages."""
    return Hit(hit_id, "memory", text, score, NOW, NOW, NOW, message_ids=message_ids, sources=message_ids)


def message(hit_id: str, text: str, name: str = "") -> Hit:
    """Return a message."""
    return Hit(hit_id, "message", text, 0.9, NOW, NOW, NOW, role="user", name=name, message_ids=(hit_id,))


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def test_control_characters_count_as_the_escapes_that_are_shown() -> None:
    """Guards the token budget: a text of escapes is four times as long in a reply as it is stored."""
    steering = memory("a", "\x1b" * 1_000)
    assert hit_tokens(steering) == 1_000 + LINE_TOKENS
    cut = cut_to_fit(steering, 100)
    assert hit_tokens(cut) <= 100
    assert count_tokens(visible(cut.text)) > 50


CASES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("hits.json").read_text("utf-8"))


def test_the_same_words_are_shown_once() -> None:
    for text, other in CASES["same words"]:
        assert same_words_key(text) == same_words_key(other)
        assert ids(fold([memory("a", text), memory("b", "No tea"), memory("c", other)])) == ["a", "b"], text
    for text, other in CASES["other words"]:
        assert ids(fold([memory("a", text), memory("b", other)])) == ["a", "b"], text
    facts = [memory("a", "Ana has a cat", "1", "2"), memory("b", "Ana has a dog", "2"), memory("c", "Ana sings")]
    assert ids(fold(facts)) == ["a", "b", "c"], "two facts of one message are two hits"
    assert fold([]) == []
    # Who said it may be the answer. The same person, or a memory of the same words, is a repetition.
    said = [message("1", "Me too!", "Ana"), message("2", "Me too", "Ben"), message("3", "me too", "Ana")]
    assert ids(fold([*said, memory("4", "Me too")])) == ["1", "2"]


REX = message("t1", "We named our new dog Rex!")
REX_MEMORY = memory("m1", "User's dog is named Rex.", "t1")
MOVED = message("t2", "I moved to Lyon in May and work at the bakery in Rue Mercière, my sister Eva found it.")
MOVED_MEMORY = memory("m2", "User moved to Lyon.", "t2")
SINGS, STRANGER = memory("x", "User sings"), memory("s", "The neighbour's dog is named Rex, a new dog.", "t9")
BOTH = message("t", "My brother Tom plays the cello and my aunt Mia breeds alpacas")
TOM, MIA = memory("a", "User's brother Tom plays the cello", "t"), memory("b", "User's aunt Mia breeds alpacas", "t")


def test_a_message_folds_into_the_memories_that_hold_all_of_it() -> None:
    cases: tuple[tuple[list[Hit], list[Hit], list[str]], ...] = (
        ([REX_MEMORY, REX], [], ["m1"]),
        ([REX, SINGS], [REX_MEMORY], ["m1", "x"]),
        ([REX, SINGS, REX_MEMORY], [REX_MEMORY], ["m1", "x"]),
        ([MOVED, MOVED_MEMORY], [], ["t2", "m2"]),
        ([MOVED_MEMORY, MOVED], [], ["m2", "t2"]),
        ([MOVED], [MOVED_MEMORY], ["t2"]),
        ([STRANGER, REX], [], ["s", "t1"]),  # a memory with other sources may be about somebody else
        ([TOM, MIA, BOTH], [], ["a", "b"]),
        ([TOM, BOTH, MIA], [], ["a", "b"]),
        ([TOM, BOTH], [], ["a", "t"]),
    )
    for hits, below, expected in cases:
        assert ids(fold(hits, below)) == expected, hits
    first, second = fold([REX, SINGS, REX_MEMORY])
    assert (first.id, first.text, first.sources) == ("m1", REX_MEMORY.text, ("t1",))
    assert first.score == REX.score, "the order of the scores stays"
    assert second == SINGS


def test_a_message_holds_more_if_its_memories_lack_its_words() -> None:
    for said, remembered, more in CASES["holds more"]:
        assert holds_more(message("t", said), [memory("m", remembered, "t")], FoldWords()) == more, said
    told = message("t", "Ana here: my sister Eva likes hiking in the Alps around Zermatt", name="Ana")
    learned = memory("m", "User's sister Eva likes hiking in the Alps.", "t")
    cases = (("Who goes to Zermatt?", ["t"]), ("Who likes hiking?", ["m"]), ("What does Ana like?", ["m"]))
    for query, expected in cases:
        assert ids(fold([told], [learned], FoldWords.of([told], query))) == expected, query
