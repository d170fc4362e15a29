"""An MCPServer that names what it does not know, keeps its schemas small and respects read-only access tokens."""

import difflib
import logging
import time
import tomllib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import anyio
from mcp import types
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import RequestHandler
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from palimpsest import __version__
from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.core.validation import HintsInput, ScopeInput, fault_text
from palimpsest.server.access_tokens import OPEN, current_grant, may_write
from palimpsest.server.advice import TOOLS, error_text
from palimpsest.server.jsonrpc import stdio_messages
from palimpsest.server.session.client_requests import RequestContext
from palimpsest.server.session.context import ServerState, state_of
from palimpsest.text.display import visible

# What clients are shown of tools, resources and prompts, and what they are told of arguments that do not fit.

SHOWN_ERRORS = 5

NO_OBJECT = 'must be an object, such as {"key": "value"}'

# Examples of the arguments that are lists, but not of texts.
MESSAGES, RELATIONS = '[{"role": "user", "content": "…"}]', '[["Lena Brandt", "leads", "billing"]]'
LISTS: Mapping[Any, str] = {("messages",): MESSAGES, ("relations",): RELATIONS}

# Keys that clients add to the arguments of every call, which their models cannot leave out: n8n and Cline do.
#
# They are written without their underscores and in lower case. An unknown key that is none of them is an error, because
# a model may have meant something by it.
CLIENT_KEYS = frozenset({"toolcallid", "tool", "sessionid", "action", "chatinput", "taskprogress", "meta"})


@cache
def catalog() -> Mapping[str, Any]:
    """Return what `catalog.toml` says of tools, resources and prompts."""
    return tomllib.loads(files("palimpsest.server").joinpath("catalog.toml").read_text("utf-8"))


def input_schema(tool: str) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments. It is small, because every client shows it to its model."""
    form, shared = catalog()["tools"][tool], catalog()["shared"]
    properties = {name: shared[part] if isinstance(part, str) else part for name, part in form["properties"].items()}
    required = {"required": form["required"]} if "required" in form else {}
    return {"type": "object", "properties": properties, **required}


def invalid_arguments(error: ValidationError) -> str:
    """Return what is wrong with a tool's arguments, in the words of this server; pydantic's if they say enough."""
    faults: list[str] = []
    for detail in error.errors(include_url=False, include_input=False)[:SHOWN_ERRORS]:
        argument = detail["loc"][:1]
        keys = (HintsInput if argument == ("hints",) else ScopeInput).model_fields
        one = "; of the tools only search_memories goes through all projects" if "all_projects" in detail["loc"] else ""
        words = {
            "extra_forbidden": f"there is no such key; the keys are {', '.join(keys)}{one}",
            "missing": "is missing",
            **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), NO_OBJECT),
            "list_type": "must be a list, such as " + LISTS.get(argument, '["…"]'),
            **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
        }
        # The example is of the whole argument.
        place = argument if detail["type"] == "list_type" and argument in LISTS else detail["loc"]
        faults.append(f"{'.'.join(map(str, place))}: {words.get(detail['type']) or fault_text(detail)}")
    return visible("; ".join(dict.fromkeys(faults)))


def unknown_arguments(tool: str, unknown: Sequence[str], known: Sequence[str], used: Collection[str]) -> str:
    """Return the error for the arguments that a tool does not have, with a guess at each and what the tool takes."""
    unused = [name for name in known if name not in used]
    of_scope = [name for name in unknown if name in ScopeInput.model_fields and "scope" in known]
    others = [name for name in unknown if name not in of_scope]
    named = [f"'{name}'{did_you_mean(name, unused)}" for name in others] + [f"'{name}'" for name in of_scope]
    hints = [f"it takes {', '.join(known)}"] if others else []
    if of_scope:
        keys = ", ".join(f'"{name}": …' for name in of_scope)
        hints.append(f"put {'it' if len(of_scope) == 1 else 'them'} into scope: {{{keys}}}")
    return visible(f"{tool} has no argument {' and no '.join(named)}; {'; '.join(hints)}. Nothing was done.")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a guess at what a misspelt name should have been, or "".

    The names must be similar. Sharing a word is not enough.
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (did you mean '{close[0]}'?)" if close else ""


# Raise Palimpsest's errors as errors of the MCP SDK, so that their text reaches the client.
#
# The SDK hides the text of any other exception: the client only reads that the call failed.


# How one kind of handler reports wrong input, and every other failure.
ErrorTypes: TypeAlias = tuple[Callable[[str], Exception], Callable[[str], Exception]]

TOOL: ErrorTypes = ToolError, ToolError
RESOURCE: ErrorTypes = ResourceNotFoundError, ResourceError

# Prompts and completions, which report failures as JSON-RPC errors.
REQUEST: ErrorTypes = partial(MCPError, types.INVALID_PARAMS), partial(MCPError, types.INTERNAL_ERROR)


@asynccontextmanager
async def mcp_errors(kinds: ErrorTypes, nothing_done: str = "") -> AsyncGenerator[None]:
    """Raise our errors as `kinds`, with their text, control characters visible. Use it as a decorator of a handler.

    `nothing_done` says what did not happen. It is added to an InputError whose text does not say so itself.
    """
    try:
        yield
    except PalimpsestError as error:
        text, is_wrong_input = error_text(error, TOOLS), isinstance(error, InputError)
        if is_wrong_input and nothing_done and "nothing was" not in text.lower():
            text = f"{text.rstrip('.')}. {nothing_done}"
        raise kinds[0 if is_wrong_input else 1](visible(text)) from error


# The server's log on stderr, which people read in a terminal.


def show_control_characters() -> None:
    """Let the log show control characters as escapes, because what clients send is in some of its lines."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_visible)


