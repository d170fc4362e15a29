"""Build the MCP server, and serve it over stdio."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult
from mcp.types import InputRequiredResult

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.threads import running
from palimpsest.hooks.instructions import Launch, launch_of, rendered_instructions
from palimpsest.server.access_tokens import OPEN, current_grant
from palimpsest.server.mcp_server import GREETINGS, MemoryServer, show_control_characters, with_own_instructions
from palimpsest.server.session.client_requests import RequestContext, Roots
from palimpsest.server.session.context import LazyMemory, ServerState, state_of
from palimpsest.server.session.rate_limits import Calls
from palimpsest.server.session.subscriptions import Subscribers
from palimpsest.server.tools import add_handlers, tools

if TYPE_CHECKING:
    from palimpsest.core.settings import Settings


LoadSettings: TypeAlias = "Callable[[], Settings]"

# Requests that are answered without the memory.
HANDSHAKE = (*GREETINGS, "ping")

# Requests that work in a scope.
SCOPED = ("tools/call", "resources/read", "prompts/get", "completion/complete")


def settings_loader(config: Path | None = None, **overrides: Any) -> LoadSettings:
    """Return a function that loads the settings. It may raise SettingsError."""

    def load() -> Settings:
        from palimpsest.core.settings import load_settings  # noqa: PLC0415 - slow to import, and the handshake must not wait

        return load_settings(config, **overrides)

    return load


def build_server(
    load_settings: LoadSettings,
    *,
    run_state: bool = True,
    call_seconds: float | None = None,
    launch: Launch | None = None,
) -> MemoryServer:
    """Return a new server with all tools, resources and prompts. Nothing is loaded or opened yet.

    `run_state`: whether the server's lifespan runs `server.state`. Pass False if the caller runs it: over SSE the SDK
    enters the lifespan once per connection. `call_seconds`: how long a tool call may take. `launch`: how the process of
    a single user was started; that user's memories are then in the instructions.
    """
    subscribers, (instructions, until) = Subscribers(), rendered_instructions(launch)
    memory = LazyMemory(load_settings, subscribers.notify_changed, subscribers.notify_external)
    state = ServerState(memory, Calls(), subscribers, Roots(memory.learn_folder), instructions_until=until)

    @asynccontextmanager
    async def lifespan(_: MCPServer[ServerState]) -> AsyncGenerator[ServerState]:
        async with running(*([state.run] if run_state else [])):
            yield state

    server = MemoryServer(
        state,
        instructions=instructions,
        tools=tools(),
        lifespan=lifespan,
        middleware=[state.calls.limit_calls, with_own_instructions, _with_client_project],
        call_seconds=call_seconds,
    )
    show_control_characters()
    add_handlers(server)
    return server


def run_stdio(config: Path | None = None, **overrides: Any) -> None:
    """Serve over stdin and stdout until stdin is closed. An interrupt ends the process at once.

    The arguments are those of `settings_loader`.

    An interrupt loses nothing, because every acknowledged write is committed. Python's own handling of an interrupt
    would wait for the thread that reads stdin.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(build_server(settings_loader(config, **overrides), launch=launch_of(config, overrides)).serve_stdio)


async def _with_client_project(ctx: RequestContext, call_next: CallNext) -> HandlerResult:
    """Pass on the project of the access token, of the client's roots or of the settings, under its present name.

    The first message after the handshake opens the memory.
    """
    state = state_of(ctx)
    if ctx.method not in HANDSHAKE:
        state.memory.start_opening()
    if ctx.method == "notifications/roots/list_changed":
        state.roots.ask_again(ctx)
    elif ctx.method in SCOPED:
        project = await _project(state, ctx)
        if isinstance(project, InputRequiredResult):
            return project
        ctx = replace(ctx, lifespan_context=replace(state, client_project=project))
    return await call_next(ctx)


async def _project(state: ServerState, ctx: RequestContext) -> str | InputRequiredResult:
    """Return the project of a request, under the name that it has now, or the question to answer the request with."""
    with suppress(PalimpsestError):  # the handler of the request reports it
        memory = await state.memory.get()
        grant, project = current_grant(), ""
        if grant is OPEN and memory.settings.repository is not None:
            project = await state.roots.project(ctx, memory.projects.of_repository)
        if isinstance(project, InputRequiredResult):
            return project
        project = project or grant.project or memory.settings.project
        return await memory.projects.current_name(project, user_id=grant.user_id)
    return ""
