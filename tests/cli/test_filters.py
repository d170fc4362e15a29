"""Filters as a person types them, and what a reply says about keys that nothing has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.cli.memory_commands import filters_from
from palimpsest.core.errors import InputError
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.mcp_client import error_text, reply_text
from tests.support.server_in_process import connect

FACTS = {
    "Ana grows roses": ("topic=garden", "size=3", "at=2026-01-05"),
    "Ben grows beans": ("topic=garden", "size=12", "Farbe=grün", "at=2026-03-05"),
    "Rex chases cats": ("topic=dog", 'size="3"', "at=2026-05-05"),
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filters")
    for text, (*pairs, at) in FACTS.items():
        options = [option for pair in pairs for option in ("--metadata", pair)]
        palimpsest(folder, "add", text, *options, "--at", at.removeprefix("at="))
    return folder


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("garden", "has no KEY, sign and VALUE"),
        ("topic=", "has no KEY, sign and VALUE"),
        ('{"topic": ', "is not JSON"),
        ('{"topic": {"$eqq": 1}}', "unknown operator '$eqq'"),
        ('{"topic": {"not_in": ["x"]}}', "use eq, ne, gt, gte, lt, lte, in, nin"),
        ('{"$and": [{"topic": "x"}]}', "use AND"),
        ("kind=recipe", "'metadata.kind'"),
        ("project=web", "use --user, --project, --agent or --run"),
        ("at>=someday", "is not an ISO 8601"),
    ],
)
def test_a_wrong_filter_names_what_would_be_right(memory: Path, condition: str, complaint: str) -> None:
    for command in (("list",), ("search", "roses")):
        assert complaint.lower() in palimpsest(memory, *command, "--filter", condition, code=1).lower()


def test_conditions_make_one_filter() -> None:
    assert filters_from([]) is None
    assert filters_from(["a=x"]) == {"a": {"eq": "x"}}
    assert filters_from(["a=x", '{"b": 1}']) == {"AND": [{"a": {"eq": "x"}}, {"b": 1}]}
    assert filters_from([" topic != garden "]) == {"topic": {"ne": "garden"}}
    assert filters_from(["size>=3"]) == {"size": {"gte": 3}}
    assert filters_from(['size="3"']) == {"size": {"eq": "3"}}
    assert filters_from(["at<2026-03-05"]) == {"at": {"lt": "2026-03-05"}}
    assert filters_from(["colour=null"]) == {"colour": {"eq": None}}
    assert filters_from(["a=b=c"]) == {"a": {"eq": "b=c"}}
    assert filters_from(["a=NaN"]) == {"a": {"eq": "NaN"}}
    with pytest.raises(InputError):
        filters_from(["<3"])


def test_a_key_that_no_memory_has_is_noted_on_the_command_line(memory: Path) -> None:
    """Guards against an empty answer that looks like an empty memory, and against a note where all is well."""
    missing = palimpsest(memory, "list", "--filter", "colour=red")
    assert "no memory of user alice was found" in missing
    assert "note: no memory here has the key 'colour'; keys that are used: " in missing
    assert "'topic'" in missing
    near = palimpsest_json(memory, "search", "roses", "--filter", "topics=garden")["notes"]
    assert "no memory here has the key 'topics'; did you mean 'topic'?" in near
    assert "note:" not in palimpsest(memory, "list", "--filter", "topic=no such")
    negated = palimpsest(memory, "list", "--filter", "colour!=red")
    assert "Ana grows roses" in negated
    assert "no memory here has the key 'colour'" in negated


@pytest.mark.anyio
async def test_the_tools_note_the_same(memory: Path) -> None:
    """Guards agents as well, in text and in JSON, and beside the notes that were there before."""
    async with connect(memory) as server:
        for tool, arguments in (("list_memories", {}), ("search_memories", {"query": "roses"})):
            reply = await server.call_tool(tool, {**arguments, "filters": {"topics": "garden"}})
            assert "note: no memory here has the key 'topics'; did you mean 'topic'?" in reply_text(reply)
            assert "'topics'" in json.dumps(reply.structured_content)
        wrong = await server.call_tool("list_memories", {"filters": {"topic": {"$eqq": 1}}})
        assert "unknown operator '$eqq'; use eq" in error_text(wrong)


def test_metadata_that_is_named_like_a_field_is_reached_and_explained(tmp_path: Path) -> None:
    """Guards imports: `kind` of a memory is not `kind` of its metadata."""
    basil = {"id": "m1", "memory": "Pesto needs basil", "metadata": {"role": "cook"}, "created_at": "2026-01-01"}
    (tmp_path / "mem0.json").write_text(json.dumps({"results": [basil]}), "utf-8")
    palimpsest(tmp_path, "import", "mem0.json")
    assert len(palimpsest_json(tmp_path, "list", "--filter", "metadata.role=cook")["results"]) == 1
    missed = palimpsest(tmp_path, "list", "--filter", "role=cook")
    assert "the key of that name in the metadata is 'metadata.role'" in missed


def test_results_are_grouped_by_day(tmp_path: Path) -> None:
    """The day of the best hit comes first, with all that it has; other units than days are refused."""
    for text, day in (("Ana grows roses", "05-08"), ("Ben prunes roses", "05-09"), ("Ana waters a palm", "05-08")):
        palimpsest(tmp_path, "add", text, "--at", f"2026-{day}")
    asked = ("search", "Does Ana grow roses?", "--group-by")
    found = palimpsest_json(tmp_path, *asked, "day")
    assert [hit["text"] for hit in found["results"]] == ["Ana grows roses", "Ana waters a palm", "Ben prunes roses"]
    assert {day: len(ids) for day, ids in found["days"].items()} == {"2026-05-08": 2, "2026-05-09": 1}
    assert "'week'" in palimpsest(tmp_path, *asked, "week", code=2)
