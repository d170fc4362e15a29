"""Entities and relations of memories, and edits of them: merged, split, renamed and undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, EntityType, Event, Merge, Provenance, Relation, Rename, Scope
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_named
from palimpsest.store.graph.relations import relations_of
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
    cousin = graph.add("My cousin Daniel lives in Porto", ("Daniel", "person"))
    dentist = graph.add("Another Daniel, a dentist, plays chess", ("Daniel", "person"))
    sees = Relation("Ana", "visits", "Daniel")
    names: tuple[tuple[str, EntityType], ...] = (("Daniel", "person"), ("Ana", "person"))
    broken = graph.add("Daniel broke his wrist, and Ana visits him", *names, relations=(sees,))
    assert graph.memories_about("Daniel") == {cousin, dentist}
    assert graph.relations() == set()
    assert graph.faults() == []
    told = graph.notes[-1]
    assert told.startswith("Daniel is not attached to anybody")
    assert "My cousin Daniel lives in Porto" in told
    graph.change(broken, "My cousin Daniel broke his wrist, and Ana visits him", "Daniel", "Ana", relations=(sees,))
    assert graph.partners(cousin) == {cousin, broken}
    assert graph.relations() == {("Ana", "visits", "Daniel")}
    later = graph.add("Daniel (the dentist) moved", ("Daniel", "person"))
    assert graph.partners(dentist) >= {dentist}
    assert later not in graph.partners(cousin)
    for _ in range(5):
        graph.undo()
    assert graph.faults() == []


def test_the_note_on_a_name_quotes_only_what_its_scope_sees(graph: Graph) -> None:
    """Guards what another project says of somebody whom both know."""
    graph.add("Daniel earns 4,000 in the shop", ("Daniel", "person"), scope=SHOP)
    graph.add("Daniel lives in Porto", ("Daniel", "person"))
    graph.add("Another Daniel plays chess", ("Daniel", "person"), scope=WEB)
    graph.add("Daniel broke his wrist", ("Daniel", "person"), scope=WEB)
    assert graph.notes[-1].startswith("Daniel is not attached to anybody")
    assert "4,000" not in graph.notes[-1]
    assert "plays chess" in graph.notes[-1]


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


def test_relations_are_bounded_and_carry_the_times_of_their_memories(graph: Graph) -> None:
    past = graph.add("Odile knew Tom", relations=(Relation("Odile", "knows", "Tom"),))
    ended = graph.clock()
    graph.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.DELETE, None, past, ended_at=ended),)))
    for number in range(20):
        graph.add(f"Odile knows friend {number}", relations=(Relation("Odile", "knows", f"Friend {number}"),))
    with graph.ledger.read() as conn:
        ids = [entity.id for entity in entities_named(conn, ALICE, ["Odile"])["odile"]]
        newest = relations_of(conn, ALICE, ids, limit=3)
        everything = relations_of(conn, ALICE, ids, ever=True, limit=100)
        assert relations_of(conn, Scope("bob"), ids, limit=3) == []
    assert [relation.destination for relation in newest] == ["Friend 19", "Friend 18", "Friend 17"]
    assert len(everything) == 21
    (gone,) = [relation for relation in everything if not relation.is_current]
    assert (gone.destination, gone.valid_until, gone.memory_id) == ("Tom", ended.date().isoformat(), past)


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
    with pytest.raises(InputError, match="is part of it already"):
        graph.edit(Merge(graph.id("Tom Baker"), tom))


def test_one_number_takes_back_memories_and_entities(graph: Graph) -> None:
    graph.add("Tom and Ana", "Tom", "Ana")
    before = graph.state()
    graph.add("Ben likes tea", "Ben", edits=(Merge(graph.id("Tom"), graph.id("Ana")),))
    graph.undo()
    assert graph.state() == before
