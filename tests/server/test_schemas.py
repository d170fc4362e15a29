"""What clients and their models make of the tools: their schemas, keys that clients add, messages of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer

from palimpsest.server.app import build_server, settings_loader
from palimpsest.server.mcp_server import input_schema
from tests.support.mcp_client import reply_results, reply_text
from tests.support.message_forms import FORMS
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

TYPES = {"object", "array", "string", "integer", "number", "boolean"}
KEYWORDS = {"type", "description", "properties", "required", "items", "enum", "default", "additionalProperties"}


def schemas_in(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield place, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas_in(inner, f"{place}.{name}")
    if "items" in schema:
        yield from schemas_in(schema["items"], f"{place}[]")


async def test_every_schema_is_in_the_subset_that_all_clients_take(tmp_path: Path) -> None:
    """Guards whole requests: a client or an API that refuses one schema refuses all tools, and often all servers.

    - VS Code refuses a tool whose array has no `items`. OpenAI and Codex answer 400 to the whole request, as they do to
      parameters without `properties`, and in strict mode to a closed object that does not require all its keys.
    - Gemini refuses an enum without a type, of other values than texts or with an empty one, `properties` that are
      empty or not of an object, names in `required` that `properties` has not, and keywords it does not know
      (`$schema`, `$ref`, `propertyNames`, most formats).
    - Cursor refuses values for unions of types, and `anyOf` with null; it cuts server and tool names at 60 characters.
    - Anthropic refuses `anyOf`, `oneOf` and `allOf` of parameters.
    """
    async with connect(tmp_path) as memory:
        tools = (await memory.list_tools()).tools
    for tool in tools:
        assert len(f"palimpsest:{tool.name}") < 60
        assert tool.output_schema is None, "clients check replies against it, in a dialect of their own"
        assert tool.input_schema["properties"], tool.name
        for place, schema in schemas_in(tool.input_schema, tool.name):
            kind = schema.get("type")
            assert kind in TYPES, place
            assert schema.keys() <= KEYWORDS, place
            assert ("items" in schema) == (kind == "array"), place
            assert all(isinstance(value, str) and value for value in schema.get("enum", [])), place
            assert schema.get("enum", ["x"]), place
            assert "enum" not in schema or kind == "string", place
            assert schema.get("default", "x") not in (None, ""), place
            assert kind == "object" or not {"properties", "required", "additionalProperties"} & schema.keys(), place
            properties = schema.get("properties", {})
            assert "properties" not in schema or properties, place
            assert set(schema.get("required", [])) <= properties.keys(), place
            if kind == "object" and "additionalProperties" in schema:
                assert schema["additionalProperties"] is False, place
                assert set(schema["required"]) == properties.keys(), place
            assert schema is tool.input_schema or "description" in schema or place.endswith("[]"), place
            assert kind != "object" or schema is tool.input_schema or "description" in schema, place


async def test_conversations_of_other_programs_are_stored(tmp_path: Path) -> None:
    """Guards agents that pass on messages as they have them: no call is refused, and what is no text is counted."""
    async with connect(tmp_path) as memory:
        for case in FORMS:
            if case.get("file_only"):
                continue
            arguments = {"messages": case["given"], "scope": {"project": case["form"].replace(",", "")}}
            added = await memory.call_tool("add_memory", arguments)
            assert reply_text(added).startswith(f"kept {len(case['said'])} message")
            assert all(reason.partition(" ")[2] in reply_text(added) for reason in case["left_out"])
            listed = {"filters": {"kind": "message"}, "scope": arguments["scope"], "limit": 100}
            hits = reply_results(await memory.call_tool("list_memories", listed))
            assert sorted(hit["text"] for hit in hits if hit.get("project", "x")) == sorted(
                row[1] for row in case["said"]
            )


async def test_the_catalog_shows_the_arguments_that_the_functions_take() -> None:
    """Guards a function whose arguments change: the names, what is required and the defaults stand in two places."""
    for tool in await MCPServer.list_tools(build_server(settings_loader())):
        shown, taken = input_schema(tool.name), tool.input_schema
        assert set(shown["properties"]) == set(taken["properties"]), tool.name
        assert shown.get("required", []) == taken.get("required", []), tool.name
        defaults = {name: part["default"] for name, part in shown["properties"].items() if "default" in part}
        assert defaults == {name: taken["properties"][name]["default"] for name in defaults}, tool.name
