"""Purge: an erased text is in no file any more, and everything else is unchanged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import text as sql

from loopback import OpenAIServer
from palimpsest.admin.backup import back_up
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import Scope
from palimpsest.store import entries as entry_queries
from palimpsest.store import summaries
from palimpsest.store.purge import has_erased_rows_on_disk
from palimpsest.store.sqlite import sqlite_database
from palimpsest.text.tokenizer import search_tokens
from tests.support.ledger_access import (
    all_keys,
    ledger_faults,
    ledger_in,
    store_memory,
    store_messages,
)
from tests.support.ledger_files import files_with, files_with_part_of, search_texts, table_rows
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from
from tests.support.scripted_model import facts_reply, summary_reply
from tests.support.slow_model import slow_model

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
WEB = Scope("alice", project="web")

ASKED = "Where did Zorvexa Quillfen hide the fumarole lantern?"
ANSWERED = "Under the oubliette of Brindlewick, beside the chryselephantine gnomon."
FIRST = "Zorvexa hid the fumarole lantern under the oubliette of Brindlewick"
SECOND = "Zorvexa moved the fumarole lantern to the xanthic ossuary of Murgatroyd Lane"
THIRD = "Ζορβέξα — 提灯は玄武岩の洞窟にある, kept by Murgatroyd's nyctalopic ferret"
LABEL = "catalogued by Ytterbium Hrothgar, dossier 99-QX-Ω"
SUMMED = "A paragraph about Zorvexa's perambulating lantern and its crepuscular keeper."
SECRETS = (ASKED, ANSWERED, FIRST, SECOND, THIRD, LABEL, json.dumps(LABEL)[1:-1], SUMMED)

# Search tokens of the erased texts, as the full text stores them.
WORDS = ("zorvexa", "fumarol", "brindlewick", "murgatroyd", "nyctalop", "hrothgar")

HELD: Any = "the index is held open by the process that purges", "no process has the index open"


def vectors_of(path: Path, *ids: str) -> list[bytes]:
    with ledger_in(path.parent) as ledger, ledger.read() as conn:
        query = sql("SELECT seq, embedder, vector, key FROM vectors WHERE owner_id = :owner_id")
        rows = [conn.execute(query, {"owner_id": owner_id}).one() for owner_id in ids]
        indexed = [entry_queries.keys_of(conn, embedder, [seq])[seq].tobytes() for seq, embedder, *_ in rows]
    return [blob for _, _, *blobs in rows for blob in blobs if blob] + indexed


def folders_of(index: Path) -> set[str]:
    """Return the names of Chroma's vector folders. Every new folder has a new name."""
    return {file.parent.name for file in index.rglob("data_level0.bin")}


