"""The language model of Anthropic's Messages API, by its own package: the extra `anthropic`."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from palimpsest.core import errors
from palimpsest.core.settings import Endpoint, LlmConfig
from palimpsest.core.validation import object_of, system_apart, whole_reply
from palimpsest.llm.ask import list_in

try:
    import anthropic
except ImportError as error:
    raise errors.SettingsError("llm.provider = 'anthropic' needs: pip install 'palimpsest-mcp[anthropic]'") from error

SERVER_ERROR = 500
_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,(.+)", re.DOTALL)


class AnthropicModel:
    """One chat model."""

    def __init__(self, config: LlmConfig, endpoint: Endpoint) -> None:
        self.name = config.model
        self._vision_model = config.vision_model
        self._max_tokens = config.max_tokens
        # Some models refuse both. The temperature has a default; who sets top_p means that.
        given = {"temperature": config.temperature if config.top_p is None else None, "top_p": config.top_p}
        self._options = {name: value for name, value in given.items() if value is not None}
        self._has_schema = True
        client_options = endpoint.client_options(config.timeout, anthropic.DefaultAsyncHttpxClient)
        self._client = anthropic.AsyncAnthropic(**client_options)

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the reply's text. With a schema, structured output is used if the model has that.

        Raises ModelUnreachableError, ModelRefusedError, ReplyError, and CutOffReplyError if it reached `max_tokens`.
        """
        name = self._vision_model if any("image" in message for message in messages) else self.name
        while True:
            form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
            options = {**self._options, **(form if schema is not None and self._has_schema else {})}
            try:
                return _text(name, await self._ask(name, messages, options))
            except anthropic.BadRequestError as error:
                refused = [name for name in ("temperature", "top_p") if name in options and name in str(error)]
                if refused:
                    self._options.pop(refused[0], None)  # another call may have met the same
                elif "output_config" in options:
                    self._has_schema = False
                else:
                    raise self._to_our_error(error, name) from error
            except (anthropic.AnthropicError, ValueError, TypeError) as error:
                raise self._to_our_error(error, name) from error

    async def check(self) -> None:
        """Look the model up, which costs nothing. Raises ModelError."""
        try:
            await self._client.models.retrieve(self.name)
        except (anthropic.AnthropicError, ValueError) as error:
            raise self._to_our_error(error, self.name) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(
        self, name: str, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        system, shown = system_apart(messages)
        response = await self._client.messages.with_raw_response.create(
            model=name,
            max_tokens=self._max_tokens,
            messages=[{"role": cast("Any", message["role"]), "content": _content(message)} for message in shown],
            # What the package types is what the newest models take.
            extra_body={**({"system": system} if system else {}), **options},
        )
        return object_of(json.loads(await response.read()))

    def _to_our_error(self, error: Exception, model: str) -> errors.ModelError:
        kind, what = errors.ModelUnreachableError, f"could not be reached ({str(error)[:200]}). Check llm.config."
        if isinstance(error, anthropic.APITimeoutError):
            what = "did not answer in time. Try again, or raise llm.config.timeout."
        elif isinstance(error, anthropic.APIStatusError):
            kind = kind if error.status_code >= SERVER_ERROR else errors.ModelRefusedError
            words = object_of(object_of(error.body).get("error")).get("message") or error.message
            what = f"answered {error.status_code}: {str(words)[:300]}"
        return kind(f"the model {model} {what}")


def _content(message: Mapping[str, str]) -> Any:
    """Return the content of a message, with its picture if it has one."""
    if "image" not in message:
        return message["content"]
    url = message["image"]
    data = _DATA_URL.fullmatch(url)
    source = {"type": "base64", "media_type": data[1], "data": data[2]} if data else {"type": "url", "url": url}
    return [{"type": "image", "source": source}, {"type": "text", "text": message["content"]}]


def _text(model: str, reply: Mapping[str, Any]) -> str:
    """Return the reply's text."""
    if (reason := reply.get("stop_reason")) == "refusal":
        raise errors.ModelRefusedError(f"the model {model} declined to answer")
    parts = [object_of(part) for part in list_in(reply.get("content"))]
    text = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    return whole_reply(f"the model {model}", text, reason, is_cut=reason == "max_tokens")
