"""Long texts are split into windows, and questions are cut to their first words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.tokenizer import QUESTION_WORDS, first_words, most_words_near, windows


@given(text=st.text(max_size=500), size=st.integers(1, 50))
def test_the_windows_are_the_text(text: str, size: int) -> None:
    """No character may be left out or occur twice."""
    parts = windows(text, size)
    assert "".join(parts) == text
    assert all(len(part) <= size for part in parts)


def test_windows_end_at_white_space() -> None:
    """A word that is cut in two means something else."""
    text = "one two three four five six seven eight nine ten"
    assert {word for part in windows(text, 12) for word in part.split()} == set(text.split())


def test_a_window_that_does_not_fit_is_split_further() -> None:
    """An embedder may count its own tokens."""
    assert windows("abcd", 4, lambda part: len(part) <= 1) == list("abcd")


@pytest.mark.parametrize("question", ["", "Where does Anna live?", "安娜去年搬到了哪里?", " two  spaces "])
def test_a_question_of_usual_length_is_not_cut(question: str) -> None:
    """Only pasted texts are."""
    assert first_words(question) == question


@pytest.mark.parametrize(
    ("word", "most"),
    [("word ", 5 * QUESTION_WORDS), ("x", 800), ("漢", 200), ("длинное слово ", 1_000), ("\u0e01", 200), ("a\n", 200)],
    ids=["English", "no spaces", "Chinese", "Russian", "Thai", "lines"],
)
def test_a_long_question_is_cut_in_any_script(word: str, most: int) -> None:
    """The work for one question is bounded in every language."""
    text = word * 2_000
    cut = first_words(text)
    assert text.startswith(cut)
    assert QUESTION_WORDS < len(cut) <= most


@given(tokens=st.lists(st.sampled_from("abcde"), max_size=40), size=st.integers(1, 10))
def test_the_words_that_stand_together_are_the_most_of_any_window(tokens: list[str], size: int) -> None:
    """Guards the window that moves: it finds as many as looking at every window does."""
    sought = frozenset("abc")
    most = max((len(sought & set(tokens[start : start + size])) for start in range(len(tokens))), default=0)
    assert len(most_words_near(tokens, sought, size)) == most


def test_a_text_of_nothing_but_the_words_sought_takes_linear_time() -> None:
    """Guards every search from one message; this takes minutes if each window is read anew."""
    assert most_words_near(["tea", "milk"] * 200_000, frozenset({"tea", "milk", "cup"}), 60) == {"tea", "milk"}
