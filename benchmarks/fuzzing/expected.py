"""What a message should be answered with, by JSON-RPC and the documented limits. The server's code is not used."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Never, cast

from fuzzing.calls import OPEN_ENDED

Key = tuple[str, str]
"""The type of an id, and the id as text: 1 and "1" are two ids."""

NO_ID: Key = ("NoneType", "None")


@dataclass
class Answers:
    """Answers that a server still owes, by id.

    `known`: requests with this id. `uncertain`: messages that are answered with an id or without one, because they are
    too large to be parsed. `anonymous`: messages that are answered without an id. `optional`: requests whose answer is
    a stream. `forgiven`: cancellations, by the text of the id; each ends one request at most. `earlier`: requests of
    the batch before that were cancelled. `doubtful`: answers that may have been for a message that is too large.
    """

    known: Counter[Key] = field(default_factory=Counter[Key])
    uncertain: int = 0
    anonymous: int = 0
    optional: Counter[Key] = field(default_factory=Counter[Key])
    forgiven: Counter[str] = field(default_factory=Counter[str])
    earlier: Counter[Key] = field(default_factory=Counter[Key])
    doubtful: int = 0

    @property
    def complete(self) -> bool:
        """Return whether every request was answered that has to be."""
        return not (self._unanswered() - self.forgiven or self.anonymous or self.uncertain > self.doubtful)

    def after(self) -> Answers:
        """Return what may still be answered during the next batch."""
        return Answers(earlier=self.known + self.optional)

    def _unanswered(self) -> Counter[str]:
        """Return how many known requests are not answered, by the text of their ids."""
        unanswered: Counter[str] = Counter()
        for (_, text), count in self.known.items():
            unanswered[text] += count
        return unanswered

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
                self._forgive(message.get("params"))
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

    def _forgive(self, params: Any) -> None:
        """Note a cancellation. The SDK takes 1 and "1" for the same id, and of several requests it ends the last."""
        text = str(cast("dict[str, Any]", params).get("requestId")) if isinstance(params, dict) else ""
        if self._unanswered()[text] > self.forgiven[text]:
            self.forgiven[text] += 1

    def receive(self, answer: dict[str, Any]) -> str:
        """Note an answer. Return what is wrong with it, or ""."""
        key = key_of(answer.get("id"))
        if "result" in answer and "error" in answer:
            return "an answer with both a result and an error"
        if key == NO_ID and self.anonymous:
            self.anonymous -= 1
        elif self.known[key] > 0:
            self.known[key] -= 1
            self.doubtful += self.forgiven[key[1]] > 0
        elif self.optional[key] > 0 or self.earlier[key] > 0:
            counter = self.optional if self.optional[key] > 0 else self.earlier
            counter[key] -= 1
            self.doubtful += 1
        elif self.uncertain:
            self.uncertain -= 1
        else:
            return "an answer that nobody waits for"
        return ""


class _TooLarge:
    """The value of a message that is too large to be parsed."""


TOO_LARGE = _TooLarge()
MAX_BYTES, MAX_VALUES, MAX_DEPTH, MAX_DIGITS = 4 * 1024 * 1024, 20_000, 100, 1_000
"""The limits that docs/durability.md promises."""


def key_of(request_id: Any) -> Key:
    """Return the key of an id, `NO_ID` if it is none."""
    if isinstance(request_id, bool) or not isinstance(request_id, int | str) or not _is_utf8(request_id):
        return NO_ID
    if isinstance(request_id, int) and len(str(abs(request_id))) > MAX_DIGITS:
        return NO_ID
    return (type(request_id).__name__, str(request_id))


def _parsed(data: bytes) -> Any:
    """Return the value of a message, None if it is not JSON, or `TOO_LARGE`."""
    if len(data) >= MAX_BYTES:
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
