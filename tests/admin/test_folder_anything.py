"""Any text survives the way out and in, and random edits on both sides end in the merged state or a listed conflict."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.admin.markdown_files import fields_of, format_item, read_folder
from palimpsest.core.models import Memory
from palimpsest.core.validation import is_blank
from tests.support.examples import examples
from tests.support.memory import ALICE

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
