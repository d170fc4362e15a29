"""The OpenAI-compatible chat model, against a real HTTP server on loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import ModelError, ModelRefusedError, ModelUnreachableError, ReplyError
from palimpsest.llm.openai import OpenAIModel

KEY = "sk-never-shown-0123456789"
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where does Ana live?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
NOT_OPENAI = "not in OpenAI's format"
AT_ONCE = {"retry-after-ms": "1"}
"""Makes the openai package retry at once instead of after half a second."""

pytestmark = pytest.mark.anyio

Chat = Callable[[dict[str, Any]], Reply | str]


@asynccontextmanager
async def model_at(
    base_url: str, *, key: str | None = KEY, temperature: float | None = 0.1, seconds: float = 5.0
) -> AsyncGenerator[OpenAIModel]:
    """Yield a model and close it at the end."""
    model = OpenAIModel(
        "scripted", api_key=key, base_url=base_url, temperature=temperature, max_tokens=300, timeout=seconds
    )
    try:
        yield model
    finally:
        await model.aclose()


def nobody() -> str:
    """Return a base URL where no one listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def refusing(why: Callable[[dict[str, Any]], str | None], status: int = 400) -> Chat:
    """Answer a request with the complaint that `why` has about it, else with "fine"."""

    def chat(sent: dict[str, Any]) -> Reply | str:
        complaint = why(sent)
        return "fine" if complaint is None else Reply(complaint, status=status)

    return chat


def without_forms(*forms: str) -> Callable[[dict[str, Any]], str | None]:
    """Complain of a response format that an endpoint does not know."""

    def why(sent: dict[str, Any]) -> str | None:
        form = sent.get("response_format", {}).get("type")
        return f"Unknown value 'response_format.type': {form}" if form in forms else None

    return why


def form_of(sent: dict[str, Any]) -> str:
    return sent.get("response_format", {}).get("type", "plain")


def hanging_up(_sent: dict[str, Any]) -> Reply:
    """Close the connection without an answer."""
    raise ConnectionResetError


class TestAsking:
    async def test_the_reply_is_asked_for_by_strict_json_schema_first(self) -> None:
        """Guards the richest request: schema, limit, temperature and messages as they were given."""
        with OpenAIServer(['{"city": "Lisbon"}']) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(ASKED, SCHEMA) == '{"city": "Lisbon"}'
            (sent,) = server.chat_requests
        assert sent == {
            "model": "scripted",
            "messages": ASKED,
            "max_tokens": 300,
            "temperature": 0.1,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True},
            },
        }

    async def test_without_a_schema_no_format_is_asked_for(self) -> None:
        """Guards plain text: an endpoint in JSON mode may refuse a prompt that does not contain the word JSON."""
        with OpenAIServer(["Lisbon", "{}"]) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(ASKED, None) == "Lisbon"
                await model.complete(ASKED, SCHEMA)
            plain, structured = server.chat_requests
        assert (form_of(plain), form_of(structured)) == ("plain", "json_schema")

    async def test_no_temperature_is_sent_where_none_is_set(self) -> None:
        """Guards the setting `temperature = null`, for models that do not accept one."""
        with OpenAIServer(["fine"]) as server:
            async with model_at(server.base_url, temperature=None) as model:
                await model.complete(ASKED, SCHEMA)
            assert "temperature" not in server.chat_requests[0]

    @pytest.mark.parametrize(("key", "bearer"), [(KEY, f"Bearer {KEY}"), (None, "Bearer none")])
    async def test_the_key_goes_as_a_bearer(self, key: str | None, bearer: str) -> None:
        """Guards authentication, and that a local server without a key is not refused by the client itself."""
        with OpenAIServer(["fine"]) as server:
            async with model_at(server.base_url, key=key) as model:
                await model.complete(ASKED, SCHEMA)
                assert model.name == "scripted"
            assert server.requests[0]["headers"]["authorization"] == bearer


