"""Folders of Markdown files that leave and come back: any text, a person's files, and what nobody meant well."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.admin.markdown_files import (
    MAX_FILE_BYTES,
    MAX_NAME_BYTES,
    fields_of,
    format_item,
    read_folder,
    safe_name,
)
from palimpsest.core.errors import InputError
from palimpsest.core.models import Memory, NamedEntity, Scope
from palimpsest.core.validation import is_blank
from palimpsest.memory import Memory as OpenMemory
from tests.support.examples import examples
from tests.support.ledger_access import store_memory
from tests.support.markdown_folder import contents, export_to, import_from, manifest_of, page_with
from tests.support.memory import ALICE, add_text, memory_in, memory_texts

pytestmark = pytest.mark.anyio


MARTA = NamedEntity("Marta", "person")


async def test_the_same_memory_makes_the_same_bytes(tmp_path: Path) -> None:
    """Guards a folder in git: also another folder. What is no longer in the memory leaves it, and a copy is left."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with memory_in(tmp_path / "here") as memory:
        ids = [store_memory(memory, text, entities=(MARTA,)) for text in ("Marta bakes", "Marta sings")]
        for number in range(20):
            await add_text(memory, f"User told {number} things about Ferrow")
        await export_to(memory, one)
        before = {path: path.stat().st_mtime_ns for path in one.rglob("*")}
        again = await export_to(memory, one)
        assert ((again.written, again.removed), before) == (
            ((), ()),
            {path: path.stat().st_mtime_ns for path in one.rglob("*")},
        )
        await export_to(memory, two)
        assert contents(one) == contents(two)
        (two / "people" / "Marta.md").rename(two / "my sister.md")
        assert (await export_to(memory, two)).written == ("people/Marta.md",)
        await memory.delete(ALICE, ids)
        assert (await export_to(memory, two)).removed == ("people/Marta.md",)
    assert (two / "my sister.md").exists()
    assert not (two / "people").exists()


async def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    """Guards files elsewhere: an export through a link is refused, and so is a manifest that names other paths."""
    vault, outside = tmp_path / "vault", tmp_path / "outside"
    outside.mkdir()
    async with memory_in(tmp_path / "here") as memory:
        for text in ("Marta bakes", "Marta sings"):
            store_memory(memory, text, entities=(MARTA,))
        vault.mkdir()
        (vault / "people").symlink_to(outside)
        with pytest.raises(InputError, match="symbolic link"):
            await export_to(memory, vault)
        (vault / "people").unlink()
        await export_to(memory, vault)
        victim = outside / "victim.md"
        victim.write_text("keep me", "utf-8")
        text = manifest_of(vault).read_text("utf-8")
        for path in ("../outside/victim.md", str(victim), "people/../../outside/victim.md", "C:\\victim.md"):
            changed = text.replace('"people/Marta.md":', f"{json.dumps(path)}:")
            manifest_of(vault).write_text(changed, "utf-8")
            await export_to(memory, vault, overwrites=True)
    assert contents(outside) == {"victim.md": b"keep me"}


@given(st.text(max_size=300))
def test_a_file_name_is_safe_on_every_system(name: str) -> None:
    """Guards Windows, macOS and Linux: no forbidden character, no device, no end that is cut off, not too long."""
    safe = safe_name(name)
    assert 0 < len(safe.encode()) <= MAX_NAME_BYTES + 1
    assert not set(safe) & set('<>:"/\\|?*#^[]%`')
    assert safe == safe.strip(" .")
    assert safe.split(".")[0].upper() not in {"CON", "PRN", "AUX", "NUL", *(f"COM{n}" for n in range(10)), "LPT1"}
    assert all(unicodedata.category(char)[0] != "C" for char in safe)
    assert unicodedata.is_normalized("NFC", safe)
    assert safe_name(safe) == safe


# What means something to Markdown, to Obsidian, to YAML, to an editor or to an item, and long texts.
PIECES = (
    *("---", "# title", "- item", "* item", "1. one", "> quote", "```", "~~~", "<!-- comment", "-->", "%%", "***"),
    *(
        "^3a090c21",
        " ^3a090c21-ab",
        "2026-05-08 · #x",
        "since 2025",
        "#tag",
        "[[Marta]]",
        "palimpsest: topic",
        "|a|",
    ),
    *("\n", "\n\n", "\r\n", "\r", "\t", "  ", "    code", "\x1b[2J", "\u202e", "\u2028", "\ufeff", "\x85", "\x0c"),
    *("👩‍👩‍👧", "שלום", "مرحبا", "e\u0301", "日本語", "-", "x" * 2_000, "x\n" * 300),
)

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join),
    st.text(CHARACTERS, min_size=1, max_size=60),
).filter(lambda text: not is_blank(text))
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
    with TemporaryDirectory() as folder:
        Path(folder, "a.md").write_bytes(text.encode())
        (file,) = read_folder(Path(folder))
    assert [item.fill_in(each) for item, each in zip(file.items, shown, strict=True)] == shown
    assert [item.mark for item in file.items] == ["3a090c21"] * len(shown)


