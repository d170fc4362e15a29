"""Messages that are not what they should be: each request is answered with an error, and the connection goes on."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest
from hypothesis import given
from mcp.types import INVALID_REQUEST, PARSE_ERROR, JSONRPCRequest

from fuzzing.judge import Answers
from fuzzing.messages import Sent, initialize, inputs
from fuzzing.over_stdio import Pipes, stdio_server
from palimpsest.server.jsonrpc import (
    MAX_DIGITS,
    MAX_JSON_DEPTH,
    MAX_JSON_VALUES,
    MAX_MESSAGE_BYTES,
    Refused,
    read_message,
)
from tests.support.environment import clean_environment
from tests.support.examples import examples
from tests.support.http_server import ACCEPT, TIMEOUT, HttpServer


def call(request_id: str, arguments: str = "{}", members: str = "") -> bytes:
    params = f'{{"name": "list_memories", "arguments": {arguments}}}'
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call", "params": {params}{members}}}'.encode()


def backwards(request_id: str, arguments: str) -> bytes:
    """Return a tool call with its id last, as the TypeScript SDK writes it."""
    params = f'{{"name": "list_memories", "arguments": {arguments}}}'
    return f'{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":{request_id}}}'.encode()


DEEP = "[" * 295 + "]" * 295
VERY_DEEP = "[" * 15_000 + "]" * 15_000
MANY = "[" + "0," * MAX_JSON_VALUES + "0]"
LONG = f'{{"text": "{"x" * MAX_MESSAGE_BYTES}"}}'

FAULTY: dict[str, tuple[bytes, int, Any, str]] = {
    "a lone surrogate": (call("1", r'{"text": "a\ud83d"}'), INVALID_REQUEST, 1, "half a character"),
    "a lone surrogate in the id": (call(r'"\ud83d"'), INVALID_REQUEST, None, "half a character"),
    "deep metadata": (call("1", f'{{"metadata": {DEEP}}}'), INVALID_REQUEST, 1, f"deeper than {MAX_JSON_DEPTH}"),
    "very deep, id last": (backwards('"a-1"', VERY_DEEP), INVALID_REQUEST, "a-1", "deeper than"),
    "very deep, half a character in the id": (
        call('"ID"', VERY_DEEP).replace(b"ID", b"\xed\xb0\x80"),
        INVALID_REQUEST,
        None,
        "deeper than",
    ),
    "an integer of 8,000 digits": (call("1", f'{{"limit": {"9" * 8_000}}}'), INVALID_REQUEST, 1, "8,000 digits"),
    "an id of 8,000 digits": (call("9" * 8_000), INVALID_REQUEST, None, f"more than {MAX_DIGITS:,}"),
    "an infinite number": (call("1", '{"metadata": {"a": 1e999}}'), INVALID_REQUEST, 1, "too large"),
    "many values": (call("1", MANY), INVALID_REQUEST, 1, str(MAX_JSON_VALUES)),
    "many values, id last": (backwards("7", MANY), INVALID_REQUEST, 7, str(MAX_JSON_VALUES)),
    "not JSON": (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', PARSE_ERROR, None, "not JSON"),
    "NaN": (call("1", '{"limit": NaN}'), PARSE_ERROR, None, "NaN"),
    "invalid UTF-8": (call("1", '{"text": "ü"}').decode().encode("latin-1"), PARSE_ERROR, None, "not UTF-8"),
    "UTF-16": (call("1").decode().encode("utf-16-le").replace(b"\n", b""), PARSE_ERROR, None, "not JSON"),
    "a batch": (b"[" + call("1") + b"]", INVALID_REQUEST, None, "batch"),
    "null": (b"null", INVALID_REQUEST, None, "object"),
    "a fractional id": (call("1.5"), INVALID_REQUEST, None, "id is not valid"),
    "an id that is a list": (call("[1]"), INVALID_REQUEST, None, "id is not valid"),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST, 1, "no method"),
    "a method of 1 and no id": (b'{"jsonrpc": "2.0", "method": 1}', INVALID_REQUEST, None, "is not valid"),
    "no version": (b'{"id": "x", "method": "ping"}', INVALID_REQUEST, "x", "jsonrpc is not valid"),
    "params that are a list": (call("1", members=', "params": [1]'), INVALID_REQUEST, 1, "params is not valid"),
}

FAULTY_LINES: dict[str, tuple[bytes, int, Any, str]] = {
    **FAULTY,
    "a long line": (call("1", LONG), INVALID_REQUEST, 1, str(MAX_MESSAGE_BYTES)),
    "a long line, id last": (backwards('"a-1"', LONG), INVALID_REQUEST, "a-1", str(MAX_MESSAGE_BYTES)),
}

# Faults that the SDK finds in a body, and words itself.
OF_THE_SDK = ("not JSON", "batch", "object", "no method")

# Notifications, faulty ones among them. Nobody answers a notification.
NOTIFICATIONS = [
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1.5]}}',
    b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": "no"}',
    rb'{"jsonrpc": "2.0", "method": "\ud83d"}',
]

# Replies to requests that the server never sent. Nobody answers a reply.
REPLIES = [
    b'{"jsonrpc": "2.0", "id": 99, "result": {}}',
    b'{"jsonrpc": "2.0", "id": 99, "error": "no"}',
    b'{"jsonrpc": "2.0", "id": 1.5, "result": {}}',
    b'{"jsonrpc": "2.0", "result": {}}',
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}}',
    rb'{"jsonrpc": "2.0", "id": 99, "result": {"text": "\ud83d"}}',
]


class TestReadMessage:
    @pytest.mark.parametrize(
        "text",
        [
            call("1", '{"text": "' + r"a, [b], {c}, \", \\" * MAX_JSON_VALUES + '"}'),
            call("-1", '{"text": "' + "[" * 1_000_000 + '", "list": [1, 2]}'),
            call('"\\ud83c\\udf75"', r'{"text": "🍵 \ud83c\udf75 \\ud83d"}'),
            call("1", "[" * (MAX_JSON_DEPTH - 2) + "]" * (MAX_JSON_DEPTH - 2)),
            b" " + call("9" * MAX_DIGITS) + b" \r\n",
            b'{"jsonrpc": "2.0", "id": "", "method": "ping", "params": null}',
        ],
        ids=["marks in a text", "brackets in a text", "whole characters", "deep enough", "white space", "null params"],
    )
    def test_a_sound_request_is_passed_on(self, text: bytes) -> None:
        """Guards long texts and other scripts from being refused."""
        message = read_message(text)
        assert isinstance(message, JSONRPCRequest)
        assert message.model_dump(exclude_unset=True) == json.loads(text)

    @examples(200)
    @given(inputs(["0123456789"], modern=True, long_ones=False))
    def test_every_message_is_owed_what_the_protocol_says(self, batch: list[Sent]) -> None:
        """Guards every kind of message that the fuzz sends, against a judge that knows only the documented limits."""
        for sent in batch:
            owed = Answers()
            owed.expect(sent.data)
            message = read_message(sent.data)
            if isinstance(message, Refused):
                answers = [message.as_error().model_dump()] if message.expects_answer else []
            else:
                answers = [{"id": message.id}] if isinstance(message, JSONRPCRequest) else []
            assert [owed.receive(answer) for answer in answers] == [""] * len(answers), sent
            assert owed.complete, sent


@pytest.fixture(scope="module")
def stdio(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pipes]:
    folder = tmp_path_factory.mktemp("stdio")
    with stdio_server(folder, clean_environment(folder)) as server:
        assert "result" in server.ask(initialize({}))
        yield server


class TestStdio:
    def test_a_faulty_line_is_answered_once_and_the_next_is_served(self, stdio: Pipes) -> None:
        """Guards clients from waiting for ever, and others' requests from a faulty line."""
        for case, (text, code, request_id, reason) in FAULTY_LINES.items():
            answer = stdio.ask(text)
            assert (answer["error"]["code"], answer["id"]) == (code, request_id), case
            assert reason in answer["error"]["message"], case
            assert stdio.ask(b'{"jsonrpc": "2.0", "id": "next", "method": "ping"}') == {
                "jsonrpc": "2.0",
                "id": "next",
                "result": {},
            }, case

    @pytest.mark.nightly
    def test_notifications_replies_and_empty_lines_get_no_answer(self, stdio: Pipes) -> None:
        """Guards the protocol, and the session from odd replies."""
        stdio.send(*NOTIFICATIONS, *REPLIES, b"", b"  \r")
        assert stdio.ask(b'{"jsonrpc": "2.0", "id": 8, "method": "ping"}')["id"] == 8


class TestHttp:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("path", ["/mcp", "/messages/"])
    @pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
    def test_a_faulty_body_is_refused(self, open_server: HttpServer, version: str, path: str) -> None:
        """Guards every protocol style over HTTP. What is not to be parsed gets the same error as over stdio."""
        headers = {**ACCEPT, "content-type": "application/json", "mcp-protocol-version": version}
        with httpx2.Client(base_url=open_server.base, headers=headers, timeout=TIMEOUT) as client:
            for case, (text, code, request_id, reason) in FAULTY.items():
                response = client.post(path, content=text)
                assert response.status_code in {400, 413}, case
                if reason in OF_THE_SDK or reason.endswith("is not valid"):
                    continue
                error = response.json()
                assert (error["error"]["code"], error["id"]) == (code, request_id), case
                assert reason in error["error"]["message"], case
