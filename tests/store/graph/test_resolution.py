"""Which entity a name means: the one of that name and a type that fits, unless the text says otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from palimpsest.core.models import (
    USER_NAME,
    Decision,
    EntityType,
    Event,
    Fact,
    Merge,
    NamedEntity,
    Provenance,
    Relation,
    Scope,
    Split,
)
from palimpsest.store.apply import Write
from tests.support.graph import Graph
from tests.support.memory import ALICE

WEB = Scope("alice", project="web")
SHOP = Scope("alice", project="shop")


def test_spellings_of_a_name_are_one_entity(graph: Graph) -> None:
    memories = {graph.add(f"{name} lives in Bath", name) for name in ("Ana", "ANA", "Ana's", "“ana”")}
    assert graph.memories_about("Ana") == memories


def test_what_the_user_is_called_in_texts_is_one_entity(graph: Graph) -> None:
    memories = {graph.add(f"{name} likes tea", name) for name in ("User", "I", "ich", "用户")}
    assert graph.memories_about("User") == memories


def test_types_that_contradict_are_two(graph: Graph) -> None:
    person = graph.add("Jordan likes tea", ("Jordan", "person"))
    place = graph.add("Jordan is dry", ("Jordan", "place"))
    assert graph.partners(person) == {person}
    assert graph.partners(place) == {place}


def test_a_known_type_takes_the_place_of_none(graph: Graph) -> None:
    first = graph.add("Jordan is dry", "Jordan")
    second = graph.add("Jordan borders Iraq", ("Jordan", "place"))
    person = graph.add("Jordan likes tea", ("Jordan", "person"))
    assert graph.partners(first) == {first, second}
    assert graph.partners(person) == {person}


def test_a_type_that_only_an_undone_memory_gave_does_not_count(graph: Graph) -> None:
    graph.add("Ana is a kind of tea", ("Ana", "product"))
    graph.undo()
    later = graph.add("Ana likes tea", ("Ana", "person"))
    again = graph.add("Ana likes Bath", ("Ana", "person"))
    assert graph.partners(later) == {later, again}
    assert graph.names() == {"Ana"}


@pytest.mark.parametrize(
    "text",
    [
        "Another Tom repairs sinks",
        "User met a different Tom",
        "A plumber, also named Tom, repairs sinks",
        "User has another friend named Tom",
        "Ein anderer Tom repariert Spülen",
        "Der Klempner heißt auch genannt Tom",
        "Un autre Tom répare des éviers",
        "Otro Tom arregla fregaderos",
        "Другой Tom чинит раковины",
        "另一个Tom修水槽",
        "別のTomが来た",
        "Tom (the plumber) repairs sinks",
    ],
)
def test_two_of_one_name_stay_two_where_a_text_says_so(graph: Graph, text: str) -> None:
    friend = graph.add("Tom is a friend of the user", ("Tom", "person"))
    plumber = graph.add(text, ("Tom", "person"))
    assert graph.partners(friend) == {friend}
    assert graph.partners(plumber) == {plumber}


@pytest.mark.parametrize("text", ["User read another book by Tom", "Tom (42) likes tea", "Tom bought another car"])
def test_other_things_that_are_another_say_nothing_of_the_name(graph: Graph, text: str) -> None:
    first = graph.add("Tom is a friend of the user", "Tom")
    second = graph.add(text, "Tom")
    assert graph.partners(first) == {first, second}


def test_one_is_told_apart_again_by_the_same_words(graph: Graph) -> None:
    friend = graph.add("Tom is a friend of the user", "Tom")
    plumber = graph.add("Tom (the plumber) repairs sinks", "Tom")
    again = graph.add("The sink was repaired by Tom (the plumber)", "Tom")
    assert graph.partners(plumber) == {plumber, again}
    assert graph.partners(friend) == {friend}
    assert graph.names() == {"Tom", "Tom (the plumber)"}


def test_of_several_the_one_with_the_same_others_is_meant(graph: Graph) -> None:
    friend = graph.add("Tom and Ana live in Bath", "Tom", "Ana", "Bath")
    plumber = graph.add("Another Tom works for Acme", "Tom", "Acme")
    later = graph.add("Tom left Acme", "Tom", "Acme")
    assert graph.partners(plumber) >= {later}
    assert friend not in graph.partners(later)


def test_of_several_the_clearly_nearer_one_is_meant(graph: Graph) -> None:
    near, far = np.array([1, 0, 0, 0], np.float32), np.array([0, 1, 0, 0], np.float32)
    friend = graph.add("Tom sings", "Tom", vector=near)
    plumber = graph.add("Another Tom repairs sinks", "Tom", vector=far)
    later = graph.add("Tom repaired a tap", "Tom", vector=(0.1 * near + 0.9 * far).astype(np.float32))
    assert graph.partners(later) == {plumber, later}
    assert graph.partners(friend) == {friend}


def test_what_is_not_clear_means_nobody_and_is_told(graph: Graph) -> None:
    """Guards two of a name against a third one. A text that says who is meant is about that one."""
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


def test_a_merge_of_two_of_one_name_says_what_differs(graph: Graph) -> None:
    graph.add("Tomasz designs the site", "Tomasz", scope=WEB)
    graph.add("Tomasz lives in Lyon", "Tomasz")
    graph.add("Rex barks", ("Rex", "person"))
    other = graph.add("Another Rex purrs", ("Rex", "person"))
    first, second = graph.newest("Rex"), graph.oldest("Rex")
    graph.edit(Merge(first, second))
    merges = [step.after for edit in graph.log() for step in edit.steps if step.kind == "entity"]
    assert merges == [
        f"merged Rex ({first[:8]}) into Rex ({second[:8]})",
        "merged Tomasz (in web) into Tomasz (in all projects)",
    ]
    assert other in graph.partners(other)


def test_an_undone_namesake_makes_nothing_unclear(graph: Graph) -> None:
    first = graph.add("Tom sings", "Tom")
    graph.add("Another Tom repairs sinks", "Tom")
    graph.undo()
    later = graph.add("Tom likes tea", "Tom")
    assert graph.partners(first) == {first, later}


def test_a_project_sees_the_users_global_entities_and_no_other_projects(graph: Graph) -> None:
    everywhere = graph.add("Ana likes tea", "Ana")
    web = graph.add("Ana reviews, Ben too", "Ana", "Ben", scope=WEB)
    shop = graph.add("Ben pays", "Ben", scope=SHOP)
    assert graph.partners(everywhere) == {everywhere, web}
    assert graph.partners(shop) == {shop}


def test_a_new_global_entity_takes_in_those_of_projects(graph: Graph) -> None:
    web = graph.add("Ana reviews", ("Ana", "person"), scope=WEB)
    shop = graph.add("Ana pays", "Ana", scope=SHOP)
    thing = graph.add("Ana is a library", ("Ana", "product"), scope=Scope("alice", project="lib"))
    everywhere = graph.add("Ana likes tea", ("Ana", "person"))
    assert graph.partners(everywhere) == {everywhere, web, shop}
    assert graph.partners(thing) == {thing}
    graph.undo()
    assert graph.partners(web) == {web}
    assert graph.partners(shop) == {shop}


def test_a_project_that_has_two_of_the_name_keeps_them(graph: Graph) -> None:
    first = graph.add("Tom sings", "Tom", scope=WEB)
    graph.add("Another Tom repairs sinks", "Tom", scope=WEB)
    everywhere = graph.add("Tom likes tea", "Tom")
    assert graph.partners(everywhere) == {everywhere}
    assert graph.partners(first) == {first}


def test_the_name_that_a_memory_tells_is_the_users(graph: Graph) -> None:
    before = graph.add("Alice likes tea", ("Alice", "person"))
    told = graph.add("User's name is Alice", "User", "Alice", metadata={"user_name": "Alice"})
    later = graph.add("Alice lives in Bath", ("Alice", "person"))
    own = graph.add("User likes rain", "User")
    assert graph.partners(own) == {before, told, later, own}
    assert [step.after for step in graph.log()[2].steps if step.kind == "entity"] == ["merged Alice into the user"]


def test_undoing_the_telling_parts_the_two(graph: Graph) -> None:
    before = graph.add("Alice likes tea", ("Alice", "person"))
    graph.add("User's name is Alice", "User", "Alice", metadata={"user_name": "Alice"})
    graph.undo()
    later = graph.add("Alice lives in Bath", ("Alice", "person"))
    own = graph.add("User likes rain", "User")
    assert graph.partners(before) == {before, later}
    assert graph.partners(own) == {own}


def test_somebody_else_of_the_users_name_stays_somebody_else(graph: Graph) -> None:
    told = graph.add("User's name is Alice", "User", "Alice", metadata={"user_name": "Alice"})
    graph.change(told, "User's name is Alice Smith", "User", metadata={"user_name": "Alice Smith"})
    friend = graph.add("Another Alice Jones sings", "Alice Jones")
    graph.add("User's name is Alice", "User", "Alice", scope=WEB, metadata={"user_name": "Alice"})
    assert graph.partners(friend) == {friend}


def test_a_name_given_by_a_merge_means_what_it_was_merged_into(graph: Graph) -> None:
    first = graph.add("Bob and Robert are one", "Bob", "Robert")
    graph.edit(Merge(graph.id("Bob"), graph.id("Robert")))
    later = graph.add("Bob likes tea", "Bob")
    assert graph.partners(later) == {first, later}
    assert graph.names() == {"Robert"}


def test_facts_of_one_write_meet(graph: Graph) -> None:
    facts = [Fact(f"Ana {what}", entities=(NamedEntity("Ana"),)) for what in ("sings", "dances")]
    decisions = tuple(Decision(Event.ADD, fact) for fact in facts)
    outcomes = graph.apply(Write(ALICE, Provenance("test"), decisions=decisions)).outcomes
    assert graph.memories_about("Ana") == {outcome.memory.id for outcome in outcomes}


class TestNamesThatTellApart:
    """A model calls two of one name "Tom (plumber)" and "Tom (cousin)", as its prompt says."""

    def test_they_are_two_and_the_name_alone_means_both(self, graph: Graph) -> None:
        """Guards a question about Tom, whichever of them it means."""
        plumber = graph.add("The plumber Tom lives in Leith", ("Tom (plumber)", "person"))
        cousin = graph.add("The cousin Tom plays chess", ("Tom (cousin)", "person"))
        assert graph.partners(plumber) == {plumber}
        assert graph.partners(cousin) == {cousin}
        assert graph.memories_about("Tom") == {plumber, cousin}
        assert graph.memories_about("tom (plumber)") == {plumber}

    def test_the_name_alone_means_the_only_one_of_it(self, graph: Graph) -> None:
        """Guards one person of whom the model first said what she does."""
        first = graph.add("医生李娜住在杭州", ("李娜（医生）", "person"))  # noqa: RUF001 - Chinese brackets
        second = graph.add("李娜喜欢茶", ("李娜", "person"))
        assert graph.partners(first) == {first, second}

    def test_a_call_of_a_function_is_no_shorter_name(self, graph: Graph) -> None:
        """Guards the names of code."""
        graph.add("open(path) fails", "open(path)")
        assert graph.memories_about("open") == set()

    def test_somebody_told_apart_is_not_the_user_of_that_name(self, graph: Graph) -> None:
        """Guards against a plumber who becomes the user."""
        plumber = graph.add("The plumber Tom lives in Leith", ("Tom (plumber)", "person"))
        graph.add("User is called Tom", "User", metadata={USER_NAME: "Tom"})
        assert graph.partners(plumber) == {plumber}

    def test_a_name_lasts_as_long_as_the_one_that_it_is_short_for(self, graph: Graph) -> None:
        """A split moves the only mention to another entity, and an undo moves it back."""
        plumber = graph.add("The plumber Tom lives in Leith", ("Tom (plumber)", "person"))
        cousin = graph.add("The plumber Tom plays chess", ("Tom (plumber)", "person"))
        old = graph.id("Tom (plumber)")
        graph.edit(Split(old, (plumber, cousin), "Ben"))
        assert graph.names_of(old) == set()
        graph.undo()
        assert graph.names_of(old) == {"tom (plumber", "tom"}
        assert graph.faults() == []

    def test_an_update_that_names_it_without_the_words_keeps_it(self, graph: Graph) -> None:
        """Guards updates, whose text is in a person's words and not in those of the name."""
        memory_id = graph.add("The plumber Tom has a van", ("Tom (plumber)", "person"))
        assert graph.change(memory_id, "Tom sold his van").entities == (NamedEntity("Tom (plumber)", "person"),)
