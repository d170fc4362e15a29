"""Cutting texts: within the bound, at the end of a word, and never inside a letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.display import shorten, shorten_to_tokens, visible
from palimpsest.text.tokenizer import count_tokens


@pytest.mark.parametrize(
    ("text", "max_chars", "expected"),
    [
        ("Ana drinks tea", 14, "Ana drinks tea"),
        ("Ana drinks tea", 13, "Ana drinks…"),
        ("Ana drinks tea", 11, "Ana drinks…"),
        ("x" * 100, 10, "x" * 9 + "…"),
        ("用户住在上海的浦东新区", 6, "用户住在上…"),
        ("aaae\u0301e", 5, "aaa…"),
        ("ab👩\u200d👩\u200d👧c", 5, "ab…"),
        ("   tea", 3, "  …"),
        ("", 0, ""),
    ],
    ids=["fits", "word", "end of a word", "no words", "unspaced", "accent", "emoji", "only spaces", "empty"],
)
def test_a_long_text_is_cut_at_the_end_of_a_word_if_one_is_near(text: str, max_chars: int, expected: str) -> None:
    """Guards what a person sees: whole words where there are any, and no half letters."""
    assert shorten(text, max_chars) == expected


def shown_tokens(text: str) -> int:
    """Return what a text costs in a reply, where control characters are escapes."""
    return count_tokens(visible(text))


@given(st.text(max_size=200), st.integers(min_value=2, max_value=60))
def test_a_cut_text_fits_and_is_the_beginning(text: str, bound: int) -> None:
    """Guards the token budget, for every text: what is shown fits, and only the end is left out."""
    for cut, size in ((shorten(text, bound), len), (shorten_to_tokens(text, bound), shown_tokens)):
        assert size(cut) <= bound
        assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
        assert (cut == text) == (size(text) <= bound)


def test_at_least_one_character_is_kept() -> None:
    """Guards against a reply that shows nothing of its only hit."""
    assert shorten_to_tokens("tea at five", 0) == "t…"
