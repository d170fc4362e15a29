"""Names stay where they are known: nobody is shown one that was forgotten, or that only another scope knows."""

from __future__ import annotations

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Merge, Provenance, Relation, Rename, Scope, Undo
from palimpsest.learn.summaries.dossier import find_entities, read_dossier
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_in_text, list_entities, names_beginning
from palimpsest.store.graph.relations import relations_of
from palimpsest.store.history import edits
from tests.support.graph import Graph
from tests.support.memory import ALICE, StoppedClock

WEB, API = (Scope("alice", project=name) for name in ("web", "api"))
PAINTER, COOK = (Scope("alice", agent_id=name) for name in ("painter", "cook"))
LIVES = Relation("Ana", "lives in", "Ghent")


def shown(graph: Graph, scope: Scope = ALICE) -> set[str]:
    """Return every name that a scope is shown when it looks for Ana and at what it knows."""
    with graph.ledger.read() as conn:
        (ana,) = find_entities(conn, scope, "Ana")
        dossier = read_dossier(conn, scope, ana, now=StoppedClock().at)
        relations = relations_of(conn, scope, [ana.id], limit=10)
        return {
            *(dossier.entity.name, *dossier.aliases),
            *(entity.name for entity in entities_in_text(conn, scope, "Where does Ana live?")),
            *(listed.entity.name for listed in list_entities(conn, scope, 10)),
            *names_beginning(conn, scope, "", 10),
            *(end for item in (*relations, *dossier.relations) for end in (item.source, item.destination)),
        }


def forget(graph: Graph, memory_id: str) -> None:
    """Delete a memory, as somebody who wants it forgotten does."""
    graph.apply(Write(ALICE, Provenance("test"), decisions=(Decision(Event.DELETE, memory_id=memory_id),)))


def edit_texts(graph: Graph, scope: Scope) -> list[str]:
    """Return what the edits of entities did that a scope sees."""
    with graph.ledger.read() as conn:
        found = edits(conn, scope, 100)
    return [step.after or "" for edit in found for step in edit.steps if step.kind == "entity"]


@pytest.mark.parametrize(("merged", "into"), [("Ana", "Mother Superior"), ("Mother Superior", "Ana")])
def test_a_name_that_only_a_forgotten_memory_uses_is_not_shown(graph: Graph, merged: str, into: str) -> None:
    graph.add("Ana lives in Ghent", "Ana", "Ghent", relations=(LIVES,))
    forgotten = graph.add("Mother Superior sings", "Mother Superior")
    graph.edit(Merge(graph.id(merged), graph.id(into)))
    assert shown(graph) == {"Ana", "Ghent", "Mother Superior"}
    forget(graph, forgotten)
    assert shown(graph) == {"Ana", "Ghent"}


@pytest.mark.parametrize(("merged", "into"), [("Ana", "Mother Superior"), ("Mother Superior", "Ana")])
def test_a_name_that_only_another_agent_uses_is_not_shown(graph: Graph, merged: str, into: str) -> None:
    graph.add("Ana lives in Ghent", "Ana", "Ghent", relations=(LIVES,), scope=PAINTER)
    graph.add("Mother Superior sings", "Mother Superior", scope=COOK)
    graph.edit(Merge(graph.id(merged), graph.id(into)))
    assert shown(graph, PAINTER) == {"Ana", "Ghent"}
    assert shown(graph) == {"Ana", "Ghent", "Mother Superior"}


def test_a_told_name_that_was_forgotten_is_not_completed(graph: Graph) -> None:
    told = graph.add("User is called Mara", "User", "Mara", metadata={"user_name": "Mara"})
    graph.add("User lives in Ghent", "User", "Ghent")
    forget(graph, told)
    with graph.ledger.read() as conn:
        assert names_beginning(conn, ALICE, "", 10) == ["Ghent"]


def test_a_name_that_an_edit_gave_stays_when_the_memory_goes(graph: Graph) -> None:
    graph.add("Ana lives in Ghent", "Ana", "Ghent", relations=(LIVES,))
    forgotten = graph.add("The singer sings", "The Singer")
    graph.edit(Rename(graph.id("The Singer"), "Ana Maria"))
    graph.edit(Merge(graph.id("Ana"), graph.id("Ana Maria")))
    forget(graph, forgotten)
    assert "Ana Maria" in shown(graph)


def test_what_a_project_calls_a_global_entity_stays_in_the_project(graph: Graph) -> None:
    """Guards names given in a project, the lines of its edits, and that no other project undoes them."""
    graph.add("Ana lives in Ghent", "Ana", "Ghent", relations=(LIVES,))
    graph.add("The client wants blue", "The Client", scope=WEB)
    graph.edit(Rename(graph.id("The Client"), "Mother Superior"), scope=WEB)
    merge = graph.edit(Merge(graph.id("Mother Superior"), graph.id("Ana")), scope=WEB).edit
    assert {"Mother Superior", "The Client"} < shown(graph, WEB)
    assert shown(graph, API) == shown(graph) == {"Ana", "Ghent"}
    assert edit_texts(graph, API) == edit_texts(graph, ALICE) == []
    assert edit_texts(graph, WEB)[0] == "merged Mother Superior into Ana"

    with pytest.raises(InputError, match=f"no edit {merge} in this scope"):
        graph.apply(Write(API, Provenance("test"), undo=Undo(merge)))
    graph.apply(Write(WEB, Provenance("test"), undo=Undo(merge)))
    assert edit_texts(graph, WEB)[0] == "undid: merged Mother Superior into Ana"
    assert edit_texts(graph, API) == []
    assert "Mother Superior" not in shown(graph, API)
