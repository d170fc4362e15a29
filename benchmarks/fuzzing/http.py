"""Send requests to a server over HTTP, each on a connection of its own, and count its answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fuzzing.calls import Sent, call, encoded, initialize
from fuzzing.exchanges import SESSION, Exchange, sound_headers
from fuzzing.expected import MAX_BYTES, Answers
from fuzzing.stdio import LIMIT, outcome
from fuzzing.tally import Tally

AT_ONCE = 8
STREAM_SECONDS = 0.2
"""How long a stream that does not end is read."""

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


class HttpTarget:
    """A server over HTTP."""

    def __init__(self, host: str, port: int, process_id: int, tally: Tally) -> None:
        self.tally = tally
        self._address = (host, port)
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

    def memory_ids(self, texts: Sequence[str]) -> list[str]:
        """Add memories and return their ids."""
        return [self._call("add_memory", {"text": text})["results"][0]["id"] for text in texts]

    def check_life(self, text: str) -> None:
        """Note a failure if the server does not answer, list its tools, or find what it has just added."""
        self._open_session()
        tools = self._ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
        (memory_id,) = self.memory_ids([text])
        hits = self._call("search_memories", {"query": text})["results"]
        if not tools or memory_id not in [hit["id"] for hit in hits]:
            self.tally.fail(f"the server does not find what it added: {text}", [])

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
                    if _never_ends(exchange, received):
                        connection.settimeout(STREAM_SECONDS)
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

    def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._ask(call(tool, arguments, f"{tool} of the run"))["result"]["structuredContent"]

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
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
