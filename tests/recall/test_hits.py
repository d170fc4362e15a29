"""What a reply shows of the hits: those that are relevant, within the token budget, cut and not dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.models import Hit
from palimpsest.recall.hits import (
    CUT_LINE_TOKENS,
    LINE_TOKENS,
    MAX_WEAK,
    MIN_CUT_TOKENS,
    cut_to_fit,
    hit_tokens,
    irrelevant_note,
    relevant,
    strongest,
    within_budget,
)
from palimpsest.text.display import visible
from palimpsest.text.tokenizer import count_tokens
from tests.support.scripted_model import NOW

SMALLEST_BUDGET = 50


def hit(hit_id: str, text: str = "tea", relevance: float = 0.0) -> Hit:
    """Return a memory as a hit."""
    return Hit(hit_id, "memory", text, 0.5, NOW, NOW, NOW, relevance=relevance)


def words(tokens: int) -> str:
    """Return a text of so many tokens."""
    return "tea " * tokens


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def test_hits_that_fit_are_shown_whole() -> None:
    """The budget changes nothing if there is enough room, down to the last token."""
    hits = [hit("a", words(40)), hit("b", words(5))]
    assert within_budget(hits, sum(map(hit_tokens, hits))) == hits
    assert within_budget([], 0) == []


def test_the_best_hit_is_cut_if_it_is_too_long() -> None:
    """The hit that probably answers is never left out, and says how long its text is."""
    text = words(5_000)
    (best,) = within_budget([hit("a", text)], 800)
    assert best.length == len(text)
    assert best.text.endswith("…")
    assert text.startswith(best.text[:-1])
    assert 790 < hit_tokens(best) <= 800


def test_a_cut_hit_leaves_those_below_it_the_room_they_need() -> None:
    """Short hits below a long one are shown whole, as long as they need no more than half of the room."""
    below = [hit(name, words(20)) for name in "bcde"]
    first, *others = within_budget([hit("a", words(5_000)), *below], 800)
    assert others == below
    assert first.length is not None
    assert hit_tokens(first) + sum(map(hit_tokens, others)) == pytest.approx(800, abs=2)


def test_several_long_hits_share_the_room() -> None:
    """Each shows a beginning, the better ones a longer one; what has no useful room is left out."""
    shown = within_budget([hit(name, words(5_000)) for name in "abcdefgh"], 800)
    lengths = [len(hit.text) for hit in shown]
    assert ids(shown) == list("abcd")
    assert lengths == sorted(lengths, reverse=True)
    assert all(hit_tokens(hit) >= MIN_CUT_TOKENS + LINE_TOKENS for hit in shown)


def test_a_later_hit_without_useful_room_is_left_out_and_a_shorter_one_still_shown() -> None:
    """A few words of a long text help nobody; a short hit below it may."""
    hits = [hit("a", words(40)), hit("b", words(500)), hit("c", words(3))]
    room_for_two = hit_tokens(hits[0]) + hit_tokens(hits[2])
    assert ids(within_budget(hits, room_for_two)) == ["a", "c"]
    assert ids(within_budget(hits, room_for_two - 1)) == ["a"]
    with_beginning = hit_tokens(hits[0]) + CUT_LINE_TOKENS + MIN_CUT_TOKENS
    assert ids(within_budget(hits, with_beginning)) == ["a", "b"]


@given(st.lists(st.integers(0, 400), max_size=12), st.integers(SMALLEST_BUDGET, 1_000))
def test_the_budget_holds_and_the_order_stays(sizes: list[int], budget: int) -> None:
    """For hits of every length: the sum fits, the best hit is there, and the order is that of the search."""
    hits = [hit(f"{place:02}", words(size)) for place, size in enumerate(sizes)]
    shown = within_budget(hits, budget)
    assert sum(map(hit_tokens, shown)) <= budget
    assert ids(shown) == sorted(ids(shown))
    assert ids(shown[:1]) == ids(hits[:1])


def test_a_hit_costs_its_text_and_its_line() -> None:
    """Even an empty text costs the id and the date on its line."""
    assert 0 < hit_tokens(hit("a", "")) < hit_tokens(hit("a", "x" * 40)) == hit_tokens(hit("b", "x" * 40))


def test_hits_below_the_smallest_relevance_are_left_out() -> None:
    """The setting's value itself is still relevant enough, and 0 leaves nothing out."""
    hits = [hit("a", relevance=0.9), hit("b", relevance=0.5), hit("c", relevance=0.49), hit("d")]
    assert ids(relevant(hits, 0.5)) == ["a", "b"]
    assert relevant(hits, 0.0) == hits
    assert relevant(hits, 1.0) == []


@pytest.mark.parametrize(("count", "beginning"), [(1, "1 hit is left out"), (3, "3 hits are left out")])
def test_the_reply_says_how_many_were_not_relevant_enough(count: int, beginning: str) -> None:
    """The note names the setting, so that a person can change it."""
    note = irrelevant_note(count, 0.25)
    assert note.startswith(beginning)
    assert note.endswith("min_relevance = 0.25")


@pytest.mark.parametrize("count", [0, 3, MAX_WEAK, 10])
def test_at_most_five_weak_matches_are_shown(count: int) -> None:
    """The best ones, in their order."""
    hits = [hit(str(place)) for place in range(count)]
    assert strongest(hits) == hits[:5]


def test_control_characters_count_as_the_escapes_that_are_shown() -> None:
    """Guards the token budget: a text of escapes is four times as long in a reply as it is stored."""
    steering = hit("a", "\x1b" * 1_000)
    assert hit_tokens(steering) == 1_000 + LINE_TOKENS
    cut = cut_to_fit(steering, 100)
    assert hit_tokens(cut) <= 100
    assert count_tokens(visible(cut.text)) > 50
