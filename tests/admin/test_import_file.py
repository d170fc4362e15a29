"""Palimpsest's own export: private and whole, and imported without loss or duplicates, whole or not at all."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.errors import InputError
from palimpsest.core.models import Edit, NamedEntity, Provenance, Scope, Undo
from palimpsest.memory import Memory
from palimpsest.store.transfer import ITEM_TYPES
from tests.support.exports import CutOffError, Interrupted, exported
from tests.support.graph_rows import LIVES, change_stating, store_stating
from tests.support.ledger_access import ignore_progress, ledger_faults, store_memory, store_messages
from tests.support.ledger_files import data_files, search_texts, table_rows
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in
from tests.support.moving import fill
from tests.support.scripted_model import summary_reply

pytestmark = pytest.mark.anyio


WEB = Scope("alice", project="web")
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


def masked(text: str) -> str:
    return re.sub(r"undo \d+", "undo #", ID.sub("#", text))


def without_number(provenance: Provenance) -> Provenance:
    return replace(provenance, stage=masked(provenance.stage))


def comparable(edits: list[Edit]) -> list[Edit]:
    return [
        replace(edit, number=0, provenance=without_number(edit.provenance), steps=tuple(sorted(edit.steps, key=str)))
        for edit in edits
    ]


async def make_history(memory: Memory, clock: StoppedClock) -> None:
    """Do what can be done to a memory, also what has another user in between and leaves gaps in the numbers."""
    filled = await fill(memory, clock)
    await memory.update(ALICE, filled.changed, text="User lives near Zürich", metadata={"b": None})
    lives = store_stating(memory, "Ana lives in Lyon", ("Ana", "person"), relations=(LIVES,))
    change_stating(memory, lives, "Ana Ruiz has moved to Nice", ("Ana Ruiz", "person"))
    site = (NamedEntity("The site", "project"), NamedEntity("Ana", "person"))
    gone = [store_memory(memory, f"The site is {colour}", entities=site, scope=WEB) for colour in ("blue", "red")]
    await memory.delete_all(WEB)
    await memory.undo(WEB)
    await memory.delete(WEB, gone[:1])
    nice = store_memory(memory, "User lives in Nice")
    clock.forward(minutes=1)
    await memory.add_text(ALICE, "User lives in Lyon", replaces=[nice])
    await memory.restore(ALICE, nice)
    await memory.undo(ALICE, Undo(edit=(await memory.log(ALICE))[0].number))
    for scope in (ALICE, WEB):
        await memory.summary(scope)


@pytest.mark.nightly
async def test_an_exported_memory_is_imported_without_loss(tmp_path: Path) -> None:
    """Guards the export as a complete copy: it exports to the same bytes, and every search has the same result."""
    clock, file = StoppedClock(), tmp_path / "alice.jsonl"
    with OpenAIServer([summary_reply(f"Summary {number}") for number in range(4)]) as server:
        llm = llm_settings(server.base_url)
        async with (
            memory_in(tmp_path / "here", clock, llm=llm) as before,
            memory_in(tmp_path / "there", clock) as after,
        ):
            await make_history(before, clock)
            file.write_bytes(await exported(before))
            done = await after.care.import_file(ALICE, file, ignore_progress)
            counted = [json.loads(line).get("type") for line in file.read_text("utf-8").split("\n") if line]
            assert done.new == {kind: counted.count(kind) for kind in ITEM_TYPES}
            assert (sum(done.known.values()), done.notes) == (0, ())
            assert await exported(after) == file.read_bytes()
            await after.care.rebuild()
            assert ledger_faults(tmp_path / "there" / "ledger.db") == []
            for scope in (ALICE, WEB):
                logs = [comparable(list(await memory.log(scope, limit=100))) for memory in (before, after)]
                assert logs[0] == logs[1]
                for question in ("assistant", "Where does the user live?", "blue"):
                    assert await search_texts(before, question, scope) == await search_texts(after, question, scope)
            edits = await before.log(ALICE, limit=100)
            for back in (None, 0, 5, 9, None, edits[len(edits) * 2 // 5].made_at):
                clock.forward(minutes=1)
                assert await undone(before, back) == await undone(after, back)
            outs = [masked((await exported(memory)).decode()).split("\n") for memory in (before, after)]
            assert outs[0] == outs[1]


async def undone(memory: Memory, back: int | datetime | None) -> str:
    """Undo the newest edit, the one at an index in the log, or all since a time; return the outcomes or the error."""
    edits = await memory.log(ALICE, limit=100)
    undo = Undo(edits[back].number if isinstance(back, int) else None, back if isinstance(back, datetime) else None)
    try:
        done = await memory.undo(ALICE, undo)
    except InputError as error:
        return re.sub(r"\d+", "#", str(error))
    return str(sorted((change.event, change.memory.text, change.previous) for change in done.outcomes))


# What becomes of a line of an export, and the error that names it.
DAMAGES: dict[str, tuple[int, dict[str, Any], str]] = json.loads(
    Path(__file__).with_name("damaged_exports.json").read_text("utf-8")
)


async def test_a_damaged_line_is_named_and_nothing_at_all_is_stored(tmp_path: Path) -> None:
    """Guards against a partial import: every line is checked before the first one is stored."""
    clock = StoppedClock()
    async with memory_in(tmp_path / "here", clock) as memory:
        (message,) = await store_messages(memory, ("user", "I bake"))
        store_memory(memory, "User bakes", sources=[message.id])
        store_memory(memory, "User bakes rye bread")
        text = (await exported(memory)).decode().replace(message.id, "a0000000-0000-4000-8000-000000000001")
    file = tmp_path / "alice.jsonl"
    async with memory_in(tmp_path / "there", clock) as memory:
        store_memory(memory, "User likes tea")
        before = table_rows(tmp_path / "there" / "ledger.db", "meta", "changes")
        for fault, (number, damaged, error_text) in DAMAGES.items():
            lines = text.splitlines()
            item = json.loads(lines[number - 1]) | damaged
            lines[number - 1] = json.dumps({key: value for key, value in item.items() if value != "(removed)"})
            file.write_text("\n".join(lines), "utf-8")
            for dry_run in (True, False):
                with pytest.raises(InputError, match=rf"alice\.jsonl, {error_text}"):
                    await memory.care.import_file(ALICE, file, ignore_progress, dry_run=dry_run)
            assert table_rows(tmp_path / "there" / "ledger.db", "meta", "changes") == before, fault
        file.write_text(text.replace('{"', "{", 1), "utf-8")
        with pytest.raises(InputError, match=r"alice\.jsonl cannot be read as JSON: .*line 1"):
            await memory.care.import_file(ALICE, file, ignore_progress)
        file.write_bytes(b'{"format":"palimpsest-export","user_id":"alice","version":5}\n\xff\xfe\n')
        with pytest.raises(InputError, match=r"alice\.jsonl cannot be read"):
            await memory.care.import_file(ALICE, file, ignore_progress)
        assert not (tmp_path / "there" / "backups").exists()


async def test_an_export_is_a_new_private_file_that_is_whole(tmp_path: Path) -> None:
    """Guards the file: only its owner can read it, it replaces no other file, and no unfinished file is left."""
    async with memory_in(tmp_path / "here") as memory:
        store_memory(memory, "User bakes")
        store_memory(memory, "User likes tea")
        file = tmp_path / "alice.jsonl"
        await memory.care.export(file, ignore_progress)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        before = file.read_bytes()
        with pytest.raises(InputError, match="already exists"):
            await memory.care.export(file, ignore_progress)
        assert file.read_bytes() == before
        with pytest.raises(CutOffError):
            await memory.care.export(tmp_path / "half.jsonl", Interrupted(1))
        for unwritable in (tmp_path / "nowhere" / "alice.jsonl", tmp_path / "alice.jsonl" / "alice.jsonl"):
            with pytest.raises(InputError, match="cannot be written"):
                await memory.care.export(unwritable, ignore_progress)
    assert {file.name for file in data_files(tmp_path)} - {"ledger.db"} == {"alice.jsonl"}