def unused_parts(folder: Path) -> set[Path]:
    return {file for name in ("data_level0.bin", "length.bin") for file in folder.rglob(name)}


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("held", HELD)
async def test_a_purged_memory_is_in_no_file_but_the_named_backup(tmp_path: Path, held: str) -> None:
    """Guards the promise of purge for ledger, log, history, full text, vectors, index and summaries."""
    with OpenAIServer([summary_reply(SUMMED)]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await store_messages(memory, ("user", "My sister plays the harp"), ("user", ASKED), ("assistant", ANSWERED))
            before, question, answer, after = await store_messages(
                memory, ("user", "Anyway, I bake rye bread on Sundays")
            )
            first = store_memory(
                memory, FIRST, sources=[question.id, answer.id], metadata={"origin": LABEL}, keywords=(LABEL,)
            )
            others = [
                store_memory(memory, "User's sister is a harpist", sources=[before.id, question.id]),
                store_memory(memory, "User bakes rye bread", sources=[after.id]),
            ]
            await memory.update(ALICE, first, text=SECOND)
            await memory.update(ALICE, first, text=THIRD, metadata={"origin": [LABEL]})
            bobs = store_memory(memory, "Bob collects stamps", scope=BOB)
            assert (await memory.summary(ALICE)).text == SUMMED
            copy = back_up(memory.settings, None, memory.engine.clock).path
            memory.projection.open()
            memory.projection.rebuild()
            assert (tmp_path / "index" / "0.aside").is_dir(), "an index that was set aside has the vectors too"
            assert files_with_part_of(tmp_path / "index", *vectors_of(tmp_path / "ledger.db", first, question.id))
            if held != HELD[0]:
                memory.projection.close()
            vectors = vectors_of(tmp_path / "ledger.db", first, question.id, answer.id)
            folders = folders_of(tmp_path / "index")

            done = await memory.care.purge(ALICE, [first[:8]], and_backups=False)

            assert (done.clean, done.backups, done.notes) == (True, (copy,), ())
            assert set(done.erased.memory_ids) == {first}
            assert set(done.erased.message_ids) == {question.id, answer.id}
            assert files_with_part_of(tmp_path, *SECRETS, *vectors) - unused_parts(tmp_path) == {copy}
            assert files_with(tmp_path, *WORDS, ignore=[copy, *unused_parts(tmp_path)]) == set()
            assert folders_of(tmp_path / "index").isdisjoint(folders), "it is a new index"
            with pytest.raises(MemoryNotFoundError):
                await memory.history(ALICE, first)
            for query in ("harp", "bread", "lantern", "Where is the lamp?"):
                assert not {ASKED, ANSWERED, FIRST, SECOND, THIRD} & set(await search_texts(memory, query))
            for kept, scope, query in ((others[0], ALICE, "harp"), (others[1], ALICE, "bread"), (bobs, BOB, "stamps")):
                stored, entries, *_ = await memory.history(scope, kept)
                assert len(entries) == 1
                assert kept != others[0] or entries[0].sources == (before.id,), "it no longer cites what was erased"
                (best, *_) = (await memory.search(scope, query)).hits
                assert best.id == kept or best.text in {before.content, after.content}, stored.text
            memory.projection.open()
            assert memory.projection.count() == 5
    assert ledger_faults(tmp_path / "ledger.db") == []
    assert files_with_part_of(tmp_path, *SECRETS, *vectors) - unused_parts(tmp_path) == {copy}


async def test_backups_with_an_erased_text_are_named_and_deleted_on_request(tmp_path: Path) -> None:
    """Guards every version, and texts too short for a search of bytes: they are found by the rows of the backup."""
    async with memory_in(tmp_path) as memory:
        store_memory(memory, "User bakes rye bread")
        without = back_up(memory.settings, None, memory.engine.clock).path
        short, secret = store_memory(memory, "PIN 42"), store_memory(memory, FIRST)
        (message,) = await store_messages(memory, ("user", "77!"))
        early = back_up(memory.settings, None, memory.engine.clock).path
        for erased in (short, message.id):
            assert (await memory.care.purge(ALICE, [erased], and_backups=False)).backups == (early,)
        await memory.update(ALICE, secret, text=SECOND)
        later = back_up(memory.settings, None, memory.engine.clock).path
        (later.parent / "a note").write_text(f"… {SECOND} …", "utf-8")
        assert (await memory.care.purge(ALICE, [secret], and_backups=True)).clean
        assert list(without.parent.iterdir()) == [without]
    assert files_with_part_of(tmp_path, FIRST, SECOND) == set()


async def test_the_neighbours_of_a_purged_message_lose_its_context(tmp_path: Path) -> None:
    """Guards context: the neighbours' full text and keys are as if the purged message had never existed."""
    async with memory_in(tmp_path / "purged") as memory, memory_in(tmp_path / "never") as other:
        before, question, answer, after = await store_messages(
            memory, ("user", "I bake rye bread"), ("user", ASKED), ("assistant", ANSWERED), ("user", "With caraway")
        )
        await memory.care.purge(ALICE, [question.id, answer.id], and_backups=False)
        await store_messages(other, ("user", "I bake rye bread"), ("user", "With caraway"))
        with memory.engine.ledger.read() as conn:
            full_text = memory.engine.ledger.full_text
            assert full_text.search(conn, ALICE, search_tokens(ASKED + ANSWERED), 10) == {}
            _, keys = all_keys(conn, ALICE, memory.engine.embedder.fingerprint)
            centre = entry_queries.centre(conn, "alice", memory.engine.embedder.fingerprint)
            entries = conn.execute(sql("SELECT seq, owner_id FROM vectors"))
            words = {owner: full_text.rows(conn)[seq] for seq, owner in entries}
        with other.engine.ledger.read() as conn:
            _, expected = all_keys(conn, ALICE, other.engine.embedder.fingerprint)
            expected_words = [words for _, words in sorted(full_text.rows(conn).items())]
        assert [words[before.id], words[after.id]] == expected_words
        assert abs(keys - expected).max() < 1e-6
        assert centre.entries == 2
        assert centre.mean is not None
        assert abs(centre.mean - keys.mean(axis=0)).max() < 1e-6


async def test_what_a_memory_came_of_is_erased_with_it(tmp_path: Path) -> None:
    """A cause may be the text of another memory: no version of what came of it has it then."""
    async with memory_in(tmp_path) as memory:
        cause = store_memory(memory, FIRST)
        given = {"because": FIRST, "place": "park"}
        added = await memory.add_text(ALICE, "Ana gave up running", metadata=given, infer=False)
        came = added.outcomes[0].memory.id
        await memory.add_text(ALICE, "Ana swims", metadata={"because": "her knee"}, infer=False)
        await memory.update(ALICE, came, text="Ana gave up running for good")
        assert (await memory.care.purge(ALICE, [cause], and_backups=False)).clean
        told = [each.metadata for each in (await memory.scope_contents(ALICE)).memories]
        assert sorted(told, key=str) == [{"because": "her knee"}, {"place": "park"}]


@pytest.mark.nightly
async def test_the_numbers_of_purged_edits_are_not_reused(tmp_path: Path) -> None:
    """Guards undo by number: a number that a person has noted never means another edit."""
    async with memory_in(tmp_path) as memory:
        kept = store_memory(memory, "User bakes rye bread")
        newest = [store_memory(memory, FIRST), store_memory(memory, SECOND)]
        numbers = {edit.number for edit in await memory.log(ALICE)}
        await memory.care.purge(ALICE, newest, and_backups=False)
        await memory.update(ALICE, kept, text="User bakes spelt bread")
        await memory.care.purge(ALICE, [kept], and_backups=False)
        store_memory(memory, "User bakes")
        (edit,) = await memory.log(ALICE)
        assert edit.number > max(numbers) + 1


@pytest.mark.nightly
async def test_a_text_that_other_items_contain_is_explained(tmp_path: Path) -> None:
    """Guards the report: items of the scope are named by id, items of other scopes are not revealed."""
    passage = "the xanthic ossuary of Murgatroyd Lane, third door, behind the basalt"
    async with memory_in(tmp_path) as memory:
        explanations: list[tuple[str, set[str]]] = []
        for scope in (ALICE, WEB, BOB):
            secret = store_memory(memory, f"The lantern is in {passage}")
            (message,) = await store_messages(memory, ("user", f"I found {passage}"), scope=scope)
            done = await memory.care.purge(ALICE, [secret], and_backups=False)
            assert done.clean
            assert {trace.file for trace in done.traces} in ({tmp_path / "ledger.db"}, {Path("table messages")})
            explanations.append((message.id[:8], {trace.explained for trace in done.traces}))
            await memory.care.purge(scope, [message.id], and_backups=False)
    (own_id, own_explanation), *others = explanations
    assert own_explanation == {f"also in {own_id}, which you can purge too"}
    assert [explanation for _, explanation in others] == [{"also in another scope, a summary or a name"}] * 2


@pytest.mark.parametrize("asking", [ALICE, Scope("alice", project="app", agent_id="coder")])
async def test_an_id_of_another_scope_is_refused_and_erases_nothing(tmp_path: Path, asking: Scope) -> None:
    async with memory_in(tmp_path) as memory:
        bobs, of_web = (
            store_memory(memory, "Bob collects stamps", scope=BOB),
            store_memory(memory, "The site is blue", scope=WEB),
        )
        (message,) = await store_messages(memory, ("user", "I am Bob"), scope=BOB)
        own = store_memory(memory, "User bakes rye bread", scope=asking)
        before = table_rows(tmp_path / "ledger.db", "meta", "changes")
        for other in (bobs, of_web, message.id):
            with pytest.raises(MemoryNotFoundError):
                await memory.care.purge(asking, [own, other], and_backups=True)
        with pytest.raises(InputError, match="is not a memory id"):
            await memory.care.purge(asking, [own[:4]], and_backups=True)
        assert table_rows(tmp_path / "ledger.db", "meta", "changes") == before


@pytest.mark.nightly
@pytest.mark.parametrize("purged", [ALICE, WEB])
async def test_all_erases_one_scope_and_leaves_the_others(tmp_path: Path, purged: Scope) -> None:
    """Guards --all: it erases memories and messages, deleted or not, and nothing of another user or project."""
    scopes = (ALICE, WEB, BOB, Scope("bob", project="web"), Scope("al_ce"), Scope("ALICE"))
    async with memory_in(tmp_path) as memory:
        for scope in scopes:
            first, second = await store_messages(
                memory, ("user", f"{scope} says {ASKED}"), ("user", f"{scope}: {ANSWERED}"), scope=scope
            )
            updated = store_memory(memory, f"{scope}: {FIRST}", scope=scope, sources=[first.id])
            await memory.update(scope, updated, text=f"{scope}: {SECOND}")
            gone = store_memory(memory, f"{scope}: {THIRD}", scope=scope)
            await memory.delete(scope, [gone, second.id])

        def rows_of_others() -> list[str]:
            """Return what is stored of the other scopes, row by row, but not the means over all projects of a user."""
            owns = ("memories", "messages", "vectors", "entities", "summaries")
            rows = table_rows(tmp_path / "ledger.db")
            here = (purged.user_id, purged.project)
            return [str(row) for name in owns for row in rows[name] if (row["user_id"], row["project"]) != here]

        before = rows_of_others()
        done = await memory.care.purge(purged, None, and_backups=False)
        assert (len(done.erased.memory_ids), len(done.erased.message_ids), done.clean) == (2, 2, True)
        assert rows_of_others() == before
        for scope in set(scopes) - {purged}:
            assert (await memory.search(scope, ASKED)).hits
        assert files_with(tmp_path, f"{purged} says", f"{purged}: ") == set()
    assert ledger_faults(tmp_path / "ledger.db") == []


async def test_a_purge_erases_every_summary_of_its_user_only(tmp_path: Path) -> None:
    """Guards summaries: any summary of the user may quote the purged text, a summary of another user cannot."""
    with OpenAIServer([summary_reply(f"Summary {number}: {SUMMED}") for number in range(3)]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            ids = {scope: store_memory(memory, f"{scope} bakes", scope=scope) for scope in (ALICE, WEB, BOB)}
            for scope in ids:
                await memory.summary(scope)
            await memory.care.purge(ALICE, [ids[ALICE]], and_backups=False)
            with memory.engine.ledger.read() as conn:
                left = [summaries.latest_summary(conn, scope, "overall") for scope in ids]
    assert [summary.text if summary else None for summary in left] == [None, None, f"Summary 2: {SUMMED}"]
    assert files_with_part_of(tmp_path, f"Summary 0: {SUMMED}"[:25]) == set()


async def test_a_summary_that_was_being_written_during_a_purge_is_not_stored(tmp_path: Path) -> None:
    """Guards against restoring an erased text through a summary that the model was already writing."""
    with slow_model(summary_reply(SUMMED)) as model:
        async with memory_in(tmp_path, llm=llm_settings(model.url)) as memory:
            secret = store_memory(memory, FIRST)
            store_memory(memory, "User bakes rye bread")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(memory.summary, ALICE)
                assert await anyio.to_thread.run_sync(model.was_asked.wait, 60)
                await memory.care.purge(ALICE, [secret], and_backups=False)
                model.may_answer.set()
            with memory.engine.ledger.read() as conn:
                assert summaries.latest_summary(conn, ALICE, "overall") is None
            assert files_with_part_of(tmp_path, SUMMED, FIRST) == set()
            assert (await memory.summary(ALICE)).text == SUMMED, "a summary written after the purge is stored"
            store_memory(memory, "User bakes")
            assert (await memory.summary(ALICE)).changes_since == 1


async def test_a_message_purged_while_a_model_reads_it_is_not_learnt_from(tmp_path: Path) -> None:
    """Guards against restoring an erased text through facts that the model was already extracting."""
    with slow_model(facts_reply(FIRST)) as model:
        async with memory_in(tmp_path, llm=llm_settings(model.url)) as memory:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(memory.add_messages, messages_from(("user", ASKED)))
                assert await anyio.to_thread.run_sync(model.was_asked.wait, 60)
                await memory.care.purge(ALICE, None, and_backups=False)
                model.may_answer.set()
            assert str(await memory.scope_contents(ALICE)) == "nothing"
    assert files_with_part_of(tmp_path, ASKED, FIRST) == set()


@pytest.mark.only_on("sqlite", "PostgreSQL has no file that a reader keeps")
async def test_a_log_that_another_process_reads_is_noted_and_emptied_by_the_next_purge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the write-ahead log, which cannot be emptied while a process reads an old state of the ledger."""
    monkeypatch.setattr(sqlite_database, "BUSY_TIMEOUT_SECONDS", 0.1)
    async with memory_in(tmp_path) as memory:
        secret, other = store_memory(memory, FIRST), store_memory(memory, "User bakes rye bread")
        with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM memories").fetchone()
            done = await memory.care.purge(ALICE, [secret], and_backups=False)
            assert not done.clean
            assert "being read by another process" in done.notes[0]
            assert files_with_part_of(tmp_path, FIRST) == {trace.file for trace in done.traces} != set()
            assert memory.engine.ledger.read_with(has_erased_rows_on_disk)
        assert (await memory.care.purge(ALICE, [other], and_backups=False)).clean
        assert not memory.engine.ledger.read_with(has_erased_rows_on_disk)
        assert files_with_part_of(tmp_path, FIRST) == set()


async def test_a_summary_that_rests_on_none_of_it_is_no_unexplained_trace(tmp_path: Path) -> None:
    """Guards against an alarm: the summary of the day before says the same in the same words, and stays."""
    clock = StoppedClock()
    told = "The user repairs violins in the old town of Antwerp and knows everybody there."
    with OpenAIServer(lambda _request: summary_reply(told)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            store_memory(memory, "User repairs violins")
            await memory.summary(ALICE, "day")
            clock.forward(days=1)
            secret = store_memory(memory, FIRST)
            for kind in ("day", "overall"):
                await memory.summary(ALICE, kind)
            done = await memory.care.purge(ALICE, [secret])
            assert {trace.explained for trace in done.traces} == {"also in another scope, a summary or a name"}
            assert done.clean
            assert (await memory.summary(ALICE, "day:2026-05-08")).text == told
    assert files_with(tmp_path, *WORDS, ignore=[]) == set()


HEADING = "The lantern of Zorvexa"
FILLER = "\n\n".join(f"The keeper wrote sentence number {number} about harbours and tides." for number in range(60))
STORY = f"# {HEADING}\n\nZorvexa hid the lantern.\n\n{FILLER}\n\n"
TEXT = f"{STORY}## Tides\n\n{FILLER}\n\n## Ropes\n\nRopes are of hemp. {FILLER}"


async def test_no_other_page_and_no_title_names_what_a_purged_page_said(tmp_path: Path) -> None:
    """Guards the headings of a page in the gists of those below it, and a title that was its first line."""
    file = tmp_path / "harbour.md"
    file.write_text(TEXT)
    async with memory_in(tmp_path / "data") as memory:
        learned = await memory.documents.learn_file(ALICE, file, title=HEADING)
        document, pages = await memory.documents.pages(ALICE, learned.id)
        assert (document.title, len(pages) > 2) == (HEADING, True)
        assert any("Zorvexa" in page.gist for page in pages[1:]), "a heading is named below it"
        first = next(page for page in pages if "Zorvexa hid" in page.message.content).message
        done = await memory.care.purge(ALICE, [first.id])
        assert done.clean
        document, left = await memory.documents.pages(ALICE, learned.id)
        kept = [page.message.content for page in pages if page.message.id != first.id]
        assert [page.message.content for page in left] == kept
        assert document.title == document.uri
        hits = (await memory.search(ALICE, "Which ropes are of hemp?")).hits
        assert any("hemp" in hit.text for hit in hits)
    assert files_with(tmp_path / "data", "zorvexa", ignore=[]) == set()
    assert ledger_faults(tmp_path / "data" / "ledger.db") == []
