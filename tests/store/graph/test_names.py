"""Entities by their names: in a scope, in a text, as a list, and completed from their beginning."""

from __future__ import annotations

import pytest

from palimpsest.core.models import Decision, Entity, Event, Merge, Provenance, Relation, Rename, Scope
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import NAMES_READ, entities_in_text, entities_named, list_entities, names_beginning
from palimpsest.store.graph.relations import relations_of
from tests.support.graph import Graph
from tests.support.memory import ALICE

SHED = Scope("alice", project="shed")
AGENT = Scope("alice", agent_id="painter")
BOB = Scope("bob")


def named(graph: Graph, *names: str, scope: Scope = ALICE) -> dict[str, list[str]]:
    """Return the names of the entities that a scope sees by each name."""
    with graph.ledger.read() as conn:
        found = entities_named(conn, scope, names)
    return {key: [entity.name for entity in entities] for key, entities in found.items()}


def in_text(graph: Graph, text: str, scope: Scope = ALICE) -> list[str]:
    """Return the names of the entities that a text names."""
    with graph.ledger.read() as conn:
        return [entity.name for entity in entities_in_text(conn, scope, text)]


def forget(graph: Graph, memory_id: str, scope: Scope = ALICE) -> None:
    """Delete a memory, as somebody who wants it forgotten does."""
    graph.apply(Write(scope, Provenance("test"), decisions=(Decision(Event.DELETE, memory_id=memory_id),)))


def test_a_name_is_found_however_it_is_spelt(graph: Graph) -> None:
    graph.add("Odile lives in Ghent", "Odile", "Ghent")
    assert named(graph, "ODILE", "Odile's", "“odile”", "Ghent", "Nobody", "?") == {
        "odile": ["Odile"],
        "ghent": ["Ghent"],
    }


def test_a_scope_sees_who_its_memories_mention(graph: Graph) -> None:
    graph.add("Odile lives in Ghent", "Odile")
    graph.add("Piet paints", "Piet", scope=SHED)
    graph.add("Zoe sails", "Zoe", scope=AGENT)
    graph.add("Ben sings", "Ben", scope=BOB)
    everybody = ("Odile", "Piet", "Zoe", "Ben")
    assert set(named(graph, *everybody)) == {"odile", "zoe"}
    assert set(named(graph, *everybody, scope=SHED)) == {"odile", "piet", "zoe"}
    assert set(named(graph, *everybody, scope=AGENT)) == {"zoe"}
    assert set(named(graph, *everybody, scope=BOB)) == {"ben"}
    assert named(graph, *everybody, scope=Scope("carol")) == {}


def test_the_projects_own_comes_before_the_users(graph: Graph) -> None:
    graph.add("Piet paints the shed", ("Piet", "person"), scope=SHED)
    graph.add("Piet is a boat", ("Piet", "product"))
    with graph.ledger.read() as conn:
        found = entities_named(conn, SHED, ["Piet"])["piet"]
    assert [(entity.project, entity.type) for entity in found] == [("shed", "person"), ("", "product")]


def test_what_is_forgotten_mentions_nobody_and_what_was_replaced_does(graph: Graph) -> None:
    home = graph.add("Odile lives in Ghent", "Odile", "Ghent")
    graph.apply(
        Write(ALICE, Provenance("test"), decisions=(Decision(Event.DELETE, None, home, ended_at=graph.clock()),))
    )
    forget(graph, graph.add("Piet lies", "Piet"))
    assert named(graph, "Odile", "Piet") == {"odile": ["Odile"]}
    with graph.ledger.read() as conn:
        assert list_entities(conn, ALICE, 10) == []
        assert names_beginning(conn, ALICE, "", 10) == ["Ghent", "Odile"]


