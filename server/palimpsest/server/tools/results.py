"""The results that tools return."""

from __future__ import annotations

from typing import Any

from mcp.types import CallToolResult, TextContent

from palimpsest.server.replies.models import Reply

CALLER = "mcp"
"""Who made a change, in the history of memories."""


def tool_result(text: str, content: Reply | Any) -> CallToolResult:
    """Return a result with the same content as text and as JSON, because clients show their model only one of them."""
    structured = content.as_json() if isinstance(content, Reply) else content
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)
