"""The instructions with memories keep to their sizes and never cut a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.brief.static_text import HEAD, REST
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("words", ["User likes tea. ", "お茶が好きです。", "🍵🍵. "])
async def test_instructions_are_never_too_long(tmp_path: Path, words: str) -> None:
    """Whatever is stored, the whole is at most 2,048 bytes, and every line of a memory is whole sentences."""
    async with memory_in(tmp_path) as memory:
        for number in range(60):
            text = f"Fact {number}: {words * (number % 12 + 1)}"
            await add_text(memory, text, metadata={"pinned": True} if number % 12 == 0 else {})
        text = await memory.briefs.instructions(ALICE)
    assert len(text.encode()) <= 2_048
    assert text.startswith(HEAD)
    assert REST in text
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(lines) > 3
    assert all(line.endswith((".", "。")) for line in lines)
    assert text[:512].count("\n- ") >= 1
    assert not text[512:].startswith(lines[0])
