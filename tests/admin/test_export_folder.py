"""The folder of a Markdown export: what stands where, the same bytes every time, and files of the person's."""

from __future__ import annotations

import json
import os
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import frontmatter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.admin.markdown_files import MAX_NAME_BYTES, name_taken, safe_name
from palimpsest.core.errors import InputError
from palimpsest.core.models import NamedEntity, Relation, Scope
from tests.support.ledger_access import store_memory
from tests.support.markdown_folder import contents, edit, export_to, import_from, manifest_of, page_with
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

WEB = Scope("alice", project="web")
MARTA = NamedEntity("Marta", "person")
LYON = NamedEntity("Lyon", "place")


async def test_a_memory_stands_with_its_entity_its_topic_or_its_month(tmp_path: Path) -> None:
    """Guards the files for a reader: one item a memory, with its labels and its mark, and links between entities."""
    async with memory_in(tmp_path / "here") as memory:
        lives = Relation("Marta", "lives_in", "Lyon")
        first = store_memory(
            memory,
            "Marta lives in Lyon",
            entities=(MARTA, LYON),
            relations=(lives,),
            valid_from=datetime(2025, 3, 1, tzinfo=UTC),
            valid_from_precision="month",
        )
        second = store_memory(memory, "Marta has two cats", entities=(MARTA,), tags=("pets", "at home"))
        for text in ("Lyon has two rivers", "Lyon has hills"):
            store_memory(memory, text, entities=(LYON,))
        store_memory(memory, "User is allergic to nuts", tags=("food",), metadata={"pinned": 1})
        store_memory(memory, "User bakes", tags=("food",), metadata={"expires_at": "2026-12-31"})
        alone = store_memory(memory, "User waits", happened_at=datetime(2019, 7, 1, tzinfo=UTC))
        deleted = store_memory(memory, "User smokes")
        await memory.delete(ALICE, [deleted])
        store_memory(memory, "The site is blue", scope=WEB)
        result = await export_to(memory, tmp_path / "vault")
    assert result.memories == 7
    files = {name: data.decode() for name, data in contents(tmp_path / "vault").items()}
    assert sorted(files) == [
        ".palimpsest.json",
        "months/2019-07.md",
        "people/Marta.md",
        "places/Lyon.md",
        "topics/food.md",
    ]
    assert files["people/Marta.md"] == (
        "---\npalimpsest: entity\nname: Marta\n---\n\n# Marta\n\n"
        f"- Marta lives in Lyon\n  2026-05-08 · since 2025-03 ^{first[:8]}\n"
        f'- Marta has two cats\n  2026-05-08 · #pets #"at home" ^{second[:8]}\n'
    )
    assert "- User is allergic to nuts\n  2026-05-08 · #food ^" in files["topics/food.md"]
    assert files["months/2019-07.md"].endswith(f"- User waits\n  2019-07-01 ^{alone[:8]}\n")
    assert all(frontmatter.loads(text)["palimpsest"] for name, text in files.items() if name.endswith(".md"))


async def test_the_same_memory_makes_the_same_bytes(tmp_path: Path) -> None:
    """Guards a folder in git: another folder, and another export to the same one, have the same bytes."""
    async with memory_in(tmp_path / "here") as memory:
        for number in range(20):
            await add_text(memory, f"Marta told Ben {number} things about Ferrow")
        await export_to(memory, tmp_path / "one")
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "one").rglob("*")}
        again = await export_to(memory, tmp_path / "one")
        await export_to(memory, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert (again.written, again.removed) == ((), ())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "one").rglob("*")} == before


async def test_a_project_has_its_own_files_beside_the_global_ones(tmp_path: Path) -> None:
    """Guards scopes: what is written into a file of the project becomes a memory of the project."""
    async with memory_in(tmp_path / "here", project="web") as memory:
        store_memory(memory, "User bakes")
        store_memory(memory, "The site is blue", scope=WEB)
        await export_to(memory, tmp_path / "vault")
        page = page_with(tmp_path / "vault", "The site is blue")
        assert page.relative_to(tmp_path / "vault").as_posix() == "project web/months/2026-05.md"
        page.write_text(page.read_text("utf-8") + "- The site has a footer\n", "utf-8")
        edit(tmp_path / "vault", "User bakes\n", "User bakes rye bread\n")
        other = page_with(tmp_path / "vault", "User bakes")
        other.write_text(other.read_text("utf-8") + "- User sings\n", "utf-8")
        result = await import_from(memory, tmp_path / "vault")
        texts = {scope: [each.text for each in (await memory.scope_contents(scope)).memories] for scope in (ALICE, WEB)}
        assert texts == {
            ALICE: ["User bakes rye bread", "User sings"],
            WEB: ["The site is blue", "The site has a footer"],
        }
        assert len(await memory.log(WEB, before=result.edit + 1)) == 3, "one edit"
        await memory.undo(WEB)
        texts = {scope: [each.text for each in (await memory.scope_contents(scope)).memories] for scope in (ALICE, WEB)}
        assert texts == {ALICE: ["User bakes"], WEB: ["The site is blue"]}


