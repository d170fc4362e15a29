"""Out of one memory and into another: our own lines without loss, Markdown for a reader, and what other tools kept."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.care import transfer
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import Edit, Provenance, Scope, Undo
from palimpsest.memory import Memory
from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.foreign_files import (
    MEM0_COLUMNS,
    chatgpt_conversation,
    chatgpt_node,
    claude_conversation,
    json_lines,
    json_zip,
    mem0_database,
)
from tests.support.ledger_files import (
    data_files,
    files_with_part_of,
    ignore_progress,
    ledger_faults,
    search_texts,
    store_memory,
    store_messages,
    table_rows,
)
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, second_writer

pytestmark = pytest.mark.anyio

BOB = Scope("bob")
WEB = Scope("alice", project="web")
CODER = Scope("alice", project="web", agent_id="coder", run_id="run 1")
STRANGE = 'Zürich 東京 🍵 עברית "quoted" \\ back\n\ttabbed\u2028line\x85next \x00 nul \u200b e\u0301'
NESTED: dict[str, Any] = {
    "größe": {"高さ": [1, -2.5, 1e22, 0.1, True, None, {"": []}], "a": {}},
    "z": "\u2028",
    "A": 2**62,
    "nothing": [],
}
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


async def live(memory: Memory, clock: StoppedClock) -> str:
    """Lead a memory through all that can happen to it, another user's edits in between; return the id of a secret."""
    sister, rye = await store_messages(
        memory,
        {
            "role": "user",
            "name": "Ana",
            "content": "My sister plays the harp",
            "id": "m1",
            "at": "2026-03-02T10:00:00Z",
        },
        {"role": "assistant", "content": "And you bake rye bread?", "at": "2026-03-02T10:05:00.25+02:00"},
    )
    store_memory(memory, "Bob collects stamps", scope=BOB)
    clock.forward(days=1, microseconds=7)
    *_, strange, lisbon = await store_messages(memory, ("user", STRANGE), ("user", "We fly to Lisbon"))
    harp = store_memory(
        memory,
        "User's sister plays the harp",
        sources=[sister.id],
        happened_at=datetime(2019, 7, 1, 12, 30, 15, 250_000, tzinfo=UTC),
        keywords=("harp", "Schwester"),
        tags=("family", "音楽"),
        metadata=NESTED,
        actor_id="Ana",
        role="user",
    )
    clock.forward(hours=1)
    store_memory(memory, "User's sister plays the harp", sources=[rye.id])
    store_memory(memory, STRANGE, sources=[strange.id, lisbon.id], metadata={STRANGE: STRANGE})
    await memory.update(ALICE, harp, text="User's sister plays the harp in Nice", metadata={"größe": None, "b": [1]})
    clock.forward(minutes=1)
    nice = store_memory(memory, "User lives in Nice")
    clock.forward(minutes=1)
    await memory.add_text(ALICE, "User lives in Lyon", replaces=[nice])
    store_memory(memory, "Bob has a boat", scope=BOB)
    for scope, text in ((WEB, "The site is blue"), (CODER, "The coder uses ripgrep")):
        (turn,) = await store_messages(memory, ("user", f"{scope}: {text}"), scope=scope)
        store_memory(memory, text, scope=scope, sources=[turn.id])
        clock.forward(minutes=1)
    await memory.summary(ALICE)
    await memory.summary(WEB)
    secret = store_memory(memory, "User's door opens with a rusty key", sources=[lisbon.id])
    clock.forward(minutes=1)
    await memory.delete(ALICE, [secret, strange.id])
    clock.forward(minutes=1)
    await memory.undo(ALICE)
    await memory.delete_all(WEB)
    clock.forward(minutes=1)
    await memory.undo(WEB)
    await memory.delete(ALICE, [sister.id])
    await memory.restore(ALICE, nice)
    clock.forward(minutes=1)
    await memory.undo(ALICE, Undo(edit=(await memory.log(ALICE))[2].number))
    await memory.delete(ALICE, [nice])
    await memory.summary(ALICE, "recent")
    return secret


@dataclass
class Rich:
    """A memory that has been through everything, and its export."""

    folder: Path
    clock: StoppedClock
    export: bytes


