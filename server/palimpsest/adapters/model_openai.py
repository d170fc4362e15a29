"""Any OpenAI-compatible chat endpoint: OpenAI, Ollama, LM Studio, vLLM and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see below
import openai
from openai.types.chat import ChatCompletion

from palimpsest.errors import ModelError, ModelRefusedError, ModelUnreachableError, ReplyError

RETRIES = 1
"""How often a request that met a connection error, 408, 409, 429 or 5xx is sent again, by the openai package."""

# The openai package looks into sys.modules for httpx at every request and trips over a half-imported one, which a
# thread that imports chromadb at that moment leaves there. So it is imported whole before.


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Say what an endpoint was found to understand; it is asked in the richest way first."""

    form: Literal["json_schema", "json_object", "plain"] = "json_schema"
    temperature: bool = True
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


class OpenAIModel:
    """Ask one chat model. `timeout` is in seconds, for one request."""

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
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._dialect = _Dialect(temperature=temperature is not None)
        # Local servers want no key, and the client insists on one.
        self._client = openai.AsyncOpenAI(
            api_key=api_key or "none", base_url=base_url, timeout=timeout, max_retries=RETRIES
        )

    @property
    def name(self) -> str:
        """Name the model."""
        return self._model

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the reply's text; with a schema, as structured output where the endpoint has it.

        Raises ModelUnreachableError, ModelRefusedError or ReplyError.
        """
        dialect = self._dialect if schema is not None else replace(self._dialect, form="plain")
        while True:
            try:
                completion = await self._ask(messages, schema, dialect)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                simpler = _simpler(dialect, str(error.message))
                if simpler is None:
                    raise ModelRefusedError(_status_text(self._model, error)) from error
                dialect = simpler
                continue
            if schema is not None:
                self._dialect = dialect
            return _text(self._model, completion)

    async def check(self) -> None:
        """Ask the endpoint for its models, which costs nothing. Raises ModelError."""
        try:
            await self._client.models.list()
        except (openai.OpenAIError, ValueError) as error:
            raise _mapped(self._model, error) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, dialect: _Dialect
    ) -> ChatCompletion:
        options: dict[str, Any] = {dialect.limit: self._max_tokens}
        if dialect.temperature:
            options["temperature"] = self._temperature
        if dialect.form == "json_object":
            options["response_format"] = {"type": "json_object"}
        elif dialect.form == "json_schema":
            wanted = {"name": "reply", "schema": schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": wanted}
        try:
            create = cast("Any", self._client.chat.completions.create)  # its overloads know no such mixture
            return cast("ChatCompletion", await create(model=self._model, messages=list(messages), **options))
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            raise
        except (openai.OpenAIError, ValueError) as error:
            raise _mapped(self._model, error) from error


def _simpler(dialect: _Dialect, complaint: str) -> _Dialect | None:
    """Return the next simpler way to ask after an endpoint refused this one; None when there is none."""
    if dialect.temperature and "temperature" in complaint:
        return replace(dialect, temperature=False)
    if dialect.limit == "max_tokens" and "max_completion_tokens" in complaint:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.form == "json_schema":
        return replace(dialect, form="json_object")
    if dialect.form == "json_object":
        return replace(dialect, form="plain")
    return None


def _text(model: str, completion: ChatCompletion) -> str:
    # A server that is only nearly compatible may leave out what the type promises.
    choices = cast("list[Any] | None", completion.choices)
    message = choices[0].message if choices else None
    if message is None:
        raise ReplyError(f"the model {model} answered without a message")
    if refusal := getattr(message, "refusal", None):
        raise ModelRefusedError(f"the model {model} declined: {str(refusal)[:300]}")
    if choices and choices[0].finish_reason == "content_filter":
        raise ModelRefusedError(f"the model {model} was stopped by its content filter")
    content = message.content
    if not isinstance(content, str):
        raise ReplyError(f"the model {model} answered without a text")
    return content


def _mapped(model: str, error: Exception) -> ModelError:
    match error:
        case openai.APITimeoutError():
            return ModelUnreachableError(
                f"the model {model} did not answer in time. Try again, or raise llm.config.timeout."
            )
        case openai.APIConnectionError():
            return ModelUnreachableError(
                f"the model {model} could not be reached ({error.__cause__ or error}). "
                "Is llm.config.openai_base_url right?"
            )
        case openai.APIStatusError() if error.status_code >= 500:  # noqa: PLR2004 - HTTP's server errors
            return ModelUnreachableError(_status_text(model, error))
        case openai.APIStatusError():
            return ModelRefusedError(_status_text(model, error))
        case _:
            return ModelUnreachableError(f"the endpoint of the model {model} answered with no OpenAI reply: {error}")


def _status_text(model: str, error: openai.APIStatusError) -> str:
    advice = {
        401: " Check the API key.",
        403: " Check the API key.",
        404: " Check llm.config.model and openai_base_url.",
    }
    return f"the model {model} answered {error.status_code}: {error.message[:300]}{advice.get(error.status_code, '')}"