async def test_editors_of_every_kind(memory: OpenMemory, tmp_path: Path) -> None:
    """Guards other systems: a byte order mark, other line ends, tabs and other bullets change nothing."""
    vault = tmp_path / "vault"
    await add_text(memory, "User bakes")
    await export_to(memory, vault)
    await add_text(memory, "User likes:\n\n- tea\n\n    much code\n\t\ttabs")
    page = page_with(vault, "User bakes")
    text = page.read_text("utf-8").replace("\n- ", "\n*   ").replace("\n  20", "\n\t20").replace("\n", "\r\n")
    page.write_bytes(b"\xef\xbb\xbf" + text.encode())
    result = await import_from(memory, vault, deletes=True)
    assert (result.done, result.conflicts, result.notes) == ((), (), ())
    page.write_text(text.replace("palimpsest:", f"x: {'[' * 50_000}\npalimpsest:"), "utf-8")
    with suppress(InputError):
        assert (await import_from(memory, vault, deletes=True)).done == ()
    assert len(await memory_texts(memory)) == 2


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "linked": lambda page, outside: (page.rename(outside), page.symlink_to(outside)),
    "huge": lambda page, _: os.truncate(page, MAX_FILE_BYTES + 1),
    "pipe": lambda page, _: (page.unlink(), os.mkfifo(page)),
    "binary": lambda page, _: page.write_bytes(bytes(range(256))),
}


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_file_of_ours_that_became_something_else_deletes_nothing(tmp_path: Path, change: str) -> None:
    """Guards the reading: no link is followed, nothing endless is read, and no memory is taken for removed."""
    vault = tmp_path / "vault"
    async with memory_in(tmp_path / "here") as memory:
        await add_text(memory, "User bakes")
        await export_to(memory, vault)
        CHANGES[change](page_with(vault, "User bakes"), tmp_path / "outside.md")
        with suppress(InputError):
            assert "not in the folder" in (await import_from(memory, vault, deletes=True)).notes[0]
        assert await memory_texts(memory) == ["User bakes"]


async def test_other_hostile_files_are_left_alone(tmp_path: Path) -> None:
    """Guards a vault: links to files and folders, circles, hidden files, and another export are not read."""
    vault, outside = tmp_path / "vault", tmp_path / "outside"
    async with memory_in(tmp_path / "here") as memory:
        await add_text(memory, "User bakes")
        await export_to(memory, vault)
        outside.mkdir()
        (outside / "other.md").write_text("---\npalimpsest: topic\n---\n- User lies\n", "utf-8")
        (vault / "away").symlink_to(outside)
        (vault / "round").symlink_to(vault)
        (vault / "one.md").symlink_to(outside / "other.md")
        (vault / "broken.md").symlink_to(outside / "nothing.md")
        (vault / ".hidden.md").write_text("---\npalimpsest: topic\n---\n- User lies\n", "utf-8")
        (vault / "picture.md").write_bytes(bytes(range(256)))
        os.mkfifo(vault / "pipe.md")
        result = await import_from(memory, vault, deletes=True)
        assert (result.done, result.conflicts, result.notes) == ((), (), ())


BASE: dict[str, Any] = {"file": "a.md", "revision": 1, "item": "0" * 64}


async def test_a_manifest_that_no_export_wrote_is_refused(tmp_path: Path) -> None:
    """Guards what an import relies on: what does not fit is named, whatever stands there, and nothing is done."""
    vault = tmp_path / "vault"
    async with memory_in(tmp_path / "here") as memory:
        await add_text(memory, "User bakes")
        await export_to(memory, vault)
        file = manifest_of(vault)
        manifest = json.loads(file.read_text("utf-8"))
        texts: dict[str, str] = dict.fromkeys(("", "[" * 100_000, "{", "null", "\ud800"), "damaged")
        for change, error in (
            ({"version": 2}, "damaged: version"),
            ({"user_id": "bob"}, "holds the memory of bob"),
            ({"memories": {"%": BASE}}, "damaged: memories"),
            ({"more": 1}, "damaged: more"),
        ):
            texts[json.dumps(manifest | change)] = error
        for text, error in texts.items():
            file.write_bytes(text.encode("utf-8", "surrogatepass"))
            with pytest.raises(InputError, match=error):
                await import_from(memory, vault, deletes=True)
        os.truncate(file, MAX_FILE_BYTES + 1)
        with pytest.raises(InputError, match="is larger than"):
            await import_from(memory, vault)


async def test_a_manifest_cannot_reach_memories_of_others(tmp_path: Path) -> None:
    """Guards scopes: an id of another user or project in the manifest and in a file names nothing."""
    vault = tmp_path / "vault"
    async with memory_in(tmp_path / "here") as memory:
        await add_text(memory, "User bakes")
        others = [store_memory(memory, "Bob has a boat", scope=Scope("bob"))]
        others.append(store_memory(memory, "The site is blue", scope=Scope("alice", project="web")))
        await export_to(memory, vault)
        manifest = json.loads(manifest_of(vault).read_text("utf-8"))
        page = page_with(vault, "User bakes")
        path = page.relative_to(vault).as_posix()
        manifest["memories"] |= {other: {**BASE, "file": path} for other in others}
        manifest_of(vault).write_text(json.dumps(manifest), "utf-8")
        items = "".join(f"- Taken over\n  2026-05-08 ^{other[:8]}\n" for other in others)
        page.write_text(page.read_text("utf-8") + items, "utf-8")
        result = await import_from(memory, vault, deletes=True)
        assert (result.done, {each.memory_id for each in result.conflicts}) == ((), set(others))
        page.write_text(page.read_text("utf-8").replace(items, ""), "utf-8")
        result = await import_from(memory, vault, deletes=True)
        assert (result.done, result.conflicts) == ((), ())
        assert [each.text for each in (await memory.scope_contents(Scope("bob"))).memories] == ["Bob has a boat"]
        assert await memory_texts(memory) == ["User bakes"]
        assert (await memory.scope_contents(ALICE)).memories
