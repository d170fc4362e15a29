"""The connected client's own model, asked by MCP sampling. It is there during a call only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from palimpsest.core.errors import ModelRefusedError, ModelUnreachableError, ReplyError

Put: TypeAlias = Callable[[CreateMessageRequest], Awaitable[BaseModel]]
"""Puts a question to the client and returns what it answers. Raises MCPError where the client declines."""

MAX_NAME_CHARS = 100

UNNAMED = "the client's model"


class SamplingModel:
    """Ask the client's model. `max_tokens` bounds a reply; `timeout` is in seconds, for one reply."""

    def __init__(self, put: Put, *, temperature: float | None, max_tokens: int, timeout: float) -> None:
        self._put = put
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._timeout = timeout
        self._name = UNNAMED

    @property
    def name(self) -> str:
        """Name the model as its last reply did."""
        return self._name

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the reply's text; sampling has no structured output, the prompt alone asks for JSON.

        Raises ModelUnreachableError, ModelRefusedError or ReplyError.
        """
        del schema
        try:
            with anyio.fail_after(self._timeout):
                result = await self._put(self._question(messages))
        except TimeoutError as error:
            raise ModelUnreachableError(
                f"{UNNAMED} gave no reply within {self._timeout:g} seconds. Raise llm.config.timeout if it needs more."
            ) from error
        except MCPError as error:
            raise ModelRefusedError(
                f"{UNNAMED} was not lent: {str(error)[:300].rstrip('. ')}. "
                "Allow it in the client, or set llm.provider to 'none'."
            ) from error
        except ValidationError as error:
            raise ReplyError(f"{UNNAMED} answered in no known form.") from error
        return self._text(result)

    async def check(self) -> None:
        """Do nothing: only a reply shows whether the client lends its model."""

    async def aclose(self) -> None:
        """Do nothing: the connection is the client's."""

    def _question(self, messages: Sequence[Mapping[str, str]]) -> CreateMessageRequest:
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        said = [
            SamplingMessage(
                role=cast("Any", message["role"]), content=TextContent(type="text", text=message["content"])
            )
            for message in messages
            if message["role"] != "system"
        ]
        return CreateMessageRequest(
            params=CreateMessageRequestParams(
                messages=said,
                system_prompt=system or None,
                temperature=self._temperature,
                max_tokens=self._max_tokens,
            )
        )

    def _text(self, result: BaseModel) -> str:
        """Return the text of an answer, which may come in parts, and note who gave it."""
        if not isinstance(result, CreateMessageResult | CreateMessageResultWithTools):
            raise ReplyError(f"{UNNAMED} was asked, and something else came back ({type(result).__name__}).")
        # It goes into the history, line by line; the client may call its model anything.
        self._name = " ".join(result.model.split())[:MAX_NAME_CHARS] or UNNAMED
        parts = result.content if isinstance(result.content, list) else [result.content]
        text = "\n".join(part.text for part in parts if isinstance(part, TextContent))
        if not text.strip():
            advice = " Raise llm.config.max_tokens." if result.stop_reason == "maxTokens" else ""
            raise ReplyError(f"{self._name} answered with no text ({result.stop_reason or 'no reason given'}).{advice}")
        return text
