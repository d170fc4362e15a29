"""The OpenAI-compatible chat model, against a real HTTP server on loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import EmptyReplyError, ModelError, ModelRefusedError, ModelUnreachableError, ReplyError
from palimpsest.core.settings import Endpoint, LlmConfig
from palimpsest.llm.openai import OpenAIModel

KEY = "sk-never-shown-0123456789"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where does Ana live?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
NOT_OPENAI = "not in OpenAI's format"

# Makes the openai package retry at once instead of after half a second.
AT_ONCE = {"retry-after-ms": "1"}

pytestmark = pytest.mark.anyio

Chat = Callable[[dict[str, Any]], Reply | str]


@asynccontextmanager
async def model_at(
    base_url: str,
    *,
    key: str | None = KEY,
    temperature: float | None = 0.1,
    timeout_seconds: float = 5.0,
    max_tokens: int = 300,
) -> AsyncGenerator[OpenAIModel]:
    """Yield a model and close it at the end."""
    config = LlmConfig(model="scripted", temperature=temperature, max_tokens=max_tokens, timeout=timeout_seconds)
    model = OpenAIModel(config, Endpoint(key, base_url))
    try:
        yield model
    finally:
        await model.aclose()


def unused_base_url() -> str:
    """Return a base URL where no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def refuse_if(complaint_about: Callable[[dict[str, Any]], str | None], status: int = 400) -> Chat:
    """Return a chat that refuses a request if there is a complaint about it, and else replies "fine"."""

    def chat(request: dict[str, Any]) -> Reply | str:
        complaint = complaint_about(request)
        return "fine" if complaint is None else Reply(complaint, status=status)

    return chat


def format_of(request: dict[str, Any]) -> str:
    return request.get("response_format", {}).get("type", "plain")


FULL_REQUEST: dict[str, Any] = {
    "messages": MESSAGES,
    "max_tokens": 4_000,
    "temperature": 0.1,
    "response_format": {"type": "json_schema"},
}


def sent_as(request: dict[str, Any]) -> dict[str, Any]:
    """Return what of a request an endpoint may refuse."""
    return {
        "form": format_of(request),
        "roles": [message["role"] for message in request["messages"]],
        "limit": request.get("max_tokens"),
        "temperature": request.get("temperature"),
    }


# What endpoints say, with which status, what they refuse with it, and what is sent instead.
COMPLAINTS = [
    ("System role not supported", 400, "roles", ["user"]),
    ("Developer instruction is not enabled for models/gemma-3-27b-it", 400, "roles", ["user"]),
    ("Conversation roles must alternate user/assistant/user/assistant/...", 400, "roles", ["user"]),
    ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", 400, "roles", ["user"]),
    ("System messages are not allowed here", 200, "roles", ["user"]),
    ("max_tokens is too large: 4000. This model supports at most 2048 completion tokens.", 400, "limit", 2_048),
    ("`max_new_tokens` must be <= 1,024", 422, "limit", 1_024),
    (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the messages, "
        "4000 in the completion).",
        400,
        "limit",
        4_096 - 1_000 - 32,
    ),
    ("response_format is not supported by this model", 404, "form", "json_object"),
    ("response_format 'json_schema' is not supported", 200, "form", "json_object"),
    ("Unsupported value: 'temperature' does not support 0.1", 400, "temperature", None),
    ("'max_tokens' is not supported. Use 'max_completion_tokens' instead.", 400, "limit", None),
]


async def test_the_first_request_has_a_strict_json_schema() -> None:
    with OpenAIServer(['{"city": "Lisbon"}']) as server:
        async with model_at(server.base_url) as model:
            assert await model.complete(MESSAGES, SCHEMA) == '{"city": "Lisbon"}'
        (request,) = server.chat_requests
    assert request == {
        "model": "scripted",
        "messages": MESSAGES,
        "max_tokens": 300,
        "temperature": 0.1,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
        },
    }


