"""Raise Palimpsest's errors as errors of the MCP SDK, so that their text reaches the client.

The SDK hides the text of any other exception: the client only reads that the call failed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.server.replies.notes import TOOLS, error_text
from palimpsest.text.control_characters import visible


@dataclass(frozen=True, slots=True)
class ErrorTypes:
    """How one kind of handler reports wrong input, and every other failure."""

    wrong_input: Callable[[str], Exception]
    failure: Callable[[str], Exception]


TOOL = ErrorTypes(ToolError, ToolError)
RESOURCE = ErrorTypes(ResourceNotFoundError, ResourceError)
REQUEST = ErrorTypes(partial(MCPError, INVALID_PARAMS), partial(MCPError, INTERNAL_ERROR))
"""Prompts and completions, which report failures as JSON-RPC errors."""


@asynccontextmanager
async def mcp_errors(types: ErrorTypes, nothing_done: str = "") -> AsyncGenerator[None]:
    """Raise our errors as `types`, with their text, control characters visible. Use it as a decorator of a handler.

    `nothing_done` says what did not happen. It is added to an InputError whose text does not say so itself.
    """
    try:
        yield
    except InputError as error:
        text = error_text(error, TOOLS)
        if nothing_done and "nothing was" not in text.lower():
            text = f"{text.rstrip('.')}. {nothing_done}"
        raise types.wrong_input(visible(text)) from error
    except PalimpsestError as error:
        raise types.failure(visible(error_text(error, TOOLS))) from error