class TestDialects:
    @pytest.mark.parametrize("status", [400, 422])
    @pytest.mark.parametrize(
        ("unknown", "asked"),
        [
            (("json_schema",), ["json_schema", "json_object"]),
            (("json_schema", "json_object"), ["json_schema", "json_object", "plain"]),
        ],
    )
    async def test_a_refused_format_is_asked_for_more_simply_and_never_again(
        self, unknown: tuple[str, ...], asked: list[str], status: int
    ) -> None:
        """Guards servers that know less than OpenAI: found out once, remembered for the next call."""
        with OpenAIServer(refusing(without_forms(*unknown), status)) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(ASKED, SCHEMA) == "fine"
                assert [form_of(sent) for sent in server.chat_requests] == asked
                assert await model.complete(ASKED, SCHEMA) == "fine"
            assert [form_of(sent) for sent in server.chat_requests] == [*asked, asked[-1]]

    async def test_a_refused_temperature_is_left_out_and_the_format_kept(self) -> None:
        """Guards reasoning models: only the option that the error names is dropped."""

        def why(sent: dict[str, Any]) -> str | None:
            return "Unsupported value: 'temperature' does not support 0.1" if "temperature" in sent else None

        with OpenAIServer(refusing(why)) as server:
            async with model_at(server.base_url) as model:
                await model.complete(ASKED, SCHEMA)
                await model.complete(ASKED, SCHEMA)
            first, *others = server.chat_requests
        assert "temperature" in first
        assert [("temperature" in sent, form_of(sent)) for sent in others] == [(False, "json_schema")] * 2

    async def test_a_refused_max_tokens_becomes_max_completion_tokens(self) -> None:
        """Guards newer OpenAI models, which accept the limit only under its other name."""

        def why(sent: dict[str, Any]) -> str | None:
            named = "'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return named if "max_tokens" in sent else None

        with OpenAIServer(refusing(why)) as server:
            async with model_at(server.base_url) as model:
                await model.complete(ASKED, SCHEMA)
                await model.complete(ASKED, SCHEMA)
            limits = [{name: sent[name] for name in sent if "tokens" in name} for sent in server.chat_requests]
        assert limits == [{"max_tokens": 300}, {"max_completion_tokens": 300}, {"max_completion_tokens": 300}]

    async def test_several_peculiarities_are_found_out_one_after_the_other(self) -> None:
        """Guards the fallback: each error removes one option, until the endpoint accepts the request."""

        def why(sent: dict[str, Any]) -> str | None:
            if "max_tokens" in sent:
                return "use max_completion_tokens"
            if "temperature" in sent:
                return "temperature is fixed"
            return without_forms("json_schema")(sent)

        with OpenAIServer(refusing(why)) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(ASKED, SCHEMA) == "fine"
                assert len(server.chat_requests) == 4
                await model.complete(ASKED, SCHEMA)
            last = server.chat_requests[-1]
            assert len(server.chat_requests) == 5
        assert set(last) == {"model", "messages", "max_completion_tokens", "response_format"}
        assert form_of(last) == "json_object"

    async def test_a_refusal_for_another_reason_leaves_the_next_call_as_rich_as_before(self) -> None:
        """Guards against dropping options after a request that would have failed anyway."""
        too_long = Reply("maximum context length exceeded", status=400)
        with OpenAIServer([too_long, too_long, too_long, "fine"]) as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelRefusedError, match=r"400.*maximum context length exceeded"):
                    await model.complete(ASKED, SCHEMA)
                assert await model.complete(ASKED, SCHEMA) == "fine"
            assert form_of(server.chat_requests[-1]) == "json_schema"