async def rich(folder: Path, *, purged: bool = False) -> Rich:
    """Make such a memory; one from which something was purged has gaps in its numbers."""
    clock = StoppedClock()
    with OpenAIServer([json.dumps({"summary": f"{number}: {STRANGE}"}) for number in range(4)]) as server:
        async with memory_in(folder, clock, llm=llm_settings(server.base_url)) as memory:
            secret = await live(memory, clock)
            if purged:
                await memory.purge(ALICE, [secret], and_backups=False)
                await memory.update(ALICE, (await memory.list(ALICE)).hits[0].id, metadata={"after": "the purge"})
                await memory.summary(ALICE)
            return Rich(folder, clock, await exported(memory))


async def exported(memory: Memory) -> bytes:
    """Return the export of a memory's user."""
    stream = StringIO()
    await memory.export(stream, "jsonl", ignore_progress)
    return stream.getvalue().encode()


def masked(text: str) -> str:
    """Return a text without what two undos of the same never share: their ids, and the number of what they undid."""
    return re.sub(r"undo \d+", "undo #", ID.sub("#", text))


def anywhere(provenance: Provenance) -> Provenance:
    """Return a provenance without the number of what an undo took back, which is one of its own ledger."""
    return replace(provenance, stage=masked(provenance.stage))


def steps(edits: list[Edit]) -> list[Edit]:
    """Return edits without numbers, which are those of their own ledger, each edit's steps in any order."""
    return [
        replace(
            edit,
            number=0,
            provenance=anywhere(edit.provenance),
            steps=tuple(sorted(edit.steps, key=str)),
        )
        for edit in edits
    ]


@pytest.mark.parametrize("purged", [False, True])
async def test_a_memory_goes_through_a_file_into_another_without_loss(tmp_path: Path, *, purged: bool) -> None:
    """Guards the export as the whole truth: the same bytes come out again, and every question is answered alike."""
    here = await rich(tmp_path / "here", purged=purged)
    file = tmp_path / "alice.jsonl"
    file.write_bytes(here.export)
    async with memory_in(tmp_path / "here", here.clock) as before, memory_in(tmp_path / "there", here.clock) as after:
        done = await after.import_file(ALICE, file, ignore_progress)
        counted = [json.loads(line).get("type") for line in here.export.decode().split("\n") if line]
        assert done.came == {kind: counted.count(kind) for kind in ("turn", "memory", "summary")}
        assert (sum(done.known.values()), done.notes) == (0, ())
        assert await exported(after) == here.export
        assert ledger_faults(tmp_path / "there" / "ledger.db") == []

        for scope in (ALICE, WEB, CODER):
            logs = [list(await each.log(scope, limit=100)) for each in (before, after)]
            assert steps(logs[0]) == steps(logs[1])
            for deleted in (False, True):
                pages = [(await each.list(scope, limit=100, deleted=deleted)).hits for each in (before, after)]
                assert pages[0] == pages[1]
                for hit in pages[0]:
                    past = [(await each.history(scope, hit.id))[1] for each in (before, after)]
                    rows = [[replace(row, edit=0, provenance=anywhere(row.provenance)) for row in p] for p in past]
                    assert rows[0] == rows[1]
            for question in ("harp", "Where does the user live?", "東京", "blue"):
                assert await search_texts(before, question, scope) == await search_texts(after, question, scope)
                for edit in logs[0][::3]:
                    answers = [await each.search(scope, question, as_of=edit.made_at) for each in (before, after)]
                    assert [hit.text for hit in answers[0].hits] == [hit.text for hit in answers[1].hits]

        early = logs_at(await before.log(ALICE, limit=100), 0.4)
        for back in (None, 0, 5, 9, 12, None, early):
            here.clock.forward(minutes=1)
            assert await undone(before, back) == await undone(after, back)
        outs = [masked((await exported(each)).decode()).split("\n") for each in (before, after)]
        assert outs[0] == outs[1]


async def undone(memory: Memory, back: int | datetime | None) -> str:
    """Undo the newest edit, the one so far back, or all since a time; return what was done or why it was not."""
    edits = await memory.log(ALICE, limit=100)
    undo = Undo(edits[back].number if isinstance(back, int) else None, back if isinstance(back, datetime) else None)
    try:
        done = await memory.undo(ALICE, undo)
    except InputError as error:
        return re.sub(r"\d+", "#", str(error))
    return str(sorted((change.event, change.memory.text, change.previous) for change in done.outcomes))


def logs_at(edits: Any, share: float) -> datetime:
    """Return when an edit was made that lies so far back."""
    return edits[int(len(edits) * share)].made_at


