"""Zep (Rasmussen et al. 2025, arXiv 2501.13956, section 2.2.3): edges with two times each in the world and the system.

An edge that contradicts an older one closes it when it begins itself. An edge that is older than what is known, and
comes late, is closed at birth, by the newer one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import KnownRelation
from palimpsest.memory import Memory
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from
from tests.support.scripted_model import answering, decision, given

pytestmark = pytest.mark.anyio

# Since when Aarne lives where.
SINCE = {"Turku": "2021", "Vaasa": "2024-03", "Kemi": "2026-01"}


def extract(request: dict[str, Any]) -> dict[str, Any]:
    town = given(request, "New messages")[0]["text"]
    return {
        "facts": [
            {
                "text": f"Aarne has lived in {town} since {SINCE[town]}.",
                "sources": [1],
                "valid_from": SINCE[town],
                "entities": [{"name": "Aarne", "type": "person"}, {"name": town, "type": "place"}],
                "relations": [["Aarne", "lives in", town]],
            }
        ]
    }


def decide(request: dict[str, Any]) -> dict[str, Any]:
    """Say which memories cannot be true beside the fact. Which of them holds is decided by their times."""
    homes = [item["id"] for item in given(request, "Stored memories") if "has lived in" in item["text"]]
    return {"decisions": [decision(0, "DELETE", home) for home in homes]}


async def lives(memory: Memory, as_of: datetime | None = None) -> list[KnownRelation]:
    """Return where Aarne lives as the memory knows it, or knew it then."""
    return list((await memory.graph.subgraph(ALICE, about="Aarne", as_of=as_of)).relations)


async def held(memory: Memory) -> dict[str, tuple[str, str]]:
    """Return since when and until when each relation held, of those that hold no more."""
    (dossier,) = await memory.graph.dossiers(ALICE, "Aarne")
    former = [item for item in dossier.relations if not item.is_current]
    return {item.destination: (item.valid_from, item.valid_until) for item in former}


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("order", [("Turku", "Vaasa", "Kemi"), ("Vaasa", "Kemi"), ("Kemi", "Vaasa")])
async def test_edges_close_each_other_by_their_times_however_they_come(tmp_path: Path, order: tuple[str, ...]) -> None:
    """The last begun holds. Each older one held until the next began; one that comes late is closed at birth."""
    clock = StoppedClock()
    with OpenAIServer(answering(extract=extract, decide=decide)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            for town in order:
                await memory.add_messages(messages_from(("user", town), at=clock.at))
                clock.forward(days=1)
            (home,) = await lives(memory)
            former = await held(memory)
    assert (home.destination, home.valid_from, home.valid_until) == ("Kemi", "2026-01", "")
    expected = {"Turku": ("2021", "2024-03"), "Vaasa": ("2024-03", "2026-01")}
    assert former == {town: times for town, times in expected.items() if town in order}


async def test_the_system_has_times_of_its_own(tmp_path: Path) -> None:
    """What was believed then is asked apart from what was true then: Turku was believed until Kemi was told."""
    clock = StoppedClock()
    with OpenAIServer(answering(extract=extract, decide=decide)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            for town in ("Turku", "Kemi"):
                await memory.add_messages(messages_from(("user", town), at=clock.at))
                clock.forward(days=1)
            (believed,) = await lives(memory, as_of=datetime(2026, 5, 8, 18, tzinfo=UTC))
            (dossier,) = await memory.graph.dossiers(ALICE, "Aarne")
            turku = next(item for item in dossier.relations if item.destination == "Turku")
    assert (believed.destination, believed.valid_until) == ("Turku", "")
    assert (turku.created_at, turku.expired_at) == (
        datetime(2026, 5, 8, 12, tzinfo=UTC),
        datetime(2026, 5, 9, 12, tzinfo=UTC),
    )
    assert (turku.valid_from, turku.valid_until) == ("2021", "2026-01")
