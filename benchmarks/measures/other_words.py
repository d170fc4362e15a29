"""Facts asked in other words, and facts in other languages."""

from __future__ import annotations

from measures.hand_written import read_data
from measures.stores import LIMIT, TOP, StoppedClock, add, ask, embed_waiting, new_memory, rank
from measures.tables import ALL, Table, Tally


async def paraphrases(embedder: str) -> list[Table]:
    """Ask the questions of each life in a store that contains only the memories of this life."""
    tally = Tally("paraphrases")
    for life in read_data("paraphrases")["lives"]:
        async with new_memory(StoppedClock(), embedder) as memory:
            ids = [await add(memory, text) for text in life["memories"]]
            await embed_waiting(memory)
            for entry in life["asked"]:
                number: int = entry["memory"]
                hits = await ask(memory, entry["question"])
                place = rank(hits, ids[number])
                tally.record((life["kind"], ALL), {f"first {depth}": place <= depth for depth in (1, TOP, LIMIT)})
                if place > TOP:
                    tally.miss(entry["question"], life["memories"][number], hits)
    return [tally.table()]


async def languages(embedder: str) -> list[Table]:
    """Ask the questions of each language in one store that contains the facts of all languages."""
    tally = Tally("languages")
    facts: dict[str, list[dict[str, str]]] = read_data("languages")["languages"]
    async with new_memory(StoppedClock(), embedder) as memory:
        ids = {fact["fact"]: await add(memory, fact["fact"]) for group in facts.values() for fact in group}
        await embed_waiting(memory)
        for language, group in facts.items():
            for fact in group:
                hits = await ask(memory, fact["question"])
                place = rank(hits, ids[fact["fact"]])
                tally.record((language, ALL), {f"first {depth}": place <= depth for depth in (1, TOP)})
                if place > TOP:
                    tally.miss(fact["question"], fact["fact"], hits)
    return [tally.table()]