def test_merged_and_renamed_entities_are_found_by_every_name(graph: Graph) -> None:
    graph.add("Odi sings", "Odi")
    graph.add("Odile lives in Ghent", "Odile", "Ghent")
    graph.edit(Merge(graph.id("Odi"), graph.id("Odile")))
    graph.edit(Rename(graph.id("Odile"), "Odile Marchand"))
    assert named(graph, "Odi", "Odile", "odile marchand") == {
        key: ["Odile Marchand"] for key in ("odi", "odile", "odile marchand")
    }
    with graph.ledger.read() as conn:
        counts = {listed.entity.name: listed.mentions for listed in list_entities(conn, ALICE, 10)}
    assert counts == {"Odile Marchand": 2, "Ghent": 1}


def test_the_user_has_the_told_name(graph: Graph) -> None:
    graph.add("User lives in Ghent", "User", "Ghent")
    assert named(graph, "I", "the user", "Mara") == {"i": ["User"], "the user": ["User"]}
    graph.add("User is called Mara", "User", metadata={"user_name": "Mara"})
    assert named(graph, "I", "Mara") == {"i": ["Mara"], "mara": ["Mara"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where does Odile work?", ["Odile"]),
        ("where does odile's brother Piet work", ["Odile", "Piet"]),
        ("Is Piet older than Odile?", ["Piet", "Odile"]),
        ("Is the Ghent Harbour Office open?", ["Ghent Harbour Office"]),
        ("Odiles brother", ["Odile"]),
        ("李娜在哪里工作?", ["李娜"]),
        ("Где живёт Мария Петрова?", ["Мария Петрова"]),
        ("Who will come?", []),
        ("What is the weather like", []),
        ("", []),
    ],
)
def test_a_text_names_what_is_known(graph: Graph, text: str, expected: list[str]) -> None:
    """Guards overlapping names, of which the longest counts, scripts without spaces, and words that are names too."""
    for names in (("Odile", "Piet"), ("Ghent", "Ghent Harbour Office"), ("李娜",), ("Мария Петрова",), ("Will",)):
        graph.add(f"Something is known of {' and '.join(names)}", *names)
    assert in_text(graph, text) == expected


def test_names_are_completed_from_their_beginning(graph: Graph) -> None:
    names = [f"Odile {number:03}" for number in range(NAMES_READ + 5)]
    forgotten = graph.add("Many of them", *names)
    graph.add("And others", "ode", "Piet", "Odile 104", "Zoe")
    with graph.ledger.read() as conn:
        assert names_beginning(conn, ALICE, "od", 3) == ["ode", "Odile 000", "Odile 001"]
        assert names_beginning(conn, BOB, "od", 3) == []
    forget(graph, forgotten)
    with graph.ledger.read() as conn:
        assert names_beginning(conn, ALICE, "OD", 3) == ["ode", "Odile 104"]


def test_relations_are_bounded_and_carry_the_times_of_their_memories(graph: Graph) -> None:
    """Guards a hub: the newest are read, and those that hold no more only on request."""
    past = graph.add("Odile knew Tom", relations=(Relation("Odile", "knows", "Tom"),))
    ended = graph.clock()
    graph.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.DELETE, None, past, ended_at=ended),)))
    for number in range(20):
        graph.add(f"Odile knows friend {number}", relations=(Relation("Odile", "knows", f"Friend {number}"),))
    with graph.ledger.read() as conn:
        ids = [entity.id for entity in entities_named(conn, ALICE, ["Odile"])["odile"]]
        newest = relations_of(conn, ALICE, ids, limit=3)
        everything = relations_of(conn, ALICE, ids, current_only=False, limit=100)
        assert relations_of(conn, BOB, ids, limit=3) == []
    assert [relation.destination for relation in newest] == ["Friend 19", "Friend 18", "Friend 17"]
    assert len(everything) == 21
    (gone,) = [relation for relation in everything if not relation.is_current]
    assert (gone.destination, gone.valid_until, gone.memory_id) == ("Tom", ended.date().isoformat(), past)


def test_an_entity_keeps_what_it_is(graph: Graph) -> None:
    graph.add("Ferrow makes bells", ("Ferrow", "organization"))
    with graph.ledger.read() as conn:
        (entity,) = entities_named(conn, ALICE, ["Ferrow"])["ferrow"]
    assert entity == Entity(entity.id, "alice", "", "Ferrow", "organization", graph.clock())
