"""How well the dates of a question agree with an entry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.recall.query import DateMatch, date_match
from palimpsest.text.dates.date_finder import dates_in

NOW = datetime(2026, 5, 8, 12, tzinfo=UTC)


def said(question: str, at: str) -> float:
    return date_match(dates_in(question, NOW), datetime.fromisoformat(at).replace(tzinfo=UTC)).said


def told(question: str, text: str, at: str) -> float:
    said_at = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return date_match(dates_in(question, NOW, guesses=True), said_at, dates_in(text, said_at, guesses=True)).told


@pytest.mark.parametrize(
    ("question", "at", "expected"),
    [
        ("what happened in March", "2026-03-20", 1),
        ("what happened in March", "2026-04-05", 0.4),
        ("what happened in March", "2026-04-20", 0),
        ("what happened in March", "2026-02-28", 0),
        ("what happened in March", "2025-03-20", 0.5),
        ("what happened in March 2026", "2025-03-20", 0),
        ("what is new since February", "2025-09-03", 0),
        ("what did she show on 3 May 2025", "2025-05-03T18:00", 1),
        ("what did she show on 3 May 2025", "2025-05-02T18:00", 1),
        ("what did she show on 3 May 2025", "2025-05-01T18:00", 0.5),
        ("what did she show on 3 May 2025", "2025-05-09", 0.5),
        ("what did she show on 3 May 2025", "2025-05-20", 0),
        ("who won in 2025", "2025-12-31", 1),
        ("what was the model before February", "2025-09-04", 1),
        ("what was the model before February", "2026-02-03", 0),
        ("what is new since February", "2026-02-03", 1),
        ("what is new since February", "2026-01-03", 0),
        ("who am I", "2026-01-03", 0),
    ],
)
def test_when_an_entry_was_said(question: str, at: str, expected: float) -> None:
    assert said(question, at) == expected


@pytest.mark.parametrize(
    ("question", "text", "at", "expected"),
    [
        ("what happened on 3 May 2025", "We went to the lake yesterday", "2025-05-04", 1),
        ("what happened on 3 May 2025", "We went to the lake last week", "2025-05-08", 1),
        ("what happened on 3 May 2025", "We went to the lake last month", "2025-06-08", 0.5),
        ("what happened on 3 May 2025", "We went to the lake last year", "2026-01-08", 0),
        ("what happened in March 2025", "The office moved last month", "2025-04-20", 1),
        ("what happened in March 2025", "The office moved on 5 June 2025", "2025-06-20", 0),
        ("whose birthday is in October", "Amara's birthday is 3 October", "2024-01-20", 1),
        ("wohin verreisen wir im Sommer", "Im Juli 2026 wandert die Familie in Südtirol", "2026-01-20", 1.0),
        ("was war im Juli", "Im Juli 2024 war die Familie in Südtirol", "2024-01-20", 0.5),
        ("what happened in March", "The office is blue", "2026-03-05", 0),
    ],
)
def test_what_an_entry_tells_of(question: str, text: str, at: str, expected: float) -> None:
    assert told(question, text, at) == expected


def test_when_it_happened_counts_like_a_date_in_the_text() -> None:
    match = date_match(dates_in("on 3 May 2025", NOW), NOW, happened_at=datetime(2025, 5, 3, 9, tzinfo=UTC))
    assert (match.said, match.told) == (0, 1)


def test_an_entry_holds_from_when_it_was_said_until_it_was_replaced() -> None:
    march = dates_in("where did I live in March", NOW)
    january, april = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 4, 5, tzinfo=UTC)
    assert date_match(march, january).holds == 1
    assert date_match(march, april).holds == 0
    assert date_match(march, january, valid_until=april).holds == 1
    assert date_match(march, january, valid_until=datetime(2026, 2, 5, tzinfo=UTC)).holds == 0
    assert date_match(dates_in("before March", NOW), january, valid_until=april).holds == 1


def test_the_best_of_several_dates_counts() -> None:
    question = dates_in("in March 2024 or on 3 May 2025", NOW)
    assert date_match(question, datetime(2024, 3, 9, tzinfo=UTC)).said == 1
    assert date_match(question, datetime(2025, 5, 3, tzinfo=UTC)).said == 1


def test_a_question_without_dates_agrees_with_nothing() -> None:
    assert date_match((), NOW, dates_in("yesterday", NOW), happened_at=NOW) == DateMatch()


@given(
    st.sampled_from(("in March", "on 29 February", "before 2020", "since last week", "im Sommer")),
    st.sampled_from(("yesterday", "on 3 May", "last winter", "in 2020", "")),
    st.integers(0, 3_000),
)
def test_every_part_lies_between_none_and_all(question: str, text: str, days: int) -> None:
    said_at = NOW - timedelta(days)
    match = date_match(dates_in(question, NOW, guesses=True), said_at, dates_in(text, said_at))
    assert all(0 <= part <= 1 for part in match)