async def test_an_undone_edit_is_one_that_is_undone_wherever_it_was_moved_to(tmp_path: Path) -> None:
    """Guards plain undo after a move: it goes on behind the edit that was taken back before."""
    clock = StoppedClock()
    async with memory_in(tmp_path / "here", clock) as before, memory_in(tmp_path / "there", clock) as after:
        for text in ("User lives in Paris", "User has a cat", "User has a dog"):
            await before.add_text(ALICE, text)
        await before.undo(ALICE)
        file = tmp_path / "alice.jsonl"
        file.write_bytes(await exported(before))
        for text in ("User plays chess", "User likes tea", "User fears spiders", "User sings"):
            await after.add_text(BOB, text)
        await after.import_file(ALICE, file, ignore_progress)
        assert await exported(after) == file.read_bytes()
        done = await after.undo(ALICE)
        assert [change.memory.text for change in done.outcomes] == ["User has a cat"]


async def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    """Guards the second try: every row stays as it is, and all of it is said to be known."""
    here = await rich(tmp_path / "here")
    file = tmp_path / "alice.jsonl"
    file.write_bytes(here.export)
    async with memory_in(tmp_path / "there", here.clock) as memory:
        first = await memory.import_file(ALICE, file, ignore_progress)
        before = table_rows(tmp_path / "there" / "ledger.db")
        for _ in range(2):
            again = await memory.import_file(ALICE, file, ignore_progress)
            assert (again.came, again.known) == (first.known, first.came)
        assert table_rows(tmp_path / "there" / "ledger.db") == before
    async with memory_in(tmp_path / "here", here.clock) as memory:
        assert sum((await memory.import_file(ALICE, file, ignore_progress)).came.values()) == 0
        assert await exported(memory) == here.export


async def test_into_a_memory_that_knows_some_of_it_only_the_rest_comes(tmp_path: Path) -> None:
    """Guards against duplicates and against overwriting: what is there stays, whatever the file says of it."""
    clock = StoppedClock()
    async with memory_in(tmp_path / "here", clock) as here:
        turn, _ = await store_messages(here, {"role": "user", "content": "I bake", "id": "m1"}, ("user", "Rye bread"))
        store_memory(here, "User bakes", sources=[turn.id])
        await exporting(here, tmp_path / "early.jsonl")
        twin = store_memory(here, "User  LIKES tea")
        gone = store_memory(here, "User has a cat")
        await here.delete(ALICE, [gone])
        store_memory(here, "User bakes rye bread", sources=[turn.id])
        await exporting(here, tmp_path / "late.jsonl")
    async with memory_in(tmp_path / "there", clock) as there:
        await there.import_file(ALICE, tmp_path / "early.jsonl", ignore_progress)
        (bakes,) = (await there.stored(ALICE)).memories
        await there.update(ALICE, bakes.id, text="User bakes on Sundays")
        tea, other = store_memory(there, "User likes tea"), store_memory(there, "Bob likes tea", scope=BOB)
        before = table_rows(tmp_path / "there" / "ledger.db")
        done = await there.import_file(ALICE, tmp_path / "late.jsonl", ignore_progress)
        assert (done.came["memory"], done.known["memory"], done.came["turn"], done.known["turn"]) == (2, 2, 0, 2)
        after = table_rows(tmp_path / "there" / "ledger.db")
        for table in ("messages", "message_history", "memories", "history", "memory_sources"):
            assert after[table][: len(before[table])] == before[table]
        texts = {memory.id: memory.text for memory in (await there.stored(ALICE)).memories}
        assert texts == {bakes.id: "User bakes on Sundays", tea: "User likes tea"} | {
            each: text for each, text in texts.items() if text == "User bakes rye bread"
        }
        assert len(texts) == 3
        with pytest.raises(MemoryNotFoundError):
            await there.history(ALICE, twin)
        new = next(each for each, text in texts.items() if text == "User bakes rye bread")
        assert (await there.history(ALICE, new))[1][0].sources == ("m1",)
        assert len((await there.history(BOB, other))[1]) == 1
    assert ledger_faults(tmp_path / "there" / "ledger.db") == []


async def exporting(memory: Memory, file: Path) -> None:
    """Write an export to a file."""
    await memory.export(file, "jsonl", ignore_progress)


class CutOffError(Exception):
    """Stand for a power cut."""


