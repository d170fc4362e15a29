"""What a memory names and states follows its text, whatever changes it."""

from __future__ import annotations

import pytest

from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Outcome, Provenance, Relation
from palimpsest.store.apply import Write
from tests.support.graph import Graph
from tests.support.memory import ALICE

ACME = Relation("Ana", "works at", "Acme")
LYON = Relation("Ana", "works in", "Lyon")


@pytest.fixture
def memory_id(graph: Graph) -> str:
    """Return a memory that states two relations."""
    return graph.add("Ana works at Acme in Lyon", "Ana", "Acme", "Lyon", relations=(ACME, LYON))


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("text", "names", "relations"),
    [
        ("Ana works at Acme in Lyon, France", ["Ana", "Acme", "Lyon"], (ACME, LYON)),
        ("Ana works at Acme in Paris", ["Ana", "Acme"], (ACME,)),
        ("Ana works at Globex", ["Ana"], ()),
        ("Ana no longer works at Acme in Lyon", ["Ana", "Acme", "Lyon"], ()),
        ("Ana does not work at Acme in Lyon", ["Ana", "Acme", "Lyon"], ()),
        ("Ana works at Acme, and left Lyon", ["Ana", "Acme", "Lyon"], ()),
        ("Anastasia sings", [], ()),
    ],
)
def test_a_new_text_keeps_what_it_still_says(
    graph: Graph, memory_id: str, text: str, names: list[str], relations: tuple[Relation, ...]
) -> None:
    memory = graph.change(memory_id, text)
    assert [entity.name for entity in memory.entities] == names
    assert memory.relations == relations
    assert graph.relations() == {(one.source, one.name, one.destination) for one in relations}


def test_what_the_fact_of_a_new_text_names_is_added(graph: Graph, memory_id: str) -> None:
    paris = Relation("Ana", "works in", "Paris")
    memory = graph.change(memory_id, "Ana moved from Lyon to Paris", "Paris", relations=(paris,))
    assert [entity.name for entity in memory.entities] == ["Ana", "Lyon", "Paris"]
    assert graph.relations() == {("Ana", "works in", "Paris")}


def test_an_undo_states_again_what_the_earlier_text_did(graph: Graph, memory_id: str) -> None:
    before = graph.state()
    graph.change(memory_id, "Ben sings", "Ben")
    graph.undo()
    assert graph.state() == before


def test_a_name_of_an_earlier_version_still_means_the_same(graph: Graph, memory_id: str) -> None:
    ana = graph.id("Ana")
    graph.change(memory_id, "Ben sings", "Ben")
    graph.add("Another Ana sings", "Ana")
    graph.change(memory_id, "Ana sings with Ben", "Ana")
    assert memory_id in graph.memories_of(ana)


def test_a_deleted_memory_states_the_same_when_it_is_restored(graph: Graph, memory_id: str) -> None:
    before = graph.state()
    for event in (Event.DELETE, Event.ADD):
        graph.apply(Write(ALICE, Provenance("test"), decisions=(Decision(event, memory_id=memory_id),)))
    assert graph.state() == before


def test_a_duplicate_names_what_both_name(graph: Graph, memory_id: str) -> None:
    again = graph.add("Ana works at Acme in Lyon.", "Ana", "Acme Inc.", relations=(Relation("Acme", "is in", "Lyon"),))
    assert again == memory_id
    assert graph.names() == {"Ana", "Acme", "Lyon", "Acme Inc."}
    assert len(graph.relations()) == 3


def test_a_memory_closed_in_favour_of_a_duplicate_gives_it_what_it_names(graph: Graph, memory_id: str) -> None:
    other = graph.add("Acme sells tea", "Acme")
    graph.change(other, "Ana works at Acme in Lyon", "tea")
    assert graph.living() == {memory_id}
    assert graph.names() == {"Ana", "Acme", "Lyon", "tea"}


def test_a_fact_that_says_the_same_takes_nothing_away(graph: Graph, memory_id: str) -> None:
    before = graph.state()
    decision = Decision(Event.NONE, Fact("Ana works at Acme", metadata={"user_name": "Zoe"}), memory_id)
    graph.apply(Write(ALICE, Provenance("test"), decisions=(decision,)))
    assert graph.state() == before


def test_a_text_that_two_facts_name_differently_has_the_names_of_both(graph: Graph) -> None:
    facts = (
        Fact("Ana sings", entities=(NamedEntity("Ana"),)),
        Fact("Ana sings", entities=(NamedEntity("Ana", "person"),)),
    )
    decisions = tuple(Decision(Event.ADD, fact) for fact in facts)
    (memory, _) = graph.apply(Write(ALICE, Provenance("test"), decisions=decisions)).outcomes
    assert graph.memories_about("Ana") == {memory.memory.id}


class TestWhatIsSaidAgain:
    """A model may find that a memory says the same as a fact, and then only the fact's sources are new."""

    def test_relations_that_the_memory_lacks_are_added_and_undone(self, graph: Graph) -> None:
        """They are an edit like every other change of a memory."""
        memory_id = graph.add("Ana works at Acme in Lyon", "Ana", "Acme")
        before = graph.state()
        outcome = repeat(
            graph, memory_id, "Acme employs Ana, who is from Rome", ACME, Relation("Ana", "is from", "Rome")
        )
        assert outcome.event is Event.NONE
        assert graph.relations() == {("Ana", "works at", "Acme")}, "the memory does not speak of Rome"
        assert graph.faults() == []
        graph.undo()
        assert graph.state() == before

    def test_two_that_it_relates_already_are_not_related_twice(self, graph: Graph, memory_id: str) -> None:
        """In other words it would be the same relation again."""
        edits = len(graph.log())
        repeat(graph, memory_id, "Ana is employed by Acme", Relation("Ana", "employed by", "Acme"))
        assert graph.relations() == {("Ana", "works at", "Acme"), ("Ana", "works in", "Lyon")}
        assert len(graph.log()) == edits, "it is no edit"

    def test_a_closed_memory_stays_as_it_was(self, graph: Graph) -> None:
        """What is no longer believed states nothing new."""
        memory_id = graph.add("Ana works at Acme", "Ana")
        graph.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.DELETE, memory_id=memory_id),)))
        repeat(graph, memory_id, "Acme employs Ana", ACME)
        assert graph.relations() == set()


def repeat(graph: Graph, memory_id: str, text: str, *relations: Relation) -> Outcome:
    """Decide that a memory says the same as a fact that states relations."""
    names = {end for relation in relations for end in (relation.source, relation.destination)}
    fact = Fact(text, entities=tuple(map(NamedEntity, sorted(names))), relations=relations)
    decision = Decision(Event.NONE, fact, memory_id)
    return graph.apply(Write(ALICE, Provenance("test"), decisions=(decision,))).outcomes[0]