FAILURES = [
    pytest.param(Reply("bad", status=400), ModelRefusedError, "400", id="400"),
    pytest.param(Reply("no", status=401), ModelRefusedError, "Check the API key", id="401"),
    pytest.param(Reply("no", status=403), ModelRefusedError, "Check the API key", id="403"),
    pytest.param(Reply("no", status=404), ModelRefusedError, "Check llm.config", id="404"),
    pytest.param(Reply("slow down", status=429, headers=AT_ONCE), ModelRefusedError, "429.*slow down", id="429"),
    pytest.param(Reply("broken", status=500, headers=AT_ONCE), ModelUnreachableError, "500.*broken", id="500"),
    pytest.param(Reply("away", status=503, headers=AT_ONCE), ModelUnreachableError, "503.*away", id="503"),
    pytest.param(Reply(body=b'{"choices": [{"mess'), ModelUnreachableError, NOT_OPENAI, id="truncated JSON"),
    pytest.param(Reply(body=b"<html>Sign in</html>"), ModelUnreachableError, NOT_OPENAI, id="HTML"),
    pytest.param(Reply(body=b""), ModelUnreachableError, NOT_OPENAI, id="no body"),
    pytest.param(Reply(body=b"\xff\xfe{}"), ModelUnreachableError, NOT_OPENAI, id="no UTF-8"),
    pytest.param(
        Reply(body=b'{"id"', headers={"content-length": "400"}),
        ModelUnreachableError,
        "Check llm.config.openai_base_url",
        id="cut off in the body",
    ),
    pytest.param(Reply(body=b'{"choices": []}'), ModelUnreachableError, NOT_OPENAI, id="empty choices"),
    pytest.param(Reply(body=b'{"choices": null}'), ModelUnreachableError, NOT_OPENAI, id="null choices"),
    pytest.param(Reply(body=b"{}"), ModelUnreachableError, NOT_OPENAI, id="no choices"),
    pytest.param(Reply(body=b'{"choices": [{}]}'), ModelUnreachableError, NOT_OPENAI, id="no message"),
    pytest.param(
        Reply(body=b'{"choices": [{"message": {"role": "assistant", "content": null}}]}'),
        ReplyError,
        "sent an empty reply",
        id="null content",
    ),
    pytest.param(Reply(""), ReplyError, "sent an empty reply", id="empty content"),
    pytest.param(Reply("", finish_reason="length"), ReplyError, "Raise llm.config.max_tokens", id="cut at nothing"),
    pytest.param(
        Reply(body=b"<html>", headers={"content-type": "text/html"}), ModelUnreachableError, NOT_OPENAI, id="portal"
    ),
    *(
        pytest.param(Reply(body=body), ModelUnreachableError, NOT_OPENAI, id=body.decode())
        for body in (b"null", b"[]", b'"x"', b'{"choices": ["x"]}', b'{"choices": [{"message": "x"}]}')
    ),
    pytest.param(Reply(f"Incorrect key: {KEY}", status=400), ModelRefusedError, "Incorrect key: …", id="key in 400"),
    pytest.param(Reply(f"Incorrect key: {KEY}", status=401), ModelRefusedError, "Incorrect key: …", id="key in 401"),
    pytest.param(Reply(refusal="I cannot help with that."), ModelRefusedError, "declined: I cannot help", id="refusal"),
    pytest.param(
        Reply("Half a sen", finish_reason="content_filter"), ModelRefusedError, "content filter", id="content filter"
    ),
]


