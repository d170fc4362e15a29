"""Messages of MCP: sound ones, those with values that are meant to harm, mutated and cut ones, and what is no JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
CLIENT = {"name": "fuzz", "version": "1"}
CAPABILITIES: dict[str, Any] = {"sampling": {}, "roots": {"listChanged": True}, "elicitation": {}}

# The request whose answer is a stream that does not end.
OPEN_ENDED = "subscriptions/listen"

LONG = 4 * 1024 * 1024

_PARTS: list[list[tuple[str, int]]] = json.loads(Path(__file__).with_name("hostile_texts.json").read_text("utf-8"))
HOSTILE_TEXTS = tuple("".join(part * times for part, times in parts) for parts in _PARTS)
HUGE = (2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 10**1_500, int("9" * 4_000))

Values = st.SearchStrategy[Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes to send, without the line's end, and what kind of input they are."""

    kind: str
    data: bytes


def initialize(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first request of a client up to 2025-11-25."""
    return request(
        "initialize", {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": CLIENT}, "initialize"
    )


def request(method: str, params: Any, request_id: Any) -> dict[str, Any]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(tool: str, arguments: Any, request_id: Any) -> dict[str, Any]:
    """Return a call of a tool."""
    return request("tools/call", {"name": tool, "arguments": arguments}, request_id)


def in_envelope(message: dict[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as clients since 2026-07-28 send it: each says who sends it."""
    if not isinstance(message.get("params", {}), dict) or "id" not in message:
        return message
    meta = {f"{META}protocolVersion": MODERN, f"{META}clientInfo": CLIENT, f"{META}clientCapabilities": capabilities}
    return {**message, "params": {"_meta": meta, **message.get("params", {})}}


def encoded(message: Any, *, ascii_only: bool = True) -> bytes:
    """Return a value as JSON in one line. Half characters are escapes, or bytes that are not UTF-8."""
    return json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def nested(depth: int, by: str = "list") -> Any:
    """Return a value of so many levels."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if by == "list" else {by: value}
    return value


def _one(key: str, value: Any) -> dict[str, Any]:
    return {key: value}


def _wide(size: int) -> list[int]:
    return list(range(size))


def _alternatives(size: int) -> dict[str, Any]:
    return {"OR": [{"a": number} for number in range(size)]}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _containers(inner: Values) -> Values:
    return st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4))


def _junctions(inner: Values) -> Values:
    words = st.sampled_from(("AND", "OR", "and"))
    return st.one_of(st.builds(_one, words, st.lists(inner, max_size=4)), st.builds(_one, st.just("NOT"), inner))


def _any_of(options: Sequence[Any]) -> Values:
    """Draw one of the options by its number, because hypothesis would print all of them."""
    return st.integers(0, len(options) - 1).map(lambda number: options[number])


TEXTS: st.SearchStrategy[str] = st.one_of(
    _any_of(HOSTILE_TEXTS),
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.text(st.characters(exclude_categories=()), max_size=20),
)
# Texts that can be stored. There are some thousands, so that a long run stores few that are new.
SENTENCES = st.builds(
    "{} {} {}".format,
    st.sampled_from(("The user", "Ottoline", "Der Server", "彼女")),
    st.sampled_from(("likes", "moved to", "is allergic to", "renamed")),
    st.integers(0, 400),
)

INTEGERS = st.one_of(st.integers(-3, 120), st.integers(), _any_of(HUGE))
SCALARS: Values = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.floats(), st.sampled_from((1e308, -0.0, 1e-400, 1.5)), TEXTS
)
DEEP = st.builds(
    nested, st.sampled_from((9, 11, 60, 90, 97, 98, 99, 150, 295, 600)), st.sampled_from(("list", "a", "AND", "NOT"))
)
WIDE = st.sampled_from((101, 1_001, 9_000, 19_000, 25_000)).map(_wide)
SMALL: Values = st.recursive(SCALARS, _containers, max_leaves=12)
VALUES: Values = st.one_of(SMALL, SMALL, SMALL, DEEP, WIDE)

_KEYS = st.one_of(
    st.sampled_from(("at", "created_at", "kind", "role", "tags", "topic", "AND", "OR", "NOT", "a.b")), TEXTS
)
_OPERATORS = st.sampled_from(("gt", "gte", "lt", "lte", "ne", "in", "nin", "on", "like", "$where", ""))
_CONDITIONS = st.dictionaries(_KEYS, st.one_of(SMALL, st.dictionaries(_OPERATORS, SMALL, max_size=3)), max_size=3)
FILTERS: Values = st.one_of(
    st.recursive(_CONDITIONS, _junctions, max_leaves=8),
    st.sampled_from((100, 101, 6_000)).map(_alternatives),
    st.builds(_one, st.just("a"), st.builds(_one, st.just("in"), st.sampled_from((1_000, 1_001, 19_000)).map(_wide))),
    st.builds(nested, st.sampled_from((9, 10, 11, 90)), st.just("NOT")),
    VALUES,
)

# The arguments of each tool.
TOOLS = {
    "add_memory": "text messages at replaces infer metadata scope",
    "search_memories": "query limit max_tokens filters as_of scope",
    "list_memories": "filters limit cursor deleted scope",
    "update_memory": "memory_id text metadata restore scope",
    "delete_memory": "memory_ids all confirm scope",
    "get_summary": "kind scope",
    "get_history": "memory_id scope",
}


def _arguments(memory_ids: Sequence[str]) -> dict[str, Values]:
    """Return what the arguments take, by name."""
    ids = st.one_of(st.sampled_from(memory_ids), st.sampled_from(memory_ids).map(lambda whole: whole[:8]), TEXTS)
    times = st.one_of(st.datetimes().map(str), st.sampled_from(("2026-01-01", "2026-05-05T10:00:00Z")), TEXTS)
    texts, limits = _mostly(SENTENCES, TEXTS), st.one_of(st.integers(1, 100), INTEGERS)
    roles = st.sampled_from(("user", "assistant", "system", "tool", "king"))
    optional: dict[str, Values] = {"name": TEXTS, "id": TEXTS, "at": times, "x": SMALL}
    message = st.fixed_dictionaries({"role": roles, "content": texts}, optional=optional)
    scope = st.sampled_from(("user_id", "project", "agent_id", "run_id", "team"))
    return {
        **dict.fromkeys(("text", "query"), texts),
        **dict.fromkeys(("at", "as_of"), times),
        **dict.fromkeys(("replaces", "memory_ids"), st.lists(ids, max_size=3)),
        **dict.fromkeys(("infer", "deleted", "restore", "all"), st.booleans()),
        **dict.fromkeys(("limit", "max_tokens"), limits),
        "messages": st.lists(message, max_size=4),
        "metadata": st.one_of(st.dictionaries(TEXTS, SMALL, max_size=3), DEEP, WIDE),
        "scope": st.dictionaries(scope, TEXTS, max_size=2),
        "filters": FILTERS,
        "cursor": TEXTS,
        "memory_id": ids,
        "confirm": st.one_of(TEXTS, st.just("delete 1 memory")),
        "kind": st.one_of(st.sampled_from(("overall", "recent")), TEXTS),
    }


def _mostly(usual: Values, other: Values = VALUES) -> Values:
    return st.one_of(usual, usual, usual, other)


IDS: Values = st.one_of(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 5), TEXTS)
ODD_IDS: Values = st.one_of(INTEGERS, st.floats(), st.booleans(), st.none(), VALUES)

_PARAMS: dict[str, Values] = {
    **dict.fromkeys(("ping", "resources/list", "resources/templates/list", "prompts/list"), st.just({})),
    **dict.fromkeys(("server/discover",), st.just({})),
    **dict.fromkeys(("initialize", "sampling/createMessage", OPEN_ENDED), VALUES),
    "tools/list": st.fixed_dictionaries({}, optional={"cursor": SMALL}),
    "tools/call": st.fixed_dictionaries({"name": TEXTS}, optional={"arguments": VALUES, "_meta": VALUES}),
    "resources/read": st.fixed_dictionaries({"uri": st.one_of(TEXTS, st.builds("memory://{}".format, TEXTS), SMALL)}),
    "resources/subscribe": st.fixed_dictionaries({"uri": st.one_of(TEXTS, st.just("memory://recent"))}),
    "resources/unsubscribe": st.fixed_dictionaries({"uri": TEXTS}),
    "prompts/get": st.fixed_dictionaries({"name": TEXTS}, optional={"arguments": VALUES}),
    "completion/complete": st.fixed_dictionaries({"ref": VALUES, "argument": VALUES}, optional={"context": VALUES}),
    "logging/setLevel": st.fixed_dictionaries({"level": SMALL}),
}
_NOTIFICATIONS = st.one_of(
    st.sampled_from(("initialized", "roots/list_changed", "progress", "message")).map("notifications/{}".format), TEXTS
)


def _message(**members: Values) -> Values:
    return st.fixed_dictionaries({"jsonrpc": st.just("2.0"), **members})


def _calls(memory_ids: Sequence[str]) -> Values:
    """Return tool calls whose arguments are often nearly right."""
    arguments = _arguments(memory_ids)

    def of_tool(tool: str) -> Values:
        optional = {name: _mostly(arguments[name]) for name in TOOLS[tool].split()}
        return st.builds(call, st.just(tool), st.fixed_dictionaries({}, optional=optional), IDS)

    return st.sampled_from(sorted(TOOLS)).flatmap(of_tool)


def _requests() -> Values:
    """Return requests of every method, most of them with wrong parameters."""

    def of_method(method: str) -> Values:
        return st.builds(request, st.just(method), _mostly(_PARAMS[method]), IDS)

    return st.sampled_from(sorted(_PARAMS)).flatmap(of_method)


def _replies() -> Values:
    """Return replies to requests that the server may never have sent."""
    return st.one_of(_message(id=ODD_IDS, result=VALUES), _message(id=ODD_IDS, error=VALUES))


def _model_reply(text: str) -> dict[str, Any]:
    return {"result": {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}}


def _error_reply(code: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": text}}


# What the client replies when the server asks it, sound or not.
REPLY_CONTENTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"result": {"roots": [{"uri": "file:///"}]}}),
    st.just({"result": {"action": "accept", "content": {"delete": True}}}),
    st.just({"result": {"action": "decline"}}),
    st.one_of(st.just('{"facts": []}'), TEXTS).map(_model_reply),
    st.builds(_error_reply, st.integers(-40_000, 0), TEXTS),
    st.builds(_one, st.sampled_from(("result", "error")), SMALL.filter(_is_json)),
)


def inputs(memory_ids: Sequence[str], *, modern: bool, long_ones: bool) -> st.SearchStrategy[list[Sent]]:
    """Return a few inputs that belong together. `long_ones`: whether some are longer than what is accepted."""

    def message(value: dict[str, Any]) -> bytes:
        return encoded(in_envelope(value, CAPABILITIES) if modern else value)

    def repeated(value: dict[str, Any], times: int) -> list[Sent]:
        return [Sent("same id", message(value))] * times

    def cancelled(value: dict[str, Any], form: str, reason: str) -> list[Sent]:
        return [Sent("cancelled", message(value)), Sent("cancellations", encoded(_cancellation(value, form, reason)))]

    calls = _calls(memory_ids)
    sound = st.one_of(calls, _requests())
    harmless = st.builds(call, st.just("search_memories"), st.fixed_dictionaries({"query": SENTENCES}), IDS)
    notifications = _message(method=_NOTIFICATIONS, params=VALUES)
    members = st.sampled_from(("jsonrpc", "method", "params", "result", "error", "extra"))
    kinds = [
        _each("arguments", calls.map(message)),
        _each("arguments", calls.map(message)),
        _each("methods", _requests().map(message)),
        _each("notifications", notifications.map(encoded)),
        _each("replies", _replies().map(encoded)),
        _each("bytes", st.binary(max_size=200)),
        _each("JSON values", VALUES.map(encoded)),
        _each("characters", sound.map(lambda value: encoded(value, ascii_only=False))),
        _each("ids", st.builds(_with_member, sound, st.just("id"), ODD_IDS).map(message)),
        _each("members", st.builds(_with_member, sound, members, VALUES).map(message)),
        _each("mutated", st.builds(_mutated, sound.map(message), st.lists(_EDITS, min_size=1, max_size=3))),
        _each("cut", st.builds(_cut, sound.map(message), st.integers(1, 10**6))),
        st.builds(repeated, calls, st.integers(2, 3)),
        st.builds(cancelled, sound, st.sampled_from(("same", "text", "list")), TEXTS),
        # Sound calls between the others show that those do no harm to them.
        _each("sound", harmless.map(message)),
    ]
    if long_ones:
        kinds.append(_each("long", st.builds(_long, st.sampled_from((LONG - 500, LONG, 3 * LONG)), IDS)))
    return st.lists(st.one_of(kinds), min_size=1, max_size=6).map(_joined)


def _each(kind: str, data: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Sent]]:
    return data.map(lambda text: [Sent(kind, text)])


def _joined(parts: list[list[Sent]]) -> list[Sent]:
    return [sent for part in parts for sent in part]


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
