"""The ledger: one writer, history for every change, nothing from another scope, no schema it does not know."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Generator
from pathlib import Path

import alembic.autogenerate
import alembic.command
import alembic.config
import alembic.migration
import numpy as np
import pytest

from palimpsest.core.errors import InputError, LedgerError, LedgerTooNewError, MemoryNotFoundError, StaleDecisionError
from palimpsest.core.models import Decision, Event, Fact, Memory, Message, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.schema import HEAD, KNOWN_REVISIONS, metadata
from palimpsest.store.sqlite.full_text import SqliteFullText
from palimpsest.store.upgrade import MIGRATIONS
from palimpsest.store.writes.apply import Write
from palimpsest.text.tokenizer import search_tokens
from tests.support.memory import ALICE, StoppedClock, all_keys, messages_from

BY_TEST = Provenance("test", model="m", prompt="p", caller="pytest")


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: StoppedClock) -> Generator[Ledger]:
    opened = open_ledger(tmp_path / "ledger.db", clock)
    yield opened
    opened.close()


def apply_decisions(
    ledger: Ledger, *decisions: Decision, scope: Scope = ALICE, based_on: int | None = None
) -> list[Outcome]:
    return list(ledger.apply(Write(scope, BY_TEST, decisions=decisions, based_on=based_on)).outcomes)


def add(ledger: Ledger, text: str, scope: Scope = ALICE, sources: tuple[str, ...] = ()) -> Memory:
    return apply_decisions(ledger, Decision(Event.ADD, Fact(text, sources=sources)), scope=scope)[0].memory


def keep(ledger: Ledger, *messages: Message, scope: Scope = ALICE) -> None:
    ledger.apply(Write(scope, BY_TEST, messages=messages))


def current(ledger: Ledger, scope: Scope = ALICE) -> list[str]:
    with ledger.read() as conn:
        return [memory.text for _, memory in memory_queries.list_memories(conn, scope, 100)]


def found(ledger: Ledger, words: str, scope: Scope = ALICE) -> set[str]:
    with ledger.read() as conn:
        units = entry_queries.visible_entries(
            conn, scope, list(SqliteFullText().search(conn, scope, search_tokens(words), 100))
        )
        return {unit.owner_id for unit in units.values()}


class TestChanges:
    def test_an_added_memory_is_listed_found_and_in_history(self, ledger: Ledger) -> None:
        """Guards the one path by which everything enters."""
        memory = add(ledger, "User plays the cello")
        assert current(ledger) == ["User plays the cello"]
        assert found(ledger, "cello") == {memory.id}
        with ledger.read() as conn:
            (entry,) = history_queries.versions_of(conn, memory.id)
        assert (entry.event, entry.old_memory, entry.new_memory) == (Event.ADD, None, "User plays the cello")
        assert entry.provenance == BY_TEST

    def test_the_same_text_in_the_same_scope_is_one_memory_whatever_its_case_and_spaces(self, ledger: Ledger) -> None:
        """Guards against duplicates, the commonest junk."""
        first = add(ledger, "User plays the cello")
        (change,) = apply_decisions(ledger, Decision(Event.ADD, Fact("user  plays the CELLO")))
        assert change.event is Event.NONE
        assert change.duplicate_of == first.id
        assert len(current(ledger)) == 1

    def test_the_same_text_in_another_scope_is_another_memory(self, ledger: Ledger) -> None:
        """Guards the scope as part of a memory's identity."""
        add(ledger, "Tests run with make")
        add(ledger, "Tests run with make", Scope("alice", project="web"))
        assert len(current(ledger, Scope("alice", project="web"))) == 2

    def test_an_update_keeps_id_creation_and_the_old_text_in_history(self, ledger: Ledger, clock: StoppedClock) -> None:
        """Guards what update promises."""
        memory = add(ledger, "User has a cat")
        clock.forward(days=1)
        (change,) = apply_decisions(ledger, Decision(Event.UPDATE, Fact("User has a cat named Miso"), memory.id))
        assert change.previous == "User has a cat"
        assert (change.memory.id, change.memory.created_at) == (memory.id, memory.created_at)
        assert change.memory.updated_at == clock.at
        assert found(ledger, "miso") == {memory.id}
        with ledger.read() as conn:
            assert [entry.old_memory for entry in history_queries.versions_of(conn, memory.id)] == [
                None,
                "User has a cat",
            ]

    def test_a_delete_leaves_every_search_and_can_be_restored(self, ledger: Ledger) -> None:
        """Guards that forgetting is whole and has a way back."""
        memory = add(ledger, "User fears spiders")
        apply_decisions(ledger, Decision(Event.DELETE, memory_id=memory.id))
        assert current(ledger) == []
        assert found(ledger, "spiders") == set()
        apply_decisions(ledger, Decision(Event.ADD, memory_id=memory.id))
        assert current(ledger) == ["User fears spiders"]
        assert found(ledger, "spiders") == {memory.id}
        with ledger.read() as conn:
            events = [entry.event for entry in history_queries.versions_of(conn, memory.id)]
        assert events == [Event.ADD, Event.DELETE, Event.ADD]

    def test_a_superseded_memory_is_closed_and_names_its_successor(self, ledger: Ledger) -> None:
        """Guards that a contradiction leaves one current belief and the other in history."""
        old = add(ledger, "User lives in Nice")
        (change,) = apply_decisions(ledger, Decision(Event.ADD, Fact("User lives in Lyon"), replaces=(old.id,)))
        assert change.previous == "User lives in Nice"
        assert current(ledger) == ["User lives in Lyon"]
        with ledger.read() as conn:
            closed = id_lookup.find_memory(conn, ALICE, old.id)
        assert closed.superseded_by == change.memory.id

    def test_an_update_to_what_another_memory_says_closes_the_one_for_the_other(self, ledger: Ledger) -> None:
        """Guards the unique text against updates."""
        one, other = add(ledger, "User likes tea"), add(ledger, "User likes coffee")
        (change,) = apply_decisions(ledger, Decision(Event.UPDATE, Fact("User likes tea"), other.id))
        assert (change.event, change.duplicate_of) == (Event.DELETE, one.id)
        assert current(ledger) == ["User likes tea"]

    def test_metadata_is_merged_and_null_removes_a_key(self, ledger: Ledger) -> None:
        """Guards the caller's metadata through updates."""
        (change,) = apply_decisions(ledger, Decision(Event.ADD, Fact("A fact", metadata={"a": 1, "b": 2})))
        again = Fact("A fact", metadata={"b": None, "c": 3})
        (change,) = apply_decisions(ledger, Decision(Event.UPDATE, again, change.memory.id))
        assert change.memory.metadata == {"a": 1, "c": 3}
        with ledger.read() as conn:
            assert id_lookup.find_memory(conn, ALICE, change.memory.id).metadata == {"a": 1, "c": 3}

    def test_an_update_without_a_text_leaves_the_text_of_the_moment(self, ledger: Ledger) -> None:
        """Guards a change of metadata against reverting a change of text that came in between."""
        memory = add(ledger, "The database is Postgres")
        apply_decisions(ledger, Decision(Event.UPDATE, Fact("The database is MySQL"), memory.id))
        (change,) = apply_decisions(ledger, Decision(Event.UPDATE, Fact("", metadata={"a": 1}), memory.id))
        assert (change.memory.text, change.memory.metadata) == ("The database is MySQL", {"a": 1})

    def test_one_failing_decision_undoes_the_whole_write(self, ledger: Ledger) -> None:
        """Guards all-or-nothing: no half of a write is ever acknowledged."""
        with pytest.raises(MemoryNotFoundError):
            apply_decisions(ledger, Decision(Event.ADD, Fact("First")), Decision(Event.DELETE, memory_id="no-such-id"))
        assert current(ledger) == []
        assert found(ledger, "first") == set()

    def test_a_restore_beside_a_living_twin_is_refused(self, ledger: Ledger) -> None:
        """Guards the unique text against restores."""
        memory = add(ledger, "User likes tea")
        apply_decisions(ledger, Decision(Event.DELETE, memory_id=memory.id))
        add(ledger, "User likes tea")
        with pytest.raises(InputError, match="already says the same"):
            apply_decisions(ledger, Decision(Event.ADD, memory_id=memory.id))


