"""Messages of MCP: sound ones, and those with values that are meant to harm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fuzzing.values import DEEP, FILTERS, INTEGERS, SENTENCES, SMALL, STRICT, TEXTS, VALUES, WIDE

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
CLIENT = {"name": "fuzz", "version": "1"}
CAPABILITIES: dict[str, Any] = {"sampling": {}, "roots": {"listChanged": True}, "elicitation": {}}
OPEN_ENDED = "subscriptions/listen"
"""The request whose answer is a stream that does not end."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes to send, without the line's end, and what kind of input they are."""

    kind: str
    data: bytes


def initialize(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first request of a client up to 2025-11-25."""
    params = {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": CLIENT}
    return {"jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params}


def in_envelope(message: dict[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as clients since 2026-07-28 send it: each says who sends it."""
    if not isinstance(message.get("params", {}), dict) or "id" not in message:
        return message
    meta = {f"{META}protocolVersion": MODERN, f"{META}clientInfo": CLIENT, f"{META}clientCapabilities": capabilities}
    return {**message, "params": {"_meta": meta, **message.get("params", {})}}


def call(tool: str, arguments: Any, request_id: Any) -> dict[str, Any]:
    """Return a call of a tool."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def encoded(message: Any, *, ascii_only: bool = True) -> bytes:
    """Return a value as JSON in one line. Half characters are escapes, or bytes that are not UTF-8."""
    return json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def _mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[Any]:
    return st.one_of(usual, usual, usual, other)


def _arguments(memory_ids: Sequence[str]) -> dict[str, dict[str, st.SearchStrategy[Any]]]:
    """Return what each tool takes, by argument."""
    ids = st.one_of(st.sampled_from(memory_ids), st.sampled_from(memory_ids).map(lambda whole: whole[:8]), TEXTS)
    times = st.one_of(st.datetimes().map(str), st.sampled_from(("2026-01-01", "2026-05-05T10:00:00Z")), TEXTS)
    texts = _mostly(SENTENCES, TEXTS)
    scope = st.dictionaries(st.sampled_from(("user_id", "project", "agent_id", "run_id", "team")), TEXTS, max_size=2)
    message_parts: dict[str, st.SearchStrategy[Any]] = {"name": TEXTS, "id": TEXTS, "at": times, "x": SMALL}
    roles: dict[str, st.SearchStrategy[Any]] = {
        "role": st.sampled_from(("user", "assistant", "system", "tool", "king")),
        "content": texts,
    }
    messages = st.lists(st.fixed_dictionaries(roles, optional=message_parts), max_size=4)
    metadata = st.one_of(st.dictionaries(TEXTS, SMALL, max_size=3), DEEP, WIDE)
    limits = st.one_of(st.integers(1, 100), INTEGERS)
    return {
        "add_memory": {
            "text": texts,
            "messages": messages,
            "at": times,
            "replaces": st.lists(ids, max_size=3),
            "infer": st.booleans(),
            "metadata": metadata,
            "scope": scope,
        },
        "search_memories": {
            "query": texts,
            "limit": limits,
            "max_tokens": limits,
            "filters": FILTERS,
            "as_of": times,
            "scope": scope,
        },
        "list_memories": {
            "filters": FILTERS,
            "limit": limits,
            "cursor": TEXTS,
            "deleted": st.booleans(),
            "scope": scope,
        },
        "update_memory": {
            "memory_id": ids,
            "text": texts,
            "metadata": metadata,
            "restore": st.booleans(),
            "scope": scope,
        },
        "delete_memory": {
            "memory_ids": st.lists(ids, max_size=3),
            "all": st.booleans(),
            "confirm": st.one_of(TEXTS, st.just("delete 1 memory")),
            "scope": scope,
        },
        "get_summary": {"kind": st.one_of(st.sampled_from(("overall", "recent")), TEXTS), "scope": scope},
        "get_history": {"memory_id": ids, "scope": scope},
    }


IDS: st.SearchStrategy[Any] = st.one_of(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 5), TEXTS)
ODD_IDS: st.SearchStrategy[Any] = st.one_of(INTEGERS, st.floats(), st.booleans(), st.none(), VALUES)

_PARAMS: dict[str, st.SearchStrategy[Any]] = {
    "ping": st.just({}),
    "tools/list": st.fixed_dictionaries({}, optional={"cursor": SMALL}),
    "tools/call": st.fixed_dictionaries({"name": TEXTS}, optional={"arguments": VALUES, "_meta": VALUES}),
    "resources/list": st.just({}),
    "resources/templates/list": st.just({}),
    "resources/read": st.fixed_dictionaries({"uri": st.one_of(TEXTS, st.builds("memory://{}".format, TEXTS), SMALL)}),
    "resources/subscribe": st.fixed_dictionaries({"uri": st.one_of(TEXTS, st.just("memory://recent"))}),
    "resources/unsubscribe": st.fixed_dictionaries({"uri": TEXTS}),
    "prompts/list": st.just({}),
    "prompts/get": st.fixed_dictionaries({"name": TEXTS}, optional={"arguments": VALUES}),
    "completion/complete": st.fixed_dictionaries({"ref": VALUES, "argument": VALUES}, optional={"context": VALUES}),
    "logging/setLevel": st.fixed_dictionaries({"level": SMALL}),
    "server/discover": st.just({}),
    "initialize": VALUES,
    OPEN_ENDED: VALUES,
    "sampling/createMessage": VALUES,
}
_NOTIFICATIONS = st.one_of(
    st.sampled_from(("initialized", "roots/list_changed", "progress", "message")).map("notifications/{}".format), TEXTS
)


def _members(method: str, params: Any, request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def calls(memory_ids: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Return tool calls whose arguments are often nearly right."""
    arguments = _arguments(memory_ids)

    def of_tool(tool: str) -> st.SearchStrategy[dict[str, Any]]:
        optional = {name: _mostly(usual) for name, usual in arguments[tool].items()}
        return st.builds(call, st.just(tool), st.fixed_dictionaries({}, optional=optional), IDS)

    return st.sampled_from(sorted(arguments)).flatmap(of_tool)


def requests() -> st.SearchStrategy[dict[str, Any]]:
    """Return requests of every method, most of them with wrong parameters."""

    def of_method(method: str) -> st.SearchStrategy[dict[str, Any]]:
        return st.builds(_members, st.just(method), _mostly(_PARAMS[method]), IDS)

    return st.sampled_from(sorted(_PARAMS)).flatmap(of_method)


def _notification(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def notifications() -> st.SearchStrategy[dict[str, Any]]:
    """Return notifications."""
    return st.builds(_notification, _NOTIFICATIONS, VALUES)


def _reply(request_id: Any, outcome: str, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, outcome: value}


def replies() -> st.SearchStrategy[dict[str, Any]]:
    """Return replies to requests that the server may never have sent."""
    return st.builds(_reply, ODD_IDS, st.sampled_from(("result", "error")), VALUES)


def _model_reply(text: str) -> dict[str, Any]:
    return {"result": {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}}


def _error_reply(code: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": text}}


def _odd_reply(outcome: str, value: Any) -> dict[str, Any]:
    return {outcome: value}


REPLY_CONTENTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"result": {"roots": [{"uri": "file:///"}]}}),
    st.just({"result": {"action": "accept", "content": {"delete": True}}}),
    st.just({"result": {"action": "decline"}}),
    st.one_of(st.just('{"facts": []}'), TEXTS).map(_model_reply),
    st.builds(_error_reply, st.integers(-40_000, 0), TEXTS),
    st.builds(_odd_reply, st.sampled_from(("result", "error")), STRICT),
)
"""What the client replies when the server asks it, sound or not."""
