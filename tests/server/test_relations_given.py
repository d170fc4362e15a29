"""Relations that an agent or a person gives with a text, through the tool and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.mcp_client import error_text, reply_text
from tests.support.server_in_process import connect

TEXT = "Ana lives in Lyon with Tom."
RELATIONS = [["Ana", "lives in", "Lyon"], ["Ana", "lives with", "Tom (plumber)"]]

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"text": TEXT, "relations": [["Ana", "lives in"]]}, "relations.0 is not [source, name, destination]"),
    ({"text": TEXT, "relations": [*RELATIONS, ["Ana", "", "Lyon"]]}, "relations.2 is not [source, name, destination]"),
    ({"text": TEXT, "relations": [["Ana", "is", "ana"]]}, "relations.0 connects 'Ana' with itself"),
    ({"text": TEXT, "relations": [["Ana", "is", "x" * 257]]}, "relations.0 has a name of more than 256 characters"),
    ({"text": TEXT, "relations": RELATIONS * 11}, "22 relations are more than 20"),
    ({"messages": [{"role": "user", "content": TEXT}], "relations": RELATIONS}, "relations and metadata go with text"),
    ({"text": TEXT, "relations": RELATIONS, "infer": True}, "leave out replaces, relations and metadata"),
    ({"text": TEXT, "relations": ["Ana lives in Lyon"]}, "relations"),
]


def stated(folder: Path) -> list[list[str]]:
    """Return the relations of an export of the memory."""
    lines = palimpsest_json(folder, "graph", "--format", "json")["relations"]
    return sorted([line["source"], line["relationship"], line["destination"]] for line in lines)


@pytest.mark.anyio
async def test_the_tool_stores_what_a_text_states(tmp_path: Path) -> None:
    """Guards agents that say who is who: nothing is asked, and the relations are there."""
    async with connect(tmp_path) as memory:
        added = await memory.call_tool("add_memory", {"text": TEXT, "relations": RELATIONS})
        assert reply_text(added).startswith("added")
    assert stated(tmp_path) == RELATIONS


@pytest.mark.anyio
async def test_wrong_relations_are_refused_plainly(tmp_path: Path) -> None:
    """Guards against a text that is stored without what it should state."""
    async with connect(tmp_path) as memory:
        for arguments, expected in WRONG:
            assert expected in error_text(await memory.call_tool("add_memory", arguments))
        assert "no memories" in reply_text(await memory.call_tool("list_memories", {}))


def test_the_command_takes_three_names_each_time(tmp_path: Path) -> None:
    """Guards the option with three values, which may be repeated and stand before the text."""
    first, second = (["--relation", *relation] for relation in RELATIONS)
    palimpsest(tmp_path, "add", *first, TEXT, *second, "--at", "2026-03-01")

    assert stated(tmp_path) == RELATIONS


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("names", [["Ana"], ["Ana", "lives in", "ANA"], ["Ana", "", "Lyon"]])
def test_the_command_refuses_what_is_no_relation(tmp_path: Path, names: list[str]) -> None:
    """Guards against a name that is taken for the text, or the text for a name."""
    refused = palimpsest(tmp_path, "add", TEXT, "--relation", *names, code=1)

    assert "relation" in refused
