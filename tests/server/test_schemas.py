"""What clients and their models make of the tools: their schemas, keys that clients add, messages of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.support.mcp_client import reply_results, reply_text, text_of
from tests.support.message_forms import FORMS
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

TYPES = {"object", "array", "string", "integer", "number", "boolean"}
KEYWORDS = {"type", "description", "properties", "required", "items", "enum", "default", "additionalProperties"}


def schemas_in(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and all schemas in it, each with its place."""
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


async def test_replies_say_only_what_helps_and_how_to_see_the_rest(tmp_path: Path) -> None:
    """Guards the reader of replies: which text replaced which, what is deleted, where the rest is."""
    async with connect(tmp_path) as memory:

        async def call(tool: str, **arguments: Any) -> str:
            return text_of(await memory.call_tool(tool, arguments))

        talk = [
            {"role": "user", "content": f"On day {number} I saw a wren; {'so small ' * 30}"} for number in range(30)
        ]
        kept = await call("add_memory", messages=talk)
        assert "and no facts were learned" in kept
        assert "Now add what matters in them as text" in kept
        for text in ("User feeds wrens", "User feeds robins", "User fears geese"):
            assert "scope:" not in await call("add_memory", text=text)
        wrens, robins, geese = (hit["id"][:8] for hit in reversed(await listed(memory)))
        replaced = await call("add_memory", text="User feeds finches", replaces=[wrens, robins])
        assert f"\n  was: [{wrens}] User feeds wrens\n  was: [{robins}] User feeds robins" in replaced
        message = (await listed(memory, filters={"kind": "message"}))[0]["id"]
        await call("delete_memory", memory_ids=[geese, message])
        deleted = await call("list_memories", deleted=True)
        finches = (await listed(memory))[0]["id"][:8]
        assert deleted.count(f"\n  replaced by [{finches}]") == 2
        assert "User fears geese\n" in deleted
        assert '1 message is deleted, too: list_memories(deleted=true, filters={"kind": "message"})' in deleted
        day = await call("get_summary", kind="day:today")
        assert "- User feeds finches\nMessages:\n- [" in day
        assert "more messages are not shown.)" in day
        assert 'note: list_memories shows every memory, and with filters={"kind": "message"} every message' in day
        session = await call("get_summary", kind="session")
        first, _, rest = session.partition("\n")
        assert first.startswith("- [")
        assert len(first) > 200, "a message is not cut after a few words"
        assert first[3:11] in await call("get_history", memory_id=first[3:11])
        assert "more messages are not shown.)" in rest
        assert (await call("get_history", memory_id="0123456789")).startswith("no memory '0123456789'")
        assert (await call("search_memories", query="")).startswith("query is empty")
        assert (await call("search_memories", query="x", limit=[])).startswith("limit: ")
        assert "note: scope: user bob" in await call("search_memories", query="wren", scope={"user_id": "bob"})
        assert "scope: user alice, project atlas" in await call("list_memories", scope={"project": "atlas"})


async def listed(memory: Client, **arguments: Any) -> list[dict[str, Any]]:
    """Return what a list shows, newest first."""
    return reply_results(await memory.call_tool("list_memories", arguments))
