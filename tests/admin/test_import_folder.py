"""A folder that a person edited comes back, and one that nobody meant well: nothing is lost or taken over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin.markdown_files import MAX_FILE_BYTES
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.memory import Memory as OpenMemory
from tests.support.ledger_access import store_memory
from tests.support.markdown_folder import export_to, import_from, manifest_of, page_with
from tests.support.memory import ALICE, add_text, memory_in, memory_texts

pytestmark = pytest.mark.anyio


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