class TestScopes:
    @pytest.mark.parametrize("event", [Event.UPDATE, Event.DELETE, Event.NONE])
    def test_an_id_of_another_user_is_unknown(self, ledger: Ledger, event: Event) -> None:
        """Guards every operation by id against other people's memories."""
        theirs = add(ledger, "Bob's secret", Scope("bob"))
        with pytest.raises(MemoryNotFoundError):
            apply_decisions(ledger, Decision(event, Fact("mine now"), theirs.id))
        assert current(ledger, Scope("bob")) == ["Bob's secret"]

    def test_a_project_sees_the_global_memories_and_its_own(self, ledger: Ledger) -> None:
        """Guards the rule of what a search sees."""
        everywhere = add(ledger, "prefers tabs")
        web = add(ledger, "tabs in the web project", Scope("alice", project="web"))
        add(ledger, "tabs in the app project", Scope("alice", project="app"))
        assert found(ledger, "tabs", Scope("alice", project="web")) == {everywhere.id, web.id}
        assert found(ledger, "tabs") == {everywhere.id}

    def test_agent_and_run_narrow_a_search(self, ledger: Ledger) -> None:
        """Guards the narrower parts of a scope."""
        mine = add(ledger, "uses ripgrep", Scope("alice", agent_id="coder", run_id="r1"))
        add(ledger, "uses ripgrep too", Scope("alice", agent_id="writer"))
        assert found(ledger, "ripgrep", Scope("alice", agent_id="coder")) == {mine.id}
        assert found(ledger, "ripgrep", Scope("alice", run_id="r1")) == {mine.id}
        assert len(found(ledger, "ripgrep")) == 2

    @pytest.mark.parametrize("name", ["*", "%", "alice OR bob", 'a" OR "b', "_lice", "алиса"])
    def test_a_name_made_of_wildcards_or_operators_matches_only_itself(self, ledger: Ledger, name: str) -> None:
        """Guards the full-text scope condition and SQL LIKE against injection."""
        add(ledger, "a shared word")
        own = add(ledger, "a shared word", Scope(name))
        assert found(ledger, "shared", Scope(name)) == {own.id}
        with ledger.read() as conn, pytest.raises(InputError):
            id_lookup.find_memory(conn, ALICE, "%" * 8)


