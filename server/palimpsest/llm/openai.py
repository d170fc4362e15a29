"""The language model of an OpenAI-compatible chat endpoint: OpenAI, Ollama, LM Studio, vLLM and others."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see below
import openai

from palimpsest.core.errors import ModelError, ModelRefusedError, ModelUnreachableError
from palimpsest.core.settings import Endpoint, LlmConfig
from palimpsest.core.validation import object_of, one_line, system_apart, whole_reply
from palimpsest.llm.ask import list_in

CHECK_URL = "Check llm.config.openai_base_url."
NOT_OPENAI = "a reply that is not in OpenAI's format"
SERVER_ERROR = 500
STATUS_DIGITS = 3

# A limit on replies that an endpoint finds too large is halved down to this: shorter ones would lose facts.
MIN_REPLY_TOKENS = 500

_FORM = re.compile(r"response_?format|json|structured output|grammar", re.IGNORECASE)
# How endpoints say that a model knows no system role.
_SYSTEM = re.compile(r"\bsystem\b|developer instruction|roles? must alternate|only (?:the )?user", re.IGNORECASE)
_LIMIT = re.compile(r"max_?(?:completion|new|output)?_?tokens|context (?:length|window|size)|n_ctx", re.IGNORECASE)

# The openai package looks for httpx in sys.modules at every request. It fails if another thread, which imports chromadb
# at that moment, has only half imported httpx. Importing httpx here prevents that.


_Form: TypeAlias = Literal["json_schema", "json_object", "plain"]
_SIMPLER_FORM: Mapping[_Form, _Form] = {"json_schema": "json_object", "json_object": "plain"}


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The request options that an endpoint supports. Requests start with all of them and drop those it rejects."""

    form: _Form = "json_schema"
    options: tuple[tuple[str, float], ...] = ()
    system: bool = True
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    max_tokens: int = 0


class OpenAIModel:
    """One chat model."""

    def __init__(self, config: LlmConfig, endpoint: Endpoint) -> None:
        self.name = config.model
        self._vision_model = config.vision_model
        self._endpoint = endpoint
        given = {"temperature": config.temperature, "top_p": config.top_p}
        options = tuple((name, value) for name, value in given.items() if value is not None)
        self._dialect = _Dialect(options=options, max_tokens=config.max_tokens)
        self._client = openai.AsyncOpenAI(**endpoint.client_options(config.timeout, openai.DefaultAsyncHttpxClient))

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the reply's text. With a schema, the endpoint's structured output is used if it has that.

        Raises ModelUnreachableError, ModelRefusedError, ReplyError, and CutOffReplyError if it reached `max_tokens`.
        """
        dialect = self._dialect if schema is not None else replace(self._dialect, form="plain")
        while True:
            try:
                text = await self._ask(messages, schema, dialect)
            except _ComplaintError as complaint:
                if (simpler := _simpler(dialect, complaint)) is None:
                    raise self._without_key(complaint.error) from complaint.__cause__
                dialect = simpler
            else:
                self._dialect = dialect if schema is not None else replace(dialect, form=self._dialect.form)
                return text

    async def check(self) -> None:
        """List the models of the endpoint, which costs nothing. Raises ModelError."""
        try:
            await self._client.models.list()
        except (openai.OpenAIError, ValueError, AttributeError) as error:
            raise self._to_our_error(error, self.name) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, dialect: _Dialect
    ) -> str:
        """Return the text of one reply. Raises ModelError, and _ComplaintError if other options may help."""
        options: dict[str, Any] = {dialect.limit: dialect.max_tokens, **dict(dialect.options)}
        if dialect.form == "json_object":
            options["response_format"] = {"type": "json_object"}
        elif dialect.form == "json_schema":
            json_schema = {"name": "reply", "schema": schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        sent = [_with_picture(message) for message in (messages if dialect.system else _without_system(messages))]
        name = self._vision_model if any("image" in message for message in messages) else self.name
        try:
            # The reply is read as it is, because a nearly compatible server may send anything.
            create = cast("Any", self._client.chat.completions.with_raw_response.create)
            response = await create(model=name, messages=sent, **options)
            body = object_of(json.loads(response.content))
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.RateLimitError) as error:
            raise self._to_our_error(error, name) from error
        except openai.APIStatusError as error:
            is_about_request = isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError)
            ours = self._to_our_error(error, name)
            raise _ComplaintError(ours, _complaint(error), may_be_form=is_about_request) from error
        except (openai.OpenAIError, ValueError, AttributeError, TypeError) as error:
            raise self._to_our_error(error, name) from error
        words, status = _error_in(body)
        if words:
            kind = ModelUnreachableError if status >= SERVER_ERROR else ModelRefusedError
            told = kind(f"the model {name} answered with an error: {words}. {_advice(status)}")
            raise _ComplaintError(self._without_key(told), words, may_be_form=False)
        return _text(name, body)

    def _to_our_error(self, error: Exception, model: str) -> ModelError:
        """Return our error for an error of the openai package."""
        kind = ModelUnreachableError
        match error:
            case openai.APITimeoutError():
                text = f"the model {model} did not answer in time. Try again, or raise llm.config.timeout."
            case openai.APIConnectionError():
                text = f"the model {model} could not be reached ({error.__cause__ or error}). {CHECK_URL}"
            case openai.APIStatusError(status_code=status):
                kind = ModelUnreachableError if status >= SERVER_ERROR else ModelRefusedError
                text = f"the model {model} answered {status}: {_complaint(error)}. {_advice(status)}"
            case _:
                text = f"the endpoint of the model {model} sent {NOT_OPENAI}: {str(error)[:200]}. {CHECK_URL}"
        return self._without_key(kind(text))

    def _without_key(self, error: ModelError) -> ModelError:
        return type(error)(self._endpoint.without_key(str(error)))


class _ComplaintError(Exception):
    """An endpoint did not accept a request. `error` is ours, for the case that no other options help.

    `may_be_form` is whether it may be about the form of the reply though the complaint does not say so.
    """

    def __init__(self, error: ModelError, words: str, *, may_be_form: bool) -> None:
        super().__init__(words)
        self.error = error
        self.words = words
        self.may_be_form = may_be_form


def _with_picture(message: Mapping[str, str]) -> dict[str, Any]:
    """Return a message as the endpoint takes it: a picture is a part of the content."""
    if "image" not in message:
        return dict(message)
    picture = {"type": "image_url", "image_url": {"url": message["image"]}}
    return {"role": message["role"], "content": [{"type": "text", "text": message["content"]}, picture]}


def _without_system(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return messages with what the system says at the beginning of the first other one."""
    system, (first, *others) = system_apart(messages)
    return [{**first, "content": f"{system}\n\n{first['content']}".lstrip()}, *map(dict, others)]


