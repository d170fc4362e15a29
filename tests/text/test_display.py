"""Text for people: counts, cuts, and control characters made visible."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.display import shorten, shorten_to_tokens, visible, visible_json
from palimpsest.text.tokenizer import count_tokens


@pytest.mark.parametrize(
    ("text", "max_chars", "expected"),
    [
        ("Ana drinks tea", 13, "Ana drinks…"),
        ("用户住在上海的浦东新区", 6, "用户住在上…"),
        ("on 9 May: 患者の松本和夫さんは十時に来る", 18, "on 9 May: 患者の松本和夫…"),
        ("aaae\u0301e", 5, "aaa…"),
        ("ab👩\u200d👩\u200d👧c", 5, "ab…"),
    ],
    ids=["word", "unspaced", "unspaced after a space", "accent", "emoji"],
)
def test_a_long_text_is_cut_at_the_end_of_a_word_if_one_is_near(text: str, max_chars: int, expected: str) -> None:
    assert shorten(text, max_chars) == expected


def shown_tokens(text: str) -> int:
    """Return what a text costs in a reply, where control characters are escapes."""
    return count_tokens(visible(text))


@given(st.text(max_size=200), st.integers(min_value=2, max_value=60))
def test_a_cut_text_fits_and_is_the_beginning(text: str, bound: int) -> None:
    for cut, size in ((shorten(text, bound), len), (shorten_to_tokens(text, bound), shown_tokens)):
        assert size(cut) <= bound
        assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))
        assert (cut == text) == (size(text) <= bound)


BIDI = [chr(code) for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]


@pytest.mark.parametrize(
    "text",
    [
        *("\x1b]0;title\x07", "\x9b2J", "over\rwritten", "abc\u202edcba", "a\u2028note: x", "\ud83d"),
        "hi\U000e0068\U000e0069",
    ],
)
def test_a_character_that_acts_is_shown_as_its_escape(text: str) -> None:
    assert visible(text) == ascii(text).strip("'")


@pytest.mark.parametrize(
    "text",
    [
        "plain [red] \\x1b text",
        "👩\u200d👩\u200d👧 ❤\ufe0f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
        "two\nlines and a\ttab, co\u00adoperate, e\u0301 北京 ½",
    ],
    ids=["escape as text", "emoji", "Persian", "Scotland", "letters"],
)
def test_what_writing_needs_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    shown, document = visible(text), visible_json(json.dumps({text: text}, ensure_ascii=False, indent=2))
    assert not {unicodedata.category(char) for char in shown if char not in "\n\t"} & {"Cc", "Cs", "Zl", "Zp"}
    assert [char for char in shown if char in BIDI] == []
    assert visible(shown) == shown
    assert json.loads(document) == {text: text}
    assert [char for char in document if unicodedata.category(char) in ("Cc", "Cs") and char != "\n"] == []
