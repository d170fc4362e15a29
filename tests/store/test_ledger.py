"""The ledger: writes, history, scopes, messages and concurrent writers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from palimpsest.core.errors import MemoryNotFoundError, StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Outcome, Provenance, Scope, Summary
from palimpsest.core.protocols import Vector
from palimpsest.store import entries, memories, schema, summaries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import KNOWN_REVISIONS
from palimpsest.store.upgrade import MIGRATIONS
from palimpsest.text.tokenizer import search_tokens
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.ledger_access import all_keys
from tests.support.memory import ALICE, StoppedClock, messages_from

BY_TEST = Provenance("test", model="m", prompt="p", caller="pytest")


def apply_decisions(
    ledger: Ledger, *decisions: Decision, scope: Scope = ALICE, based_on: int | None = None
) -> list[Outcome]:
    return list(ledger.apply(Write(scope, BY_TEST, decisions=decisions, based_on=based_on)).outcomes)


def add(ledger: Ledger, text: str, scope: Scope = ALICE, sources: tuple[str, ...] = ()) -> Memory:
    return apply_decisions(ledger, Decision(Event.ADD, Fact(text, sources=sources)), scope=scope)[0].memory


def keep(ledger: Ledger, *messages: Message, scope: Scope = ALICE) -> None:
    ledger.apply(Write(scope, BY_TEST, messages=messages))


def current(ledger: Ledger, scope: Scope = ALICE) -> list[str]:
    """Return the texts of the living memories that a scope sees."""
    with ledger.read() as conn:
        return [memory.text for _, memory in memories.list_memories(conn, scope, 100)]


def found_ids(ledger: Ledger, words: str, scope: Scope = ALICE) -> set[str]:
    """Return the ids of the memories and messages that the full text finds."""
    with ledger.read() as conn:
        scores = ledger.full_text.search(conn, scope, search_tokens(words), 100)
        return {
            row.candidate.owner_id for row in entries.candidates(conn, scope, "", list(scores), ledger.now("alice"))
        }


CASES = graph_cases(Path(__file__).with_name("ledger_cases.json"))


@pytest.mark.parametrize("case", CASES)
def test_the_ledger(ledger: Ledger, clock: StoppedClock, case: str) -> None:
    """Follow the steps of a case, and compare every row at its end."""
    GraphCase(Graph(ledger, clock)).play(*CASES[case], ["sound"])


class TestWrites:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("text", ["User likes tea", "उसे चाय पसंद है", "彼女はお茶が好きだ"])
    @pytest.mark.parametrize("end", [".", "!", "…", "।", "。"])
    def test_what_ends_a_sentence_does_not_make_another_memory(self, ledger: Ledger, text: str, end: str) -> None:
        """Models end a fact now with a full stop and now without."""
        first = add(ledger, text)
        (outcome,) = apply_decisions(ledger, Decision(Event.ADD, Fact(f"{text}{end}")))
        assert outcome.duplicate_of == first.id

    def test_a_fact_of_before_a_memory_that_the_same_write_closed_is_stored(self, ledger: Ledger) -> None:
        """One call may replace Rome by Oslo and tell of Paris, before Rome. Paris is what came before Rome."""
        rome = add(ledger, "User lives in Rome")
        replacing = Decision(Event.ADD, Fact("User lives in Oslo"), replaces=(rome.id,))
        late = Decision(Event.NONE, memory_id=rome.id, outdated=(Fact("User lives in Paris"),))
        outcomes = apply_decisions(ledger, replacing, late)
        assert [outcome.event for outcome in outcomes] == [Event.ADD, Event.NONE, Event.ADD]
        assert outcomes[-1].memory.superseded_by == rome.id

    def test_one_failing_decision_undoes_the_whole_write(self, ledger: Ledger) -> None:
        """A write is applied completely or not at all."""
        with pytest.raises(MemoryNotFoundError):
            apply_decisions(ledger, Decision(Event.ADD, Fact("First")), Decision(Event.DELETE, memory_id="no-such-id"))
        assert current(ledger) == []
        assert found_ids(ledger, "first") == set()


class TestMessages:
    def test_a_message_is_found_by_the_words_of_its_neighbours(self, ledger: Ledger) -> None:
        """An answer is found by the words of the question before it."""
        question, answer, late = messages_from(
            ("user", "Which instrument does she play?"),
            ("assistant", "The violoncello."),
            {"role": "user", "content": "Hello again", "at": "2026-06-01T00:00:00Z"},
        )
        keep(ledger, question, answer, late)
        assert answer.id in found_ids(ledger, "instrument")
        assert late.id not in found_ids(ledger, "violoncello")

    def test_keys_and_their_mean_follow_every_change(self, ledger: Ledger) -> None:
        """Search centres vectors on this mean, so it must not drift."""
        rng = np.random.default_rng(0)

        def vector() -> Vector:
            raw = rng.normal(size=8)
            return (raw / np.linalg.norm(raw)).astype(np.float32)

        messages = messages_from(("user", "one"), ("assistant", "two"), ("user", "three"))
        vectors = {text: vector() for text in ("one", "two", "three", "fact", "new fact")}
        ledger.apply(Write(ALICE, BY_TEST, messages=messages, vectors=vectors, embedder="e"))
        fact = Fact("fact", sources=(messages[1].id,))
        (outcome,) = ledger.apply(
            Write(ALICE, BY_TEST, decisions=(Decision(Event.ADD, fact),), vectors=vectors, embedder="e")
        ).outcomes
        update = Decision(Event.UPDATE, Fact("new fact"), outcome.memory.id)
        ledger.apply(Write(ALICE, BY_TEST, decisions=(update,), vectors=vectors, embedder="e"))
        with ledger.read() as conn:
            seqs, keys = all_keys(conn, ALICE, "e")
            centre = entries.centre(conn, "alice", "e")
        assert centre.entries == len(seqs) == 4
        assert centre.mean is not None
        np.testing.assert_allclose(centre.mean, keys.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1, atol=1e-6)

    def test_the_key_of_a_text_without_context_is_its_vector(self, ledger: Ledger) -> None:
        """It is stored once, and the mean follows it all the same when the text is changed or deleted."""
        vectors = {
            text: np.array(values, dtype=np.float32)
            for text, values in (("a", [0.6, 0.8]), ("b", [0.8, 0.6]), ("c", [0, 1]))
        }

        def write(decision: Decision) -> str:
            write = Write(ALICE, BY_TEST, decisions=(decision,), vectors=vectors, embedder="e")
            return ledger.apply(write).outcomes[0].memory.id

        memory_id, deleted = write(Decision(Event.ADD, Fact("a"))), write(Decision(Event.ADD, Fact("c")))
        write(Decision(Event.UPDATE, Fact("b"), memory_id))
        write(Decision(Event.DELETE, memory_id=deleted))
        with ledger.read() as conn:
            stored = conn.execute(select(schema.vectors.c.key).where(schema.vectors.c.live)).scalars().all()
            _, keys = all_keys(conn, ALICE, "e")
            centre = entries.centre(conn, "alice", "e")

        assert stored == [b""]
        assert centre.entries == 1
        assert centre.mean is not None
        np.testing.assert_allclose(keys, [vectors["b"]], atol=1e-3)
        np.testing.assert_allclose(centre.mean, keys[0], atol=1e-6)


class TestConcurrency:
    def test_a_decision_on_memories_that_changed_since_is_refused(self, ledger: Ledger) -> None:
        """A decision on memories that have changed since must be made again."""
        with ledger.read() as conn:
            log_number = entries.newest_log_number(conn)
        add(ledger, "User lives in Nice")
        with pytest.raises(StaleDecisionError):
            apply_decisions(ledger, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=log_number)
        assert current(ledger) == ["User lives in Nice"]

    def test_changes_in_other_scopes_do_not_make_a_decision_stale(self, ledger: Ledger) -> None:
        """Other changes do not make a decision stale."""
        with ledger.read() as conn:
            log_number = entries.newest_log_number(conn)
        add(ledger, "Bob lives in Nice", Scope("bob"))
        add(ledger, "The app is blue", Scope("alice", project="app"))
        apply_decisions(ledger, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=log_number)

    def test_a_mention_of_a_memory_does_not_make_a_summary_stale(self, ledger: Ledger, clock: StoppedClock) -> None:
        """A new summary costs a call of the model. Only a change of what it may say is worth it."""
        memory = add(ledger, "User has a cat")
        clock.forward(minutes=1)
        apply_decisions(ledger, Decision(Event.UPDATE, Fact("User has a cat named Miso"), memory.id))
        clock.forward(minutes=1)
        (message,) = messages_from(("user", "Miso is asleep"))
        keep(ledger, message)
        with ledger.read() as conn:
            newest = entries.newest_log_number(conn)
        summary = Summary(ALICE, "overall", "Has a cat.", newest, clock(), sources={memory.id: 2})
        ledger.apply(Write(ALICE, Provenance("test"), summary=summary))
        apply_decisions(ledger, Decision(Event.NONE, Fact("Miso", sources=(message.id,)), memory.id))
        with ledger.read() as conn:
            assert summaries.count_changes_since(conn, ALICE, newest) == 1
            assert summaries.current_summary(conn, ALICE, "overall") is not None
        apply_decisions(ledger, Decision(Event.UPDATE, Fact("User has a dog"), memory.id))
        with ledger.read() as conn:
            assert summaries.current_summary(conn, ALICE, "overall") is None

    def test_identical_adds_from_many_threads_make_one_memory(self, ledger: Ledger) -> None:
        """The unique index holds for concurrent writers."""
        barrier = threading.Barrier(8)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                barrier.wait()
                add(ledger, "User plays the cello")
            except BaseException as error:  # noqa: BLE001 - asserted below
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert current(ledger) == ["User plays the cello"]


class TestSchema:
    def test_head_is_the_newest_migration(self) -> None:
        """The constant decides whether Alembic is imported at all."""
        assert sorted(file.name[:4] for file in (MIGRATIONS / "versions").glob("*.py")) == [*KNOWN_REVISIONS]
