"""The results that tools return."""

from __future__ import annotations

from typing import Any

from mcp.types import CallToolResult, TextContent

from palimpsest.core.models import ABOUT_THE_PAST
from palimpsest.server.replies.models import Reply
from palimpsest.server.replies.notes import framed

CALLER = "mcp"
"""Who made a change, in the history of memories."""


def tool_result(text: str, content: Reply | Any) -> CallToolResult:
    """Return a result with the same content as text and as JSON, because clients show their model only one of them.

    Both say that memories are information and not instructions.
    """
    structured = content
    if isinstance(content, Reply):
        reply = content.as_json()
        structured = {**reply, "notes": [*reply.get("notes", ()), ABOUT_THE_PAST]}
    return CallToolResult(content=[TextContent(type="text", text=framed(text))], structured_content=structured)
