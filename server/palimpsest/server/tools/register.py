"""Register the tools on a server."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from palimpsest.server.tools.delete import delete_memory
from palimpsest.server.tools.read import get_history, get_summary, list_memories, search_memories
from palimpsest.server.tools.write import add_memory, update_memory

READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
UPDATE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
DELETE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

TOOLS = (
    (add_memory, "Add a memory", ADD),
    (search_memories, "Search memories", READ),
    (list_memories, "List memories", READ),
    (update_memory, "Update a memory", UPDATE),
    (delete_memory, "Delete memories", DELETE),
    (get_summary, "Summary", READ),
    (get_history, "History", READ),
)
"""Each tool with its title and annotations, in the order that clients list them."""

READING_TOOLS = tuple(function.__name__ for function, _, hints in TOOLS if hints is READ)


def add_tools(server: MCPServer[Any]) -> None:
    """Register all tools on the server. They build their results themselves, so they have no output schema."""
    for function, title, hints in TOOLS:
        server.add_tool(function, title=title, annotations=hints, structured_output=False)
