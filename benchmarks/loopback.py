"""A real HTTP server on 127.0.0.1 that implements the OpenAI protocol, and Anthropic's, with scripted replies.

Tests and benchmarks use it: `with OpenAIServer(["first", Reply(status=429)]) as server: … server.base_url`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

CHAT_PATH = "/v1/chat/completions"
EMBEDDINGS_PATH = "/v1/embeddings"
MODELS_PATH = "/v1/models"
MESSAGES_PATH = "/v1/messages"
EMBEDDING_DIMS = 32


@dataclass(frozen=True)
class Reply:
    """One scripted reply. `body` is sent instead of a well-formed body, and `delay` is in seconds."""

    content: str = ""
    status: int = 200
    refusal: str | None = None
    finish_reason: str = "stop"
    body: bytes | None = None
    delay: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Chat = Callable[[dict[str, Any]], Reply | str]
Embed = Callable[[list[str]], list[list[float]]]


class OpenAIServer:
    """A server of the OpenAI protocol that runs until the `with` block ends.

    `chat` is a function of the request's JSON, or a sequence of replies, one for each request. `embed` returns n
    vectors for n texts. If `api_key` is set, requests with another bearer token get the status 401.

    `requests` has every request in order: `path` without the query, `json` (None if the body is not a JSON object), and
    `headers` with names in lower case.
    """

    def __init__(
        self,
        chat: Chat | Sequence[Reply | str] = (),
        embed: Embed | None = None,
        api_key: str | None = None,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self._chat = chat if callable(chat) else _scripted(chat)
        self._embed = embed or word_vectors
        self._api_key = api_key
        self._lock = threading.Lock()
        self._http = _HTTPServer(self._answer)
        # The poll interval limits how long `shutdown` waits. A request wakes the loop at once.
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()  # also waits for the handlers

    @property
    def base_url(self) -> str:
        """Return the base URL for an OpenAI client, without a trailing slash."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def chat_requests(self) -> list[dict[str, Any]]:
        """Return the JSON bodies of the chat requests so far, in order."""
        return self._bodies(CHAT_PATH)

    @property
    def message_requests(self) -> list[dict[str, Any]]:
        """Return the JSON bodies of the requests to Anthropic's API so far, in order."""
        return self._bodies(MESSAGES_PATH)

    @property
    def embedding_requests(self) -> list[dict[str, Any]]:
        """Return the JSON bodies of the embedding requests so far, in order."""
        return self._bodies(EMBEDDINGS_PATH)

    def _bodies(self, path: str) -> list[dict[str, Any]]:
        with self._lock:
            bodies = [request["json"] for request in self.requests if request["path"] == path]
        return [body for body in bodies if body is not None]

    def _answer(self, method: str, target: str, headers: dict[str, str], raw: bytes) -> Reply:
        path = target.partition("?")[0]
        request_json = _json_object(raw)
        with self._lock:
            self.requests.append({"path": path, "json": request_json, "headers": headers})
        if self._api_key is not None and headers.get("authorization") != f"Bearer {self._api_key}":
            return _error(Reply("Incorrect API key provided.", status=401), code="invalid_api_key")
        if method == "GET" and path.startswith(f"{MODELS_PATH}/"):
            return Reply(body=_encoded({"type": "model", "id": path.rpartition("/")[2]}))
        if (method, path) == ("GET", MODELS_PATH):
            model = {"id": "loopback", "object": "model", "created": 0, "owned_by": "loopback"}
            return Reply(body=_encoded({"object": "list", "data": [model]}))
        if method != "POST" or path not in (CHAT_PATH, MESSAGES_PATH, EMBEDDINGS_PATH):
            return _error(Reply(f"Unknown request URL: {method} {path}.", status=404), code="unknown_url")
        if request_json is None:
            return _error(Reply("The body of the request is not a JSON object.", status=400))
        if path == EMBEDDINGS_PATH:
            return self._embeddings_reply(request_json)
        return self._chat_reply(request_json, _completion if path == CHAT_PATH else _message)

    def _chat_reply(self, request_json: dict[str, Any], body_of: Callable[[dict[str, Any], Reply], bytes]) -> Reply:
        scripted = self._chat(request_json)
        reply = Reply(scripted) if isinstance(scripted, str) else scripted
        if reply.body is not None:
            return reply
        return replace(reply, body=body_of(request_json, reply)) if reply.status == 200 else _error(reply)

    def _embeddings_reply(self, request_json: dict[str, Any]) -> Reply:
        value = request_json.get("input")
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            return _error(Reply("`input` must be a string or an array of strings.", status=400))
        vectors = self._embed(cast("list[str]", texts))
        dimensions = cast("int | None", request_json.get("dimensions"))
        return Reply(body=_embeddings(request_json, [vector[:dimensions] for vector in vectors]))


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` waits for the handlers
    request_queue_size = 128  # the default of 5 makes a burst of clients wait a second for their connection

    def __init__(self, answer: Callable[[str, str, dict[str, str], bytes], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Report an exception of a handler, unless the client only disconnected."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(cast("Any", request), client_address)


class _Handler(BaseHTTPRequestHandler):
    """A handler of one request for each connection (HTTP/1.0), so that no idle connection delays the server's end."""

    timeout = 5.0  # seconds a read or write may take; an idle client would keep `server_close` waiting
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a GET."""
        self._serve()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._serve()

    def log_message(self, *_args: object, **_kwargs: object) -> None:
        """Log nothing."""

    def _serve(self) -> None:
        server = cast("_HTTPServer", self.server)
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:
            return  # the client disconnected while sending: this does not use up a reply of the script
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = server.answer(self.command, self.path, headers, raw)
        if reply.delay and server.closing.wait(reply.delay):
            return
        body = reply.body or b""
        self.send_response(reply.status)
        own = {"content-type": "application/json", "content-length": str(len(body))}
        for name, value in (own | {name.lower(): value for name, value in reply.headers.items()}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def word_vectors(texts: Sequence[str]) -> list[list[float]]:
    """Return one unit vector of `EMBEDDING_DIMS` floats for each text. Texts that share words have similar vectors."""
    return [_word_vector(text) for text in texts]


def _word_vector(text: str) -> list[float]:
    # Each word is a corner of the hypercube: 32 signs from a hash. A text without words counts as one word.
    words = re.findall(r"\w+", text.lower()) or [text]
    digests = [hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest() for word in words]
    signs = [int.from_bytes(digest[: EMBEDDING_DIMS // 8], "big") for digest in digests]
    vector = [sum(1.0 if bits >> place & 1 else -1.0 for bits in signs) for place in range(EMBEDDING_DIMS)]
    length = math.hypot(*vector) or 1.0
    return [value / length for value in vector]


def _scripted(replies: Sequence[Reply | str]) -> Chat:
    if isinstance(replies, str):
        raise TypeError("a script is a sequence of replies; put a single reply into a list")
    rest, lock = iter(replies), threading.Lock()
    # The header stops the `openai` package from retrying. There are no more replies.
    no_retry = {"x-should-retry": "false"}
    end = Reply(f"The script ran out: it had {len(replies)} replies.", status=500, headers=no_retry)

    def reply(_sent: dict[str, Any]) -> Reply | str:
        with lock:
            return next(rest, end)

    return reply


def _message(request_json: dict[str, Any], reply: Reply) -> bytes:
    reason = "max_tokens" if reply.finish_reason == "length" else "end_turn"
    content = [{"type": "text", "text": reply.content}]
    usage = {"input_tokens": 7, "output_tokens": 5}
    parts = {"type": "message", "role": "assistant", "model": request_json.get("model"), "usage": usage}
    return _encoded({"id": "msg_1", **parts, "content": content, "stop_reason": reason})


def _completion(request_json: dict[str, Any], reply: Reply) -> bytes:
    content = reply.content if reply.refusal is None else reply.content or None
    message = {"role": "assistant", "content": content, "refusal": reply.refusal}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
    # Usage is counted in words. That is close enough to token counts to show growth, and equal in every run.
    prompt_words, reply_words = len(json.dumps(request_json.get("messages")).split()), len(reply.content.split())
    usage = {
        "prompt_tokens": prompt_words,
        "completion_tokens": reply_words,
        "total_tokens": prompt_words + reply_words,
    }
    head = {"id": "chatcmpl-loopback", "object": "chat.completion", "created": 0, "model": request_json.get("model")}
    return _encoded(head | {"choices": [choice], "usage": usage})


def _embeddings(request_json: dict[str, Any], vectors: list[list[float]]) -> bytes:
    packed = request_json.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(vector) if packed else vector}
        for index, vector in enumerate(vectors)
    ]
    words = len(json.dumps(request_json.get("input")).split())
    usage = {"prompt_tokens": words, "total_tokens": words}
    return _encoded({"object": "list", "data": data, "model": request_json.get("model"), "usage": usage})


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _error(reply: Reply, code: str | None = None) -> Reply:
    kind = "server_error" if reply.status >= 500 else "invalid_request_error"
    if reply.status == 429:
        kind, code = "rate_limit_error", "rate_limit_exceeded"
    message = reply.content or f"Scripted status {reply.status}."
    error = {"message": message, "type": kind, "param": None, "code": code}
    return replace(reply, body=_encoded({"error": error}))


def _json_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode()
