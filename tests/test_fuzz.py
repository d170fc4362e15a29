"""A short run of the fuzz in benchmarks/, over real pipes and sockets, and its judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fuzz
from fuzzing.calls import Sent
from fuzzing.expected import Answers
from fuzzing.tally import Tally


def test_every_request_is_answered_once_and_the_servers_live(tmp_path: Path) -> None:
    """Guards stdio and HTTP from whatever is sent: one answer to each request, and a server that still works."""
    tallies = fuzz.run(tmp_path, lambda rounds: rounds == 1, number=12, batches=12, embedder="static")
    assert [failure for tally in tallies for failure in tally.failures] == []
    assert all(tally.sent.total() > 10 and tally.answers.total() > 10 for tally in tallies)


def ping(request_id: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "ping"}).encode()


class TestJudge:
    @pytest.mark.parametrize(
        ("sent", "answers", "complete", "faults"),
        [
            ([ping(1)], [], False, []),
            ([ping(1)], [1], True, []),
            ([ping(1)], [1, 1], True, ["an answer that nobody waits for"]),
            ([ping(1)], ["1"], False, ["an answer that nobody waits for"]),
            ([ping(1), ping(1)], [1], False, []),
            ([ping(None)], [None], True, []),
            ([b"["], [None], True, []),
            ([b"[" * 101], [None], True, []),
            ([b'{"jsonrpc": "2.0", "method": "x"}'], [None], True, ["an answer that nobody waits for"]),
            ([b'{"jsonrpc": "2.0", "id": 3, "result": {}}'], [3], True, ["an answer that nobody waits for"]),
        ],
    )
    def test_a_missing_answer_and_one_too_many_are_noticed(
        self, sent: list[bytes], answers: list[Any], faults: list[str], *, complete: bool
    ) -> None:
        """Guards the fuzz itself: it counts what was promised, and nothing else."""
        owed = Answers()
        for data in sent:
            owed.expect(data)
        assert [fault for key in answers if (fault := owed.receive({"id": key, "result": {}}))] == faults
        assert owed.complete is complete

    def test_a_cancelled_request_may_be_answered_or_not(self) -> None:
        """Guards the fuzz from waiting for what was taken back."""
        owed = Answers()
        owed.expect(ping("7"))
        owed.expect(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}')
        assert owed.complete
        assert owed.receive({"id": "7", "result": {}}) == ""
        assert owed.receive({"id": "7", "result": {}}) != ""

    def test_a_cancellation_forgives_one_request(self) -> None:
        """Guards the other requests with the same id, which are answered."""
        owed = Answers()
        for data in (
            ping(7),
            ping("7"),
            b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}',
        ):
            owed.expect(data)
        assert not owed.complete
        assert owed.receive({"id": 7, "result": {}}) == ""
        assert owed.complete
        later = owed.after()
        assert [later.receive({"id": "7", "result": {}}) for _ in range(2)] == ["", "an answer that nobody waits for"]

    def test_a_failure_names_its_inputs(self) -> None:
        """Guards that a failure can be repeated."""
        tally = Tally("stdio")
        tally.fail("no answer", [Sent("bytes", b"\xff")])
        assert tally.failures == ["stdio: no answer\n    bytes: b'\\xff'"]