class TestMessages:
    def test_a_turn_is_found_by_its_neighbours_words(self, ledger: Ledger) -> None:
        """Guards contextual keys: an answer is found by the words of the question before it."""
        question, answer, late = messages_from(
            ("user", "Which instrument does she play?"),
            ("assistant", "The violoncello."),
            {"role": "user", "content": "Hello again", "at": "2026-06-01T00:00:00Z"},
        )
        keep(ledger, question, answer, late)
        assert answer.id in found(ledger, "instrument")
        assert late.id not in found(ledger, "violoncello")

    def test_a_turn_is_found_by_the_facts_that_cite_it_until_they_are_forgotten(self, ledger: Ledger) -> None:
        """Guards the other half of the key, and that it follows deletions."""
        (turn,) = messages_from(("user", "Rex barked all night"))
        keep(ledger, turn)
        memory = add(ledger, "User owns a dog", sources=(turn.id,))
        assert turn.id in found(ledger, "dog")
        apply_decisions(ledger, Decision(Event.DELETE, memory_id=memory.id))
        assert turn.id not in found(ledger, "dog")

    def test_the_same_turn_under_the_callers_same_id_is_kept_once(self, ledger: Ledger) -> None:
        """Guards a retried call."""
        for _ in range(2):
            keep(ledger, *messages_from({"role": "user", "content": "Hi there", "id": "t1"}))
        with ledger.read() as conn:
            assert len(message_queries.recent_messages(conn, ALICE, 10)) == 1

    def test_keys_and_their_mean_follow_every_change(self, ledger: Ledger) -> None:
        """Guards the mean that recall centres on against drift."""
        rng = np.random.default_rng(0)

        def vector() -> Vector:
            raw = rng.normal(size=8)
            return (raw / np.linalg.norm(raw)).astype(np.float32)

        messages = messages_from(("user", "one"), ("assistant", "two"), ("user", "three"))
        known = {text: vector() for text in ("one", "two", "three", "fact", "new fact")}
        ledger.apply(Write(ALICE, BY_TEST, messages=messages, vectors=known, embedder="e"))
        fact = Fact("fact", sources=(messages[1].id,))
        (change,) = ledger.apply(
            Write(ALICE, BY_TEST, decisions=(Decision(Event.ADD, fact),), vectors=known, embedder="e")
        ).outcomes
        update = Decision(Event.UPDATE, Fact("new fact"), change.memory.id)
        ledger.apply(Write(ALICE, BY_TEST, decisions=(update,), vectors=known, embedder="e"))
        with ledger.read() as conn:
            seqs, keys = all_keys(conn, ALICE, "e")
            centre = vector_queries.centre(conn, "alice", "e")
        assert centre.entries == len(seqs) == 4
        assert centre.mean is not None
        np.testing.assert_allclose(centre.mean, keys.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1, atol=1e-6)


