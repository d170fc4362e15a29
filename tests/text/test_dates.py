"""Dates in questions and texts: a table of cases for each language in `dates.txt`, and what must not be read as a date."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.word_lists import word_lists

NOW = datetime(2026, 5, 8, 12, tzinfo=UTC)
"""A Friday."""

SECTIONS = word_lists("tests.text", "dates.txt")
NOT_DATES = SECTIONS["no dates"].splitlines()
CASES = [
    (text.strip(), [tuple(span.split()) for span in spans if span.strip()])
    for language, table in SECTIONS.items()
    if language != "no dates"
    for text, *spans in (line.split("|") for line in table.splitlines())
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_a_date_is_read(text: str, expected: list[tuple[str, ...]]) -> None:
    found = [(f"{span.start:%Y-%m-%d}", f"{span.end:%Y-%m-%d}") for span in dates_in(text, NOW)]
    assert found == expected


@pytest.mark.parametrize("text", NOT_DATES)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert dates_in(text, NOW) == ()


@pytest.mark.parametrize(
    ("text", "is_relative", "is_year_guessed"),
    [
        ("we met yesterday", True, False),
        ("last March", True, False),
        ("on Monday", True, False),
        ("two weeks ago", True, False),
        ("vor zwei Wochen", True, False),
        ("in March", False, True),
        ("5月3日", False, True),
        ("on 3 May 2025", False, False),
        ("in 2023", False, False),
    ],
)
def test_it_is_said_what_a_date_depends_on(text: str, is_relative: bool, is_year_guessed: bool) -> None:  # noqa: FBT001 - columns of a table
    (span,) = dates_in(text, NOW)
    assert (span.is_relative, span.is_year_guessed) == (is_relative, is_year_guessed)


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("the plan before October", "before"),
        ("bis März", "before"),
        ("since last March", "since"),
        ("nach dem 3. Mai", "since"),
        ("in March", "in"),
        ("vor zwei Wochen", "in"),
    ],
)
def test_a_preposition_says_on_which_side_of_a_date(text: str, relation: str) -> None:
    (span,) = dates_in(text, NOW)
    assert span.relation == relation


def test_a_date_knows_its_place_in_the_text() -> None:
    text = "Yesterday we planned the trip of 3 May 2027, and on Monday we booked it."
    assert [text[span.position :].startswith(span.phrase) for span in dates_in(text, NOW)] == [True] * 3
    assert [span.phrase for span in dates_in(text, NOW)] == ["Yesterday", "3 May 2027", "Monday"]


def test_a_date_is_read_on_the_day_of_the_text() -> None:
    new_year = datetime(2025, 1, 1, tzinfo=UTC)
    assert [f"{span.start:%Y-%m-%d}" for span in dates_in("yesterday, last month, in December", new_year)] == [
        "2024-12-31",
        "2024-12-01",
        "2024-12-01",
    ]


WORDS = sorted({word for table in SECTIONS.values() for word in table.split()})


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)), st.datetimes())
def test_any_text_at_any_time_has_sound_dates(text: str, now: datetime) -> None:
    for span in dates_in(text, now.replace(tzinfo=UTC)):
        assert span.start < span.end
        assert text[span.position : span.position + len(span.phrase)] == span.phrase != ""
