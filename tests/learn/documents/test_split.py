"""Splitting a text into pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.learn.document_pages import MAX_WORDS, SHORT_WORDS, first_heading, split, trails
from palimpsest.text.tokenizer import count_words

LINES = st.sampled_from(
    [
        "",
        "# One",
        "## Two",
        "### Three ###",
        "Title",
        "=====",
        "---",
        "```",
        "~~~~ python",
        "| a | b |",
        "word " * 40,
        "A sentence. Another one! A third? " * 30,
        "short",
        "x" * 9_000,
        "漢字の文です。" * 100,
        "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22" * 200,
        "\t",
        "\r",
        "\u2028",
        "\x0c",
    ]
)
TEXTS = st.one_of(st.text(max_size=400), st.lists(LINES, max_size=40).map("\n".join))


def words(count: int, word: str = "plain") -> str:
    return " ".join(f"{word}{number}." for number in range(count))


@given(TEXTS)
def test_the_pages_joined_are_the_text_and_each_can_be_shown(text: str) -> None:
    """Guards that nothing of a document is lost or said twice, whatever it is made of, and what a page stands under."""
    pages = split(text)
    assert "".join(pages) == text
    assert all(count_words(page) <= MAX_WORDS + SHORT_WORDS + 1 for page in pages)
    assert len(trails(pages)) == len(pages)


PARTS = [f"## Part {number}\n\n{words(400)}\n\n" for number in range(3)]
LONG = [words(250, letter) + "\n\n" for letter in "abc"]
SHORT = "# A\n\nOne.\n\n# B\n\nTwo.\n"


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        (SHORT, [SHORT]),
        ("# Book\n\n" + "".join(PARTS), ["# Book\n\n" + PARTS[0], *PARTS[1:]]),
        ("# Long\n\n" + "".join(LONG), ["# Long\n\n" + LONG[0] + LONG[1], LONG[2]]),
    ],
    ids=["a short text is one page", "pages end before headings", "a long section is cut between its paragraphs"],
)
def test_where_pages_end(text: str, pages: list[str]) -> None:
    assert split(text) == pages


def test_short_sections_are_joined() -> None:
    sections = [f"## Section {number}\n\n{words(90)}\n\n" for number in range(12)]
    pages = split("".join(sections))
    assert all(page.startswith("## Section") for page in pages)
    assert 2 <= len(pages) <= 4


def test_a_heading_is_never_left_alone() -> None:
    first, second = split(f"# Title\n\n{words(700)}")
    assert first.startswith("# Title\n\nplain0. plain1.")
    assert second.endswith("plain699.")


@pytest.mark.parametrize(
    "whole", ["```python\n" + "x = 1  # a line\n\n" * 90 + "```\n", "| a | b |\n|---|---|\n" + "| one | two |\n" * 90]
)
def test_code_and_tables_stay_whole_if_they_fit(whole: str) -> None:
    pages = split(f"{words(500)}\n\n{whole}\n{words(500)}\n")
    assert sum(whole in page for page in pages) == 1


def test_a_heading_within_code_is_none() -> None:
    code = "```\n# a comment\n" + "run this\n" * 200 + "```\n"
    (page,) = [page for page in split(f"{words(400)}\n\n{code}\n{words(400)}") if "# a comment" in page]
    assert code in page


@pytest.mark.parametrize("script", ["漢字の文です。", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22"])
def test_scripts_without_spaces_have_pages_too(script: str) -> None:
    """Guards against one page for a whole book whose words are not separated."""
    pages = split(script * 2_000)
    assert all(900 <= len(page) <= 2_200 for page in pages[:-1])
    assert len(pages) > 5


def test_chinese_pages_end_after_sentences() -> None:
    assert all(page.endswith("。") for page in split("今天下雨了。我们在家看书。" * 500))


def test_trails_name_the_headings_above_a_page() -> None:
    text = f"# Book\n\n{words(500)}\n\n## Food\n\n{words(950)}\n\n## Drink\n\n{words(400)}\n"
    assert trails(split(text)) == [("Book",), ("Book", "Food"), ("Book", "Food"), ("Book", "Drink")]
    underlined = f"Book\n====\n\n{words(400)}\n\nFood\n----\n\n{words(400)}\n"
    assert trails(split(underlined)) == [("Book",), ("Book", "Food")]


@pytest.mark.parametrize(
    ("text", "title"),
    [("intro\n\n## Heading here ##\n", "Heading here"), ("\n\n  first line\nsecond", "first line"), ("", "")],
)
def test_a_title_is_the_first_heading_or_line(text: str, title: str) -> None:
    assert first_heading(text) == title