@dataclass
class Interrupted:
    """Raise when so much is done."""

    at: int

    def __call__(self, done: int, _total: int) -> None:
        """Take notice, until it is enough."""
        if done >= self.at:
            raise CutOffError


@pytest.mark.parametrize("cut", [2, 6, 10])
async def test_one_that_was_cut_off_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Guards a large import against a power cut: run again, it is as if it had been one, and an edit stays one edit."""
    monkeypatch.setattr(transfer, "BATCH", 2)
    here = await rich(tmp_path / "here")
    file = tmp_path / "alice.jsonl"
    file.write_bytes(here.export)
    async with memory_in(tmp_path / "once", here.clock) as memory:
        await memory.import_file(ALICE, file, ignore_progress)
    async with memory_in(tmp_path / "twice", here.clock) as memory:
        with pytest.raises(CutOffError):
            await memory.import_file(ALICE, file, Interrupted(cut))
        assert sum(len(table_rows(tmp_path / "twice" / "ledger.db")[each]) for each in ("messages", "memories")) > 0
        store_memory(memory, "Bob came in between", scope=BOB)
        with pytest.raises(CutOffError):
            await memory.import_file(ALICE, file, Interrupted(cut + 2))
        await memory.import_file(ALICE, file, ignore_progress)
        assert await exported(memory) == here.export
        assert len(await search_texts(memory, "harp")) > 0
        await memory.import_file(ALICE, file, ignore_progress)
        assert await exported(memory) == here.export
    assert ledger_faults(tmp_path / "twice" / "ledger.db") == []
    left = [row["key"] for row in table_rows(tmp_path / "twice" / "ledger.db", "meta")["meta"]]
    assert not [key for key in left if key.startswith("import")], "nothing is kept of an import that came to its end"


def changed(**parts: Any) -> Callable[[dict[str, Any]], Any]:
    """Return what gives an item other parts; one that is `...` is taken away."""
    return lambda item: {key: value for key, value in {**item, **parts}.items() if value is not ...}


DAMAGES: dict[str, tuple[int, Callable[[dict[str, Any]], Any], str]] = {
    "no JSON": (3, lambda _: "{", "line 3: .*(JSON|json)"),
    "cut": (4, lambda item: json.dumps(item)[:-3], "line 4: "),
    "a list": (3, lambda _: [], "line 3: "),
    "another kind": (3, changed(type="note"), "line 3: "),
    "a part missing": (2, changed(session_id=...), "line 2: turn.session_id: Field required"),
    "a part too many": (3, changed(owner="eve"), "line 3: memory.owner: Extra"),
    "a number as text": (3, changed(revision="1"), "line 3: memory.revision"),
    "no number": (3, changed(revision=0), "line 3: memory.revision"),
    "an id of another form": (2, changed(id="1"), "line 2: turn.id"),
    "a time without a zone": (2, changed(said_at="2026-05-08T12:00:00"), "line 2: turn.said_at"),
    "an empty text": (3, changed(text=""), "line 3: memory.text"),
    "a project that is none": (2, changed(project="*"), "line 2: turn.project"),
    "no history": (3, changed(history=[]), "line 3: memory.history"),
    "a role that is none": (2, changed(role="king"), "line 2: turn.role"),
    "a source of nothing": (
        3,
        changed(
            sources=[
                {
                    "message_id": "0" * 8 + "-0000-4000-8000-" + "0" * 12,
                    "history_id": "1" * 8 + "-0000-4000-8000-" + "1" * 12,
                }
            ]
        ),
        "line 3: memory: .*row of history that is not there",
    ),
    "an id a second time": (4, changed(id="a0000000-0000-4000-8000-000000000001"), "line 4: the id a0000000.* second"),
    "a header in between": (
        3,
        lambda _: {"format": "palimpsest-export", "version": 1, "user_id": "alice"},
        "line 3: ",
    ),
    "a newer version": (1, changed(version=2), "line 1: version"),
    "a header with more": (1, changed(project="web"), "line 1: project"),
}


@pytest.mark.parametrize("fault", DAMAGES)
async def test_a_damaged_line_is_named_and_nothing_at_all_is_stored(tmp_path: Path, fault: str) -> None:
    """Guards against half an import: every line is read before the first is stored."""
    number, damaged, told = DAMAGES[fault]
    clock = StoppedClock()
    async with memory_in(tmp_path / "here", clock) as memory:
        (turn,) = await store_messages(memory, ("user", "I bake"))
        store_memory(memory, "User bakes", sources=[turn.id])
        store_memory(memory, "User bakes rye bread")
        text = (await exported(memory)).decode().replace(turn.id, "a0000000-0000-4000-8000-000000000001")
    made = [json.loads(line) for line in text.split("\n") if line]
    item = damaged(made[number - 1])
    written = [item if each is made[number - 1] else each for each in made]
    file = tmp_path / "alice.jsonl"
    file.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in written), "utf-8")
    async with memory_in(tmp_path / "there", clock) as memory:
        store_memory(memory, "User likes tea")
        before = table_rows(tmp_path / "there" / "ledger.db", "meta", "changes")
        for dry_run in (True, False):
            with pytest.raises(InputError, match=rf"alice\.jsonl, {told}"):
                await memory.import_file(ALICE, file, ignore_progress, dry_run=dry_run)
        assert table_rows(tmp_path / "there" / "ledger.db", "meta", "changes") == before
        assert not (tmp_path / "there" / "backups").exists()


async def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    """Guards against a traceback where a file went through a wrong editor."""
    file = tmp_path / "alice.jsonl"
    file.write_bytes(b'{"format":"palimpsest-export","user_id":"alice","version":1}\n\xff\xfe\n')
    async with memory_in(tmp_path / "there") as memory:
        with pytest.raises(InputError, match=r"alice\.jsonl cannot be read"):
            await memory.import_file(ALICE, file, ignore_progress)


async def test_a_dry_run_says_what_would_come_and_stores_nothing(tmp_path: Path) -> None:
    """Guards the look before the leap: the numbers are those of the import that follows."""
    here = await rich(tmp_path / "here")
    file = tmp_path / "alice.jsonl"
    file.write_bytes(here.export)
    async with memory_in(tmp_path / "there", here.clock) as memory:
        store_memory(memory, "user lives in LYON")
        before = table_rows(tmp_path / "there" / "ledger.db", "meta", "changes")
        would = await memory.import_file(ALICE, file, ignore_progress, dry_run=True)
        assert table_rows(tmp_path / "there" / "ledger.db", "meta", "changes") == before
        assert not (tmp_path / "there" / "backups").exists()
        assert would.examples[0] == "My sister plays the harp"
        assert len(would.examples) == 5
        assert would.known == {"turn": 0, "memory": 1, "summary": 0}
        done = await memory.import_file(ALICE, file, ignore_progress)
        assert (done.format, done.came, done.known) == ("palimpsest", would.came, would.known)
        assert "palimpsest restore" in done.notes[0], "what was there before can be had back"


async def test_what_is_another_users_in_the_same_ledger_is_refused(tmp_path: Path) -> None:
    """Guards two users of one ledger: ids are given once, and nobody's memory comes to cite another's turns."""
    async with memory_in(tmp_path) as memory:
        (turn,) = await store_messages(memory, ("user", "I bake"))
        store_memory(memory, "User bakes", sources=[turn.id])
        await exporting(memory, tmp_path / "alice.jsonl")
        before = table_rows(tmp_path / "ledger.db", "meta")
        with pytest.raises(InputError, match="another user of this ledger"):
            await memory.import_file(BOB, tmp_path / "alice.jsonl", ignore_progress)
        assert table_rows(tmp_path / "ledger.db", "meta") == before
    async with memory_in(tmp_path / "bobs") as memory:
        await memory.import_file(BOB, tmp_path / "alice.jsonl", ignore_progress)
        assert [each.text for each in (await memory.stored(BOB)).memories] == ["User bakes"]
        assert await search_texts(memory, "bakes", ALICE) == []


async def test_an_export_is_private_new_and_whole(tmp_path: Path) -> None:
    """Guards the file: for its owner only, over no other, and never a half of one."""
    async with memory_in(tmp_path / "here") as memory:
        store_memory(memory, "User bakes")
        store_memory(memory, "User likes tea")
        for form in ("jsonl", "markdown"):
            file = tmp_path / f"alice.{form}"
            await memory.export(file, form, ignore_progress)
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            was = file.read_bytes()
            with pytest.raises(InputError, match="is there already"):
                await memory.export(file, form, ignore_progress)
            assert file.read_bytes() == was
        with pytest.raises(CutOffError):
            await memory.export(tmp_path / "half.jsonl", "jsonl", Interrupted(1))
        for place in (tmp_path / "nowhere" / "alice.jsonl", tmp_path / "alice.jsonl" / "alice.jsonl"):
            with pytest.raises(InputError, match="cannot be written"):
                await memory.export(place, "jsonl", ignore_progress)
    assert {file.name for file in data_files(tmp_path)} == {"alice.jsonl", "alice.markdown", "ledger.db"}


async def test_markdown_is_what_is_believed_now_for_a_reader(tmp_path: Path) -> None:
    """Guards the file a person prints: projects apart, oldest first, dated, one line each, nothing deleted."""
    clock = StoppedClock()
    with OpenAIServer([json.dumps({"summary": "Bakes and lives by the sea."})]) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            bakes = store_memory(memory, "User bakes\nrye   bread", happened_at=datetime(2019, 7, 1, tzinfo=UTC))
            gone = store_memory(memory, "User has a cat")
            sea = store_memory(memory, "User lives by the sea")
            blue = store_memory(memory, "The site is blue", scope=WEB)
            store_memory(memory, "Bob has a boat", scope=BOB)
            await memory.delete(ALICE, [gone])
            await memory.summary(ALICE)
            stream = StringIO()
            assert await memory.export(stream, "markdown", ignore_progress) == 3
    assert stream.getvalue() == (
        "# What is remembered of alice\n"
        "\n## Everywhere\n\n"
        "Bakes and lives by the sea.\n\n"
        f"- 2019-07-01 User bakes rye bread `{bakes[:8]}`\n"
        f"- 2026-05-08 User lives by the sea `{sea[:8]}`\n"
        "\n## Project web\n\n"
        f"- 2026-05-08 The site is blue `{blue[:8]}`\n"
    )


def test_the_commands_move_a_memory_from_one_folder_to_another(tmp_path: Path) -> None:
    """Guards the way by hand: out, in, out again, the same bytes; and a second time nothing."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    with second_writer(here / "data") as sneak:
        sneak(STRANGE)
    assert "exported 1 items" in palimpsest(here, "export", str(tmp_path / "alice.jsonl"))
    done = palimpsest_json(there, "import", str(tmp_path / "alice.jsonl"))
    assert (done["format"], done["new"]["memory"], done["known"]["memory"]) == ("palimpsest", 1, 0)
    assert palimpsest_process(there, "export", "-") == (tmp_path / "alice.jsonl").read_text("utf-8")
    told = palimpsest(there, "import", str(tmp_path / "alice.jsonl"), "--dry-run")
    assert "would bring 0 turns, 0 memories, 0 summaries; known already: 0 turns, 1 memories, 0 summaries" in told


