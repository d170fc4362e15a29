"""Entities and relations of memories, and edits of them: merged, split, renamed and undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import EntityType, Merge, Provenance, Relation, Rename, Scope
from palimpsest.store.apply import Write
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.memory import ALICE, messages_from

WEB = Scope("alice", project="web")
SHOP = Scope("alice", project="shop")
CASES = graph_cases(Path(__file__).with_name("cases.json"))


@pytest.mark.parametrize("case", CASES)
def test_the_graph_says(graph: Graph, case: str) -> None:
    GraphCase(graph).play(*CASES[case], ["sound"])


def test_what_is_not_clear_means_nobody_and_is_told(graph: Graph) -> None:
    """What the note quotes is only what the scope sees."""
    elsewhere = graph.add("Daniel earns 4,000 in the shop", ("Daniel", "person"), scope=SHOP)
    cousin = graph.add("My cousin Daniel lives in Porto", ("Daniel", "person"))
    dentist = graph.add("Another Daniel, a dentist, plays chess", ("Daniel", "person"))
    sees = Relation("Ana", "visits", "Daniel")
    names: tuple[tuple[str, EntityType], ...] = (("Daniel", "person"), ("Ana", "person"))
    broken = graph.add("Daniel broke his wrist, and Ana visits him", *names, relations=(sees,))
    assert graph.memories_about("Daniel") == {elsewhere, cousin, dentist}
    assert graph.relations() == set()
    assert graph.notes[-1].startswith("Daniel is not attached to anybody")
    assert "My cousin Daniel lives in Porto" in graph.notes[-1]
    assert "4,000" not in graph.notes[-1]
    graph.change(broken, "My cousin Daniel broke his wrist, and Ana visits him", "Daniel", "Ana", relations=(sees,))
    assert graph.partners(cousin) >= {cousin, broken}
    assert graph.relations() == {("Ana", "visits", "Daniel")}
    for _ in range(4):
        graph.undo()
        assert graph.faults() == []


def test_nothing_mentions_an_entity_of_another_project(graph: Graph) -> None:
    def says(text: str, scope: Scope) -> str:
        said = messages_from(("user", text), scope=scope)
        return graph.apply(Write(scope, Provenance("test"), said)).messages[0].id

    graph.add("Tom is here", "Tom", scope=WEB)
    says("Tom came by", ALICE)
    graph.add("Thomas is here", "Thomas")
    graph.edit(Merge(graph.id("Tom"), graph.id("Thomas")), scope=WEB)
    graph.add("Tom went away", "Tom")
    graph.add("Ida is here", "Ida", scope=Scope("alice", project="api"), sources=(says("Ida came by", WEB),))
    assert graph.faults() == []
    assert graph.names() == {"Thomas", "Ida"}


EDITS = graph_cases(Path(__file__).with_name("edit_cases.json"))


@pytest.mark.parametrize("case", EDITS)
def test_an_edit(graph: Graph, case: str) -> None:
    GraphCase(graph).play(*EDITS[case], ["sound"])


def test_what_is_so_already_changes_nothing(graph: Graph) -> None:
    graph.add("Tom knows Tom Baker", "Tom", "Tom Baker")
    graph.add("Ana likes tea", "Ana")
    edit = Merge(graph.id("Tom"), graph.id("Tom Baker"))
    graph.edit(edit)
    before, edits = graph.state(), len(graph.log())
    assert graph.edit(edit).notes == ()
    assert (graph.state(), len(graph.log())) == (before, edits)
    assert graph.edit(Rename(graph.id("Ana"), "Ana", "other")).notes == ()
    assert len(graph.log()) == edits
    tom = graph.oldest("Tom")
    with pytest.raises(InputError, match="merged into itself"):
        graph.edit(Merge(graph.id("Tom Baker"), tom))


def test_one_number_takes_back_memories_and_entities(graph: Graph) -> None:
    graph.add("Tom and Ana", "Tom", "Ana")
    before = graph.state()
    graph.add("Ben likes tea", "Ben", edits=(Merge(graph.id("Tom"), graph.id("Ana")),))
    graph.undo()
    assert graph.state() == before
