"""The commands on entities and on the graph, as a person and a program call them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio

from palimpsest.core.models import Relation
from tests.support.command_line import palimpsest
from tests.support.graph_rows import store_stating
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