@pytest.mark.parametrize(("key", "bearer"), [(KEY, f"Bearer {KEY}"), (None, "Bearer none")])
async def test_the_key_is_sent_as_a_bearer_token(key: str | None, bearer: str) -> None:
    with OpenAIServer(["fine"]) as server:
        async with model_at(server.base_url, key=key) as model:
            await model.complete(MESSAGES, SCHEMA)
            assert model.name == "scripted"
        assert server.requests[0]["headers"]["authorization"] == bearer


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("complaint", "status", "what", "then"), COMPLAINTS, ids=[complaint[0] for complaint in COMPLAINTS]
)
async def test_what_an_endpoint_says_it_cannot_do_is_left_out(
    complaint: str, status: int, what: str, then: Any
) -> None:
    def complaint_about(request: dict[str, Any]) -> str | None:
        return complaint if sent_as(request)[what] == sent_as(FULL_REQUEST)[what] else None

    reply = Reply(body=json.dumps({"error": {"message": complaint}}).encode()) if status == 200 else None
    answer = refuse_if(complaint_about, status)
    with OpenAIServer(lambda request: reply if reply and complaint_about(request) else answer(request)) as server:
        async with model_at(server.base_url, max_tokens=4_000) as model:
            assert await model.complete(MESSAGES, SCHEMA) == "fine"
            assert await model.complete(MESSAGES, SCHEMA) == "fine"
        last = server.chat_requests[-1]
    assert sent_as(last) == {**sent_as(FULL_REQUEST), what: then}
    assert last.get("max_completion_tokens") == (4_000 if "max_completion_tokens" in complaint else None)
    assert len(server.chat_requests) <= 2 + (3 if status >= 500 else 1)


async def test_after_a_refusal_for_another_reason_the_next_call_has_all_options() -> None:
    """Guards against dropping options after a request that would have failed anyway."""
    too_long = Reply("maximum context length exceeded", status=400)
    with OpenAIServer([too_long, too_long, too_long, "fine"]) as server:
        async with model_at(server.base_url) as model:
            with pytest.raises(ModelRefusedError, match=r"400.*maximum context length exceeded"):
                await model.complete(MESSAGES, SCHEMA)
            assert await model.complete(MESSAGES, SCHEMA) == "fine"
        assert format_of(server.chat_requests[-1]) == "json_schema"


