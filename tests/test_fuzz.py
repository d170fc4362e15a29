"""A short run of the fuzz in benchmarks/, over real pipes and sockets, and its judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fuzz
from fuzzing.judge import Answers

pytestmark = pytest.mark.nightly


def test_every_request_is_answered_once_and_the_servers_live(tmp_path: Path) -> None:
    """Guards stdio and HTTP from whatever is sent: one answer to each request, and a server that still works."""
    tallies = fuzz.run(tmp_path, lambda rounds: rounds == 1, number=12, batches=12, embedder="static")
    assert [failure for tally in tallies for failure in tally.failures] == []
    assert all(tally.sent.total() > 10 and tally.answers.total() > 10 for tally in tallies)


def ping(request_id: Any, params: str = "{}") -> bytes:
    return f'{{"jsonrpc": "2.0", "id": {json.dumps(request_id)}, "method": "ping", "params": {params}}}'.encode()


def owed_for(*sent: bytes) -> Answers:
    owed = Answers()
    for data in sent:
        owed.expect(data)
    return owed


def result(request_id: Any) -> dict[str, Any]:
    return {"id": request_id, "result": {}}


def refusal(request_id: Any) -> dict[str, Any]:
    return {"id": request_id, "error": {"code": -32600, "message": "no"}}


NOT_ASKED = "an answer that nobody waits for"
DEEP = "[" * 101 + "]" * 101


class TestJudge:
    @pytest.mark.parametrize(
        ("sent", "answers", "complete", "faults"),
        [
            ([ping(1)], [], False, []),
            ([ping(1)], [result(1)], True, []),
            ([ping(1)], [result(1), result(1)], True, [NOT_ASKED]),
            ([ping(1), ping(1)], [result(1)], False, []),
            ([b"["], [refusal(None)], True, []),
            ([ping(1, DEEP)], [result(1)], False, [NOT_ASKED]),
            ([b'{"jsonrpc": "2.0", "method": "x"}'], [refusal(None)], True, [NOT_ASKED]),
        ],
    )
    def test_a_missing_answer_and_one_too_many_are_noticed(
        self, sent: list[bytes], answers: list[dict[str, Any]], faults: list[str], *, complete: bool
    ) -> None:
        """Guards the fuzz itself: it counts what was promised, and nothing else."""
        owed = owed_for(*sent)
        assert [fault for answer in answers if (fault := owed.receive(answer))] == faults
        assert owed.complete is complete
