"""The language model of an OpenAI-compatible chat endpoint: OpenAI, Ollama, LM Studio, vLLM and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see below
import openai

from palimpsest.core.configuration.endpoints import is_on_this_machine
from palimpsest.core.errors import CutOffReplyError, ModelError, ModelRefusedError, ModelUnreachableError, ReplyError
from palimpsest.llm.usage import report_tokens

CHECK_URL = "Check llm.config.openai_base_url."
NOT_OPENAI = "a reply that is not in OpenAI's format"
SERVER_ERROR = 500
MIN_KEY_CHARS = 8
"""Shorter keys are placeholders, not secrets, and would match ordinary words in an error text."""

RETRIES = 1
"""How often the openai package retries after a connection error or status 408, 409, 429 or 5xx."""

# The openai package looks for httpx in sys.modules at every request. It fails if another thread, which imports chromadb
# at that moment, has only half imported httpx. Importing httpx here prevents that.


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The request options that an endpoint supports. Requests start with all of them and drop those it rejects."""

    form: Literal["json_schema", "json_object", "plain"] = "json_schema"
    temperature: bool = True
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


class OpenAIModel:
    """One chat model. `timeout` is in seconds, for one request."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None,
        base_url: str | None,
        temperature: float | None,
        max_tokens: int,
        timeout: float,
    ) -> None:
        self._model = model
        self._key = api_key or ""
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._dialect = _Dialect(temperature=temperature is not None)
        # Local servers need no key, but the client requires one.
        self._client = openai.AsyncOpenAI(
            api_key=api_key or "none",
            base_url=base_url,
            timeout=timeout,
            max_retries=RETRIES,
            # A proxy of the environment would take what is for this machine to another one.
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if is_on_this_machine(base_url) else None,
        )

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self._model

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the reply's text. With a schema, the endpoint's structured output is used if it has that.

        Raises ModelUnreachableError, ModelRefusedError, ReplyError, and CutOffReplyError if it reached `max_tokens`.
        """
        dialect = self._dialect if schema is not None else replace(self._dialect, form="plain")
        while True:
            try:
                completion = await self._ask(messages, schema, dialect)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                simpler = _simpler(dialect, str(error.message))
                if simpler is None:
                    raise self._to_our_error(error) from error
                dialect = simpler
                continue
            self._dialect = dialect if schema is not None else replace(dialect, form=self._dialect.form)
            _report_usage(completion)
            return _text(self._model, completion)

    async def check(self) -> None:
        """List the models of the endpoint, which costs nothing. Raises ModelError."""
        try:
            await self._client.models.list()
        except (openai.OpenAIError, ValueError, AttributeError) as error:
            raise self._to_our_error(error) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, dialect: _Dialect
    ) -> object:
        options: dict[str, Any] = {dialect.limit: self._max_tokens}
        if dialect.temperature:
            options["temperature"] = self._temperature
        if dialect.form == "json_object":
            options["response_format"] = {"type": "json_object"}
        elif dialect.form == "json_schema":
            json_schema = {"name": "reply", "schema": schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        try:
            create = cast("Any", self._client.chat.completions.create)  # its overloads do not cover these options
            return await create(model=self._model, messages=list(messages), **options)
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            raise
        except (openai.OpenAIError, ValueError, AttributeError, TypeError) as error:
            raise self._to_our_error(error) from error

    def _to_our_error(self, error: Exception) -> ModelError:
        """Return our error for an error of the openai package. The key is removed, because some endpoints repeat it."""
        kind, text = _error_for(self._model, error)
        return kind(text.replace(self._key, "…") if len(self._key) >= MIN_KEY_CHARS else text)


def _simpler(dialect: _Dialect, complaint: str) -> _Dialect | None:
    """Return simpler options after an endpoint rejected these, or None if there are none."""
    if dialect.temperature and "temperature" in complaint:
        return replace(dialect, temperature=False)
    if dialect.limit == "max_tokens" and "max_completion_tokens" in complaint:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.form == "json_schema":
        return replace(dialect, form="json_object")
    if dialect.form == "json_object":
        return replace(dialect, form="plain")
    return None


def _report_usage(completion: Any) -> None:
    """Report the tokens that a call took, if the endpoint says how many."""
    total: Any = getattr(getattr(completion, "usage", None), "total_tokens", None)
    if isinstance(total, int) and total > 0:
        report_tokens(total)


def _text(model: str, completion: Any) -> str:
    """Return the reply's text. Every attribute is checked, because a nearly compatible server may send anything."""
    choices: Any = getattr(completion, "choices", None)
    first: Any = cast("list[Any]", choices)[0] if isinstance(choices, list) and choices else None
    message: Any = getattr(first, "message", None)
    if message is None or isinstance(message, str):
        raise ModelUnreachableError(f"the endpoint of the model {model} sent {NOT_OPENAI}. {CHECK_URL}")
    if refusal := getattr(message, "refusal", None):
        raise ModelRefusedError(f"the model {model} declined: {str(refusal)[:300]}")
    reason = getattr(first, "finish_reason", None)
    if reason == "content_filter":
        raise ModelRefusedError(f"the model {model} was stopped by its content filter")
    content: Any = getattr(message, "content", None)
    if not isinstance(content, str) or not content.strip():
        advice = " Raise llm.config.max_tokens." if reason == "length" else ""
        raise ReplyError(f"the model {model} sent an empty reply (finish_reason {reason}).{advice}")
    if reason == "length":
        raise CutOffReplyError(f"the reply of the model {model} was cut off. Raise llm.config.max_tokens.", content)
    return content


def _error_for(model: str, error: Exception) -> tuple[type[ModelError], str]:
    match error:
        case openai.APITimeoutError():
            text = f"the model {model} did not answer in time. Try again, or raise llm.config.timeout."
            return ModelUnreachableError, text
        case openai.APIConnectionError():
            text = f"the model {model} could not be reached ({error.__cause__ or error}). {CHECK_URL}"
            return ModelUnreachableError, text
        case openai.APIStatusError():
            text = f"the model {model} answered {error.status_code}: {_complaint(error)}. {_advice(error.status_code)}"
            return (ModelUnreachableError if error.status_code >= SERVER_ERROR else ModelRefusedError), text
        case _:
            text = f"the endpoint of the model {model} sent {NOT_OPENAI}: {str(error)[:200]}. {CHECK_URL}"
            return ModelUnreachableError, text


def _complaint(error: openai.APIStatusError) -> str:
    """Return the endpoint's own error message."""
    body: Any = error.body
    message: Any = cast("dict[str, Any]", body).get("message") if isinstance(body, dict) else None
    return str(message or error.message)[:300].rstrip(". ")


def _advice(status: int) -> str:
    if status >= SERVER_ERROR:
        return "Try again later."
    by_status = {401: "Check the API key.", 403: "Check the API key.", 429: "Wait, or check the quota."}
    return by_status.get(status, "Check llm.config (model, max_tokens, openai_base_url).")
