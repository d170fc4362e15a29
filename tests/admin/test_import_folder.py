"""A folder that a person edited comes back: what changed is one edit, what conflicts is listed, nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Event, Memory, Undo
from palimpsest.memory import Memory as OpenMemory
from tests.support.ledger_access import row_faults
from tests.support.markdown_folder import contents, edit, export_to, import_from, manifest_of, page_with, remove_item
from tests.support.memory import ALICE, add_text, memory_texts

pytestmark = pytest.mark.anyio

LIFE = ("User bakes", "User has a cat", "User lives in Lyon", "User plays the cello")


class Life(NamedTuple):
    """A memory, the folder that it was exported to, and the ids of its texts."""

    memory: OpenMemory
    vault: Path
    ids: dict[str, str]


@pytest.fixture
async def life(memory: OpenMemory, tmp_path: Path) -> Life:
    ids = {text: await add_text(memory, text) for text in LIFE}
    await export_to(memory, tmp_path / "vault")
    return Life(memory, tmp_path / "vault", ids)


async def memory_of(memory: OpenMemory, memory_id: str) -> Memory:
    found = await memory.get(ALICE, memory_id)
    assert isinstance(found, Memory)
    return found


async def test_edits_of_a_person_are_one_edit(life: Life) -> None:
    """Guards the way back: a typo, labels, a new item, a moved one; shown first, done once, undone as a whole."""
    memory, vault, ids = life
    page = edit(vault, "User bakes\n  2026-05-08", "User bakes rye\nbread\n  2024-02 · since 2020 · #food")
    page.write_text(page.read_text("utf-8").replace("rye\nbread", "rye\n  bread"), "utf-8")
    page.write_text(page.read_text("utf-8") + "- User sings\n\n* User swims\n  2026-05-01 · #sport\n-\n", "utf-8")
    cello = re.search(r"- User plays the cello\n.*\n", page.read_text("utf-8"))
    assert cello is not None
    page.write_text(page.read_text("utf-8").replace(cello[0], ""), "utf-8")
    (vault / "Music.md").write_text(f"---\npalimpsest: topic\n---\n\n{cello[0]}", "utf-8")
    (vault / "Notes.md").write_text("- User owns this file\n", "utf-8")
    before = contents(vault)
    preview = await import_from(memory, vault, dry_run=True)
    assert contents(vault) == before
    assert await memory_texts(memory) == sorted(LIFE)
    result = await import_from(memory, vault)
    assert [(each.event, each.where) for each in result.done] == [(each.event, each.where) for each in preview.done]
    assert (result.removed, result.conflicts, result.notes) == ((), (), ())
    assert await memory_texts(memory) == sorted((*LIFE[1:], "User bakes rye\nbread", "User sings", "User swims"))
    bakes = await memory_of(memory, ids["User bakes"])
    assert (bakes.date, bakes.since, bakes.tags) == ("2024-02", "2020", ("food",))
    again = await import_from(memory, vault, deletes=True)
    assert (again.done, again.edit) == ((), 0)
    edit(vault, "2024-02 · since 2020 · #food", "2024-02")
    await import_from(memory, vault)
    bakes = await memory_of(memory, ids["User bakes"])
    assert (bakes.date, bakes.since, bakes.tags) == ("2024-02", "", ())
    await memory.undo(ALICE)
    await memory.undo(ALICE)
    assert await memory_texts(memory) == sorted(LIFE)
    assert await row_faults(memory) == []


async def test_a_removed_item_is_deleted_only_on_request(life: Life) -> None:
    """Guards against silent loss: an item that is gone is listed first, and a file that is gone deletes nothing."""
    memory, vault, _ = life
    remove_item(vault, "User has a cat")
    result = await import_from(memory, vault)
    assert ([each.before.text for each in result.removed if each.before], result.edit) == (["User has a cat"], 0)
    result = await import_from(memory, vault, deletes=True)
    assert [each.event for each in result.done] == [Event.DELETE]
    assert "User has a cat" not in await memory_texts(memory)
    page = page_with(vault, "User bakes")
    page.unlink()
    result = await import_from(memory, vault, deletes=True)
    assert result.done == ()
    assert page.relative_to(vault).as_posix() in result.notes[0]
    assert await memory_texts(memory) == ["User bakes", "User lives in Lyon", "User plays the cello"]
    await memory.undo(ALICE)
    assert await memory_texts(memory) == sorted(LIFE)


async def test_what_both_sides_changed_is_a_conflict(life: Life) -> None:
    memory, vault, ids = life
    edit(vault, "User bakes\n", "User bakes bread\n")
    await memory.update(ALICE, ids["User bakes"], text="User bakes cakes")
    edit(vault, "User lives in Lyon\n", "User lives in Paris\n")
    await memory.update(ALICE, ids["User lives in Lyon"], text="User lives in Paris")
    edit(vault, "User plays the cello\n  2026-05-08", "User plays the cello\n  2026-05-08 · #music")
    await memory.update(ALICE, ids["User plays the cello"], text="User plays the harp")
    edit(vault, "User has a cat\n", "User has two cats\n")
    await memory.delete(ALICE, [ids["User has a cat"]])
    result = await import_from(memory, vault)
    assert result.done == ()
    conflicts = {
        conflict.memory_id: (conflict.in_file and conflict.in_file.text, conflict.here and conflict.here.text)
        for conflict in result.conflicts
    }
    assert conflicts == {
        ids["User bakes"]: ("User bakes bread", "User bakes cakes"),
        ids["User has a cat"]: ("User has two cats", None),
        ids["User plays the cello"]: ("User plays the cello", "User plays the harp"),
    }
    assert await memory_texts(memory) == ["User bakes cakes", "User lives in Paris", "User plays the harp"]
    assert len((await import_from(memory, vault)).conflicts) == 3, "a conflict stays until it is settled"
    edit(vault, "User bakes bread\n", "User bakes cakes\n")
    remove_item(vault, "User plays the cello")
    result = await import_from(memory, vault, deletes=True)
    left = {each.memory_id: each.in_file and each.in_file.text for each in result.conflicts}
    assert left == {ids["User has a cat"]: "User has two cats", ids["User plays the cello"]: None}, "never read by them"
    assert result.done == ()


async def test_an_undone_import_is_not_done_again(life: Life) -> None:
    """Guards an undo: the files say what was imported, and the next import leaves the memory as the undo left it."""
    memory, vault, _ = life
    page = edit(vault, "User bakes\n", "User bakes bread\n")
    page.write_text(page.read_text("utf-8") + "- User sings\n", "utf-8")
    result = await import_from(memory, vault)
    await memory.undo(ALICE, Undo(result.edit))
    again = await import_from(memory, vault, deletes=True)
    assert (again.done, again.conflicts) == ((), ())
    assert await memory_texts(memory) == sorted(LIFE)


async def test_a_secret_is_not_stored(life: Life) -> None:
    """Guards every write: neither the ledger nor the manifest has a secret that was written into a file."""
    memory, vault, _ = life
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    page = edit(vault, "User bakes\n", f"User bakes with {key}\n")
    page.write_text(page.read_text("utf-8") + f"- User sings {key}\n", "utf-8")
    result = await import_from(memory, vault)
    assert any("replaced 2 secrets" in note for note in result.notes)
    assert key not in str(await memory_texts(memory))
    assert key not in manifest_of(vault).read_text("utf-8")
    assert (await import_from(memory, vault, deletes=True)).done == ()


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "a line beside the items": (
        lambda text: text + "Just a thought\n",
        r"line 16: 'Just a thought' belongs to no item",
    ),
    "labels that are none": (lambda text: text.replace("2026-05-08", "2026-05-08 · soon", 1), r"line 8: .* as labels"),
    "a label twice": (lambda text: text.replace("2026-05-08", "since 2020 · since 2021", 1), r"line 8: .* as labels"),
    "an unknown mark": (
        lambda text: f"{text}- New\n  2026-05-08 ^0badc0de\n",
        r"line 16: \^0badc0de is the mark of no",
    ),
    "an item without a text": (lambda text: text.replace("- User bakes", "-"), r"line 8: \^\w+ has no text"),
    "a text below the mark": (
        lambda text: re.sub(r"(\^.*\n)", r"\1  more\n", text, count=1),
        r"line 8: there is text below",
    ),
    "a long text": (lambda text: text.replace("User bakes", "x" * 20_001), r"line 8: text has 20,001 characters"),
    "a nothing": (lambda text: text.replace("User bakes", "\u200b"), r"line 8: text is empty"),
    "a secret alone": (
        lambda text: f"{text}- sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD\n",
        r"line 16: the text is a secret",
    ),
    "a mark twice": (
        lambda text: text + re.sub(r"(?s).*(- User bakes)(\n[^\n]*\n).*", r"\1 bread\2", text),
        r"line 16: \^\w+ is also the mark of .*line 8",
    ),
    "front matter without end": (lambda text: text.replace("name:", "name: " + "[" * 50_000), r"front matter"),
    "another project": (lambda text: text.replace("name:", "project: web\nname:") + "- New\n", r"of the project web"),
}


async def test_what_cannot_be_read_is_refused_with_its_line(life: Life) -> None:
    """Guards against half an import: the error names the line, and nothing is written, here or there."""
    memory, vault, _ = life
    page = page_with(vault, "User bakes")
    whole = page.read_text("utf-8")
    for name, (change, error) in BROKEN.items():
        page.write_text(change(whole).replace("User plays the cello", "User plays"), "utf-8")
        before = contents(vault)
        with pytest.raises(InputError, match=error):
            await import_from(memory, vault, deletes=True)
        assert contents(vault) == before, name
        assert await memory_texts(memory) == sorted(LIFE), name


async def test_editors_of_every_kind(life: Life) -> None:
    """Guards other systems: a byte order mark, other line ends, tabs and other bullets change nothing."""
    memory, vault, _ = life
    await add_text(memory, "User likes:\n\n- tea\n\n    much code\n\t\ttabs")
    page = page_with(vault, "User bakes")
    text = page.read_text("utf-8").replace("\n- ", "\n*   ").replace("\n  20", "\n\t20").replace("\n", "\r\n")
    page.write_bytes(b"\xef\xbb\xbf" + text.encode())
    result = await import_from(memory, vault, deletes=True)
    assert (result.done, result.conflicts, result.notes) == ((), (), ())
