"""Messages mention who says them and the known names in them."""

from __future__ import annotations

from palimpsest.core.models import Message, Provenance, Split
from palimpsest.store.apply import Write
from tests.support.graph import Graph
from tests.support.memory import ALICE, messages_from


def say(graph: Graph, text: str, speaker: str = "") -> Message:
    """Store a message."""
    (message,) = messages_from({"role": "user", "content": text, "name": speaker}, at=graph.clock.at)
    return graph.apply(Write(ALICE, Provenance("test"), messages=(message,))).messages[0]


def test_a_message_mentions_known_names_and_its_speaker(graph: Graph) -> None:
    graph.add("Ana and Tom Baker are friends", "Ana", "Tom Baker")
    message = say(graph, "I met Tom Baker in Bath", speaker="Ana")
    assert graph.spoken(message.id) == {"tom baker": "Tom Baker", "ana": "Ana"}


def test_a_name_that_two_have_is_left_out(graph: Graph) -> None:
    graph.add("Tom sings", "Tom")
    graph.add("Another Tom repairs sinks", "Tom")
    assert graph.spoken(say(graph, "Tom called").id) == {}


def test_what_a_memory_names_is_found_in_the_messages_behind_it(graph: Graph) -> None:
    first, second = say(graph, "Tom called about the sink"), say(graph, "He comes on Monday")
    graph.add("Tom repairs the sink on Monday", "Tom", sources=(first.id, second.id))
    assert graph.spoken(first.id) == {"tom": "Tom"}
    assert graph.spoken(second.id) == {}


def test_what_a_memory_means_by_a_name_counts_more(graph: Graph) -> None:
    graph.add("Tom sings", "Tom")
    message = say(graph, "Another guy named Tom repaired the sink")
    graph.add("Another guy named Tom repaired the sink", "Tom", ("plumber", "other"), sources=(message.id,))
    assert graph.spoken_ids(message.id)["tom"] == graph.newest("Tom")


def test_a_split_takes_the_messages_behind_its_memories_along(graph: Graph) -> None:
    message = say(graph, "Tom repaired the sink")
    graph.add("Tom sings", "Tom")
    memory = graph.add("Tom repaired the sink", "Tom", sources=(message.id,))
    graph.edit(Split(graph.id("Tom"), (memory,), "Tom the plumber"))
    assert graph.spoken(message.id) == {"tom": "Tom the plumber"}
    graph.undo()
    assert graph.spoken(message.id) == {"tom": "Tom"}
