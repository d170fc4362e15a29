"""What a question asks for as it is written, and how well its dates agree with those of an entry."""

from __future__ import annotations

from datetime import UTC, datetime

from palimpsest.recall.query import exact_form, exact_parts, look_alikes, said_match, text_match
from palimpsest.text.dates.date_finder import dates_in


def test_what_is_asked_for_as_it_is_written() -> None:
    for question in ("What was in 2022?", "on the 3rd floor", "tea and/or coffee", "User's wife", "10 km", "#general"):
        assert exact_parts(question) == (), question
    assert [name for name, _ in look_alikes("does invoice-sync know M.C.?")] == [" invoice sync ", " m c "]
    assert exact_parts("Is LDG-1117 in `app.py`, v2?") == (" app py ", " ldg 1117 ", " v2 ")
    assert " 0612345678 " in exact_form("call 0612 345 678 or 06 12")


TODAY = datetime(2026, 5, 8, 12, tzinfo=UTC)
SAID = (
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
    ("in March 2024 or on 3 May 2025", "2024-03-09", 1),
    ("in March 2024 or on 3 May 2025", "2025-05-03", 1),
)
TOLD = (
    ("what happened on 3 May 2025", "We went to the lake yesterday", "2025-05-04", 1),
    ("what happened on 3 May 2025", "We went to the lake last week", "2025-05-08", 1),
    ("what happened on 3 May 2025", "We went to the lake last month", "2025-06-08", 0.5),
    ("what happened on 3 May 2025", "We went to the lake last year", "2026-01-08", 0),
    ("what happened in March 2025", "The office moved last month", "2025-04-20", 1),
    ("what happened in March 2025", "The office moved on 5 June 2025", "2025-06-20", 0),
    ("whose birthday is in October", "Amara's birthday is 3 October", "2024-01-20", 1),
    ("wohin verreisen wir im Sommer", "Im Juli 2026 wandert die Familie in Südtirol", "2026-01-20", 1),
    ("was war im Juli", "Im Juli 2024 war die Familie in Südtirol", "2024-01-20", 0.5),
    ("what happened in March", "The office is blue", "2026-03-05", 0),
)


def test_how_well_dates_agree() -> None:
    for query, at, expected in SAID:
        found = said_match(dates_in(query, TODAY), datetime.fromisoformat(at).replace(tzinfo=UTC))
        assert found == expected, (query, at)
    for query, text, at, expected in TOLD:
        in_text = dates_in(text, datetime.fromisoformat(at).replace(tzinfo=UTC), guesses=True)
        assert text_match(dates_in(query, TODAY, guesses=True), in_text) == expected, (query, text)
