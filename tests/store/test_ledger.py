"""The ledger: writes, history, scopes, messages and concurrent writers."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Decision, Event, Fact, Outcome, Provenance
from palimpsest.store import entries
from palimpsest.store.apply import Write
from palimpsest.store.graph.relations import relation_keys
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import KNOWN_REVISIONS
from palimpsest.store.upgrade import MIGRATIONS, upgrade
from palimpsest.text.tokenizer import search_tokens
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.ledger_access import ledger_in
from tests.support.memory import ALICE, StoppedClock, messages_from


def apply_decisions(ledger: Ledger, *decisions: Decision) -> list[Outcome]:
    return list(ledger.apply(Write(ALICE, Provenance("test"), decisions=decisions)).outcomes)


def found_ids(ledger: Ledger, words: str) -> set[str]:
    """Return the ids of the memories and messages that the full text finds."""
    with ledger.read() as conn:
        scores = ledger.full_text.search(conn, ALICE, search_tokens(words), 100)
        rows = entries.candidates(conn, ALICE, "", list(scores), ledger.now("alice"))
    return {row.candidate.owner_id for row in rows}


CASES = graph_cases(Path(__file__).with_name("ledger_cases.json"))


@pytest.mark.parametrize("case", CASES)
def test_the_ledger(ledger: Ledger, clock: StoppedClock, case: str) -> None:
    GraphCase(Graph(ledger, clock)).play(*CASES[case], ["sound"])


def test_what_ends_a_sentence_does_not_make_another_memory(ledger: Ledger) -> None:
    for text in ("User likes tea", "उसे चाय पसंद है", "彼女はお茶が好きだ"):
        (first,) = apply_decisions(ledger, Decision(Event.ADD, Fact(text)))
        for end in (".", "!", "…", "।", "。"):
            (outcome,) = apply_decisions(ledger, Decision(Event.ADD, Fact(f"{text}{end}")))
            assert outcome.duplicate_of == first.memory.id, text + end


def test_one_failing_decision_undoes_the_whole_write(ledger: Ledger) -> None:
    with pytest.raises(MemoryNotFoundError):
        apply_decisions(ledger, Decision(Event.ADD, Fact("First")), Decision(Event.DELETE, memory_id="no-such-id"))
    assert found_ids(ledger, "first") == set()


def test_a_message_is_found_by_the_words_of_its_neighbours(ledger: Ledger) -> None:
    question, answer, late = messages_from(
        ("user", "Which instrument does she play?"),
        ("assistant", "The violoncello."),
        {"role": "user", "content": "Hello again", "at": "2026-06-01T00:00:00Z"},
    )
    ledger.apply(Write(ALICE, Provenance("test"), messages=(question, answer, late)))
    assert answer.id in found_ids(ledger, "instrument")
    assert late.id not in found_ids(ledger, "violoncello")


def test_a_ledger_without_vectors_of_relations_gets_their_table(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        ledger.run(lambda conn: [conn.execute(sqlalchemy.text(line)) for line in AS_BEFORE])
        upgrade(ledger.database, ledger.backups, ledger.clock(), at_opening=False)
        assert ledger.read_with(relation_keys, "alice", "", 1) == ([], None)


AS_BEFORE = ("DROP TABLE relation_vectors", "UPDATE alembic_version SET version_num = '0013'")


def test_head_is_the_newest_migration() -> None:
    """The constant decides whether Alembic is imported at all."""
    assert sorted(file.name[:4] for file in (MIGRATIONS / "versions").glob("*.py")) == [*KNOWN_REVISIONS]
