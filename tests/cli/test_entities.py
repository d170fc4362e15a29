"""The commands on entities and on the graph, as a person and a program call them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest

from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Relation
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.graph_rows import LIVES, store_stating
from tests.support.ledger_access import write_decisions
from tests.support.memory import StoppedClock, memory_in

ANA, TOM, LYON = ("Ana", "person"), ("Tom", "person"), ("Lyon", "place")

HOSTILE = (
    'quote " and \\ backslash',
    "<b>bold</b> & <script>alert(1)</script>",
    "two\nlines",
    "override \u202egnol",
    "עברית ושם",
    "end; subgraph x %% [(note)] `code` #35; -->",
    "bell \x07 and \x1b[31mred",
)
"""Names that a format could read as its own, or that steer a terminal."""


def known(folder: Path, *memories: tuple[str, tuple[tuple[str, str], ...], tuple[Relation, ...]]) -> list[str]:
    """Store memories in folder/data, as text, names and relations. Return their ids."""

    async def work() -> list[str]:
        async with memory_in(folder / "data") as memory:
            return [store_stating(memory, text, *names, relations=stated) for text, names, stated in memories]

    return anyio.run(work)


def a_bakery(folder: Path) -> list[str]:
    """Store where Ana lives, and with whom she works."""
    return known(
        folder,
        ("Ana lives in Lyon", (ANA, LYON), (LIVES,)),
        ("Ana works with Tom", (ANA, TOM), (Relation("Ana", "works with", "Tom"),)),
        ("Tom swims in the Rhône", (TOM, ("Rhône", "place")), (Relation("Tom", "swims in", "Rhône"),)),
    )


def test_entities_are_listed_newest_first(tmp_path: Path) -> None:
    """Guards the way in: names, types, and in how many memories; of one type, and as JSON."""
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
    """Guards looking around: one step, two steps, and an unknown name."""
    a_bakery(tmp_path)
    text = palimpsest(tmp_path, "entity", "ana")
    assert text.startswith("Ana (person)\nHolds now:\n")
    assert "Ana — works with → Tom" in text
    assert "swims" not in text
    two = palimpsest(tmp_path, "entity", "--hops", "2", "Ana")
    assert "Two steps away:\n- Tom — swims in → Rhône" in two
    (shown,) = palimpsest_json(tmp_path, "entity", "show", "Ana", "--hops", "2")["entities"]
    assert [item["memory"] for item in shown["holds"]] == ["Ana works with Tom", "Ana lives in Lyon"]
    assert [item["destination"] for item in shown["relations"]] == ["Tom", "Lyon"]
    assert [item["source"] for item in shown["two_steps_away"]] == ["Tom"]
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


@pytest.mark.nightly
def test_what_is_said_of_a_namesake_is_split_off(tmp_path: Path) -> None:
    """Guards two people of one name: each memory stays with whom it is about, and a name alone is refused then."""
    _, swims = known(
        tmp_path, ("Tom bakes", (TOM, ("Ana", "person")), ()), ("Tom swims", (TOM, ("Porto", "place")), ())
    )
    done = palimpsest(tmp_path, "entity", "split", "Tom", swims[:8])
    number = re.search(r"palimpsest undo --edit (\d+)", done)
    assert number is not None
    text = palimpsest(tmp_path, "entity", "Tom")
    assert "Only this one is connected with Porto" in text
    assert "Only this one is connected with Ana" in text
    refused = palimpsest(tmp_path, "entity", "rename", "Tom", "Thomas", code=1)
    ids = re.findall(r"([0-9a-f]{8}) Tom \(person\)", refused)
    assert len(set(ids)) == 2
    palimpsest(tmp_path, "entity", "rename", ids[1], "Thomas", "--type", "other")
    assert "swims" in palimpsest(tmp_path, "entity", "Thomas")
    assert "[" not in palimpsest(tmp_path, "entity", "Ana").split("\n")[0]
    palimpsest(tmp_path, "undo")
    palimpsest(tmp_path, "undo", "--edit", number[1])
    assert "Only this one" not in palimpsest(tmp_path, "entity", "Tom")


def test_an_entity_is_renamed_and_found_by_both_names(tmp_path: Path) -> None:
    """Guards a correction of a name: the old one still means it."""
    known(tmp_path, ("Ana lives in Lyon", (ANA, LYON), (LIVES,)))
    done = palimpsest(tmp_path, "entity", "rename", "Ana", "Ana Silva")
    assert "renamed Ana to Ana Silva" in done
    for name in ("Ana", "ana silva"):
        assert palimpsest(tmp_path, "entity", name).startswith("Ana Silva (person), also called Ana")
    assert "unchanged" in palimpsest(tmp_path, "entity", "rename", "Ana", "Ana Silva")
    assert "Ana Silva — lives in → Lyon" in palimpsest(tmp_path, "entity", "Lyon")


def test_the_graph_is_drawn_as_it_is_and_as_it_was(tmp_path: Path) -> None:
    """Guards the drawing: what holds now, what held then, around a name, and up to a limit."""

    async def move() -> None:
        clock = StoppedClock()
        async with memory_in(tmp_path / "data", clock) as memory:
            porto = store_stating(memory, "Ana lives in Porto", ANA, relations=(Relation("Ana", "lives in", "Porto"),))
            clock.forward(days=30)
            moved = Fact("Ana lives in Lyon", entities=(NamedEntity("Lyon", "place"),), relations=(LIVES,))
            write_decisions(memory, Decision(Event.ADD, moved, replaces=(porto,)))

    anyio.run(move)
    now = palimpsest(tmp_path, "graph")
    assert now == ('flowchart LR\n    n1(["Ana"])\n    n2["Lyon"]\n    n1 -->|"lives in"| n2\n')
    then = palimpsest(tmp_path, "graph", "--as-of", "2026-05-09")
    assert "Porto" in then
    assert "Lyon" not in then


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


def test_the_graph_is_written_to_a_new_file_around_a_name(tmp_path: Path) -> None:
    """Guards `--output`: it says what was written, and never replaces a file."""
    a_bakery(tmp_path)
    file = tmp_path / "graph.json"
    done = palimpsest(tmp_path, "graph", "--about", "Lyon", "--format", "json", "--output", str(file))
    assert "wrote 2 entities and 1 relation" in done
    near = {item["name"] for item in json.loads(file.read_text("utf-8"))["entities"]}
    assert near == {"Ana", "Lyon"}
    assert "already exists" in palimpsest(tmp_path, "graph", "--output", str(file), code=1)
    two = palimpsest_json(tmp_path, "graph", "--about", "Lyon", "--hops", "2")
    assert {item["name"] for item in two["entities"]} == {"Ana", "Lyon", "Tom"}
    limited = palimpsest_json(tmp_path, "graph", "--limit", "1")
    assert [item["destination"] for item in limited["relations"]] == ["Rhône"]


def test_doctor_counts_entities_and_relations(tmp_path: Path) -> None:
    """Guards the overview of an installation."""
    a_bakery(tmp_path)
    findings = {item["part"]: item for item in palimpsest_json(tmp_path, "doctor")["findings"]}
    assert "4 entities and 3 relations in this scope" in findings["ledger"]["text"]
