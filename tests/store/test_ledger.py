"""The ledger: writes, history, scopes, messages and concurrent writers."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from sqlalchemy import select

from palimpsest.core.errors import InputError, MemoryNotFoundError, StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store import entries, history, memories, schema, summaries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import KNOWN_REVISIONS
from palimpsest.store.upgrade import MIGRATIONS
from palimpsest.text.tokenizer import search_tokens
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


class TestWrites:
    def test_an_added_memory_is_listed_found_and_in_history(self, ledger: Ledger) -> None:
        """Every memory enters the ledger in this way."""
        memory = add(ledger, "User plays the cello")
        assert current(ledger) == ["User plays the cello"]
        assert found_ids(ledger, "cello") == {memory.id}
        with ledger.read() as conn:
            (version,) = history.versions_of(conn, memory.id)
        assert (version.event, version.old_memory, version.new_memory) == (Event.ADD, None, "User plays the cello")
        assert version.provenance == BY_TEST

    def test_the_same_text_in_a_scope_is_one_memory_whatever_its_case_and_spaces(self, ledger: Ledger) -> None:
        """Duplicates are the most common junk in a memory."""
        first = add(ledger, "User plays the cello")
        (outcome,) = apply_decisions(ledger, Decision(Event.ADD, Fact("user  plays the CELLO")))
        assert outcome.event is Event.NONE
        assert outcome.duplicate_of == first.id
        assert len(current(ledger)) == 1

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("text", ["User likes tea", "उसे चाय पसंद है", "彼女はお茶が好きだ"])
    @pytest.mark.parametrize("end", [".", "!", "…", "।", "。"])
    def test_what_ends_a_sentence_does_not_make_another_memory(self, ledger: Ledger, text: str, end: str) -> None:
        """Models end a fact now with a full stop and now without."""
        first = add(ledger, text)
        (outcome,) = apply_decisions(ledger, Decision(Event.ADD, Fact(f"{text}{end}")))
        assert outcome.duplicate_of == first.id

    def test_the_same_text_in_another_scope_is_another_memory(self, ledger: Ledger) -> None:
        """The scope is part of a memory's identity."""
        add(ledger, "Tests run with make")
        add(ledger, "Tests run with make", Scope("alice", project="web"))
        assert len(current(ledger, Scope("alice", project="web"))) == 2

    def test_an_update_keeps_id_creation_and_the_old_text_in_history(self, ledger: Ledger, clock: StoppedClock) -> None:
        """An update keeps the id and the time of creation, and the old text stays in the history."""
        memory = add(ledger, "User has a cat")
        clock.forward(days=1)
        (outcome,) = apply_decisions(ledger, Decision(Event.UPDATE, Fact("User has a cat named Miso"), memory.id))
        assert outcome.previous == "User has a cat"
        assert (outcome.memory.id, outcome.memory.created_at) == (memory.id, memory.created_at)
        assert outcome.memory.updated_at == clock.at
        assert found_ids(ledger, "miso") == {memory.id}
        with ledger.read() as conn:
            assert [version.old_memory for version in history.versions_of(conn, memory.id)] == [
                None,
                "User has a cat",
            ]

    def test_a_deleted_memory_is_not_found_and_can_be_restored(self, ledger: Ledger) -> None:
        """A deletion is complete and can be reversed."""
        memory = add(ledger, "User fears spiders")
        apply_decisions(ledger, Decision(Event.DELETE, memory_id=memory.id))
        assert current(ledger) == []
        assert found_ids(ledger, "spiders") == set()
        apply_decisions(ledger, Decision(Event.ADD, memory_id=memory.id))
        assert current(ledger) == ["User fears spiders"]
        assert found_ids(ledger, "spiders") == {memory.id}
        with ledger.read() as conn:
            events = [version.event for version in history.versions_of(conn, memory.id)]
        assert events == [Event.ADD, Event.DELETE, Event.ADD]

    def test_a_superseded_memory_is_deleted_and_names_its_successor(self, ledger: Ledger) -> None:
        """After a contradiction, one memory is current and the other is in the history."""
        old = add(ledger, "User lives in Nice")
        (outcome,) = apply_decisions(ledger, Decision(Event.ADD, Fact("User lives in Lyon"), replaces=(old.id,)))
        assert outcome.previous == "User lives in Nice"
        assert current(ledger) == ["User lives in Lyon"]
        with ledger.read() as conn:
            superseded = entries.find_memory(conn, ALICE, old.id)
        assert superseded.superseded_by == outcome.memory.id

    def test_a_fact_of_before_a_memory_that_the_same_write_closed_is_stored(self, ledger: Ledger) -> None:
        """One call may replace Rome by Oslo and tell of Paris, before Rome. Paris is what came before Rome."""
        rome = add(ledger, "User lives in Rome")
        replacing = Decision(Event.ADD, Fact("User lives in Oslo"), replaces=(rome.id,))
        late = Decision(Event.NONE, memory_id=rome.id, outdated=(Fact("User lives in Paris"),))
        outcomes = apply_decisions(ledger, replacing, late)
        assert [outcome.event for outcome in outcomes] == [Event.ADD, Event.NONE, Event.ADD]
        assert outcomes[-1].memory.superseded_by == rome.id

    def test_an_update_to_the_text_of_another_memory_deletes_the_updated_one(self, ledger: Ledger) -> None:
        """An update must not make two living memories with the same text."""
        one, other = add(ledger, "User likes tea"), add(ledger, "User likes coffee")
        (outcome,) = apply_decisions(ledger, Decision(Event.UPDATE, Fact("User likes tea"), other.id))
        assert (outcome.event, outcome.duplicate_of) == (Event.DELETE, one.id)
        assert current(ledger) == ["User likes tea"]

    def test_metadata_is_merged_and_null_removes_a_key(self, ledger: Ledger) -> None:
        """An update keeps the caller's other metadata."""
        (outcome,) = apply_decisions(ledger, Decision(Event.ADD, Fact("A fact", metadata={"a": 1, "b": 2})))
        again = Fact("A fact", metadata={"b": None, "c": 3})
        (outcome,) = apply_decisions(ledger, Decision(Event.UPDATE, again, outcome.memory.id))
        assert outcome.memory.metadata == {"a": 1, "c": 3}
        with ledger.read() as conn:
            assert entries.find_memory(conn, ALICE, outcome.memory.id).metadata == {"a": 1, "c": 3}

    def test_an_update_without_a_text_keeps_the_current_text(self, ledger: Ledger) -> None:
        """A change of metadata must not revert a change of text that came before it."""
        memory = add(ledger, "The database is Postgres")
        apply_decisions(ledger, Decision(Event.UPDATE, Fact("The database is MySQL"), memory.id))
        (outcome,) = apply_decisions(ledger, Decision(Event.UPDATE, Fact("", metadata={"a": 1}), memory.id))
        assert (outcome.memory.text, outcome.memory.metadata) == ("The database is MySQL", {"a": 1})

    def test_one_failing_decision_undoes_the_whole_write(self, ledger: Ledger) -> None:
        """A write is applied completely or not at all."""
        with pytest.raises(MemoryNotFoundError):
            apply_decisions(ledger, Decision(Event.ADD, Fact("First")), Decision(Event.DELETE, memory_id="no-such-id"))
        assert current(ledger) == []
        assert found_ids(ledger, "first") == set()

    def test_a_restore_that_would_duplicate_a_living_memory_is_refused(self, ledger: Ledger) -> None:
        """A restore must not make two living memories with the same text."""
        memory = add(ledger, "User likes tea")
        apply_decisions(ledger, Decision(Event.DELETE, memory_id=memory.id))
        add(ledger, "User likes tea")
        with pytest.raises(InputError, match="already says the same"):
            apply_decisions(ledger, Decision(Event.ADD, memory_id=memory.id))


