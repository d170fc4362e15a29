"""The language model of the connected client, called through MCP sampling. It is available only during a tool call."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import anyio
from mcp import types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from palimpsest.core.errors import ModelRefusedError, ModelUnreachableError, ReplyError
from palimpsest.core.validation import system_apart, whole_reply

# A function that sends a request to the client and returns its answer. Raises MCPError if the client declines.
Send: TypeAlias = Callable[[types.CreateMessageRequest], Awaitable[BaseModel]]

MAX_NAME_CHARS = 100

UNNAMED = "the client's model"


class SamplingModel:
    """The client's model. `max_tokens` limits a reply; `timeout` is in seconds, for one reply."""

    def __init__(self, send: Send, *, temperature: float | None, max_tokens: int, timeout: float) -> None:
        self._send = send
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._timeout = timeout
        # The model's name as its last reply gave it.
        self.name = UNNAMED

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the reply's text. The schema is ignored: sampling has no structured output, the prompt asks for JSON.

        Raises ModelUnreachableError, ModelRefusedError, ReplyError, and CutOffReplyError if it reached `max_tokens`.
        """
        del schema
        try:
            with anyio.fail_after(self._timeout):
                result = await self._send(self._request(messages))
        except TimeoutError as error:
            raise ModelUnreachableError(f"{UNNAMED} gave no reply within llm.config.timeout.") from error
        except MCPError as error:
            reason = str(error)[:300].rstrip(". ")
            raise ModelRefusedError(f"the client refused the use of its model: {reason}. Allow it there.") from error
        except ValidationError as error:
            raise ReplyError(f"{UNNAMED} sent an answer that is not valid MCP.") from error
        return self._text(result)

    async def check(self) -> None:
        """Do nothing. Only a request shows whether the client allows the use of its model."""

    async def aclose(self) -> None:
        """Do nothing. The connection belongs to the session."""

    def _request(self, messages: Sequence[Mapping[str, str]]) -> types.CreateMessageRequest:
        system, others = system_apart(messages)
        conversation = [
            types.SamplingMessage(
                role=cast("Any", message["role"]), content=types.TextContent(type="text", text=message["content"])
            )
            for message in others
        ]
        params = types.CreateMessageRequestParams(
            messages=conversation,
            system_prompt=system or None,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
        )
        return types.CreateMessageRequest(params=params)

    def _text(self, result: BaseModel) -> str:
        """Return the text of an answer, which may have several parts, and remember the model's name."""
        if not isinstance(result, types.CreateMessageResult | types.CreateMessageResultWithTools):
            raise ReplyError(f"{UNNAMED} sent an answer of the wrong type ({type(result).__name__}).")
        # The name goes into the history, one line per row, and the client chooses it freely.
        self.name = " ".join(result.model.split())[:MAX_NAME_CHARS] or UNNAMED
        parts = result.content if isinstance(result.content, list) else [result.content]
        text = "\n".join(part.text for part in parts if isinstance(part, types.TextContent) and part.text.strip())
        text = text or "\n".join(json.dumps(part.input) for part in parts if isinstance(part, types.ToolUseContent))
        return whole_reply(self.name, text, result.stop_reason, is_cut=result.stop_reason == "maxTokens")
