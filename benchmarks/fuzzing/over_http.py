"""Send requests over HTTP with wrong headers, lengths, chunks and sessions among them, and judge the answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from fuzzing.judge import LIMIT, MAX_BYTES, Answers, Tally, Target, outcome
from fuzzing.messages import LEGACY, MODERN, Sent, encoded, initialize, inputs

FRAMINGS = ("length", "chunked", "no length", "too short", "too long", "two lengths", "bad chunks", "cut", "negative")

# Stands for the session that the run has opened.
SESSION = "{session}"


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
_NAMES = """accept content-type mcp-session-id mcp-protocol-version mcp-method mcp-name mcp-param-text last-event-id
host origin authorization expect content-encoding x-forwarded-for"""
_WRONG_HEADERS = st.dictionaries(st.sampled_from(_NAMES.split()), _HEADER_TEXTS, min_size=1, max_size=3)
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
    sent = Sent(f"HTTP {', '.join(changes)}", first.sent.data)
    changed = {**changes, "headers": {**first.headers, **changes.get("headers", {})}}
    return [replace(first, sent=sent, **changed), *rest]


AT_ONCE = 8

# How long a stream that does not end is read.
STREAM_SECONDS = 0.2

BUSY = (429, 503)
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its status (0 if there is none), its headers, the messages in its body, and how it ended."""

    status: int
    headers: dict[str, str]
    messages: list[dict[str, Any]]
    seconds: float
    timed_out: bool


class HttpTarget(Target):
    """A server over HTTP."""

    def __init__(self, base: str, process_id: int, tally: Tally) -> None:
        super().__init__(tally)
        self._address = ("127.0.0.1", int(base.rpartition(":")[2]))
        self._process_id = process_id
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._session = ""
        self._open_session()

    def send(self, batch: Sequence[Exchange]) -> None:
        """Send requests at the same time, wait for all their responses, and note what is missing or wrong."""
        inputs = [exchange.sent for exchange in batch]
        for sent in inputs:
            self.tally.sent[sent.kind] += 1
        responses = list(self._pool.map(self._exchange, batch))
        session_ends = any(exchange.method == "DELETE" for exchange in batch)
        for exchange, response in zip(batch, responses, strict=True):
            self._judge(exchange, response, inputs, session_ends=session_ends)
        if session_ends or any(response.status == NOT_FOUND for response in responses):
            self._open_session()
        self.tally.measure(self._process_id)

    def _judge(self, exchange: Exchange, response: Response, inputs: Sequence[Sent], *, session_ends: bool) -> None:
        """Note what is wrong with a response. A session that ends meanwhile need not answer any more."""
        answers = [message for message in response.messages if "result" in message or "error" in message]
        self.tally.answers[str(response.status) if response.status else "closed"] += 1
        self.tally.answers.update(outcome(answer) for answer in answers)
        self.tally.took(response.seconds, exchange.sent.kind)
        shown = f"{exchange.method} {exchange.path} {exchange.framing} {dict(exchange.headers)}"
        if response.timed_out:
            self.tally.fail(f"no answer in {LIMIT:g} seconds to {shown}", inputs)
        elif exchange.is_whole and not response.status and len(exchange.sent.data) <= MAX_BYTES:
            # Beyond that, the server may have closed the connection while the body was still being sent.
            self.tally.fail(f"no response to {shown}", inputs)
        elif response.status >= 500 and response.status not in BUSY:
            self.tally.fail(f"status {response.status} for {shown}", inputs)
        elif response.status == 200 and exchange.is_whole and exchange.method == "POST":
            owed = Answers()
            owed.expect(exchange.sent.data)
            faults = [fault for answer in answers if (fault := owed.receive(answer))]
            if faults or not (owed.complete or session_ends):
                self.tally.fail(
                    f"{faults or 'no message'} in the answer to {shown}: {str(answers)[:300]}", [exchange.sent]
                )

    def _exchange(self, exchange: Exchange) -> Response:
        """Send a request and read its response. What never ends is read for a moment."""
        started = time.perf_counter()
        received = bytearray()
        timed_out = False
        try:
            with socket.create_connection(self._address, timeout=LIMIT) as connection:
                connection.sendall(exchange.as_bytes(self._session))
                if not exchange.is_whole:
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65_536):
                    received += part
                    left = LIMIT - (time.perf_counter() - started)  # a stream may go on with nothing but comments
                    connection.settimeout(STREAM_SECONDS if _never_ends(exchange, received) else max(left, 0.01))
        except TimeoutError:
            timed_out = not _never_ends(exchange, received)
        except OSError:  # the server closed the connection before it had read everything
            pass
        return _response(bytes(received), time.perf_counter() - started, timed_out=timed_out)

    def _open_session(self) -> None:
        message = initialize({})
        headers = {name: value for name, value in sound_headers(b"", modern=False).items() if value != SESSION}
        response = self._exchange(Exchange(Sent("", encoded(message)), headers=headers))
        self._session = response.headers["mcp-session-id"]
        ready = encoded({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._exchange(Exchange(Sent("", ready), headers=sound_headers(ready, modern=False)))

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a sound request and return its answer."""
        data = encoded(message)
        response = self._exchange(Exchange(Sent("", data), headers=sound_headers(data, modern=False)))
        return next(answer for answer in response.messages if answer.get("id") == message["id"])


def _never_ends(exchange: Exchange, received: bytes | bytearray) -> bool:
    """Return whether the response is a stream that ends only with the server."""
    head = bytes(received[:2_000]).partition(b"\r\n\r\n")[0].lower()
    is_stream = head.startswith(b"http/1.1 200") and b"text/event-stream" in head
    return is_stream and (exchange.method == "GET" or b"subscriptions/listen" in exchange.sent.data)


def _response(received: bytes, seconds: float, *, timed_out: bool) -> Response:
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split()
    status = int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if headers.get("transfer-encoding") == "chunked":
        body = _without_chunks(body)
    return Response(status, headers, list(_messages(headers.get("content-type", ""), body)), seconds, timed_out)


def _without_chunks(body: bytes) -> bytes:
    whole = bytearray()
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16) if size else 0
        whole += rest[:length]
        body = rest[length + 2 :]
        if not length:
            break
    return bytes(whole)


def _messages(content_type: str, body: bytes) -> list[dict[str, Any]]:
    """Return the JSON-RPC messages in the body of a response."""
    texts = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
    if "json" in content_type:
        texts = [body]
    found: list[Any] = []
    for text in texts:
        try:
            found.append(json.loads(text))
        except ValueError:  # a stream that was not read to its end
            continue
    return [message for message in found if isinstance(message, dict) and "jsonrpc" in message]
