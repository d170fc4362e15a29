"""Judge answers by JSON-RPC and the documented limits, without the server's code, and count them."""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Never, cast

from fuzzing.messages import OPEN_ENDED, Sent, call
from harness import resident

# Seconds that an answer may take.
LIMIT = 30.0

# The type of an id, and the id as text: 1 and "1" are two ids.
Key = tuple[str, str]

NO_ID: Key = ("NoneType", "None")


@dataclass
class Answers:
    """Answers that a server owes for a batch of messages, and those that it gave, by id.

    `known`: requests with this id. `uncertain`: messages that are answered with an id or without one, because they are
    too large to be parsed. `anonymous`: messages that are answered without an id. `optional`: requests whose answer is
    a stream. `forgiven`: cancellations, by the text of the id; each ends one request at most. `earlier`: requests of
    earlier batches that may have been cancelled, the oldest first, each with the time until which it may be answered.

    `refusals` and `others` are the answers. A refusal with the id of a request may be for it, or for a message that is
    too large and has the same id. So answers are only counted, and something is wrong if they fit no way of matching
    them with the messages.
    """

    known: Counter[Key] = field(default_factory=Counter[Key])
    uncertain: int = 0
    anonymous: int = 0
    optional: Counter[Key] = field(default_factory=Counter[Key])
    forgiven: Counter[str] = field(default_factory=Counter[str])
    earlier: list[tuple[Key, float]] = field(default_factory=list[tuple[Key, float]])
    refusals: Counter[Key] = field(default_factory=Counter[Key])
    others: Counter[Key] = field(default_factory=Counter[Key])

    @property
    def missing(self) -> str:
        """What is missing, as text, if refusals are for the requests with their ids."""
        known = dict(self.known - self.refusals - self.others)
        return f"{known}, {self.anonymous} without id, {self.uncertain} too large, refused {dict(self.refusals)}"

    @property
    def complete(self) -> bool:
        """Return whether every message may have been answered that has to be."""
        answers = self.refusals + self.others
        unanswered, spare = self._by_text(self.known - answers), self.refusals[NO_ID] - self.anonymous
        if unanswered - self.forgiven or spare < 0:
            return False
        # What is left of the refusals may be for messages that are too large, if their requests need no answer.
        without_need = self.refusals & (answers - self.known)
        spare += without_need.total() - without_need[NO_ID]
        in_need = self.refusals - without_need
        del in_need[NO_ID]
        spare += (self._by_text(in_need) & (self.forgiven - unanswered)).total()
        return spare >= self.uncertain

    def after(self, now: float, until: float) -> Answers:
        """Return what may still be answered after `now`: what is left of this batch until `until`."""
        surplus = self._surplus()
        # A refusal that was for a message that is too large leaves the answer to the request with its id to come.
        room = self.uncertain - surplus.total()
        debts = [*self.earlier, *((key, until) for key in (self.known + self.optional).elements())]
        answered = {
            key: count - surplus[key] - min(room, self.refusals[key] - surplus[key])
            for key, count in (self.refusals + self.others).items()
        }
        left: list[tuple[Key, float]] = []
        for key, end in debts:
            if answered.get(key, 0) > 0:
                answered[key] -= 1
            elif end > now:
                left.append((key, end))
        return Answers(earlier=left)

    def _surplus(self) -> Counter[Key]:
        """Return how many more answers than requests there are with an id: those for messages that are too large."""
        requests = self.known + self.optional + Counter(key for key, _ in self.earlier)
        requests[NO_ID] = self.anonymous
        return self.refusals + self.others - requests

    @staticmethod
    def _by_text(counts: Counter[Key]) -> Counter[str]:
        """Return counts by the text of the ids."""
        by_text: Counter[str] = Counter()
        for (_, text), count in counts.items():
            by_text[text] += count
        return by_text

    def expect(self, data: bytes) -> None:
        """Note what is owed for a message."""
        message = _parsed(data)
        if message is None:
            self.anonymous += 1
        elif message is TOO_LARGE:
            self.uncertain += 1
        elif isinstance(message, dict):
            self._expect_for_object(cast("dict[str, Any]", message))
        else:
            self.anonymous += 1

    def _expect_for_object(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if "method" in message:
            if method == "notifications/cancelled" and "id" not in message:
                self._forgive(message)
            if isinstance(method, str) and "id" not in message:
                return
        elif "result" in message or "error" in message:
            return
        key = key_of(message.get("id"))
        if key == NO_ID:
            self.anonymous += 1
        elif method == OPEN_ENDED:
            self.optional[key] += 1
        else:
            self.known[key] += 1

    def _forgive(self, message: dict[str, Any]) -> None:
        """Note a cancellation, unless it is refused.

        The SDK takes 1 and "1" for the same id, and of several requests it ends the last.
        """
        params = message.get("params")
        request_id = cast("dict[str, Any]", params).get("requestId") if isinstance(params, dict) else None
        key = key_of(request_id)
        if key == NO_ID or not _is_utf8(json.dumps(message, ensure_ascii=False)):
            return
        if self._by_text(self.known)[key[1]] > self.forgiven[key[1]]:
            self.forgiven[key[1]] += 1

    def receive(self, answer: dict[str, Any]) -> str:
        """Note an answer. Return what is wrong with it, or ""."""
        key = key_of(answer.get("id"))
        if "result" in answer and "error" in answer:
            return "an answer with both a result and an error"
        is_refusal = _is_refusal(answer)
        answers = self.refusals if is_refusal else self.others
        answers[key] += 1
        surplus = self._surplus()
        if surplus.total() > self.uncertain or surplus[key] > self.refusals[key] or (key == NO_ID and not is_refusal):
            answers[key] -= 1
            return "an answer that nobody waits for"
        return ""


# The value of a message that is too large to be parsed.
TOO_LARGE = object()

# The limits that docs/durability.md promises.
MAX_BYTES, MAX_VALUES, MAX_DEPTH, MAX_DIGITS = 4 * 1024 * 1024, 20_000, 100, 1_000


# The errors for what is not passed on: it is not JSON, or no request.
REFUSALS = (-32700, -32600)


def _is_refusal(answer: dict[str, Any]) -> bool:
    return "error" in answer and answer["error"]["code"] in REFUSALS


def key_of(request_id: Any) -> Key:
    """Return the key of an id, `NO_ID` if it is none."""
    if isinstance(request_id, bool) or not isinstance(request_id, int | str) or not _is_utf8(request_id):
        return NO_ID
    if isinstance(request_id, int) and len(str(abs(request_id))) > MAX_DIGITS:
        return NO_ID
    return (type(request_id).__name__, str(request_id))


def _parsed(data: bytes) -> Any:
    """Return the value of a message, None if it is not JSON, or `TOO_LARGE`."""
    if len(data) > MAX_BYTES:
        return TOO_LARGE
    try:
        value = json.loads(
            data.decode(), parse_constant=_refuse, parse_int=lambda digits: int(digits[: 2 * MAX_DIGITS])
        )
    except RecursionError:
        return TOO_LARGE
    except ValueError:
        # What is cut or mutated may also have too many values or levels.
        return TOO_LARGE if max(data.count(b","), data.count(b"[") + data.count(b"{")) > MAX_DEPTH else None
    return TOO_LARGE if _is_too_large(value) else value


def _is_too_large(value: Any) -> bool:
    """Return whether a value has too many levels, or too many commas and opening brackets."""
    marks, waiting = 0, [(value, 1)]
    while waiting:
        inner, depth = waiting.pop()
        if isinstance(inner, dict | list):
            container = cast("dict[str, Any] | list[Any]", inner)
            parts = list(container.values()) if isinstance(container, dict) else container
            marks += max(1, len(parts))
            if marks > MAX_VALUES or depth > MAX_DEPTH:
                return True
            waiting += [(part, depth + 1) for part in parts]
    return False


def _refuse(name: str) -> Never:
    raise ValueError(name)


def _is_utf8(value: int | str) -> bool:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True


SHOWN_BYTES = 400


@dataclass
class Tally:
    """What was sent to one server, how it was answered, and what went wrong.

    `slowest`: the seconds of the slowest answer, and the kind of what it answered. `peak`: the most resident memory of
    the server in MB.
    """

    name: str
    sent: Counter[str] = field(default_factory=Counter[str])
    answers: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    slowest: tuple[float, str] = (0.0, "")
    peak: float = 0.0

    def fail(self, what: str, inputs: Sequence[Sent]) -> None:
        """Note a failure, with the inputs that led to it."""
        shown = "".join(f"\n    {sent.kind}: {_shown(sent.data)}" for sent in inputs)
        self.failures.append(f"{self.name}: {what}{shown}")

    def took(self, seconds: float, kind: str) -> None:
        """Note how long an answer took."""
        self.slowest = max(self.slowest, (seconds, kind))

    def measure(self, process_id: int) -> None:
        """Note the peak of the server's resident memory. Linux only."""
        self.peak = resident(process_id, "VmHWM")


def _shown(data: bytes) -> str:
    rest = len(data) - SHOWN_BYTES
    return f"{data[:SHOWN_BYTES]!r}" + (f" and {rest:,} bytes" if rest > 0 else "")


class Target(ABC):
    """A server that inputs are sent to."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._numbers = itertools.count()  # an id is used once in a session

    @abstractmethod
    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a sound request when no other is unanswered, and return its answer."""

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured content."""
        answer = self.ask(call(tool, arguments, f"{tool} of the run, {next(self._numbers)}"))
        return answer["result"]["structuredContent"]

    def memory_ids(self, texts: Sequence[str]) -> list[str]:
        """Add memories and return their ids."""
        return [self.call("add_memory", text=text)["results"][0]["id"] for text in texts]

    def check_life(self, text: str) -> None:
        """Note a failure if the server does not answer, list its tools, or find what it has just added."""
        tools = self.ask({"jsonrpc": "2.0", "id": "tools", "method": "tools/list"})["result"]["tools"]
        (memory_id,) = self.memory_ids([text])
        hits = self.call("search_memories", query=text)["results"]
        if not tools or memory_id not in [hit["id"] for hit in hits]:
            self.tally.fail(f"the server does not find what it added: {text}", [])


def outcome(answer: dict[str, Any]) -> str:
    """Return what kind of answer it is."""
    if "error" in answer:
        return f"error {answer['error']['code']}"
    if answer["result"].get("resultType") == "input_required":
        return "question"
    return "tool error" if answer["result"].get("isError") else "result"
