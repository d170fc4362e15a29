"""Control characters made visible: what is shown, what stays as it is, and JSON that keeps its value."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.display import visible, visible_json

BIDI = [chr(code) for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b]52;c;eA==\x1b\\", r"\x1b]52;c;eA==\x1b" + "\\"),
        ("\x9b2J", r"\x9b2J"),
        ("over\rwritten", r"over\rwritten"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("a\u2028note: x", r"a\u2028note: x"),
        ("\ud83d", r"\ud83d"),
        ("hi\U000e0068\U000e0069", r"hi\U000e0068\U000e0069"),
    ],
)
def test_a_character_that_acts_is_shown_as_its_escape(text: str, shown: str) -> None:
    """Guards the terminal from escapes, and people and models from text that is hidden or reordered."""
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "plain [red] \\x1b text",
        "two\nlines and a\ttab",
        "👩\u200d👩\u200d👧 ❤\ufe0f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
        "co\u00adoperate",
        "e\u0301 北京 ½",
    ],
    ids=["escape as text", "lines", "emoji", "Persian", "Scotland", "soft hyphen", "letters"],
)
def test_what_writing_needs_stays_as_it_is(text: str) -> None:
    """Guards emoji, joined letters and line breaks, which are no attack."""
    assert visible(text) == text


def test_the_line_ends_of_windows_are_line_breaks() -> None:
    """Guards texts that were written on Windows from a mark at each line."""
    assert visible("one\r\ntwo") == "one\ntwo"


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    """Guards any text: no control character but line break and tab, no bidi control; and twice is as good as once."""
    shown = visible(text)
    assert not {unicodedata.category(char) for char in shown if char not in "\n\t"} & {"Cc", "Cs", "Zl", "Zp"}
    assert [char for char in shown if char in BIDI] == []
    assert visible(shown) == shown


@given(st.text())
def test_visible_json_has_the_same_value(text: str) -> None:
    """Guards programs: a document without control characters says exactly what it said."""
    document = visible_json(json.dumps({text: text}, ensure_ascii=False, indent=2))
    assert json.loads(document) == {text: text}
    assert [char for char in document if unicodedata.category(char) in ("Cc", "Cs") and char != "\n"] == []
