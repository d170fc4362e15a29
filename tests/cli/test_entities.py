"""The commands on entities and on the graph, as a person and a program call them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio

from palimpsest.core.models import Relation
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.graph_rows import LIVES, store_stating
from tests.support.memory import memory_in

ANA, TOM, LYON = ("Ana", "person"), ("Tom", "person"), ("Lyon", "place")

# Names that a format could read as its own, or that steer a terminal.
HOSTILE = (
    'quote " and \\ backslash',
    "<b>bold</b> & <script>alert(1)</script>",
    "two\nlines",
    "override \u202egnol",
    "עברית ושם",
    "end; subgraph x %% [(note)] `code` #35; -->",
    "bell \x07 and \x1b[31mred",
)


def known(folder: Path, *memories: tuple[str, tuple[tuple[str, str], ...], tuple[Relation, ...]]) -> list[str]:
    """Store memories in folder/data, as text, names and relations. Return their ids."""

    async def work() -> list[str]:
        async with memory_in(folder / "data") as memory:
            return [store_stating(memory, text, *names, relations=stated) for text, names, stated in memories]

    return anyio.run(work)


def a_bakery(folder: Path) -> list[str]:
    return known(
        folder,
        ("Ana lives in Lyon", (ANA, LYON), (LIVES,)),
        ("Ana works with Tom", (ANA, TOM), (Relation("Ana", "works with", "Tom"),)),
        ("Tom swims in the Rhône", (TOM, ("Rhône", "place")), (Relation("Tom", "swims in", "Rhône"),)),
    )


def test_entities_are_listed_newest_first(tmp_path: Path) -> None:
    assert "no names are known yet" in palimpsest(tmp_path, "entities")
    a_bakery(tmp_path)
    text = palimpsest(tmp_path, "entities")
    assert re.search(r"person\s+2\s+2026-05-08\s+Tom", text)
    places = palimpsest_json(tmp_path, "entities", "--type", "place")["entities"]
    assert [(item["name"], item["type"], item["memories"]) for item in places] == [
        ("Lyon", "place", 1),
        ("Rhône", "place", 1),
    ]
    assert len(palimpsest_json(tmp_path, "entities", "--limit", "1")["entities"]) == 1
    assert "no event is known yet" in palimpsest(tmp_path, "entities", "--type", "event")


def test_an_entity_is_shown_by_name_and_by_id(tmp_path: Path) -> None:
    a_bakery(tmp_path)
    text = palimpsest(tmp_path, "entity", "ana")
    assert text.startswith("Ana (person)\nHolds now:\n")
    assert "Ana — works with → Tom" in text
    assert "swims" not in text
    (shown,) = palimpsest_json(tmp_path, "entity", "show", "Ana")["entities"]
    assert [item["memory"] for item in shown["holds"]] == ["Ana works with Tom", "Ana lives in Lyon"]
    assert [item["destination"] for item in shown["relations"]] == ["Tom", "Lyon"]
    assert palimpsest(tmp_path, "entity", shown["id"][:8]) == text
    assert "Did you mean Ana?" in palimpsest(tmp_path, "entity", "Anna", code=1)
    early = palimpsest(tmp_path, "entity", "Ana", "--as-of", "2020-01-01", code=1)
    assert "nothing was known of 'Ana' for user" in early
    assert "Leave the time out" in early
    assert palimpsest(tmp_path, "summary", "about:Ana").startswith(text.rstrip("\n"))


def test_entities_are_merged_and_an_undo_takes_it_back(tmp_path: Path) -> None:
    """Guards a correction by a person: it says its number and how it is undone, and nothing is lost."""
    known(tmp_path, ("Ana lives in Lyon", (ANA, LYON), (LIVES,)), ("Anuska paints", (("Anuska", "person"),), ()))
    done = palimpsest_json(tmp_path, "entity", "merge", "Anuska", "Ana")
    assert done["changed"]
    text = palimpsest(tmp_path, "entity", "Anuska")
    assert text.startswith("Ana (person), also called Anuska")
    assert "Anuska paints" in text
    assert "Anuska" in palimpsest(tmp_path, "log")
    again = palimpsest(tmp_path, "entity", "merge", "Anuska", "Ana", code=1)
    assert "itself" in again
    undone = palimpsest(tmp_path, "undo", "--edit", str(done["edit"]))
    assert undone.startswith("undid: merged Anuska into Ana\n")
    assert "unchanged" not in undone
    assert "Anuska" not in palimpsest(tmp_path, "entity", "Ana")
    assert "Anuska paints" in palimpsest(tmp_path, "entity", "Anuska")


def test_every_format_takes_every_name(tmp_path: Path) -> None:
    """Guards programs that read the graph, and terminals, from names that are syntax to them."""
    known(
        tmp_path,
        *(
            (f"Ana knows number {n}", (ANA, (name, "other")), (Relation("Ana", f"knows {name}", name),))
            for n, name in enumerate(HOSTILE)
        ),
    )
    graph = json.loads(palimpsest(tmp_path, "graph", "--format", "json"))
    assert {item["name"] for item in graph["entities"]} == {"Ana", *HOSTILE}
    assert len(graph["relations"]) == len(HOSTILE)
    assert set(graph["relations"][0]) == {
        *("source", "relationship", "destination", "valid_from", "valid_until"),
        *("source_id", "destination_id", "memory_id"),
    }
    root = ET.fromstring(palimpsest(tmp_path, "graph", "--format", "graphml"))  # noqa: S314 - our own output
    names = {data.text for data in root.iterfind(".//{*}node/{*}data[@key='name']")}
    assert "<b>bold</b> & <script>alert(1)</script>" in names
    assert len(names) == len(HOSTILE) + 1
    ids = {node.get("id") for node in root.iterfind(".//{*}node")}
    assert all({edge.get("source"), edge.get("target")} <= ids for edge in root.iterfind(".//{*}edge"))
    for form in ("mermaid", "dot", "json", "graphml"):
        text = palimpsest(tmp_path, "graph", "--format", form)
        assert text == palimpsest(tmp_path, "graph", "--format", form)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    mermaid = palimpsest(tmp_path, "graph").splitlines()
    label = r'"(?:[^"<>`{}|;%#()\[\]]|#\d+;|<br/>)*"'
    node, edge = rf"    n\d+(?:\(\[{label}\]\)|\[{label}\])", rf"    n\d+ -->\|{label}\| n\d+"
    assert all(re.fullmatch(f"{node}|{edge}", line) for line in mermaid[1:])
    dot = palimpsest(tmp_path, "graph", "--format", "dot").splitlines()
    quoted = r'"(?:[^"\\]|\\.)*"'
    assert all(re.fullmatch(rf"    n\d+( -> n\d+)? \[(\w+=({quoted}|\w+)(, )?)+\];", line) for line in dot[3:-1])


def test_the_graph_is_written_around_a_name(tmp_path: Path) -> None:
    a_bakery(tmp_path)
    near = palimpsest_json(tmp_path, "graph", "--about", "Lyon")
    assert {item["name"] for item in near["entities"]} == {"Ana", "Lyon"}
    limited = palimpsest_json(tmp_path, "graph", "--limit", "1")
    assert [item["destination"] for item in limited["relations"]] == ["Rhône"]
