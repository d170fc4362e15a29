"""Folders that nobody meant well: links, huge and binary files, devices, and manifests that somebody wrote."""

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
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.ledger_access import store_memory
from tests.support.markdown_folder import export_to, import_from, manifest_of, page_with
from tests.support.memory import ALICE, add_text, memory_in, memory_texts

pytestmark = pytest.mark.anyio


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


def _set(*keys: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        for key in keys[:-1]:
            manifest = manifest[key]
        manifest[keys[-1]] = value

    return change


BASE: dict[str, Any] = {"file": "a.md", "revision": 1, "item": "0" * 64}

MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another version": (_set("version", value=2), "damaged: version"),
    "another user": (_set("user_id", value="bob"), "holds the memory of bob"),
    "an id that is none": (_set("memories", "%", value=BASE), "damaged: memories"),
    "a base that is none": (_set("memories", value=[]), "damaged: memories"),
    "something more": (_set("more", value=1), "damaged: more"),
}


async def test_a_manifest_that_no_export_wrote_is_refused(tmp_path: Path) -> None:
    """Guards what an import relies on: what does not fit is named, whatever stands there, and nothing is done."""
    vault = tmp_path / "vault"
    async with memory_in(tmp_path / "here") as memory:
        await add_text(memory, "User bakes")
        await export_to(memory, vault)
        file = manifest_of(vault)
        texts: dict[str, str] = dict.fromkeys(("", "[" * 100_000, "{", "null", "\ud800"), "damaged")
        for change, error in MANIFESTS.values():
            manifest = json.loads(file.read_text("utf-8"))
            change(manifest)
            texts[json.dumps(manifest)] = error
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


@pytest.mark.nightly
def test_the_command_line_exports_and_imports_a_folder(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", "User bakes")
    palimpsest(tmp_path, "add", "User has a cat")
    assert "exported 2 memories" in palimpsest(tmp_path, "export", "--format", "markdown", "vault")
    page = next((tmp_path / "vault").rglob("2*.md"))
    text = page.read_text("utf-8")
    page.write_text(
        text.replace("- User bakes", "- User bakes [red]\x1b[2J bread").replace("- User has a cat", "- User has a dog"),
        "utf-8",
    )
    printed = palimpsest(tmp_path, "import", "vault", "--dry-run")
    assert "(dry run): changed 2 memories" in printed
    assert r"+ User bakes [red]\x1b[2J bread" in printed
    cat = palimpsest_json(tmp_path, "list")["results"][0]["id"]
    palimpsest(tmp_path, "edit", cat, "User has a canary")
    printed = palimpsest(tmp_path, "import", "vault")
    assert "vault: changed 1 memory" in printed
    assert "in the file: User has a dog" in printed
    assert "here: User has a canary" in printed
    assert "palimpsest undo --edit 4 takes it back" in printed
    assert "edited since" in palimpsest(tmp_path, "export", "--format", "markdown", "vault", code=1)
    assert "written" in palimpsest(tmp_path, "export", "--format", "markdown", "vault", "--yes")
    palimpsest(tmp_path, "import", "none.md", "--yes", code=2)