def _visible(record: logging.LogRecord) -> bool:
    """Make the text of a log line visible. Return True: no line is left out."""
    record.msg, record.args = visible(record.getMessage()), ()
    return True


# How calls of tools end, for those who count and log them. Nothing here holds what a call was about.

# `refused` means that what was asked for is not valid, `failed` that it is and could not be done.
CallOutcome: TypeAlias = Literal["ok", "refused", "failed", "timed_out", "cancelled"]

# Stands for every name that no tool has, because there is no end of those.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call of a tool or a request over HTTP ended, after how many seconds."""

    kind: Literal["call", "request"]
    fields: Mapping[str, str | int]
    seconds: float


# What is told how each call and each request ended.
Observer: TypeAlias = Callable[[Ended], None]


def outcome_of(error: BaseException) -> CallOutcome:
    """Return what an error makes of a call. One that no error of ours caused is the caller's."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, InputError | ValidationError):
            return "refused"
        if isinstance(seen, TimeoutError):
            return "timed_out"
        if isinstance(seen, PalimpsestError) or (seen.__cause__ is None and seen is not error):
            return "failed"
        seen = seen.__cause__
    return "refused"


logger = logging.getLogger(__name__)

# Requests whose result has the server's instructions: up to protocol 2025-11-25, and since 2026-07-28.
GREETINGS = ("initialize", "server/discover")

# How long a handshake waits for the instructions of its user: they take a few milliseconds.
INSTRUCTIONS_SECONDS = 0.5

# How long it waits for the memory to open if those that were rendered hold no longer. Codex waits for ten in all.
OPENING_SECONDS = 8.0


class MemoryServer(MCPServer[ServerState]):
    """The MCP server. `state` is what its connections share; `call_seconds` limits how long a tool call may take.

    `observers` are told how each call of a tool ended.
    """

    def __init__(self, state: ServerState, *, call_seconds: float | None, **options: Any) -> None:
        super().__init__(
            "palimpsest",
            title="Palimpsest memory",
            version=__version__,
            log_level="WARNING",
            subscriptions=state.subscribers,
            **options,
        )
        self.state = state
        self.observers: Sequence[Observer] = ()
        self._call_seconds = call_seconds
        self.add_request_handler("resources/subscribe", types.SubscribeRequestParams, state.subscribers.add)
        self.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, state.subscribers.remove)

    def add_request_handler(
        self, method: str, params_type: type[types.RequestParams], handler: RequestHandler[ServerState, Any]
    ) -> None:
        """Handle a request that MCPServer has no decorator for, or whose decorator hides the request's context."""
        self._lowlevel_server.add_request_handler(method, params_type, handler)

    async def serve_stdio(self) -> None:
        """Serve one client over stdin and stdout, until stdin ends."""
        async with stdio_messages() as (incoming, outgoing):
            await self._lowlevel_server.run(incoming, outgoing, self._lowlevel_server.create_initialization_options())

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that the caller may use."""
        usable = _usable_tools()
        return [
            tool.model_copy(update={"input_schema": input_schema(tool.name)})
            for tool in await super().list_tools()
            if tool.name in usable
        ]

    async def list_resources(self) -> list[types.Resource]:
        """Return the resources that always exist."""
        return [types.Resource(mime_type="text/plain", **fields) for fields in catalog()["resources"]]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool. Raises ToolError with a text that says what to do next."""
        began = time.monotonic()
        outcome: CallOutcome = "cancelled"
        try:
            result = await self._call_tool(name, arguments, context)
            outcome = "ok"
        except Exception as error:  # raised again: only its kind is noted
            outcome = outcome_of(error)
            raise
        finally:
            fields = {"tool": name if name in catalog()["tools"] else UNKNOWN, "outcome": outcome}
            ended = Ended("call", fields, time.monotonic() - began)
            for observer in self.observers:
                observer(ended)
        return result

    async def _call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        known = _arguments_of(name)
        arguments = {
            key: value
            for key, value in arguments.items()
            if key in known or key.replace("_", "").lower() not in CLIENT_KEYS
        }
        if unknown := [argument for argument in arguments if argument not in known]:
            raise ToolError(unknown_arguments(name, unknown, known, arguments))
        # The schemas do not mention null, but many models send it for arguments they mean to leave out.
        arguments = {argument: value for argument, value in arguments.items() if value is not None}
        try:
            with anyio.fail_after(self._call_seconds):
                return await super().call_tool(name, arguments, context)
        except TimeoutError as error:
            raise ToolError(
                f"{name} took longer than {self._call_seconds:g} seconds and was stopped; what it had stored is kept. "
                "Look with search_memories before calling again."
            ) from error
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{invalid_arguments(error.__cause__)}. Nothing was done.") from error
            if isinstance(error, UnexpectedToolError):
                raise
            # Our texts need no name of the tool before them: the model knows what it called.
            raise ToolError(str(error).removeprefix(f"Error executing tool {name}: ")) from error

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> types.GetPromptResult | types.InputRequiredResult:
        """Return a prompt, filled in. Raises MCPError for an unknown one, and for a missing argument."""
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            raise MCPError(types.INVALID_PARAMS, visible(str(error))) from error


