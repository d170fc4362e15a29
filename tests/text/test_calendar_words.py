"""Dates that the calendar gives: ordinal weekdays, feasts, parts of a month or a week, days of the month alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.text.dates.date_finder import dates_in, resolved_dates

LEAST_RIGHT, MOST_WRONG = 0.92, 0.04
"""Which share of cases that somebody else wrote is read right, and of which a wrong date is read."""

SAID = datetime(2026, 11, 21, 12, tzinfo=UTC)
"""A Saturday."""

SENTENCES = """
星期五约了牙医 | 2026-11-27
La cita se ha pasado al viernes | 2026-11-27
The tree surgeon comes on the first Monday in December | 2026-12-07
Am ersten Montag im Dezember kommt der Schornsteinfeger | 2026-12-07
Le plombier vient le premier lundi de décembre | 2026-12-07
El fontanero viene el primer lunes de diciembre | 2026-12-07
De loodgieter komt op de eerste maandag van december | 2026-12-07
L'idraulico viene il primo lunedì di dicembre | 2026-12-07
The second Friday in December is the Christmas dinner | 2026-12-11
The first Monday in January is a bank holiday | 2027-01-04
The fair was on the first Saturday in March | 2026-03-07
The report is due on the last day of February | 2027-02-28
I'm on call the last week of November | 2026-11-24 to 2026-11-30
Lena moves to Oslo in December | 2026-12-01 to 2026-12-31
We went to Spain in March | 2026-03-01 to 2026-03-31
What happened in March? | 2026-03-01 to 2026-03-31
what did we do in March | 2026-03-01 to 2026-03-31
Summer camp starts in July | 2027-07-01 to 2027-07-31
Im März ziehen wir nach Graz | 2027-03-01 to 2027-03-31
Im März waren wir in Graz | 2026-03-01 to 2026-03-31
I worked there until March | 2026-03-01 to 2026-03-31
The report must be done by March | 2027-03-01 to 2027-03-31
The audit is in mid-January | 2027-01-11 to 2027-01-20
The baby is due in early March | 2027-03-01 to 2027-03-10
We went skiing at the beginning of February | 2026-02-01 to 2026-02-10
I start the new job at the beginning of next month | 2026-12-01 to 2026-12-10
I was ill at the end of last week | 2026-11-13 to 2026-11-15
Ende nächster Woche fliegen wir nach Rom | 2026-11-27 to 2026-11-29
I finished it at the beginning of the week | 2026-11-16 to 2026-11-17
I get paid at the end of the month |
We start in the spring | 2027-03-01 to 2027-05-31
The plumber comes on the 30th | 2026-11-30
I got the letter on the 12th. | 2026-11-12
Das Paket kommt am 30. | 2026-11-30
Rent is due on the 1st | 2026-12-01
Le contrat expire le 30 | 2026-11-30
El contrato vence el 30 | 2026-11-30
He lives on the 3rd floor |
Am 3. Tag war sie krank |
The flat is on the 2nd page of the list |
The exam is on Christmas Eve | 2026-12-24
The wedding was on New Year's Day | 2026-01-01
Zu Ostern fahren wir nach Rom | 2027-03-26 to 2027-03-29
An Heiligabend kommen die Großeltern | 2026-12-24
We had pancakes on Shrove Tuesday | 2026-02-17
The choir sings on the first Sunday of Advent and is looking forward to it | 2026-11-29
Last Christmas we were in Lund | 2025-12-24 to 2025-12-26
We always spend Christmas Eve in Lund |
She was born on Christmas Day |
Likes Christmas cookies |
The delivery comes the Friday after next | 2026-12-04
The Friday before last I saw Ana | 2026-11-13
I'll be back the week after next | 2026-11-30 to 2026-12-06
Friday fortnight we have the review | 2026-12-11
We fly a week from Friday | 2026-12-04
The book club meets on the first Monday of the month |
"""


@pytest.mark.parametrize("line", SENTENCES.strip().splitlines())
def test_a_date_is_the_one_that_the_sentence_means(line: str) -> None:
    text, expected = (part.strip() for part in line.split("|"))
    found = [
        f"{span.start:%Y-%m-%d}" + (f" to {span.end - timedelta(1):%Y-%m-%d}" if span.unit != "day" else "")
        for span in dates_in(text, SAID)
    ]
    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(("year", "easter"), [(2024, "03-31"), (2025, "04-20"), (2026, "04-05"), (2038, "04-25")])
def test_easter_is_the_one_of_the_gregorian_calendar(year: int, easter: str) -> None:
    (span,) = dates_in(f"They married on Easter Sunday {year}", SAID)
    assert f"{span.start:%Y-%m-%d}" == f"{year}-{easter}"


def test_most_dates_of_somebody_elses_sentences_are_read() -> None:
    """`calendar_cases.json` was written without sight of the rules. A span counts if it has the expected days in it."""
    cases: list[dict[str, str | None]] = json.loads(Path(__file__).with_name("calendar_cases.json").read_text("utf-8"))
    right = wrong = 0
    for case in cases:
        said = datetime.fromisoformat(f"{case['said']}T12:00+00:00")
        found = [
            (f"{span.start:%Y-%m-%d}", f"{span.end - timedelta(1):%Y-%m-%d}")
            for span in dates_in(str(case["text"]), said)
        ]
        begin, _, end = (case["date"] or "").partition("/")
        is_right = (
            not found
            if not begin
            else any(first.startswith(begin) or (first <= (end or begin) and begin <= last) for first, last in found)
        )
        right += is_right
        wrong += bool(found) and not is_right
    assert right >= LEAST_RIGHT * len(cases), right
    assert wrong <= MOST_WRONG * len(cases), wrong


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("We were in Denmark over Whitsun", 1),
        ("See you at Christmas", 1),
        ("We were in Denmark over Whitsun 2024", 0),
    ],
)
def test_a_feast_without_a_year_is_told_with_its_days(text: str, days: int) -> None:
    """As every date that only the day of the text makes plain."""
    assert len(resolved_dates(text, SAID)) == days


@pytest.mark.parametrize(
    ("text", "is_yearly"),
    [
        ("Noor's birthday is on 14 March", True),
        ("Ihr Geburtstag ist am 14. März", True),
        ("The trip on 14 March", False),
    ],
)
def test_a_day_that_comes_every_year_is_known_as_one(text: str, is_yearly: bool) -> None:  # noqa: FBT001 - a case
    """Nobody has to say whether a birthday is past or to come."""
    assert [span.is_yearly for span in dates_in(text, SAID, guesses=True)] == [is_yearly]
