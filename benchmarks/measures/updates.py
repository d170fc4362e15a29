"""Pairs of an outdated and a current fact, none replaced, and questions about the present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from measures.hand_written import read_data
from measures.stores import NOT_FOUND, START, TOP, StoppedClock, add, ask, embed_waiting, new_memory, rank
from measures.tables import ALL, Table, Tally
from palimpsest.memory import Memory


async def updates(embedder: str) -> list[Table]:
    """Ask about the present in a store that also contains the old facts, for each language."""
    pairs: list[dict[str, str]] = read_data("updates")["pairs"]
    tally = Tally("updates, nothing replaced")
    for language in dict.fromkeys(pair["language"] for pair in pairs):
        await _measure_updates([pair for pair in pairs if pair["language"] == language], tally, embedder)
    return [tally.table()]


async def _measure_updates(pairs: Sequence[Mapping[str, str]], tally: Tally, embedder: str) -> None:
    """Store the old facts, store the new facts a day later, and ask a day after that."""
    clock = StoppedClock()
    tomorrow = START + timedelta(days=1)
    async with new_memory(clock, embedder) as memory:
        old = await _store(memory, clock, [pair["old"] for pair in pairs])
        clock.at = tomorrow
        new = await _store(memory, clock, [pair["new"] for pair in pairs])
        await embed_waiting(memory)
        clock.at = tomorrow + timedelta(days=1)
        for pair, old_id, new_id in zip(pairs, old, new, strict=True):
            hits = await ask(memory, pair["question"])
            old_rank, new_rank = rank(hits, old_id), rank(hits, new_id)
            results: dict[str, float] = {
                "current first": new_rank < old_rank,
                f"current in {TOP}": new_rank <= TOP,
                "old first": old_rank < new_rank,
            }
            if not (results["current first"] and results[f"current in {TOP}"]):
                ranks = f"rank {_shown(new_rank)}; rank {_shown(old_rank)}: {pair['old']}"
                tally.miss(pair["question"], f"{pair['new']} ({ranks})", hits)
            tally.record((pair["language"], pair["stated"], ALL), results)


def _shown(rank: int) -> str:
    return "none" if rank == NOT_FOUND else str(rank)


async def _store(memory: Memory, clock: StoppedClock, texts: Sequence[str]) -> list[str]:
    """Store texts one minute apart, and return their ids."""
    began, ids = clock.at, list[str]()
    for number, text in enumerate(texts):
        clock.at = began + timedelta(minutes=number)
        ids.append(await add(memory, text))
    return ids
