"""What is shown first, however much is new or pinned, and what is never shown side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Relation, Scope
from palimpsest.hooks.events import find_brief
from palimpsest.memory import Memory
from tests.support.ledger_access import ignore_progress
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in

pytestmark = pytest.mark.anyio

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("never_yields.json").read_text("utf-8"))
LASTING = [*CASES["safety"], *CASES["identity"]]
TRIVIA = ("film", "bus", "kite", "hill", "snow", "fair", "play", "bike", "boat", "crow", "owl", "moth", "map", "lamp")


async def begun(memory: Memory, scope: Scope = ALICE) -> tuple[str, str]:
    """Return what sessions begin with: the brief and the instructions."""
    await memory.briefs.render()
    brief = find_brief(str(memory.settings.data_dir), "alice", "/")
    return brief.text if brief is not None else "", await memory.briefs.instructions(scope)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("texts", [LASTING[first::5] for first in range(5)])
async def test_it_never_yields_to_what_is_new_or_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    monkeypatch.setattr("palimpsest.hooks.brief.MAX_GLOBAL", 50)
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        ids = [await add_text(memory, text) for text in texts]
        await memory.delete(ALICE, ids)
        clock.forward(days=1)
        seen = [f"User saw the {TRIVIA[number % len(TRIVIA)]} {number} in the old town" for number in range(60)]
        entity = {"type": "entity", "name": "User", "entityType": "person", "observations": seen}
        (tmp_path / "memory.jsonl").write_text(json.dumps(entity))
        await memory.care.import_file(ALICE, tmp_path / "memory.jsonl", ignore_progress)
        for number in range(12):
            text = f"Shopping list {number}: bread, milk, apples, onions, rice, soap, candles and a new broom"
            await add_text(memory, text, metadata={"pinned": True})
        missing: list[str] = []
        for text, memory_id in zip(texts, ids, strict=True):
            await memory.restore(ALICE, memory_id)
            instructions = await memory.briefs.instructions(ALICE)
            missing += [text] if text not in instructions[:512] else []
            await memory.delete(ALICE, [memory_id])
        await memory.restore(ALICE, ids[0])
        brief, _ = await begun(memory)
    assert missing == []
    assert texts[0] in brief


async def test_what_contradicts_is_never_side_by_side(tmp_path: Path) -> None:
    clock = StoppedClock()
    shown: list[tuple[str, list[str]]] = []
    async with memory_in(tmp_path, clock) as memory:
        for kind, wanted in (("contradictory", 1), ("compatible", 2)):
            for pair in CASES[kind]:
                ids: list[str] = []
                for text in pair:
                    clock.forward(days=1)
                    ids.append(await add_text(memory, text))
                for begin in await begun(memory):
                    found = [text for text in pair if f"{text}\n" in begin]
                    shown += [(kind, pair)] if found != pair[-wanted:] else []
                await memory.delete(ALICE, ids)
    assert shown == []


async def test_what_is_pinned_stays_until_somebody_takes_it_away(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for text, town in (("User's home is Nantes", "Nantes"), ("User's mother settled in Reims", "Reims")):
            clock.forward(days=1)
            pinned = {"pinned": True} if town == "Nantes" else {}
            await add_text(memory, text, relations=[Relation("user", "lives in", town)], metadata=pinned)
        assert all("home is Nantes" in begin for begin in await begun(memory))


async def test_a_line_that_says_nothing_is_left_out(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "The admin password is hunter2-Xy99", metadata={"pinned": True})
        await add_text(memory, "Das WLAN-Passwort lautet: Sommer-2026-Haus!")
        await add_text(memory, "The router hangs in the cellar, and its password is hunter2-Xy99")
        for begin in await begun(memory):
            assert begin.count("secret removed") == 1
            assert "router hangs in the cellar" in begin
