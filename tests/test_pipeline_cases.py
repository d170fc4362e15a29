"""The written cases of `benchmarks/pipeline.py` pass with their scripts, and its judge finds what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pipeline
from cases.data import CASES_FILE, Case, read_cases
from cases.judge import failures
from cases.run import run, scripted

CASES = read_cases(CASES_FILE)

SAID = {"role": "user", "content": "I live in Rome. My cat is Miso. Mark drinks."}
FACTS = ["User lives in Rome.", "User has a cat named Miso.", "Mark drinks."]


RELATED = {"source": "User", "name": "live", "destination": "Oslo"}


def living_in(city: str) -> dict[str, Any]:
    named = {"entities": [{"name": city, "type": "place"}], "relations": [["User", "lives in", city]]}
    return {"text": f"User lives in {city}.", "sources": [1], **named}


def case_that_expects(**expected: Any) -> Case:
    """Return a case in which three facts are learned, and the last of them contradicts the first in a second call."""
    return Case.model_validate(
        {
            "id": "judged",
            "language": "en",
            "point": "the judge",
            "steps": [
                {"at": "2026-01-05T10:00:00Z", "messages": [SAID]},
                {"at": "2026-02-05T10:00:00Z", "messages": [{"role": "user", "content": "I live in Oslo."}]},
            ],
            "expected": expected,
            "script": {
                "extract": [
                    {"facts": [{"text": text, "sources": [1]} for text in FACTS[1:]] + [living_in("Rome")]},
                    {"facts": [living_in("Oslo")]},
                ],
                "decide": [{"fact": ["Oslo"], "event": "DELETE", "memory": ["Rome"]}],
            },
        }
    )


async def faults_of(case: Case) -> list[str]:
    return failures(case.expected, await run(case, scripted(case.script), "scripted", "static"))


@pytest.mark.few_by_day(4)
@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_what_is_stored_closed_and_forgotten_is_what_should_be(case: Case) -> None:
    """With the replies of a careful model the pipeline does what a careful person would."""
    assert await faults_of(case) == []


def test_there_are_cases_in_english_and_at_least_five_other_languages() -> None:
    """The ids are different, so that `--only` chooses one case."""
    assert len({case.id for case in CASES}) == len(CASES) >= 40
    assert len(Counter(case.language for case in CASES)) >= 6


FAULTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"stored": [{"words": ["lives", "Oslo"], "without": ["User"]}]}, "not stored: lives, Oslo, not User"),
    ({"stored": [{"words": ["Oslo"], "replaced": ["Bern"]}]}, "its history names nothing with Bern: Oslo"),
    ({"closed": [{"words": ["Rome"], "until": "2025"}]}, "not 2025: Rome"),
    ({"forgotten": [{"words": ["Mark"], "question": "Mark"}]}, "not forgotten: Mark drinks."),
    ({"absent": [{"words": ["Rome"]}]}, "should be in no memory (Rome): User lives in Rome."),
    ({"limits": [{"words": ["User"], "at_most": 1}]}, "2 memories instead of 1 at most: User"),
    ({"notes": ["forgotten"]}, "no reply says: forgotten"),
    ({"entities": [{"name": "Bern"}]}, "'Bern' means nobody and nothing instead of 1"),
    ({"related": [RELATED | {"destination": "Rome"}]}, "not related: User — live → Rome"),
    ({"formerly_related": [RELATED]}, "still related: User — live → Oslo"),
    ({"unrelated": [RELATED]}, "should not be related: User — lives in → Oslo"),
)


@pytest.mark.anyio
async def test_the_judge_names_what_is_not_as_it_should_be() -> None:
    """Each kind of expectation fails if what is there does not fit it. A script that ends too early is told."""
    every: dict[str, list[Any]] = {}
    for expected, _ in FAULTS:
        for kind, items in expected.items():
            every.setdefault(kind, []).extend(items)
    case = case_that_expects(**every)
    end = await run(case, scripted(case.script), "scripted", "static")  # once for all expectations
    for expected, fault in FAULTS:
        assert any(fault in line for line in failures(case_that_expects(**expected).expected, end)), expected
    case = case_that_expects(no_notes=["learned"])
    script = case.script.model_copy(update={"extract": ()})
    end = await run(case, scripted(script), "scripted", "static")
    assert any("a reply says" in line for line in failures(case.expected, end))


class TestCommand:
    def test_a_failed_case_is_shown_and_ends_with_1(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The table names what should be there and what is, and the cost of the calls follows it."""
        case = case_that_expects(stored=[{"words": ["Rome"]}], closed=[{"words": ["Rome"]}])
        file = tmp_path / "cases.json"
        file.write_text(json.dumps([case.model_dump(mode="json")]), "utf-8")
        arguments = ["--cases", str(file), "--scripted", "--embedder", "static"]
        assert pipeline.main(arguments) == 1
        lines = capsys.readouterr().out.splitlines()
        assert "FAILED  judged  (en; the judge)" in lines
        assert "  ! not stored: Rome" in lines
        assert "  is closed            User lives in Rome. (until 2026-02-05)" in lines
        assert "1 of 1 cases failed" in lines

    @pytest.mark.nightly
    def test_the_prompts_of_a_usual_turn_are_within_two_thousand_tokens(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Both calls of every turn of the written conversation keep to the limit."""
        assert pipeline.main(["--tokens", "--embedder", "static"]) == 0
        largest = [line.rsplit(" ", 1)[1] for line in capsys.readouterr().out.splitlines() if "largest" in line]
        assert len(largest) == 2
        assert all(int(tokens) <= 2_000 for tokens in largest)
