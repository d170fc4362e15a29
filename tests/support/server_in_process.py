"""Serve MCP in this process, over streams in memory.

A real process costs over a second of imports. What only a process shows (start, end, pipes, privileges, several
processes on one memory) is tested with `mcp_client.connect_stdio`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
from mcp import Client
from mcp.shared.memory import MessageStream, create_client_server_memory_streams

from palimpsest.core.settings import Settings, load_settings
from palimpsest.hooks.instructions import Launch, launch_of
from palimpsest.server.app import build_server
from palimpsest.server.mcp_server import MemoryServer
from tests.support.environment import clean_environment, inside


def server_in_process(folder: Path, **settings: str) -> AbstractAsyncContextManager[MessageStream]:
    """Serve the memory in folder/data until the block ends; give the streams of one client.

    The messages are those of the stdio transport, and so is the server's loop. It is a transport for `mcp.Client`, in
    place of `mcp_client.stdio_server`.
    """
    return _server_in(folder, clean_environment(folder, **settings))


@asynccontextmanager
async def _server_in(
    folder: Path, environment: Mapping[str, str], launch: Launch | None = None
) -> AsyncGenerator[MessageStream]:
    def load() -> Settings:
        with inside(folder, environment):
            return load_settings()

    async with create_client_server_memory_streams() as (client, server), anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, build_server(load, launch=launch), server)
        try:
            yield client
        finally:
            for stream in (*client, *server):  # the server ends as it does when its standard input is closed
                await stream.aclose()


async def _serve(server: MemoryServer, streams: MessageStream) -> None:
    lowlevel = server._lowlevel_server  # pyright: ignore[reportPrivateUsage] - the SDK has no public name for it
    await lowlevel.run(*streams, lowlevel.create_initialization_options())


@asynccontextmanager
async def connect(folder: Path, mode: str = "auto", **settings: str) -> AsyncGenerator[Client]:
    """Connect a client to a server of its own in this process, on the memory in folder/data."""
    async with Client(server_in_process(folder, **settings), mode=mode) as client:
        yield client


@asynccontextmanager
async def connect_rendering(folder: Path, **settings: str) -> AsyncGenerator[Client]:
    """Connect a client to a server that renders, as over stdio, the instructions that its next start begins with."""
    environment = clean_environment(folder, **settings)
    with inside(folder, environment):
        launch = launch_of(None, {})
    async with Client(_server_in(folder, environment, launch)) as client:
        yield client