FAILURES = [
    pytest.param(Reply("bad", status=400), ModelRefusedError, "400", id="400"),
    pytest.param(Reply("no", status=401), ModelRefusedError, "Check the API key", id="401"),
    pytest.param(Reply("no", status=404), ModelRefusedError, "Check llm.config", id="404"),
    pytest.param(Reply("slow down", status=429, headers=AT_ONCE), ModelRefusedError, "429.*slow down", id="429"),
    pytest.param(Reply("broken", status=500, headers=AT_ONCE), ModelUnreachableError, "500.*broken", id="500"),
    pytest.param(Reply(body=b'{"choices": [{"mess'), ModelUnreachableError, NOT_OPENAI, id="truncated JSON"),
    pytest.param(Reply(body=b"<html>Sign in</html>"), ModelUnreachableError, NOT_OPENAI, id="HTML"),
    pytest.param(Reply(body=b"\xff\xfe{}"), ModelUnreachableError, NOT_OPENAI, id="no UTF-8"),
    pytest.param(
        Reply(body=b'{"id"', headers={"content-length": "400"}),
        ModelUnreachableError,
        "Check llm.config.openai_base_url",
        id="cut off in the body",
    ),
    pytest.param(Reply(body=b'{"choices": null}'), ModelUnreachableError, NOT_OPENAI, id="null choices"),
    pytest.param(Reply(body=b'{"choices": [{}]}'), ModelUnreachableError, NOT_OPENAI, id="no message"),
    pytest.param(
        Reply(body=b'{"choices": [{"message": {"role": "assistant", "content": null}}]}'),
        EmptyReplyError,
        "sent an empty reply",
        id="null content",
    ),
    pytest.param(Reply("", finish_reason="length"), ReplyError, "Raise llm.config.max_tokens", id="cut at nothing"),
    *(
        pytest.param(Reply(body=body), ModelUnreachableError, NOT_OPENAI, id=body.decode())
        for body in (b"null", b"[]", b'"x"', b'{"choices": ["x"]}', b'{"choices": [{"message": "x"}]}')
    ),
    pytest.param(Reply(f"Incorrect key: {KEY}", status=401), ModelRefusedError, "Incorrect key: …", id="key in 401"),
    pytest.param(Reply(refusal="I cannot help with that."), ModelRefusedError, "declined: I cannot help", id="refusal"),
    pytest.param(
        Reply("Half a sen", finish_reason="content_filter"), ModelRefusedError, "content filter", id="content filter"
    ),
]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(("reply", "kind", "text"), FAILURES)
async def test_every_failure_raises_our_own_error_with_the_cause(
    reply: Reply, kind: type[ModelError], text: str
) -> None:
    with OpenAIServer(lambda _: reply) as server:
        async with model_at(server.base_url) as model:
            with pytest.raises(ModelError, match=text) as error:
                await model.complete(MESSAGES, SCHEMA)
        assert len(server.chat_requests) <= 3, "one retry, or two simpler forms"
    assert type(error.value) is kind
    assert "scripted" in str(error.value)
    assert KEY not in str(error.value)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_a_temporary_failure_is_retried_once(status: int) -> None:
    with OpenAIServer([Reply("later", status=status, headers=AT_ONCE), "fine"]) as server:
        async with model_at(server.base_url) as model:
            assert await model.complete(MESSAGES, SCHEMA) == "fine"
        assert len(server.chat_requests) == 2


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("base_url", [None, "no-url-at-all"], ids=["nobody", "no url"])
async def test_an_address_where_no_server_listens_is_unreachable(base_url: str | None) -> None:
    """Guards the most common mistakes: the local server is not running, or its address is misspelt."""
    async with model_at(base_url or unused_base_url()) as model:
        with pytest.raises(ModelUnreachableError, match=r"Check llm\.config\.openai_base_url"):
            await model.complete(MESSAGES, SCHEMA)


async def test_an_endpoint_that_lists_its_models_passes_the_check() -> None:
    """Guards the cost of `doctor`: the check requests no completion, so it uses no tokens."""
    with OpenAIServer(api_key=KEY) as server:
        async with model_at(server.base_url) as model:
            await model.check()
        assert [request["path"] for request in server.requests] == ["/v1/models"]


@pytest.mark.parametrize(
    ("api_key", "path", "kind", "fault"),
    [
        ("another", "", ModelRefusedError, r"401.*Check the API key"),
        (KEY, "/nothing", ModelRefusedError, r"404.*openai_base_url"),
        (None, None, ModelUnreachableError, r"llm\.config\.openai_base_url"),
    ],
    ids=["wrong key", "wrong path", "no server"],
)
async def test_what_is_wrong_is_reported(
    api_key: str | None, path: str | None, kind: type[ModelError], fault: str
) -> None:
    with OpenAIServer(api_key=api_key) as server:
        async with model_at(unused_base_url() if path is None else f"{server.base_url}{path}") as model:
            with pytest.raises(kind, match=fault) as error:
                await model.check()
    assert KEY not in str(error.value)


async def test_a_proxy_is_not_asked_for_what_is_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards privacy: a local model was chosen so that nothing leaves the machine."""
    monkeypatch.setenv("HTTP_PROXY", unused_base_url())
    with OpenAIServer(["Lisbon"]) as server:
        async with model_at(server.base_url) as model:
            assert await model.complete(MESSAGES, None) == "Lisbon"


async def test_a_server_that_does_not_answer_in_time_is_unreachable() -> None:
    """Guards the timeout in the settings: the error names the setting."""
    with OpenAIServer(lambda _: Reply("too late", delay=30.0)) as server:
        async with model_at(server.base_url, timeout_seconds=0.1) as model:
            with pytest.raises(ModelUnreachableError, match=r"raise llm\.config\.timeout"):
                await model.complete(MESSAGES, SCHEMA)