class TestScopes:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("event", [Event.UPDATE, Event.DELETE, Event.NONE])
    def test_an_id_of_another_user_is_unknown(self, ledger: Ledger, event: Event) -> None:
        """No operation by id reaches another user's memories."""
        bobs = add(ledger, "Bob's secret", Scope("bob"))
        with pytest.raises(MemoryNotFoundError):
            apply_decisions(ledger, Decision(event, Fact("mine now"), bobs.id))
        assert current(ledger, Scope("bob")) == ["Bob's secret"]

    def test_a_project_sees_the_global_memories_and_its_own(self, ledger: Ledger) -> None:
        """Every search follows this rule."""
        everywhere = add(ledger, "prefers tabs")
        web = add(ledger, "tabs in the web project", Scope("alice", project="web"))
        add(ledger, "tabs in the app project", Scope("alice", project="app"))
        assert found_ids(ledger, "tabs", Scope("alice", project="web")) == {everywhere.id, web.id}
        assert found_ids(ledger, "tabs") == {everywhere.id}

    def test_agent_and_run_narrow_a_search(self, ledger: Ledger) -> None:
        """A given agent or run narrows what a search sees."""
        own = add(ledger, "uses ripgrep", Scope("alice", agent_id="coder", run_id="r1"))
        add(ledger, "uses ripgrep too", Scope("alice", agent_id="writer"))
        assert found_ids(ledger, "ripgrep", Scope("alice", agent_id="coder")) == {own.id}
        assert found_ids(ledger, "ripgrep", Scope("alice", run_id="r1")) == {own.id}
        assert len(found_ids(ledger, "ripgrep")) == 2

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("name", ["*", "%", "alice OR bob", 'a" OR "b', "_lice", "алиса"])
    def test_a_name_with_wildcards_or_operators_matches_only_itself(self, ledger: Ledger, name: str) -> None:
        """Names are never read as operators of the full text or wildcards of LIKE."""
        add(ledger, "a shared word")
        own = add(ledger, "a shared word", Scope(name))
        assert found_ids(ledger, "shared", Scope(name)) == {own.id}
        with ledger.read() as conn, pytest.raises(InputError):
            entries.find_memory(conn, ALICE, "%" * 8)


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

    def test_a_message_is_found_by_the_words_of_its_memories_until_they_are_deleted(self, ledger: Ledger) -> None:
        """A message is found by the words of its memories, until these are deleted."""
        (message,) = messages_from(("user", "Rex barked all night"))
        keep(ledger, message)
        memory = add(ledger, "User owns a dog", sources=(message.id,))
        assert message.id in found_ids(ledger, "dog")
        apply_decisions(ledger, Decision(Event.DELETE, memory_id=memory.id))
        assert message.id not in found_ids(ledger, "dog")

    def test_a_message_with_the_same_external_id_is_stored_once(self, ledger: Ledger) -> None:
        """A repeated call stores a message once."""
        for _ in range(2):
            keep(ledger, *messages_from({"role": "user", "content": "Hi there", "id": "t1"}))
        with ledger.read() as conn:
            assert len(message_queries.messages_of(conn, ALICE)) == 1

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
        apply_decisions(ledger, Decision(Event.NONE, Fact("Miso", sources=(message.id,)), memory.id))
        with ledger.read() as conn:
            assert summaries.count_changes_since(conn, ALICE, newest) == 1
            assert not summaries.has_corrections_since(conn, ALICE, newest)
        apply_decisions(ledger, Decision(Event.UPDATE, Fact("User has a dog"), memory.id))
        with ledger.read() as conn:
            assert summaries.has_corrections_since(conn, ALICE, newest)

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