def _simpler(dialect: _Dialect, complaint: _ComplaintError) -> _Dialect | None:
    """Return simpler options after an endpoint rejected these, or None if there are none."""
    words = complaint.words
    names_form = _FORM.search(words) is not None
    accepted = tuple(option for option in dialect.options if option[0] not in words)
    if accepted != dialect.options:
        return replace(dialect, options=accepted)
    if dialect.limit == "max_tokens" and "max_completion_tokens" in words:
        return replace(dialect, limit="max_completion_tokens")
    if dialect.system and not names_form and _SYSTEM.search(words):
        return replace(dialect, system=False)
    if _LIMIT.search(words) and not names_form and dialect.max_tokens // 2 >= MIN_REPLY_TOKENS:
        return replace(dialect, max_tokens=dialect.max_tokens // 2)
    form = _SIMPLER_FORM.get(dialect.form) if complaint.may_be_form or names_form else None
    return replace(dialect, form=form) if form else None


def _error_in(body: Mapping[str, Any]) -> tuple[str, int]:
    """Return the words and the status of an error that came with the status 200; "" if there is none."""
    choices = body.get("choices")
    error = body.get("error") or _first_choice(body).get("error")
    if not error and not choices:
        error = body.get("detail") or body.get("message")
    parts = object_of(error)
    words = one_line(str(parts.get("message") or parts.get("detail") or error or ""))[:300].rstrip(". ")
    code = str(parts.get("code", parts.get("status")))
    return words, int(code) if code.isdecimal() and len(code) <= STATUS_DIGITS else 0


def _first_choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return object_of(next(iter(list_in(body.get("choices"))), None))


def _text(model: str, body: Mapping[str, Any]) -> str:
    """Return the reply's text."""
    choice = _first_choice(body)
    if not isinstance(choice.get("message"), Mapping):
        raise ModelUnreachableError(f"the endpoint of the model {model} sent {NOT_OPENAI}. {CHECK_URL}")
    message, reason = object_of(choice["message"]), choice.get("finish_reason")
    if refusal := message.get("refusal"):
        raise ModelRefusedError(f"the model {model} declined: {str(refusal)[:300]}")
    if reason == "content_filter":
        raise ModelRefusedError(f"the model {model} was stopped by its content filter")
    content = _written(message.get("content")) or _called(message) or _answer_in_reasoning(message, reason)
    return whole_reply(f"the model {model}", content, reason, is_cut=reason == "length")


def _written(content: Any) -> str:
    """Return the text of a content: a text, an object that is JSON already, or parts, of which thoughts are left out.

    It is "" if there is none.
    """
    if isinstance(content, list):
        return "".join(map(_written_part, list_in(content)))
    if isinstance(content, Mapping):
        return json.dumps(content, ensure_ascii=False)
    return content if isinstance(content, str) and content.strip() else ""


def _written_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    item = object_of(part)
    kind = str(item.get("type"))
    text = item.get("text", item.get("content"))
    return text if isinstance(text, str) and "think" not in kind and kind not in ("reasoning", "refusal") else ""


def _called(message: Mapping[str, Any]) -> str:
    """Return the arguments of the tools that a message calls, one a line; "" if it calls none."""
    functions = [object_of(call).get("function") for call in list_in(message.get("tool_calls"))]
    return "\n".join(filter(None, (_written(object_of(function).get("arguments")) for function in functions)))


def _answer_in_reasoning(message: Mapping[str, Any], reason: Any) -> str:
    """Return what an endpoint took for reasoning if it ends with JSON: then the reply is at its end, else ""."""
    written = _written(message.get("reasoning_content") or message.get("reasoning")).rstrip()
    ends_with_json = written.rstrip("`~ \n").endswith(("}", "]"))
    return written if reason != "length" and ends_with_json else ""


def _complaint(error: openai.APIStatusError) -> str:
    """Return the endpoint's own words."""
    parts = object_of(error.body) or {"message": error.body}
    words = next((parts[key] for key in ("message", "detail", "error", "msg") if parts.get(key)), error.message)
    return one_line(words if isinstance(words, str) else json.dumps(words, ensure_ascii=False))[:300].rstrip(". ")


def _advice(status: int) -> str:
    if status >= SERVER_ERROR:
        return "Try again later."
    by_status = {401: "Check the API key.", 403: "Check the API key.", 429: "Wait, or check the quota."}
    return by_status.get(status, "Check llm.config (model, max_tokens, openai_base_url).")
