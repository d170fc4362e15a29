"""Lines and bodies: messages as JSON, mutated, cut, or not JSON at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from fuzzing.calls import (
    CAPABILITIES,
    IDS,
    ODD_IDS,
    Sent,
    call,
    calls,
    encoded,
    in_envelope,
    notifications,
    replies,
    requests,
)
from fuzzing.values import SENTENCES, TEXTS, VALUES

LONG = 4 * 1024 * 1024


def inputs(memory_ids: Sequence[str], *, modern: bool, long_ones: bool) -> st.SearchStrategy[list[Sent]]:
    """Return a few inputs that belong together. `long_ones`: whether some are longer than what is accepted."""

    def message(value: dict[str, Any]) -> bytes:
        return encoded(in_envelope(value, CAPABILITIES) if modern else value)

    def repeated(value: dict[str, Any], times: int) -> list[Sent]:
        return [Sent("same id", message(value))] * times

    def cancelled(value: dict[str, Any], form: str, reason: str) -> list[Sent]:
        return [Sent("cancelled", message(value)), Sent("cancellations", encoded(_cancellation(value, form, reason)))]

    sound = st.one_of(calls(memory_ids), requests())
    harmless = st.builds(call, st.just("search_memories"), st.fixed_dictionaries({"query": SENTENCES}), IDS)
    kinds = [
        _each("arguments", calls(memory_ids).map(message)),
        _each("arguments", calls(memory_ids).map(message)),
        _each("methods", requests().map(message)),
        _each("notifications", notifications().map(encoded)),
        _each("replies", replies().map(encoded)),
        _each("bytes", st.binary(max_size=200)),
        _each("JSON values", VALUES.map(encoded)),
        _each("characters", sound.map(raw)),
        _each("ids", st.builds(_with_member, sound, st.just("id"), ODD_IDS).map(message)),
        _each("members", st.builds(_with_member, sound, st.sampled_from(_MEMBERS), VALUES).map(message)),
        _each("mutated", st.builds(_mutated, sound.map(message), st.lists(_EDITS, min_size=1, max_size=3))),
        _each("cut", st.builds(_cut, sound.map(message), st.integers(1, 10**6))),
        st.builds(repeated, calls(memory_ids), st.integers(2, 3)),
        st.builds(cancelled, sound, st.sampled_from(("same", "text", "list")), TEXTS),
        # Sound calls between the others show that those do no harm to them.
        _each("sound", harmless.map(message)),
    ]
    if long_ones:
        kinds.append(_each("long", st.builds(_long, st.sampled_from((LONG - 500, LONG, 3 * LONG)), IDS)))
    return st.lists(st.one_of(kinds), min_size=1, max_size=6).map(_joined)


def raw(message: dict[str, Any]) -> bytes:
    """Return a message with its characters as they are. Half characters are then not UTF-8."""
    return encoded(message, ascii_only=False)


def _each(kind: str, data: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Sent]]:
    return data.map(lambda text: [Sent(kind, text)])


def _joined(parts: list[list[Sent]]) -> list[Sent]:
    return [sent for part in parts for sent in part]


_MEMBERS = ("jsonrpc", "method", "params", "result", "error", "extra")
_EDITS = st.tuples(
    st.sampled_from(("delete", "replace", "insert", "double")),
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.binary(min_size=1, max_size=6),
)


def _with_member(message: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**message, name: value}


def _mutated(text: bytes, edits: Sequence[tuple[str, int, int, bytes]]) -> bytes:
    for how, place, length, other in edits:
        start = place % (len(text) + 1)
        removed = {"delete": length, "replace": len(other)}.get(how, 0)
        added = {"delete": b"", "double": text[start : start + length]}.get(how, other)
        text = text[:start] + added + text[start + removed :]
    return text


def _cut(text: bytes, end: int) -> bytes:
    return text[: end % len(text)]


def _cancellation(message: dict[str, Any], form: str, reason: str) -> dict[str, Any]:
    """Return the cancellation of a request, whose id may have another type."""
    request_id = message["id"]
    other = {"text": str(request_id), "list": [request_id]}.get(form, request_id)
    params = {"requestId": other, "reason": reason}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def _long(size: int, request_id: Any) -> bytes:
    """Return a call of about so many bytes."""
    rest = len(encoded(call("add_memory", {"text": ""}, request_id)))
    return encoded(call("add_memory", {"text": "x" * (size - rest)}, request_id))
