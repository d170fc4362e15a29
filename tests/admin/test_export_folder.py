"""The folder of a Markdown export: what stands where, the same bytes every time, and files of the person's."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import frontmatter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.admin.markdown_files import MAX_NAME_BYTES, fields_of, format_item, read_folder, safe_name
from palimpsest.core.errors import InputError
from palimpsest.core.models import Memory, NamedEntity, Relation, Scope
from palimpsest.core.validation import is_blank
from tests.support.examples import examples
from tests.support.ledger_access import store_memory
from tests.support.markdown_folder import contents, export_to, manifest_of
from tests.support.memory import ALICE, add_text, memory_in

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
