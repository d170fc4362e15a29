"""Merge, split and rename entities: what is refused, what changes, and what undo takes back. See `edit_cases.json`."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Merge, Rename, Split
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.memory import ALICE

CASES = graph_cases(Path(__file__).with_name("edit_cases.json"))


@pytest.mark.parametrize("case", CASES)
def test_an_edit(graph: Graph, case: str) -> None:
    """Follow the steps of a case, and compare every row at its end."""
    GraphCase(graph).play(*CASES[case], ["sound"])


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
    tom = next(iter(graph.all_entities(ALICE)))
    with pytest.raises(InputError, match="is part of it already"):
        graph.edit(Merge(graph.id("Tom Baker"), tom))


def test_one_number_takes_back_memories_and_entities(graph: Graph) -> None:
    graph.add("Tom and Ana", "Tom", "Ana")
    before = graph.state()
    graph.add("Ben likes tea", "Ben", edits=(Merge(graph.id("Tom"), graph.id("Ana")),))
    graph.undo()
    assert graph.state() == before