@dataclass(frozen=True)
class Theirs:
    """A file of another tool: how it is made, what is asked of it, what answers, and how much comes."""

    form: str
    made: Callable[[Path], object]
    question: str
    answer: str
    came: tuple[int, int]


def _history(file: Path) -> object:
    first, later, last = "2025-03-01T10:00:00Z", "2025-04-01T10:00:00Z", "2025-05-01T10:00:00Z"
    return mem0_database(
        file,
        MEM0_COLUMNS,
        ("m1", None, "Ana drinks black coffee", "ADD", first, None, 0, "ana", "user"),
        ("m2", None, f"The wifi password of Ana is {TOKEN}", "ADD", first, None, 0, None, None),
        ("m1", "Ana drinks black coffee", "Ana drinks green tea", "UPDATE", first, later, 0, "ana", "user"),
        ("m2", "-", f"The old deploy token of Ana was {TOKEN}", "UPDATE", first, later, 0, None, None),
        ("m3", None, "Ana keeps a parrot", "ADD", first, None, 0, None, None),
        ("m3", "Ana keeps a parrot", None, "DELETE", first, last, 1, None, None),
    )


THEIRS = {
    each.form: each
    for each in (
        Theirs(
            "server-memory",
            lambda file: file.write_text(
                json_lines(
                    {
                        "type": "entity",
                        "name": "Ana",
                        "entityType": "person",
                        "observations": ["drinks green tea", f"deploys with {TOKEN}", "has a cat 🐈"],
                    },
                    {"type": "relation", "from": "Ana", "to": "Atlas", "relationType": "works_on"},
                )
            ),
            "What does Ana drink?",
            "Ana: drinks green tea",
            (0, 4),
        ),
        Theirs("mem0-history", _history, "What does Ana drink?", "Ana drinks green tea", (0, 3)),
        Theirs(
            "mem0-export",
            lambda file: file.write_text(
                json.dumps(
                    {
                        "results": [
                            {"id": "m1", "memory": "Ana drinks green tea", "created_at": "2025-03-01T10:00:00Z"},
                            {
                                "id": "m2",
                                "memory": "Ana deploys",
                                "metadata": {"with": [TOKEN]},
                                "categories": ["Work"],
                            },
                        ]
                    }
                )
            ),
            "What does Ana drink?",
            "Ana drinks green tea",
            (0, 2),
        ),
        Theirs(
            "chatgpt",
            lambda file: file.write_text(
                json.dumps(
                    [
                        chatgpt_conversation(
                            "c",
                            a=chatgpt_node(None, "user", "Which tea is green?", at=1_700_000_000.5),
                            b=chatgpt_node("a", "assistant", "Sencha is a green tea.", at=1_700_000_010),
                            c=chatgpt_node("b", "user", f"Deploy with {TOKEN}", at=1_700_009_000),
                        )
                    ]
                )
            ),
            "Sencha",
            "Sencha is a green tea.",
            (3, 0),
        ),
        Theirs(
            "claude",
            lambda file: json_zip(
                file,
                conversations=[
                    claude_conversation(
                        {"uuid": "m1", "sender": "human", "text": "Tea?", "created_at": "2025-02-01T10:00:00.5Z"},
                        {
                            "uuid": "m2",
                            "sender": "assistant",
                            "text": f"Sencha is a green tea. {TOKEN}",
                            "created_at": "2025-02-01T10:00:09Z",
                        },
                    )
                ],
            ),
            "green tea",
            "Sencha is a green tea. [secret removed: github token]",
            (2, 0),
        ),
    )
}