def _usable_tools() -> list[str]:
    """Return the names of the tools that the caller may use."""
    tools: Mapping[str, Any] = catalog()["tools"]
    return [name for name, form in tools.items() if may_write() or form["annotations"]["readOnlyHint"]]


def _arguments_of(name: str) -> list[str]:
    """Return the names of a tool's arguments. Raises ToolError if the caller has no such tool."""
    usable, form = _usable_tools(), catalog()["tools"].get(name)
    if form is None:
        guess = did_you_mean(name, usable)
        raise ToolError(f"there is no tool '{visible(name)}'{guess}; the tools are {', '.join(usable)}")
    if name not in usable:
        raise ToolError(f"this access token is read-only; its tools are {', '.join(usable)}. Nothing was done.")
    return list(form["properties"])


async def with_own_instructions(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
    """Give a connection the instructions of the user that its access token names, if the memory is open.

    Without an access token, what the server was built with stays, unless it holds no longer: over HTTP, the text
    without memories.
    """
    result, grant, state = await call_next(ctx), current_grant(), state_of(ctx)
    is_outdated = grant is OPEN and time.time() >= state.instructions_until
    is_own = is_outdated or (grant is not OPEN and state.memory.opened is not None)
    if ctx.method not in GREETINGS or not is_own or not isinstance(result, dict):
        return result
    with anyio.move_on_after(OPENING_SECONDS if is_outdated else INSTRUCTIONS_SECONDS):
        try:
            memory = await state.memory.get()
            scope = replace(memory.scope, user_id=grant.user_id, project=grant.project)
            scope = memory.scope if is_outdated else grant.within(scope)
            # They are this user's alone: whoever keeps the result must not give it to others.
            is_kept = {"cacheScope": "private"} if "cacheScope" in result else {}
            return {**result, "instructions": await memory.briefs.instructions(scope), **is_kept}
        except PalimpsestError as error:
            logger.warning("a client gets the instructions without memories: %s", error)
    return result
