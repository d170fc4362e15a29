"""A short run of the fuzz in benchmarks/, over real pipes and sockets, and its judge."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fuzz
from fuzzing.judge import Answers, Tally
from fuzzing.messages import Sent
from tests.support.examples import examples

pytestmark = pytest.mark.nightly


def test_every_request_is_answered_once_and_the_servers_live(tmp_path: Path) -> None:
    """Guards stdio and HTTP from whatever is sent: one answer to each request, and a server that still works."""
    tallies = fuzz.run(tmp_path, lambda rounds: rounds == 1, number=12, batches=12, embedder="static")
    assert [failure for tally in tallies for failure in tally.failures] == []
    assert all(tally.sent.total() > 10 and tally.answers.total() > 10 for tally in tallies)


def ping(request_id: Any, params: str = "{}") -> bytes:
    return f'{{"jsonrpc": "2.0", "id": {json.dumps(request_id)}, "method": "ping", "params": {params}}}'.encode()


def cancellation(request_id: Any, reason: str = "") -> bytes:
    params = {"requestId": request_id, "reason": reason}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()


def owed_for(*sent: bytes) -> Answers:
    owed = Answers()
    for data in sent:
        owed.expect(data)
    return owed


def result(request_id: Any) -> dict[str, Any]:
    return {"id": request_id, "result": {}}


def refusal(request_id: Any) -> dict[str, Any]:
    return {"id": request_id, "error": {"code": -32600, "message": "no"}}


KINDS = ("sound", "sound", "refused", "large", "large, id unread", "no JSON", "cancelled", "cancellation refused")
MESSAGES = st.tuples(st.sampled_from(KINDS), st.sampled_from((0, 1, "0")))


class RightServer:
    """A server that answers every message as it should: refusals at once, and sound requests when it likes."""

    def __init__(self, random: Random) -> None:
        self.unread: list[tuple[str, Any]] = []
        self.unanswered: list[Any] = []
        self._random = random

    def step(self) -> dict[str, Any] | None:
        """Read a message or answer a request, and return the answer. There has to be something to do."""
        if not self.unread or (self.unanswered and self._random.random() < 0.5):
            return result(self.unanswered.pop(self._random.randrange(len(self.unanswered))))
        kind, request_id = self.unread.pop(0)
        if kind in {"refused", "large"}:
            return refusal(request_id)
        if kind in {"large, id unread", "no JSON"}:
            return refusal(None)
        if kind == "sound":
            self.unanswered.append(request_id)
        if kind == "cancelled":
            found = [place for place, other in enumerate(self.unanswered) if str(other) == str(request_id)]
            if found:
                del self.unanswered[found[-1]]
        return None


def as_line(kind: str, request_id: Any) -> bytes:
    lines = {
        "sound": ping(request_id),
        "refused": ping(request_id, "[1]"),
        "no JSON": b"[",
        "cancelled": cancellation(request_id),
        "cancellation refused": cancellation(request_id, "\ud83d"),
    }
    return lines.get(kind, ping(request_id, DEEP))


NOT_ASKED = "an answer that nobody waits for"
DEEP = "[" * 101 + "]" * 101


class TestJudge:
    @pytest.mark.parametrize(
        ("sent", "answers", "complete", "faults"),
        [
            ([ping(1)], [], False, []),
            ([ping(1)], [result(1)], True, []),
            ([ping(1)], [result(1), result(1)], True, [NOT_ASKED]),
            ([ping(1)], [result("1")], False, [NOT_ASKED]),
            ([ping(1), ping(1)], [result(1)], False, []),
            ([ping(None)], [refusal(None)], True, []),
            ([ping(None)], [result(None)], False, [NOT_ASKED]),
            ([b"["], [refusal(None)], True, []),
            ([ping(1, DEEP)], [refusal(None)], True, []),
            ([ping(1, DEEP)], [refusal(1)], True, []),
            ([ping(1, DEEP)], [result(1)], False, [NOT_ASKED]),
            ([b'{"jsonrpc": "2.0", "method": "x"}'], [refusal(None)], True, [NOT_ASKED]),
            ([b'{"jsonrpc": "2.0", "id": 3, "result": {}}'], [result(3)], True, [NOT_ASKED]),
        ],
    )
    def test_a_missing_answer_and_one_too_many_are_noticed(
        self, sent: list[bytes], answers: list[dict[str, Any]], faults: list[str], *, complete: bool
    ) -> None:
        """Guards the fuzz itself: it counts what was promised, and nothing else."""
        owed = owed_for(*sent)
        assert [fault for answer in answers if (fault := owed.receive(answer))] == faults
        assert owed.complete is complete

    def test_a_cancellation_forgives_one_request_for_as_long_as_any_other(self) -> None:
        """It may be answered or not, and other requests with the same id are. One that is refused forgives nothing."""
        for request_id in (7, "7"):
            assert owed_for(ping("7"), cancellation(request_id)).complete
            owed = owed_for(ping(request_id), cancellation(request_id)).after(0.0, 30.0)
            for second in range(1, 30):
                owed = owed.after(float(second), second + 30.0)
            assert [owed.receive(result(request_id)) for _ in range(2)] == ["", NOT_ASKED]
            late = owed_for(ping(request_id), cancellation(request_id)).after(0.0, 30.0).after(30.0, 60.0)
            assert late.receive(result(request_id)) == NOT_ASKED
        owed = owed_for(ping(7), ping("7"), cancellation(7))
        assert not owed.complete
        assert owed.receive(result(7)) == ""
        assert owed.complete
        later = owed.after(0.0, 30.0)
        assert [later.receive(result("7")) for _ in range(2)] == ["", NOT_ASKED]
        answered = owed_for(ping(7), cancellation(7))
        assert answered.receive(result(7)) == ""
        assert answered.after(0.0, 30.0).receive(result(7)) == NOT_ASKED
        for refused in (cancellation(7, "\ud83d"), cancellation([7]), cancellation(None)):
            assert not owed_for(ping(7), refused).complete

    def test_a_result_is_not_taken_for_the_refusal_of_a_large_message(self) -> None:
        """Guards the wait for all answers: one that was counted for another request would come after the batch."""
        owed = owed_for(ping(0, DEEP), ping(0), ping("x"), cancellation("x"))
        assert [owed.receive(answer) for answer in (refusal(0), result("x"))] == ["", ""]
        assert not owed.complete
        assert owed.receive(result(0)) == ""
        assert owed.complete
        assert owed.after(0.0, 30.0).receive(result(0)) == NOT_ASKED
        owed = owed_for(ping(0, DEEP), ping(0), cancellation(0))
        assert owed.receive(refusal(0)) == ""
        assert owed.complete
        for waits in (owed.after(0.0, 30.0), owed):
            assert [waits.receive(result(0)) for _ in range(2)] == ["", NOT_ASKED]
        # An answer is for this batch rather than for a cancelled request of an earlier one.
        owed = owed_for(ping(0), cancellation(0)).after(0.0, 30.0)
        owed.expect(ping(0, DEEP))
        owed.expect(ping(0))
        assert [owed.receive(answer) for answer in (refusal(0), result(0))] == ["", ""]
        assert owed.complete

    @examples(200)
    @given(st.lists(st.lists(MESSAGES, min_size=1, max_size=5), min_size=1, max_size=4), st.randoms())
    def test_a_server_that_answers_rightly_is_never_found_wrong(
        self, batches: list[list[tuple[str, Any]]], random: Random
    ) -> None:
        """Guards the fuzz from failures that are none, and from a wait that nothing ends, however ids are repeated.

        Without cancellations it also notices every answer that is missing, and every one too many.
        """
        server, owed = RightServer(random), Answers()
        may_be_left = any(kind == "cancelled" for batch in batches for kind, _ in batch)
        for number, batch in enumerate(batches):
            for message in batch:
                owed.expect(as_line(*message))
            server.unread.extend(batch)
            while server.unread or not owed.complete:
                answer = server.step()
                assert answer is None or owed.receive(answer) == ""
            if not may_be_left:
                assert not server.unanswered
                assert [owed.receive(result(request_id)) for request_id in (0, 1, "0")] == [NOT_ASKED] * 3
            owed = owed.after(float(number), number + 30.0)

    def test_a_failure_names_its_inputs(self) -> None:
        """Guards that a failure can be repeated."""
        tally = Tally("stdio")
        tally.fail("no answer", [Sent("bytes", b"\xff")])
        assert tally.failures == ["stdio: no answer\n    bytes: b'\\xff'"]
