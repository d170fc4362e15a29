"""Merge, split and rename entities: what is refused, what changes, what the log says, and what undo takes back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import EntityEdit, Merge, Relation, Rename, Scope, Split
from tests.support.graph import Graph
from tests.support.memory import ALICE

WEB = Scope("alice", project="web")
BOB = Scope("bob")


def test_what_mentions_the_one_is_about_the_other(graph: Graph) -> None:
    tom, baker = graph.add("Tom likes tea", "Tom"), graph.add("Tom Baker lives in Bath", "Tom Baker", "Bath")
    applied = graph.edit(Merge(graph.id("Tom"), graph.id("Tom Baker")))
    assert applied.notes == ("merged Tom into Tom Baker",)
    assert graph.memories_about("Tom") == graph.memories_about("Tom Baker") == {tom, baker}
    assert graph.names() == {"Tom Baker", "Bath"}


def test_what_is_so_already_changes_nothing(graph: Graph) -> None:
    graph.add("Tom knows Tom Baker", "Tom", "Tom Baker")
    plumber = graph.add("Ana lives in Bath", "Ana")
    graph.add("Ana likes tea", "Ana")
    for edit in (Merge(graph.id("Tom"), graph.id("Tom Baker")), Split(graph.id("Ana"), (plumber,), "Annie")):
        graph.edit(edit)
        before, edits = graph.state(), len(graph.log())
        assert graph.edit(edit).notes == ()
        assert (graph.state(), len(graph.log())) == (before, edits)
    assert graph.edit(Rename(graph.id("Ana"), "Ana", "other")).notes == ()
    assert len(graph.log()) == edits


def test_what_is_learned_later_by_the_old_name_is_taken_back_with_the_merge(graph: Graph) -> None:
    graph.add("Tom knows Tom Baker", "Tom", "Tom Baker")
    graph.edit(Merge(graph.id("Tom"), graph.id("Tom Baker")))
    later = graph.add("Tom likes tea", "Tom")
    assert later in graph.memories_about("Tom Baker")
    graph.undo(2)
    assert later in graph.memories_about("Tom")
    assert later not in graph.memories_about("Tom Baker")


def test_a_merge_is_refused_if_it_is_not_possible(graph: Graph) -> None:
    graph.add("Tom and Ana are friends of the user", "Tom", "Ana", "User")
    graph.add("Zoe is in the project", "Zoe", scope=WEB)
    graph.add("Ben", "Ben", scope=BOB)
    tom, ana, user, zoe, ben = (graph.id(name) for name in ("Tom", "Ana", "User", "Zoe", "Ben"))
    graph.edit(Merge(ana, tom))
    refused: dict[tuple[str, str, Scope], str] = {
        (tom, tom, ALICE): "cannot be merged into itself",
        (tom, ana, ALICE): "is part of it already",
        (user, tom, ALICE): "Merge Tom into the user",
        (tom, zoe, WEB): "Merge them the other way round",
        (tom, zoe, ALICE): "there is no entity",
        (tom, ben, ALICE): "there is no entity",
        ("unknown", tom, ALICE): "there is no entity unknown",
    }
    before = graph.state()
    for (merged, into, scope), text in refused.items():
        with pytest.raises(InputError, match=text):
            graph.edit(Merge(merged, into), scope=scope)
    assert graph.state() == before


def test_an_entity_of_a_project_may_be_a_global_one(graph: Graph) -> None:
    graph.add("Tom Baker lives in Bath", "Tom Baker")
    graph.add("Tommy reviews", "Tommy", scope=WEB)
    graph.edit(Merge(graph.id("Tommy"), graph.id("Tom Baker")), scope=WEB)
    assert graph.names() == {"Tom Baker"}
    graph.undo(scope=WEB)
    assert graph.names() == {"Tom Baker", "Tommy"}


def test_mentions_and_relations_of_these_memories_move(graph: Graph) -> None:
    bath = Relation("Tom", "lives in", "Bath")
    friend = graph.add("Tom likes tea", "Tom")
    plumber = graph.add("Tom lives in Bath", "Tom", relations=(bath,))
    applied = graph.edit(Split(graph.id("Tom"), (plumber,), "Tom (the plumber)"))
    assert applied.notes == ("split Tom (the plumber) off Tom, with 1 memory",)
    assert graph.memories_about("Tom") == {friend}
    assert graph.memories_about("Tom (the plumber)") == {plumber}
    assert graph.relations() == {("Tom (the plumber)", "lives in", "Bath")}


def test_it_is_undone_and_redone(graph: Graph) -> None:
    graph.add("Tom likes tea", "Tom")
    plumber = graph.add("Tom lives in Bath", "Tom", relations=(Relation("Tom", "lives in", "Bath"),))
    before = graph.state()
    graph.edit(Split(graph.id("Tom"), (plumber,), "Tom"))
    after = graph.state()
    graph.undo()
    assert graph.state() == before
    graph.undo(4)
    assert graph.state() == after


def test_what_mentions_the_new_one_by_then_goes_back_with_it(graph: Graph) -> None:
    graph.add("Tom likes tea", "Tom")
    plumber = graph.add("Tom lives in Bath", "Tom")
    graph.edit(Split(graph.id("Tom"), (plumber,), "Tommy"))
    later = graph.add("Tommy repaired the sink", "Tommy")
    graph.undo(3)
    assert later in graph.memories_about("Tom")


def test_a_split_is_refused_if_it_is_not_possible(graph: Graph) -> None:
    tom, ana = graph.add("Tom likes tea", "Tom"), graph.add("Ana likes tea", "Ana")
    web = graph.add("Tom reviews", "Tom", scope=WEB)
    refused: dict[Split, str] = {
        Split(graph.id("Tom"), (ana,), "Tommy"): "does not mention Tom",
        Split(graph.id("Tom"), (tom, ana), "Tommy"): "does not mention Tom",
        Split(graph.id("Tom"), (), "Tommy"): "needs the memories",
        Split(graph.id("Tom"), (tom,), " "): "1 to 256 characters",
        Split(graph.id("Tom"), (tom,), "me"): "stands for the user",
    }
    before = graph.state()
    for split, text in refused.items():
        with pytest.raises(InputError, match=text):
            graph.edit(split)
    with pytest.raises(MemoryNotFoundError):
        graph.edit(Split(graph.id("Tom"), (web,), "Tommy"))
    assert graph.state() == before


def test_it_is_found_by_both_names(graph: Graph) -> None:
    memory = graph.add("Tom likes tea", "Tom")
    applied = graph.edit(Rename(graph.id("Tom"), "Tom Baker", "person"))
    assert applied.notes == ("renamed Tom to Tom Baker, type person",)
    later = graph.add("Tom Baker and Tom are one", "Tom Baker", "Tom")
    assert graph.memories_about("Tom") == graph.memories_about("Tom Baker") == {memory, later}
    assert graph.names() == {"Tom Baker"}


@pytest.mark.nightly
def test_a_name_that_an_edit_gave_goes_with_its_undo(graph: Graph) -> None:
    graph.add("Tom likes tea", "Tom")
    before = graph.state()
    graph.edit(Rename(graph.id("Tom"), "Thomas"))
    graph.undo()
    assert graph.state() == before
    graph.add("Thomas likes tea", "Thomas")
    assert graph.names() == {"Tom", "Thomas"}


def test_the_user_is_called_as_a_memory_tells(graph: Graph) -> None:
    graph.add("User likes tea", "User")
    with pytest.raises(InputError, match="Tell the name in a memory"):
        graph.edit(Rename(graph.id("User"), "Alice"))


def test_an_unknown_type_is_refused(graph: Graph) -> None:
    graph.add("Tom likes tea", "Tom")
    with pytest.raises(InputError, match="Types are person, organization"):
        graph.edit(Rename(graph.id("Tom"), type="cat"))  # pyright: ignore[reportArgumentType] - it is refused


def test_edits_are_listed_with_what_they_did(graph: Graph) -> None:
    graph.add("Tom knows Tom Baker", "Tom", "Tom Baker")
    graph.edit(Merge(graph.id("Tom"), graph.id("Tom Baker")))
    graph.undo()
    graph.undo(3)
    steps = [[(step.kind, step.after) for step in edit.steps] for edit in graph.log()]
    assert steps == [
        [("entity", "redid: merged Tom into Tom Baker")],
        [("entity", "undid: merged Tom into Tom Baker")],
        [("entity", "merged Tom into Tom Baker")],
        [("memory", "Tom knows Tom Baker")],
    ]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("later", ["rename", "split", "merge"])
def test_an_edit_that_a_later_one_has_built_on_is_not_undone(graph: Graph, later: str) -> None:
    graph.add("Tom and Ana and Zoe", "Tom", "Ana", "Zoe")
    memory = graph.add("Tom likes tea", "Tom")
    tom = graph.id("Tom")
    graph.edit(Rename(tom, "Thomas") if later == "rename" else Split(tom, (memory,), "Tommy"))
    tommy = tom if later == "rename" else graph.id("Tommy")
    edits: dict[str, EntityEdit] = {
        "rename": Rename(tommy, "Tommy"),
        "split": Split(tommy, (memory,), "Tommo"),
        "merge": Merge(graph.id("Zoe"), tommy),
    }
    graph.edit(edits[later])
    with pytest.raises(InputError, match="was changed again or undone since"):
        graph.undo(3)
    graph.undo(4)
    graph.undo(3)


def test_everything_since_a_time_is_undone(graph: Graph) -> None:
    graph.add("Tom and Ana", "Tom", "Ana")
    memory = graph.add("Tom likes tea", "Tom")
    before, instant = graph.state(), graph.clock.at + timedelta(seconds=30)
    graph.edit(Rename(graph.id("Tom"), "Thomas"))
    graph.edit(Split(graph.id("Thomas"), (memory,), "Tommy"))
    graph.edit(Merge(graph.id("Thomas"), graph.id("Ana")))
    graph.undo(since=instant)
    assert graph.state() == before


def test_one_number_takes_back_memories_and_entities(graph: Graph) -> None:
    graph.add("Tom and Ana", "Tom", "Ana")
    before = graph.state()
    graph.add("Ben likes tea", "Ben", edits=(Merge(graph.id("Tom"), graph.id("Ana")),))
    graph.undo()
    assert graph.state() == before


def test_a_plain_undo_passes_over_what_the_background_resolved(graph: Graph) -> None:
    graph.add("Tom and Thomas", "Tom", "Thomas")
    memory = graph.add("Ana likes tea", "Ana")
    graph.edit(Merge(graph.id("Tom"), graph.id("Thomas")), stage="resolve")
    graph.undo()
    assert graph.memories_about("Ana") == set()
    assert graph.names() == {"Thomas"}
    assert memory not in graph.living()
    graph.undo(3)
    assert graph.names() == {"Tom", "Thomas"}
