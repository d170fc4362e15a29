"""HTTP requests: sound ones, and those with wrong headers, lengths, chunks and sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from fuzzing.calls import LEGACY, MODERN, Sent
from fuzzing.inputs import inputs

FRAMINGS = ("length", "chunked", "no length", "too short", "too long", "two lengths", "bad chunks", "cut", "negative")
SESSION = "{session}"
"""Stands for the session that the run has opened."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request over HTTP, with a body and how its length is given."""

    sent: Sent
    method: str = "POST"
    path: str = "/mcp"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    framing: str = "length"

    @property
    def is_whole(self) -> bool:
        """Return whether the server can read the whole body."""
        return self.framing in {"length", "chunked"}

    def as_bytes(self, session: str) -> bytes:
        """Return the request as it is sent."""
        body = self.sent.data
        framed, lengths = _framed(self.framing, body)
        lines = [f"{self.method} {self.path} HTTP/1.1".encode("latin-1", "replace")]
        for name, value in {"host": "localhost", "connection": "close", **self.headers}.items():
            lines.append(f"{name}: {value.replace(SESSION, session)}".encode("latin-1", "replace"))
        return b"\r\n".join([*lines, *lengths, b"", framed])


def _framed(framing: str, body: bytes) -> tuple[bytes, list[bytes]]:
    """Return a body as it is sent, and the headers that say how long it is."""
    size = len(body)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[: size // 3], body[size // 3 :]) if part)
    match framing:
        case "chunked":
            return chunks + b"0\r\n\r\n", [b"transfer-encoding: chunked"]
        case "bad chunks":
            return b"zz\r\n" + chunks, [b"transfer-encoding: chunked"]
        case "no length":
            return body, []
        case "too short":
            return body, [b"content-length: %d" % (size // 2)]
        case "too long" | "cut":
            return body, [b"content-length: %d" % (size + 10)]
        case "two lengths":
            return chunks + b"0\r\n\r\n", [b"content-length: %d" % size, b"transfer-encoding: chunked"]
        case "negative":
            return body, [b"content-length: -1"]
        case _:
            return body, [b"content-length: %d" % size]


_HEADER_TEXTS = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30),
    st.sampled_from(("x" * 900, "", "*/*", "0")),
)
_WRONG_HEADERS = st.dictionaries(
    st.sampled_from(
        (
            "accept",
            "content-type",
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "mcp-param-text",
            "last-event-id",
            "host",
            "origin",
            "authorization",
            "expect",
            "content-encoding",
            "x-forwarded-for",
        )
    ),
    _HEADER_TEXTS,
    min_size=1,
    max_size=3,
)
_VERSIONS = st.sampled_from((LEGACY, MODERN, "2024-11-05", "2025-03-26", "1999-01-01", "DRAFT"))


def sound_headers(body: bytes, *, modern: bool) -> dict[str, str]:
    """Return the headers that a client sends with a message."""
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if not modern:
        return {**headers, "mcp-protocol-version": LEGACY, "mcp-session-id": SESSION}
    return {**headers, "mcp-protocol-version": MODERN, **_routing(body)}


def _routing(body: bytes) -> dict[str, str]:
    """Return the headers that repeat a message's method and the name of what it asks for, if they can be written."""
    try:
        message: Any = json.loads(body)
        method: Any = message["method"]
        params: Any = message.get("params") or {}
        name: Any = params.get("name", params.get("uri", ""))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    pairs: dict[str, Any] = {"mcp-method": method, "mcp-name": name}
    return {
        key: value for key, value in pairs.items() if isinstance(value, str) and value.isascii() and value.isprintable()
    }


def exchanges(memory_ids: Sequence[str], *, long_ones: bool) -> st.SearchStrategy[list[Exchange]]:
    """Return requests that are sent at the same time."""

    def of_style(*, modern: bool) -> st.SearchStrategy[list[Exchange]]:
        def of_inputs(batch: list[Sent]) -> list[Exchange]:
            return [Exchange(sent, headers=sound_headers(sent.data, modern=modern)) for sent in batch]

        return inputs(memory_ids, modern=modern, long_ones=long_ones).map(of_inputs)

    sound = st.one_of(of_style(modern=False), of_style(modern=True))
    return st.one_of(sound, sound, st.builds(_distorted, sound, _DISTORTIONS))


_DISTORTIONS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"framing": st.sampled_from(FRAMINGS)}),
    st.fixed_dictionaries({"headers": _WRONG_HEADERS}),
    st.fixed_dictionaries({"headers": st.fixed_dictionaries({"mcp-protocol-version": _VERSIONS})}),
    st.fixed_dictionaries(
        {
            "method": st.sampled_from(("GET", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "BREW")),
            "path": st.sampled_from(
                ("/mcp", "/mcp/", "/messages/", "/sse", "/health", "/%00", "//", "/mcp?session_id=1")
            ),
        }
    ),
    st.fixed_dictionaries({"path": st.sampled_from(("/messages/", "/messages/?session_id=0", "/", "/elsewhere"))}),
)


def _distorted(batch: Sequence[Exchange], changes: Mapping[str, Any]) -> list[Exchange]:
    """Return requests of which the first is changed: its headers are replaced one by one, all else as a whole."""
    first, *rest = batch
    changed = Exchange(
        Sent(f"HTTP {', '.join(changes)}", first.sent.data),
        changes.get("method", first.method),
        changes.get("path", first.path),
        {**first.headers, **changes.get("headers", {})},
        changes.get("framing", first.framing),
    )
    return [changed, *rest]