async def test_no_file_of_the_person_is_touched(tmp_path: Path) -> None:
    """Guards a vault: other files stay, one in the way stops the export, and an edited one is not written over."""
    vault = tmp_path / "vault"
    (vault / "people").mkdir(parents=True)
    (vault / "Diary.md").write_text("my diary", "utf-8")
    (vault / "people" / "Marta.md.new").write_text("my draft", "utf-8")
    async with memory_in(tmp_path / "here") as memory:
        for text in ("Marta bakes", "Marta sings"):
            store_memory(memory, text, entities=(MARTA,))
        (vault / "people" / "Marta.md").write_text("my own page", "utf-8")
        with pytest.raises(InputError, match=r"in its way: people/Marta\.md"):
            await export_to(memory, vault, overwrites=True)
        assert sorted(contents(vault)) == ["Diary.md", "people/Marta.md", "people/Marta.md.new"]
        (vault / "people" / "Marta.md").unlink()
        await export_to(memory, vault)
        edit(vault, "Marta bakes", "Marta bakes bread")
        store_memory(memory, "Marta swims", entities=(MARTA,))
        edited = contents(vault)
        with pytest.raises(InputError, match=r"edited since: people/Marta\.md.*--yes"):
            await export_to(memory, vault)
        assert contents(vault) == edited
        await export_to(memory, vault, overwrites=True)
    assert "Marta bakes\n" in (vault / "people" / "Marta.md").read_text("utf-8")
    assert (vault / "Diary.md").read_text("utf-8") == "my diary"
    assert (vault / "people" / "Marta.md.new").read_text("utf-8") == "my draft"


async def test_what_is_no_longer_in_the_memory_leaves_the_folder(tmp_path: Path) -> None:
    """Guards stale files: an unedited one of ours goes with its folder, and a copy is left and named."""
    vault = tmp_path / "vault"
    async with memory_in(tmp_path / "here") as memory:
        ids = [store_memory(memory, text, entities=(MARTA,)) for text in ("Marta bakes", "Marta sings")]
        store_memory(memory, "User waits")
        await export_to(memory, vault)
        (vault / "people" / "Marta.md").rename(vault / "my sister.md")
        result = await export_to(memory, vault)
        assert result.written == ("people/Marta.md",)
        await memory.delete(ALICE, ids)
        result = await export_to(memory, vault)
    assert result.removed == ("people/Marta.md",)
    assert sorted(contents(vault)) == [".palimpsest.json", "months/2026-05.md", "my sister.md"]
    assert not (vault / "people").exists()


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


async def test_another_memory_is_not_written_over(tmp_path: Path) -> None:
    async with memory_in(tmp_path / "here") as memory:
        store_memory(memory, "User bakes")
        await export_to(memory, tmp_path / "vault")
    async with memory_in(tmp_path / "here", user_id="bob") as memory:
        with pytest.raises(InputError, match="holds the export of user alice, and not of user bob"):
            await export_to(memory, tmp_path / "vault", overwrites=True)
        with pytest.raises(InputError, match="holds the memory of alice"):
            await import_from(memory, tmp_path / "vault")
    async with memory_in(tmp_path / "elsewhere") as memory:
        assert (await import_from(memory, tmp_path / "vault", deletes=True)).done == ()


async def test_names_that_one_system_takes_for_the_same_are_two_files(tmp_path: Path) -> None:
    """Guards every system: names that differ in case, composition or forbidden characters have files of their own."""
    names = ("Ana/Bo", "Ana:Bo", "ana bo", "CON", "Zoë", "Zoe\u0308 ", "...", "?", "index", "x" * 256, "x" * 255)
    clock = StoppedClock()
    async with memory_in(tmp_path / "here", clock) as memory:
        for name in names:
            for verb in ("bakes", "sings"):
                store_memory(memory, f"{name} {verb}", entities=(NamedEntity(name, "person"),))
        await export_to(memory, tmp_path / "vault")
    files = [Path(name) for name in contents(tmp_path / "vault") if name.endswith(".md")]
    assert len({name_taken(str(file)) for file in files}) == len(files)
    assert all(safe_name(file.stem[:60]) == file.stem[:60] and len(os.fsencode(file.name)) < 143 for file in files)


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