class TestForeign:
    @pytest.mark.parametrize("form", THEIRS)
    async def test_it_is_found_known_again_free_of_secrets_and_taken_back_by_one_undo(
        self, tmp_path: Path, form: str
    ) -> None:
        """Guards the way in from elsewhere, from the first look to the way out."""
        theirs = THEIRS[form]
        file = tmp_path / "file"
        theirs.made(file)
        data = tmp_path / "data"
        async with memory_in(data) as memory:
            store_memory(memory, "Bob drinks beer", scope=BOB)
            done = await memory.import_file(ALICE, file, ignore_progress)
            assert (done.format, done.came["turn"], done.came["memory"]) == (form, *theirs.came)
            assert sum(done.known.values()) == 0
            assert any("github token" in note for note in done.notes)
            assert files_with_part_of(data, TOKEN) == set()
            assert (await search_texts(memory, theirs.question))[0] == theirs.answer
            again = await memory.import_file(ALICE, file, ignore_progress)
            assert (sum(again.came.values()), again.known) == (0, done.came)
            await exporting(memory, tmp_path / "ours.jsonl")
            (edit,) = await memory.log(ALICE)
            assert (edit.provenance.stage, edit.provenance.caller) == ("import", "cli")
            await memory.undo(ALICE)
            assert str(await memory.stored(ALICE)) == "nothing"
            assert await search_texts(memory, theirs.question) == []
            assert await search_texts(memory, "drinks", BOB) == ["Bob drinks beer"]
            await memory.undo(ALICE, Undo(edit=(await memory.log(ALICE))[0].number))
            assert (await search_texts(memory, theirs.question))[0] == theirs.answer
        assert ledger_faults(data / "ledger.db") == []
        async with memory_in(tmp_path / "other") as memory:
            await memory.import_file(ALICE, tmp_path / "ours.jsonl", ignore_progress)
            assert await exported(memory) == (tmp_path / "ours.jsonl").read_bytes()

    async def test_a_secret_is_kept_where_the_settings_say_so(self, tmp_path: Path) -> None:
        """Guards the setting, and with it that the test above looks at the right bytes."""
        THEIRS["mem0-export"].made(tmp_path / "file")
        async with memory_in(tmp_path / "data", keep_secrets=True) as memory:
            await memory.import_file(ALICE, tmp_path / "file", ignore_progress)
        assert files_with_part_of(tmp_path / "data", TOKEN)

    async def test_the_past_of_mem0s_memories_comes_with_them(self, tmp_path: Path) -> None:
        """Guards history from elsewhere: versions, dates, what was believed when, and what was deleted."""
        _history(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            await memory.import_file(ALICE, tmp_path / "file", ignore_progress)
            tea = next(each for each in (await memory.stored(ALICE)).memories if "tea" in each.text)
            assert (tea.metadata["mem0_id"], tea.metadata["actor_id"], tea.revision) == ("m1", "ana", 2)
            _, past = await memory.history(ALICE, tea.id)
            assert [(row.event, row.old_memory, row.new_memory, row.updated_at.date().isoformat()) for row in past] == [
                ("ADD", None, "Ana drinks black coffee", "2025-03-01"),
                ("UPDATE", "Ana drinks black coffee", "Ana drinks green tea", "2025-04-01"),
            ]
            then = datetime(2025, 3, 15, tzinfo=UTC)
            hits = (await memory.search(ALICE, "Ana", as_of=then)).hits
            assert {hit.text for hit in hits} >= {"Ana drinks black coffee", "Ana keeps a parrot"}
            assert all(hit.at <= then for hit in hits), "what was believed then does not carry a later date"
            (gone,) = (await memory.list(ALICE, deleted=True)).hits
            assert gone.text == "Ana keeps a parrot"
            assert "Ana keeps a parrot" not in await search_texts(memory, "parrot")
            await memory.restore(ALICE, gone.id)
            assert (await search_texts(memory, "parrot"))[0] == "Ana keeps a parrot"
            later = (await memory.search(ALICE, "parrot", as_of=datetime(2025, 5, 2, tzinfo=UTC))).hits
            assert "Ana keeps a parrot" not in {hit.text for hit in later}

    @pytest.mark.parametrize("form", ["server-memory", "chatgpt"])
    async def test_every_user_and_project_imports_for_itself(self, tmp_path: Path, form: str) -> None:
        """Guards the scope: a file goes where it was asked to go, and what another has is not taken for known."""
        theirs = THEIRS[form]
        theirs.made(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            for scope in (WEB, BOB, ALICE, CODER):
                done = await memory.import_file(scope, tmp_path / "file", ignore_progress)
                assert (done.came["turn"], done.came["memory"]) == theirs.came
                stored = await memory.stored(scope)
                assert {each.scope for each in (*stored.memories, *stored.messages)} >= {scope}
            assert await search_texts(memory, theirs.question, Scope("alice", project="app")) != []
            assert await search_texts(memory, theirs.question, Scope("eve")) == []
        assert ledger_faults(tmp_path / "data" / "ledger.db") == []

    async def test_one_that_was_cut_off_is_one_edit_all_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards the one undo against an import in two runs."""
        monkeypatch.setattr(transfer, "BATCH", 1)
        THEIRS["server-memory"].made(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            with pytest.raises(CutOffError):
                await memory.import_file(ALICE, tmp_path / "file", Interrupted(2))
            done = await memory.import_file(ALICE, tmp_path / "file", ignore_progress)
            assert (done.came["memory"], done.known["memory"]) == (2, 2)
            await memory.undo(ALICE)
            assert str(await memory.stored(ALICE)) == "nothing"

    async def test_a_damaged_or_unknown_file_stores_nothing(self, tmp_path: Path) -> None:
        """Guards against half an import: the file is named, and the ledger is as it was."""
        THEIRS["server-memory"].made(tmp_path / "file")
        broken = (tmp_path / "file").read_text("utf-8") + '\n{"type":"ent'
        async with memory_in(tmp_path / "data") as memory:
            before = table_rows(tmp_path / "data" / "ledger.db", "meta")
            for text, told in ((broken, r"file, line 3: "), ("[1, 2]", "JSON of another kind"), ("", "is empty")):
                (tmp_path / "file").write_text(text, "utf-8")
                with pytest.raises(InputError, match=told):
                    await memory.import_file(ALICE, tmp_path / "file", ignore_progress)
            assert table_rows(tmp_path / "data" / "ledger.db", "meta") == before

    async def test_a_dry_run_looks_only(self, tmp_path: Path) -> None:
        """Guards the look before the leap, of other tools' files too."""
        THEIRS["claude"].made(tmp_path / "file")
        async with memory_in(tmp_path / "data") as memory:
            before = table_rows(tmp_path / "data" / "ledger.db", "meta")
            would = await memory.import_file(ALICE, tmp_path / "file", ignore_progress, dry_run=True)
            assert (would.format, would.came["turn"], would.examples[0]) == ("claude", 2, "Tea?")
            assert TOKEN not in " ".join(would.examples)
            assert table_rows(tmp_path / "data" / "ledger.db", "meta") == before