class TestConcurrency:
    def test_a_decision_on_memories_that_changed_since_is_refused(self, ledger: Ledger) -> None:
        """Guards decide-then-apply against what happened in between."""
        with ledger.read() as conn:
            seen = log_queries.newest_log_number(conn)
        add(ledger, "User lives in Nice")
        with pytest.raises(StaleDecisionError):
            apply_decisions(ledger, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=seen)
        assert current(ledger) == ["User lives in Nice"]

    def test_changes_in_scopes_that_were_not_read_do_not_matter(self, ledger: Ledger) -> None:
        """Guards against deciding again for nothing."""
        with ledger.read() as conn:
            seen = log_queries.newest_log_number(conn)
        add(ledger, "Bob lives in Nice", Scope("bob"))
        add(ledger, "The app is blue", Scope("alice", project="app"))
        apply_decisions(ledger, Decision(Event.ADD, Fact("User lives in Lyon")), based_on=seen)

    def test_identical_adds_from_many_threads_make_one_memory(self, ledger: Ledger) -> None:
        """Guards the unique index under concurrency."""
        barrier = threading.Barrier(8)
        faults: list[BaseException] = []

        def work() -> None:
            try:
                barrier.wait()
                add(ledger, "User plays the cello")
            except BaseException as fault:  # noqa: BLE001 - told below
                faults.append(fault)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert current(ledger) == ["User plays the cello"]


class TestOpening:
    def test_files_are_private(self, ledger: Ledger) -> None:
        """Guards the memory against other users of the machine."""
        add(ledger, "A fact")
        for file in Path(ledger.location).parent.glob("ledger.db*"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_the_migrations_make_just_the_tables_of_the_code(self, ledger: Ledger) -> None:
        """Guards tables.py and the migrations against drifting apart."""
        with ledger.read() as conn:
            context = alembic.migration.MigrationContext.configure(conn, opts={"include_name": _is_not_full_text})
            assert alembic.autogenerate.compare_metadata(context, metadata) == []

    def test_a_path_with_signs_of_an_address_is_a_path(self, tmp_path: Path, clock: StoppedClock) -> None:
        """Guards the place and the modes of the file against being read as a URL."""
        path = tmp_path / "q?mode=ro#x %41" / "ledger.db"
        opened = open_ledger(path, clock)
        add(opened, "A fact")
        opened.close()
        assert [file.name for file in tmp_path.iterdir()] == ["q?mode=ro#x %41"]
        assert path.stat().st_size > 0

    def test_a_ledger_of_a_newer_version_is_left_alone(self, tmp_path: Path, clock: StoppedClock) -> None:
        """Guards the data against an older program."""
        path = tmp_path / "ledger.db"
        open_ledger(path, clock).close()
        with sqlite3.connect(path) as conn:
            conn.execute("UPDATE alembic_version SET version_num = '9999'")
        conn.close()
        with pytest.raises(LedgerTooNewError, match=r"9999.*Upgrade"):
            open_ledger(path, clock)

    def test_a_file_of_something_else_is_left_alone(self, tmp_path: Path, clock: StoppedClock) -> None:
        """Guards other programs' databases."""
        path = tmp_path / "ledger.db"
        with sqlite3.connect(path) as conn:
            conn.execute("CREATE TABLE theirs (x)")
        conn.close()
        with pytest.raises(LedgerError, match="another program"):
            open_ledger(path, clock)
        path.write_bytes(b"no database at all" * 100)
        with pytest.raises(LedgerError, match="not a database"):
            open_ledger(path, clock)

    def test_a_place_that_cannot_be_written_is_told(self, tmp_path: Path, clock: StoppedClock) -> None:
        """Guards the error a person meets first."""
        (tmp_path / "file").write_text("")
        with pytest.raises(LedgerError, match="cannot be opened for writing"):
            open_ledger(tmp_path / "file" / "ledger.db", clock)

    def test_an_older_schema_is_migrated_after_a_backup_that_reads_back(
        self, tmp_path: Path, clock: StoppedClock
    ) -> None:
        """Guards the data through migrations."""
        path = tmp_path / "ledger.db"
        opened = open_ledger(path, clock)
        memory = add(opened, "User plays the cello")
        _downgrade(opened, "0001")
        opened.close()
        again = open_ledger(path, clock)
        assert found(again, "cello") == {memory.id}
        again.close()
        (backup,) = (tmp_path / "backups").glob("*.db")
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        with sqlite3.connect(backup) as conn:
            assert conn.execute("SELECT text FROM memories").fetchall() == [("User plays the cello",)]
            assert conn.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        conn.close()

    def test_head_is_the_newest_migration(self) -> None:
        """Guards the constant that decides whether Alembic is imported at all."""
        folder = MIGRATIONS / "versions"
        assert {file.name[:4] for file in folder.glob("0*.py")} == KNOWN_REVISIONS
        assert max(KNOWN_REVISIONS) == HEAD


def _is_not_full_text(name: str | None, kind: str, _: object) -> bool:
    return kind != "table" or not str(name).startswith("lexical")


def _downgrade(ledger: Ledger, revision: str) -> None:
    """Take the schema back, as an older version of the program would have left it."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with ledger.read() as conn:
        config.attributes["connection"] = conn
        config.attributes["full_text"] = SqliteFullText()
        alembic.command.downgrade(config, revision)
        conn.commit()
