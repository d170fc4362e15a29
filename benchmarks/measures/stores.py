"""Open new memories for a measure, fill them, and ask them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palimpsest.core.models import Hit, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory
from palimpsest.recall.search import SearchResult

SCOPE = Scope("quality")
START = datetime(2026, 5, 8, 9, tzinfo=UTC)
LIMIT = 10
TOP = 5

# A token budget of a reply: more than ten hits need.
AMPLE = 20_000

# The rank of a memory that is not among the hits.
NOT_FOUND = LIMIT + 1


@dataclass
class StoppedClock:
    """A clock that shows the time it was set to."""

    at: datetime = START

    def __call__(self) -> datetime:
        """Return the present instant."""
        return self.at


@asynccontextmanager
async def new_memory(
    clock: StoppedClock, embedder: str, folder: Path | None = None, **more: Any
) -> AsyncGenerator[Memory]:
    """Open a memory with an embedder and more settings, by default a new one without a language model."""
    common: dict[str, Any] = {"user_id": SCOPE.user_id, "project": "", "llm": {"provider": "none"}}
    with tempfile.TemporaryDirectory() as new:
        common |= {"data_dir": folder or Path(new), "embedder": {"provider": embedder}} | more
        settings = load_settings(None, **common)
        async with open_memory(settings, clock=clock, background=False) as memory:
            yield memory


async def add(memory: Memory, text: str, hints: Sequence[str] = ()) -> str:
    """Store a text as one memory, and return the id of the memory."""
    added = await memory.add_text(SCOPE, text, hints=hints, infer=False)
    outcome = added.outcomes[0]
    if outcome.duplicate_of is not None:
        raise RuntimeError(f"the store already has this text: {text}")
    return outcome.memory.id


async def embed_waiting(memory: Memory, *, has_relations: bool = False) -> None:
    """Embed the texts that an add left for the background, and relations if there are any."""
    if has_relations or (await memory.health())["vectors"] == "waiting":
        await memory.care.rebuild()


async def search(memory: Memory, question: str, also: Sequence[str] = ()) -> SearchResult:
    """Return the result of a search for ten hits with an ample budget."""
    return await memory.search(SCOPE, question, also=also, limit=LIMIT, max_tokens=AMPLE)


async def ask(memory: Memory, question: str, also: Sequence[str] = ()) -> Sequence[Hit]:
    """Return the hits for a question."""
    return (await search(memory, question, also)).hits


def rank(hits: Sequence[Hit], expected: str) -> int:
    """Return the rank of a memory or message among the hits, from 1."""
    return next((place for place, hit in enumerate(hits, start=1) if hit.id == expected), NOT_FOUND)
