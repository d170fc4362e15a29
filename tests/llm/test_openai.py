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


COMPLAINTS = [
    ("System role not supported", 400, "roles", ["user"]),
    ("Developer instruction is not enabled for models/gemma-3-27b-it", 400, "roles", ["user"]),
    ("Conversation roles must alternate user/assistant/user/assistant/...", 400, "roles", ["user"]),
    ("max_tokens is too large: 4000. This model supports at most 2048 completion tokens.", 400, "limit", 2_000),
    ("`max_new_tokens` must be <= 2,000", 422, "limit", 2_000),
    (
        "This model's maximum context length is 4096 tokens. You requested 5000 tokens (1000 in the messages, 4000 in "
        "the completion).",
        400,
        "limit",
        2_000,
    ),
    ("response_format is not supported by this model", 404, "form", "json_object"),
    ("response_format 'json_schema' is not supported", 200, "form", "json_object"),
    ("Unsupported value: 'temperature' does not support 0.1", 400, "temperature", None),
    ("'max_tokens' is not supported. Use 'max_completion_tokens' instead.", 400, "limit", None),
]


async def test_the_first_request_has_a_strict_json_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is not asked for what is on this machine: a local model was chosen so that nothing leaves it."""
    monkeypatch.setenv("HTTP_PROXY", unused_base_url())
    with OpenAIServer(['{"city": "Lisbon"}']) as server:
        async with model_at(server.base_url) as model:
            assert await model.complete(MESSAGES, SCHEMA) == '{"city": "Lisbon"}'
            assert model.name == "scripted"
        assert server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
        (request,) = server.chat_requests
    strict = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
    own = {"model": "scripted", "messages": MESSAGES, "max_tokens": 300, "temperature": 0.1}
    assert request == {**own, "response_format": strict}


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


FAILURES: dict[str, tuple[Reply, type[ModelError], str]] = {
    "400": (Reply("bad", status=400), ModelRefusedError, "400"),
    "401": (Reply(f"Incorrect key: {KEY}", status=401), ModelRefusedError, "Incorrect key: ….*Check the API key"),
    "404": (Reply("no", status=404), ModelRefusedError, "Check llm.config"),
    "429": (Reply("slow down", status=429, headers=AT_ONCE), ModelRefusedError, "429.*slow down"),
    "500": (Reply("broken", status=500, headers=AT_ONCE), ModelUnreachableError, "500.*broken"),
    "HTML": (Reply(body=b"<html>Sign in</html>"), ModelUnreachableError, NOT_OPENAI),
    "no UTF-8": (Reply(body=b"\xff\xfe{}"), ModelUnreachableError, NOT_OPENAI),
    "cut off": (Reply(body=b'{"id"', headers={"content-length": "400"}), ModelUnreachableError, "openai_base_url"),
    **{
        body.decode(): (Reply(body=body), ModelUnreachableError, NOT_OPENAI)
        for body in (b'{"choices": [{"mess', b'{"choices": null}', b"null", b"[]", b'{"choices": [{"message": "x"}]}')
    },
    "no content": (Reply(body=b'{"choices": [{"message": {"content": null}}]}'), EmptyReplyError, "an empty reply"),
    "cut at nothing": (Reply("", finish_reason="length"), ReplyError, "Raise llm.config.max_tokens"),
    "refusal": (Reply(refusal="I cannot help with that."), ModelRefusedError, "declined: I cannot help"),
    "filter": (Reply("Half a sen", finish_reason="content_filter"), ModelRefusedError, "content filter"),
}


async def test_every_failure_raises_our_own_error_with_the_cause() -> None:
    for name, (reply, kind, text) in FAILURES.items():
        with OpenAIServer(lambda _, reply=reply: reply) as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelError, match=text) as error:
                    await model.complete(MESSAGES, SCHEMA)
            assert len(server.chat_requests) <= 3, "one retry, or two simpler forms"
        assert type(error.value) is kind, name
        assert "scripted" in str(error.value), name
        assert KEY not in str(error.value)


async def test_a_temporary_failure_is_retried_once() -> None:
    for status in (408, 409, 429, 500, 503):
        with OpenAIServer([Reply("later", status=status, headers=AT_ONCE), "fine"]) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(MESSAGES, SCHEMA) == "fine"
            assert len(server.chat_requests) == 2, status


async def test_the_check_says_what_is_wrong() -> None:
    """Guards the cost of `doctor`: the check requests no completion, so it uses no tokens."""
    faults: tuple[tuple[str | None, str, type[ModelError] | None, str], ...] = (
        (KEY, "", None, ""),
        ("another", "", ModelRefusedError, r"401.*Check the API key"),
        (KEY, "/nothing", ModelRefusedError, r"404.*openai_base_url"),
    )
    for api_key, path, kind, fault in faults:
        with OpenAIServer(api_key=api_key) as server:
            async with model_at(f"{server.base_url}{path}") as model:
                if kind is None:
                    await model.check()
                else:
                    with pytest.raises(kind, match=fault) as error:
                        await model.check()
                    assert KEY not in str(error.value)
            assert [request["path"] for request in server.requests] == [f"/v1{path}/models"]
    for address in ("no-url-at-all", unused_base_url()):
        async with model_at(address) as model:
            with pytest.raises(ModelUnreachableError, match=r"llm\.config\.openai_base_url"):
                await model.check()


async def test_a_server_that_does_not_answer_in_time_is_unreachable() -> None:
    """Guards the timeout in the settings: the error names the setting."""
    with OpenAIServer(lambda _: Reply("too late", delay=30.0)) as server:
        async with model_at(server.base_url, timeout_seconds=0.1) as model:
            with pytest.raises(ModelUnreachableError, match=r"raise llm\.config\.timeout"):
                await model.complete(MESSAGES, SCHEMA)
