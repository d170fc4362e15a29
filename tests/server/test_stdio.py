"""The server as a client sees it: tools, schemas, instructions, resources, projects, and the pipe of a process."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from mcp import Client
from mcp.server import MCPServer
from mcp.types import (
    ListRootsResult,
    Root,
    TextResourceContents,
)
from pydantic import FileUrl

from fuzzing.messages import initialize
from fuzzing.over_stdio import stdio_server
from palimpsest.core.models import Fact
from palimpsest.hooks.instructions import INSTRUCTIONS
from palimpsest.learn.reconcile import is_personal
from palimpsest.server.app import build_server, settings_loader
from palimpsest.server.mcp_server import input_schema
from tests.support.command_line import palimpsest
from tests.support.environment import clean_environment
from tests.support.mcp_client import TOOL_NAMES, connect_stdio, error_text, reply_results, reply_text
from tests.support.repositories import repository
from tests.support.server_in_process import connect, connect_rendering, server_in_process

pytestmark = pytest.mark.anyio


def readable_by_others(folder: Path) -> list[Path]:
    """Return the parts of a memory that somebody else may read. There should be none."""
    return [path for path in (folder / "data").rglob("*") if path.stat().st_mode & 0o077]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("connected", "mode"), [(connect, "legacy"), (connect_stdio, "legacy"), (connect_stdio, "auto")]
)
async def test_a_memory_is_added_updated_deleted_and_restored(tmp_path: Path, connected: Any, mode: str) -> None:
    async with connected(tmp_path, mode) as memory:

        async def call(tool: str, **arguments: Any) -> tuple[str, list[Any]]:
            reply = await memory.call_tool(tool, arguments)
            return reply_text(reply), reply_results(reply)

        text, (result,) = await call("add_memory", text="User's favourite tea is Darjeeling")
        assert text.startswith("added: [")
        assert (result["event"], result["memory"]) == ("ADD", "User's favourite tea is Darjeeling")
        short = result["id"][:8]
        text, _ = await call("add_memory", text="user's favourite tea  is Darjeeling")
        assert text.startswith(f"unchanged (duplicate of {short})")
        new = {"text": "User's favourite tea is Assam", "metadata": {"topic": "food"}}
        text, _ = await call("update_memory", memory_id=short, **new)
        assert text.startswith(f"updated: [{short}] User's favourite tea is Assam (was: ")
        _, hits = await call("search_memories", query="which tea?", filters={"topic": "food"})
        assert [hit["text"] for hit in hits] == ["User's favourite tea is Assam"]
        assert hits[0].keys() >= {"id", "kind", "text", "score", "at", "sources", "role", "name", "metadata"}
        assert 0 <= hits[0]["score"] <= 1
        assert (await call("delete_memory", memory_ids=[short]))[0].startswith(f"deleted: [{short}]")
        assert await call("search_memories", query="tea") == (ANY, [])
        assert [hit["id"] for hit in (await call("list_memories", deleted=True))[1]] == [result["id"]]
        text, _ = await call("update_memory", memory_id=short, restore=True)
        assert text.startswith(f"restored: [{short}]")
        history = await memory.call_tool("get_history", {"memory_id": short})
        events = [entry["event"] for entry in history.structured_content["history"]]
        assert events == ["ADD", "UPDATE", "DELETE", "ADD"]
        assert "Assam" in reply_text(await memory.call_tool("get_summary", {}))
    if connected is connect_stdio:  # a process of ours has a umask of its own, which Chroma's files need
        assert readable_by_others(tmp_path) == []


async def test_two_servers_on_one_memory_see_each_others_writes_at_once(tmp_path: Path) -> None:
    async with connect_stdio(tmp_path) as one, connect(tmp_path) as other:
        for number in range(4):
            writer, reader = (one, other) if number % 2 else (other, one)
            added = reply_results(
                await writer.call_tool("add_memory", {"text": f"Box {number} holds {'abcde'[number] * 5}"})
            )
            hits = reply_results(await reader.call_tool("search_memories", {"query": f"{'abcde'[number] * 5}"}))
            assert hits[0]["id"] == added[0]["id"]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"PALIMPSEST_USR_ID": "x"}, "did you mean 'PALIMPSEST_USER_ID'?"),
        ({"PALIMPSEST_CONFIG": "config.toml"}, "unknown setting 'embeder'; did you mean 'embedder'?"),
        ({"PALIMPSEST_PROMPTS_DIR": "own"}, "decide.md: the inputs are"),
    ],
)
async def test_a_server_that_cannot_open_its_memory_tells_the_agent_why(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    """Guards against a server that stops silently, with the reason in a log that nobody reads."""
    (tmp_path / "config.toml").write_text("[embeder]\nprovider = 'local'\n", "utf-8")
    (tmp_path / "own").mkdir()
    decide = "---\nname: decide\nversion: 1\ninputs: [facts]\n---\n## system\nDecide.\n## user\n$facts\n"
    (tmp_path / "own" / "decide.md").write_text(decide, "utf-8")
    async with connect(tmp_path, **settings) as memory:
        for _ in range(2):
            assert expected in error_text(await memory.call_tool("list_memories", {}))


async def test_the_tools_are_few_small_annotated_and_described(tmp_path: Path) -> None:
    async with connect(tmp_path) as memory:
        listed = await memory.list_tools()
        assert memory.instructions == INSTRUCTIONS
        resources = [str(resource.uri) for resource in (await memory.list_resources()).resources]
        templates = [template.uri_template for template in (await memory.list_resource_templates()).resource_templates]
        prompts = (await memory.list_prompts()).prompts
    assert resources == ["memory://summary", "memory://recent", "memory://entities"]
    ids = ("memory://{id}", "conversation://{id}", "document://{document}")
    assert set(templates) == {*ids, "entity://{name}", f"{ids[0]}/history", f"{ids[1]}/{{after}}", f"{ids[2]}/{{page}}"}
    assert [prompt.name for prompt in prompts] == ["recall", "remember-this-conversation", "review-memory"]
    assert all(prompt.description for prompt in prompts)
    wire = listed.model_dump_json(by_alias=True, exclude_none=True)
    assert {tool.name for tool in listed.tools} == TOOL_NAMES
    assert len(wire.encode()) < 7_000
    assert len(INSTRUCTIONS.encode()) < 1_024
    for tool in listed.tools:
        assert tool.title
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not None
        properties = tool.input_schema["properties"]
        assert len(properties) <= 11
        assert all("description" in schema for schema in properties.values())


def test_stdout_carries_only_the_protocol_and_the_end_of_input_ends_the_server(tmp_path: Path) -> None:
    """Guards the pipe, line by line, and against servers that stay behind."""
    call = {"name": "add_memory", "arguments": {"text": "Ünïcödé 東京 🍵"}}
    request = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, ensure_ascii=False)
    with stdio_server(tmp_path, clean_environment(tmp_path, PYTHONIOENCODING="latin-1")) as server:
        assert "result" in server.ask(initialize({}))
        answer = server.ask(request.encode())
        server.close()
        server.wait()
        with pytest.raises(queue.Empty):
            server.line(0)
        assert server.process.returncode == 0
    assert "Ünïcödé 東京 🍵" in answer["result"]["content"][0]["text"]
    assert readable_by_others(tmp_path) == []


def test_the_handshake_waits_for_no_library_of_the_memory() -> None:
    """Guards how soon a client is answered: the memory is opened, and its libraries are loaded, afterwards."""
    heavy = ("sqlalchemy", "numpy", "chromadb", "palimpsest.memory", "palimpsest.store")
    code = f"import sys, palimpsest.server.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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


async def test_the_catalog_shows_the_arguments_that_the_functions_take() -> None:
    """Guards a function whose arguments change: the names, what is required and the defaults stand in two places."""
    for tool in await MCPServer.list_tools(build_server(settings_loader())):
        shown, taken = input_schema(tool.name), tool.input_schema
        assert set(shown["properties"]) == set(taken["properties"]), tool.name
        assert shown.get("required", []) == taken.get("required", []), tool.name
        defaults = {name: part["default"] for name, part in shown["properties"].items() if "default" in part}
        assert defaults == {name: taken["properties"][name]["default"] for name in defaults}, tool.name


@pytest.mark.nightly
async def test_what_is_written_anywhere_is_known_at_the_next_start_everywhere(tmp_path: Path) -> None:
    """What another project, no project or the command line added, replaced and deleted; it is one block, in order."""
    project = {"PALIMPSEST_PROJECT": "px"}
    async with connect_rendering(tmp_path) as client:
        trade = {"text": "The user is Jan Novak, a smith in York."}
        (jan,) = reply_results(await client.call_tool("add_memory", trade))
        by_hand = {"text": "px is deployed by hand.", "scope": {"project": "px"}}
        await client.call_tool("add_memory", by_hand)
    async with connect_rendering(tmp_path, **project) as client:
        assert "deployed by hand" in (client.instructions or "")  # at the first start in it, too
        pinned = {"text": "px uses tabs for indentation.", "metadata": {"pinned": True}}
        await client.call_tool("add_memory", pinned)
        await client.call_tool("add_memory", {"text": "px stores its data in Redis."})
    async with connect_rendering(tmp_path) as client:
        trade = {"text": "The user is Jan Novak, a baker in York.", "replaces": [jan["id"]]}
        await client.call_tool("add_memory", trade)
        pinned = {"text": "The user wants answers in Czech.", "metadata": {"pinned": True}}
        await client.call_tool("add_memory", pinned)
        left = [path.read_text("utf-8") for path in (tmp_path / "data" / "hooks" / "instructions").glob("*.txt")]
        assert not any("smith" in text for text in left)
    palimpsest(tmp_path, "add", "The user's nephew Tom is allergic to sesame.")
    async with connect_stdio(tmp_path, **project) as client:
        text = client.instructions or ""
    said = ["Known of the user", "Jan Novak, a baker", "sesame", "Pinned", "tabs", "in Czech", "the project", "Redis"]
    places = [text.find(words) for words in said]
    assert places == sorted(places), text
    assert min(places) > 0, text
    assert "smith" not in text
    assert text.count("Known of the user") == 1
    assert text.index("Redis") < text.index("One fact per call")


async def test_a_start_begins_with_what_holds_at_that_moment(tmp_path: Path) -> None:
    """What was rendered holds until something begins, ends or becomes due; then the memory itself is read."""
    async with connect_rendering(tmp_path) as client:
        await client.call_tool("add_memory", {"text": "Ana's shop closes for good.", "until": "2035-05-08"})
    folder = tmp_path / "data" / "hooks" / "instructions"
    files = {path: path.read_text("utf-8").replace("Ana", "Bea") for path in folder.glob("*.txt")}
    ends = [float(found) for text in files.values() for found in re.findall(r'"until":([\d.e+]+)', text)]
    assert time.time() < min(ends) <= max(ends) <= time.time() + 24 * 60 * 60
    for until, is_read in ("1e11", False), ("0", True), ("", True):
        for path, text in files.items():
            head, _, rest = re.sub(r'"until":[\d.e+]+', f'"until":{until or "1e11"}', text).partition("\n")
            path.write_text(f"{head}\n{rest if until else ''}", "utf-8")
        async with connect_rendering(tmp_path) as client:
            assert ("Bea" in (client.instructions or ""), "Ana" in (client.instructions or "")) == (
                not is_read,
                is_read,
            )


async def read(server: Client, name: str) -> str:
    (content,) = (await server.read_resource(f"memory://{name}")).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def add(server: Client, text: str) -> str:
    return reply_results(await server.call_tool("add_memory", {"text": text}))[0]["id"]


async def listed(client: Client, **filters: Any) -> list[dict[str, Any]]:
    return reply_results(await client.call_tool("list_memories", {"filters": {"kind": "message", **filters}}))


BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])


def roots_of(folder: Path) -> Callable[..., Any]:

    async def answer(context: Any) -> ListRootsResult:
        del context
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri()))])

    return answer


def client(folder: Path, mode: str, root: Path) -> Client:
    server = server_in_process(folder, PALIMPSEST_PROJECT="auto")
    return Client(server, mode=mode, list_roots_callback=roots_of(root))


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@BOTH
async def test_a_connected_client_follows_a_move(tmp_path: Path, mode: str) -> None:
    atlas = repository(tmp_path / "atlas")
    async with client(tmp_path, mode, atlas) as agent:
        await agent.call_tool("add_memory", {"text": "The build runs on Debian"})
        palimpsest(tmp_path, "projects", "move", "atlas", "globe")
        added = reply_text(await agent.call_tool("add_memory", {"text": "The tests want a database"}))
        assert "scope: user alice, project globe" in added
        by_old_name = {"text": "The site uses Svelte", "scope": {"project": "atlas"}}
        await agent.call_tool("add_memory", by_old_name)
        listed = reply_text(await agent.call_tool("list_memories", {}))
    for text in ("Debian", "database", "Svelte"):
        assert text in listed


# Facts about people and facts about a project, as agents tell them in a repository.
PERSONAL: dict[str, list[str]] = json.loads((Path(__file__).parent / "personal_facts.json").read_text("utf-8"))


def test_what_is_about_a_person_is_told_from_what_is_about_a_project() -> None:
    """Guards both kinds: a person's allergy is known in every project, and a project's database in one."""
    for kind, texts in PERSONAL.items():
        wrong = [
            text for text in texts if is_personal(Fact(text), {"nora"}, "github.com/acme/atlas") != (kind == "person")
        ]
        assert wrong == [], kind
