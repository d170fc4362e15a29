"""Any text survives the way out and in, and random edits on both sides end in the merged state or a listed conflict."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.admin.markdown_files import fields_of, format_item, items_of, split_file
from palimpsest.core.models import Memory, Undo
from palimpsest.core.validation import is_blank
from palimpsest.memory import Memory as OpenMemory
from tests.support.examples import examples
from tests.support.ledger_access import store_memory
from tests.support.markdown_folder import contents, export_to, import_from, page_with
from tests.support.memory import ALICE, add_text, memory_in

PIECES = (
    *("---", "# title", "- item", "* item", "1. one", "> quote", "```", "~~~", "<!-- comment", "-->", "%%", "***"),
    *(
        "^3a090c21",
        " ^3a090c21-ab",
        "2026-05-08 · pinned",
        "since 2025",
        "#tag",
        "[[Marta]]",
        "palimpsest: topic",
        "|a|",
    ),
    *("\n", "\n\n", "\r\n", "\r", "\t", "  ", "    code", "\x1b[2J", "\u202e", "\u2028", "\ufeff", "\x85", "\x0c"),
    *("👩‍👩‍👧", "שלום", "مرحبا", "e\u0301", "日本語", "-", "x" * 2_000, "x\n" * 300),
)
"""What means something to Markdown, to Obsidian, to YAML, to an editor or to an item, and long texts."""

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join),
    st.text(CHARACTERS, min_size=1, max_size=60),
).filter(lambda text: not is_blank(text))
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "pinned": st.one_of(st.booleans(), st.integers(-5, 99), st.floats(allow_nan=False), st.text(max_size=5)),
        "expires_at": st.one_of(st.sampled_from(["2026-12-31", "2026-12-31T18:00:00+02:00", "soon"]), st.integers()),
    },
)
TAGS = st.lists(
    st.one_of(st.text(CHARACTERS, max_size=10), st.sampled_from(["a b", "#", '"', "·", "1", "ü-b/c"])), max_size=3
)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))


@st.composite
def memories(draw: st.DrawFn) -> Memory:
    """Draw a memory with any text and any labels."""
    since, now = draw(TIMES), datetime(2026, 5, 8, tzinfo=UTC)
    return Memory(
        "3a090c21-0000-4000-8000-000000000000",
        ALICE,
        draw(TEXTS),
        created_at=now,
        updated_at=now,
        stated_at=now,
        tags=tuple(draw(TAGS)),
        metadata=draw(METADATA),
        valid_from=since,
        valid_from_precision="month" if since else "",
        happened_at=draw(TIMES),
    )


@given(st.lists(memories(), min_size=1, max_size=4))
@examples(200)
def test_an_item_is_read_as_it_was_written(drawn: list[Memory]) -> None:
    """Guards the format: whatever memories say, their items say it again, and none takes a part of another."""
    shown = [fields_of(memory) for memory in drawn]
    text = "---\npalimpsest: topic\n---\n\n# Title\n\n" + "".join(format_item(each, "3a090c21") for each in shown)
    items = items_of(split_file("a.md", text.encode()), is_ours=lambda _mark: True)
    assert [item.fill_in(each) for item, each in zip(items, shown, strict=True)] == shown
    assert [item.mark for item in items] == ["3a090c21"] * len(shown)


@pytest.mark.nightly
@given(st.lists(TEXTS, min_size=1, max_size=8))
@examples(20)
def test_an_untouched_folder_changes_nothing(texts: list[str]) -> None:
    """Guards the way out and in: no text of the memory is a change, in whatever file it stands."""

    async def check(folder: Path) -> None:
        async with memory_in(folder / "here") as memory:
            for text in (*texts, "x" * 20_000):
                store_memory(memory, text)
            await export_to(memory, folder / "vault")
            before = contents(folder / "vault")
            result = await import_from(memory, folder / "vault", deletes=True)
            assert (result.done, result.conflicts, result.missing, result.notes) == ((), (), {}, ())
            assert contents(folder / "vault") == before
            assert (await export_to(memory, folder / "vault")).written == ()

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(check, Path(folder))


@dataclass(frozen=True)
class Fate:
    """What happens to one memory: in its file, and meanwhile in the ledger. None as a text means that it is removed."""

    in_file: str | None
    here: str | None
    is_pinned_in_file: bool
    is_pinned_here: bool
    loses_mark: bool
    is_moved: bool


FATES = st.builds(
    Fate,
    in_file=st.sampled_from(("kept", "kept", "better", "other", None)),
    here=st.sampled_from(("kept", "kept", "better", "new", None)),
    is_pinned_in_file=st.booleans(),
    is_pinned_here=st.booleans(),
    loses_mark=st.booleans(),
    is_moved=st.booleans(),
)


@dataclass(frozen=True)
class Expected:
    """What is to become of a memory: its text, None if it is deleted, whether it is pinned, and if it is a conflict."""

    text: str | None
    is_pinned: bool
    is_conflict: bool = False


def expected(fate: Fate, *, deletes: bool) -> Expected:
    """Return what the merge is to make of one memory. This is the rule in other words than the code has."""
    here = Expected(fate.here, fate.is_pinned_here)
    is_edited_here = fate.here != "kept" or fate.is_pinned_here
    if fate.in_file is None:
        if fate.here is None:
            return here
        return (
            Expected(fate.here, fate.is_pinned_here, is_conflict=True)
            if is_edited_here
            else (Expected(None if deletes else "kept", is_pinned=False))
        )
    is_pinned_in_file = fate.is_pinned_in_file and not fate.loses_mark
    if fate.in_file == "kept" and not is_pinned_in_file:
        return here
    in_file = Expected(fate.in_file, is_pinned_in_file)
    if is_edited_here and in_file != here:
        return Expected(fate.here, fate.is_pinned_here, is_conflict=True)
    return in_file


def edit_files(vault: Path, fates: list[Fate]) -> None:
    """Do in the files what the fates say. The items come out in the opposite order."""
    page = page_with(vault, "fact 0 is kept")
    head, *items = re.split(r"(?m)^(?=- )", page.read_text("utf-8"))
    kept: list[str] = []
    moved: list[str] = []
    for number, (fate, item) in enumerate(zip(fates, items, strict=True)):
        if fate.in_file is None:
            continue
        text, labels = f"- fact {number} is {fate.in_file}\n", item.split("\n")[1]
        pinned = re.sub(r" \^", " · pinned ^", labels) if fate.is_pinned_in_file else labels
        loses_mark = fate.loses_mark and fate.in_file == "kept" and not fate.is_moved
        (moved if fate.is_moved else kept).append(text if loses_mark else f"{text}{pinned}\n")
    page.write_text("".join((head, *reversed(kept))), "utf-8")
    (vault / "Other notes.md").write_text("".join(("Something else\n\n", *moved)), "utf-8")


async def change_ledger(memory: OpenMemory, ids: list[str], fates: list[Fate]) -> None:
    """Do in the ledger what the fates say."""
    for number, (memory_id, fate) in enumerate(zip(ids, fates, strict=True)):
        changes: dict[str, Any] = {"metadata": {"pinned": True}} if fate.is_pinned_here else {}
        changes |= {"text": f"fact {number} is {fate.here}"} if fate.here not in ("kept", None) else {}
        if changes:
            await memory.update(ALICE, memory_id, **changes)
        if fate.here is None:
            await memory.delete(ALICE, [memory_id])


async def state_of(memory: OpenMemory, ids: list[str]) -> list[tuple[str | None, bool]]:
    """Return the last word of each memory's text, None if it is deleted, and whether it is pinned."""
    found = [await memory.get(ALICE, memory_id) for memory_id in ids]
    memories = [each for each in found if isinstance(each, Memory)]
    return [
        (None if each.deleted_at else each.text.rpartition(" ")[2], bool(each.metadata.get("pinned")))
        for each in memories
    ]


