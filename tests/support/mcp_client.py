"""Connect an MCP client to the server over stdio, and read the replies of its tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, EmptyResult, SubscribeRequest, SubscribeRequestParams, TextContent

from tests.support.environment import clean_environment

TOOL_NAMES = {
    "add_memory",
    "search_memories",
    "list_memories",
    "update_memory",
    "delete_memory",
    "get_summary",
    "get_history",
}


def stdio_server(folder: Path, **settings: str) -> StdioServerParameters:
    """Return the parameters that start a server over stdio, with a folder as its home and working directory."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "palimpsest"], env=clean_environment(folder, **settings), cwd=folder
    )


@asynccontextmanager
async def connect_stdio(folder: Path, mode: str = "auto", **settings: str) -> AsyncGenerator[Client]:
    """Start a server on the memory in folder/data and connect a client over stdio."""
    async with Client(stdio_server(folder, **settings), mode=mode) as client:
        yield client


async def subscribe(server: Client, uri: str) -> None:
    """Subscribe to a resource as clients of the older protocols do."""
    await server.session.send_request(SubscribeRequest(params=SubscribeRequestParams(uri=uri)), EmptyResult)


def reply_text(result: CallToolResult) -> str:
    """Return the text of a result, which must not be an error."""
    text = text_of(result)
    assert not result.is_error, text
    return text


def error_text(result: CallToolResult) -> str:
    """Return the text of a result, which must be an error."""
    assert result.is_error
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    """Return the text of a result, be it an error or not."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def reply_results(result: CallToolResult) -> list[dict[str, Any]]:
    """Return the `results` of a structured reply, which must not be an error."""
    reply_text(result)
    return result.structured_content["results"]
