"""Pairs of an outdated and a current fact, and questions about the present."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from measures.hand_written import read_data
from measures.stores import NOT_FOUND, START, TOP, StoppedClock, add, ask, embed_waiting, new_memory, rank
from measures.tables import ALL, Table, Tally
from palimpsest.memory import Memory


@dataclass(frozen=True)
class Pair:
    """An old fact, the fact that is true now, and a question about the present."""

    language: str
    stated: str
    old: str
    new: str
    question: str


SETTINGS = {"updates, nothing replaced": False, "updates, the old one replaced": True}
"""Whether the new facts replace the old ones, by the title of the table."""


async def updates(embedder: str) -> list[Table]:
    """Ask about the present in a store that also contains the old facts, for each setting and language."""
    names = ("language", "stated", "old", "new", "question")
    pairs = [Pair(*(entry[name] for name in names)) for entry in read_data("updates")["pairs"]]
    languages = list(dict.fromkeys(pair.language for pair in pairs))
    tallies: list[Tally] = []
    for title, replaces in SETTINGS.items():
        rows = (*languages, *dict.fromkeys(pair.stated for pair in pairs), ALL)
        tallies.append(Tally(title, {row: {} for row in rows}))
        for language in languages:
            of_language = [pair for pair in pairs if pair.language == language]
            await _measure_updates(of_language, tallies[-1], embedder, replaces=replaces)
    return [tally.table() for tally in tallies]


async def _measure_updates(pairs: Sequence[Pair], tally: Tally, embedder: str, *, replaces: bool) -> None:
    """Store the old facts, store the new facts a day later, and ask a day after that."""
    clock = StoppedClock()
    evening, tomorrow = START + timedelta(hours=12), START + timedelta(days=1)
    async with new_memory(clock, embedder) as memory:
        old = await _store(memory, clock, [pair.old for pair in pairs])
        clock.at = tomorrow
        new = await _store(memory, clock, [pair.new for pair in pairs], old if replaces else ())
        await embed_waiting(memory)
        clock.at = tomorrow + timedelta(days=1)
        for pair, old_id, new_id in zip(pairs, old, new, strict=True):
            hits = await ask(memory, pair.question)
            old_rank, new_rank = rank(hits, old_id), rank(hits, new_id)
            results: dict[str, float] = {
                "current first": new_rank < old_rank,
                f"current in {TOP}": new_rank <= TOP,
                "old first": old_rank < new_rank,
            }
            if not (results["current first"] and results[f"current in {TOP}"]):
                ranks = f"rank {_shown(new_rank)}; rank {_shown(old_rank)}: {pair.old}"
                tally.miss(pair.question, f"{pair.new} ({ranks})", hits)
            if replaces:
                hits_as_of = await ask(memory, pair.question, as_of=evening)
                results |= {"old is gone": old_rank == NOT_FOUND, "old as_of": rank(hits_as_of, old_id) <= TOP}
                if not results["old as_of"]:
                    tally.miss(f"{pair.question} (as_of)", pair.old, hits_as_of)
            tally.record((pair.language, pair.stated, ALL), results)


def _shown(rank: int) -> str:
    return "none" if rank == NOT_FOUND else str(rank)


async def _store(memory: Memory, clock: StoppedClock, texts: Sequence[str], replaced: Sequence[str] = ()) -> list[str]:
    """Store texts one minute apart, and return their ids."""
    began, ids = clock.at, list[str]()
    for number, text in enumerate(texts):
        clock.at = began + timedelta(minutes=number)
        ids.append(await add(memory, text, replaced[number : number + 1]))
    return ids
