"""Days that the words around them place: weekdays ahead and behind, habits, days without a year, weekdays beside dates.

`day_sentences.json` was written by somebody who had not seen the grammar, but for its last part, which stands for
what was read wrong once. A sentence has a day, several `dates`, or none where nothing tells it; `disagrees` is whether
the weekday beside it is another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.text.dates.date_finder import dates_in

LEAST_RIGHT, MOST_WRONG = 0.97, 0.02
"""Which share of the sentences is read right, and of which a wrong day is read: that counts worse than none."""

WEDNESDAY = datetime(2026, 5, 6, 12, tzinfo=UTC)

SENTENCES = """
The vet comes on Friday | 2026-05-08
The rent is due on Monday | 2026-05-11
I need the papers by Friday | 2026-05-08
I am away until Monday | 2026-05-11
The course starts on Friday | 2026-05-08
am Freitag kommt der Klempner | 2026-05-08
в пятницу экзамен | 2026-05-08
周五有预约 | 2026-05-08
What do I have on Friday? | 2026-05-08
I went to the dentist on Friday | 2026-05-01
Bins go out on Tuesday |
The ferry runs on Tuesday and Thursday |
The concert is on Wednesday |
We meet next Friday |
We meet next Monday | 2026-05-11
Meeting on Monday |
Passport expires on 5 July | 2026-07-05
I started this job on 5 July | 2025-07-05
My birthday is on 5 July |
The party is on Saturday, 5 December 2026 | 2026-12-05
The review is on Tuesday 2026-12-01 | 2026-12-01
Friday 4 December: school concert | 2026-12-04
on Monday | 2026-05-04
"""


def _days(text: str, said: datetime) -> list[str]:
    return [f"{span.start:%Y-%m-%d}" for span in dates_in(text, said) if span.unit == "day"]


@pytest.mark.parametrize("line", SENTENCES.strip().splitlines())
def test_a_day_is_ahead_behind_or_none(line: str) -> None:
    text, day = (part.strip() for part in line.split("|"))
    assert _days(text, WEDNESDAY) == ([day] if day else [])


def test_most_sentences_are_read_right_and_hardly_any_wrong() -> None:
    """What is not right has mostly no date, so that nobody is told a day that is not meant."""
    sentences: list[Mapping[str, Any]] = json.loads(Path(__file__).with_name("day_sentences.json").read_text("utf-8"))
    misses: list[str] = []
    wrong = 0
    for sentence in sentences:
        said = datetime.fromisoformat(sentence["said"]).replace(tzinfo=UTC)
        expected = sentence["expect"]
        found = _days(sentence["text"], said)
        is_told = any(span.disagrees for span in dates_in(sentence["text"], said))
        if is_told != expected.get("disagrees", False) or found != expected.get(
            "dates", [expected["date"]] if "date" in expected else []
        ):
            misses.append(f"{sentence['lang']} {sentence['kind']}: {sentence['text']} {found}")
            wrong += bool(found)
    assert len(misses) <= (1 - LEAST_RIGHT) * len(sentences), misses
    assert wrong <= MOST_WRONG * len(sentences), misses


def test_a_weekday_beside_a_date_that_it_is_not_is_told() -> None:
    (span,) = dates_in("We meet the notary on Monday 2027-02-02", WEDNESDAY)
    assert (span.phrase, f"{span.start:%Y-%m-%d}", span.disagrees) == ("Monday 2027-02-02", "2027-02-02", True)
    (span,) = dates_in("We meet the notary on Tuesday 2027-02-02", WEDNESDAY)
    assert not span.disagrees


def test_what_cannot_be_told_is_a_guess_for_searches_alone() -> None:
    """A guess may help to find something; nobody is told it."""
    assert not dates_in("Meeting on Monday", WEDNESDAY)
    (span,) = dates_in("Meeting on Monday", WEDNESDAY, guesses=True)
    assert (f"{span.start:%Y-%m-%d}", span.is_guess) == ("2026-05-04", True)