class TestFailures:
    @pytest.mark.parametrize(("reply", "kind", "text"), FAILURES)
    async def test_a_failure_is_an_error_of_ours_that_says_what_it_was(
        self, reply: Reply, kind: type[ModelError], text: str
    ) -> None:
        """Guards the protocol: never an empty answer, never an exception of the openai package, never the key."""
        with OpenAIServer(lambda _: reply) as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelError, match=text) as caught:
                    await model.complete(ASKED, SCHEMA)
        assert type(caught.value) is kind
        assert "scripted" in str(caught.value)
        assert KEY not in str(caught.value)

    @pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
    async def test_a_passing_failure_is_tried_once_more(self, status: int) -> None:
        """Guards against giving up at the first failure of a server."""
        with OpenAIServer([Reply("later", status=status, headers=AT_ONCE), "fine"]) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(ASKED, SCHEMA) == "fine"
            assert len(server.chat_requests) == 2

    @pytest.mark.parametrize(("status", "requests"), [(401, 1), (403, 1), (404, 1), (429, 2), (500, 2)])
    async def test_a_lasting_failure_is_asked_no_more_often_than_helps(self, status: int, requests: int) -> None:
        """Guards the waiting time of a tool call: one retry, and none if it cannot help."""
        with OpenAIServer(lambda _: Reply("no", status=status, headers=AT_ONCE)) as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelError):
                    await model.complete(ASKED, SCHEMA)
            assert len(server.chat_requests) == requests

    async def test_a_server_that_does_not_answer_in_time_is_unreachable(self) -> None:
        """Guards the timeout of the settings, and that the text names it."""
        with OpenAIServer(lambda _: Reply("too late", delay=30.0)) as server:
            async with model_at(server.base_url, seconds=0.1) as model:
                with pytest.raises(ModelUnreachableError, match=r"raise llm\.config\.timeout"):
                    await model.complete(ASKED, SCHEMA)

    async def test_a_connection_that_drops_is_unreachable(self) -> None:
        """Guards against a server that closes the connection during a request."""
        with OpenAIServer(hanging_up) as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelUnreachableError, match=r"Check llm\.config\.openai_base_url"):
                    await model.complete(ASKED, SCHEMA)

    @pytest.mark.parametrize("base_url", [None, "no-url-at-all"], ids=["nobody", "no url"])
    async def test_nobody_listening_is_unreachable(self, base_url: str | None) -> None:
        """Guards the commonest mistake: the local server is not running, or its address is misspelt."""
        async with model_at(base_url or nobody()) as model:
            with pytest.raises(ModelUnreachableError, match=r"Check llm\.config\.openai_base_url"):
                await model.complete(ASKED, SCHEMA)

    async def test_a_failure_without_a_schema_is_mapped_alike(self) -> None:
        """Guards plain requests, which have no simpler fallback."""
        with OpenAIServer([Reply("bad", status=400)]) as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelRefusedError, match="400"):
                    await model.complete(ASKED, None)
            assert len(server.chat_requests) == 1

    async def test_a_text_that_comes_with_odd_company_is_still_taken(self) -> None:
        """Guards nearly compatible servers: a missing finish_reason, usage or id is not a failure."""
        body = {"choices": [{"message": {"content": "Lisbon"}, "own": 1}], "own": 2}
        with OpenAIServer([Reply(body=json.dumps(body).encode())]) as server:
            async with model_at(server.base_url) as model:
                assert await model.complete(ASKED, SCHEMA) == "Lisbon"


class TestCheck:
    async def test_an_endpoint_that_lists_its_models_is_well(self) -> None:
        """Guards the doctor: the check costs no tokens, because it requests no completion."""
        with OpenAIServer(api_key=KEY) as server:
            async with model_at(server.base_url) as model:
                await model.check()
            assert [seen["path"] for seen in server.requests] == ["/v1/models"]

    async def test_a_wrong_key_is_told(self) -> None:
        """Guards the doctor against reporting a model as usable that would refuse every request."""
        with OpenAIServer(api_key="another") as server:
            async with model_at(server.base_url) as model:
                with pytest.raises(ModelRefusedError, match=r"401.*Check the API key") as caught:
                    await model.check()
        assert KEY not in str(caught.value)

    async def test_a_wrong_path_is_told(self) -> None:
        """Guards against a base URL without its `/v1`, or with something else."""
        with OpenAIServer() as server:
            async with model_at(f"{server.base_url}/nothing") as model:
                with pytest.raises(ModelRefusedError, match=r"404.*openai_base_url"):
                    await model.check()

    async def test_nobody_listening_is_told(self) -> None:
        """Guards the doctor for a local server that is not running."""
        async with model_at(nobody()) as model:
            with pytest.raises(ModelUnreachableError, match=r"llm\.config\.openai_base_url"):
                await model.check()