@pytest.mark.nightly
@given(st.lists(FATES, min_size=1, max_size=6), st.booleans())
@examples(20)
def test_edits_on_both_sides_are_merged_or_a_conflict(drawn: list[Fate], deletes: bool) -> None:  # noqa: FBT001 - drawn
    """Guards the merge, its undo and its repetition; and every text that the ledger ever had is in its history."""
    fates = [Fate("kept", "kept", False, False, False, False), *drawn]  # noqa: FBT003 - fields, in order
    fates = [
        fate
        if not fate.loses_mark or (fate.in_file == "kept" and not fate.is_moved)
        else Fate(fate.in_file, fate.here, fate.is_pinned_in_file, fate.is_pinned_here, False, fate.is_moved)  # noqa: FBT003
        for fate in fates
    ]

    async def check(folder: Path) -> None:
        vault = folder / "vault"
        async with memory_in(folder / "here") as memory:
            ids = [await add_text(memory, f"fact {number} is kept") for number in range(len(fates))]
            await export_to(memory, vault)
            edit_files(vault, fates)
            await change_ledger(memory, ids, fates)
            before = await state_of(memory, ids)
            texts = [{version.new_memory for version in (await memory.history(ALICE, each))[1]} for each in ids]
            result = await import_from(memory, vault, deletes=deletes)
            wanted = [expected(fate, deletes=deletes) for fate in fates]
            after = await state_of(memory, ids)
            assert after == [(each.text, each.is_pinned) for each in wanted]
            conflicts = {each.memory_id for each in result.conflicts}
            assert conflicts == {memory_id for memory_id, each in zip(ids, wanted, strict=True) if each.is_conflict}
            for memory_id, known in zip(ids, texts, strict=True):
                assert known <= {version.new_memory for version in (await memory.history(ALICE, memory_id))[1]}
            again = await import_from(memory, vault, deletes=deletes)
            assert (again.done, {each.memory_id for each in again.conflicts}) == ((), conflicts)
            assert len((await memory.scope_contents(ALICE)).memories) == sum(each.text is not None for each in wanted)
            if result.edit:
                await memory.undo(ALICE, Undo(result.edit))
                assert await state_of(memory, ids) == before

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(check, Path(folder))
