"""The exact text of a memory, asked in a store of sixty look-alikes. It must come first.

The texts of a family in `look_alikes.json` differ in digits, in a word or in word order.

Each family of look-alikes is stored twice: in order and in reverse order, one hour apart, so that each text is once
newer and once older than its neighbours. A newer look-alike must not overtake the one that was asked for. Each text is
asked as it is, without its full stop, and in lower case.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from measures.hand_written import read_data
from measures.stores import START, StoppedClock, add, ask, embed_waiting, new_memory, rank
from measures.tables import ALL, Table, Tally


async def exact(embedder: str) -> list[Table]:
    """Ask the text of every look-alike. Return a table for texts with digits and one for texts without."""
    tallies = {True: Tally("exact, with digits"), False: Tally("exact, without digits")}
    for family in read_data("look_alikes"):
        texts = family["texts"]
        for order, stored in (("in order", texts), ("in reverse", texts[::-1])):
            rows = (f"{family['language']} {family['name']}", order, ALL)
            await _ask_all(stored, tallies[family["has_digits"]], rows, embedder)
    return [tally.table() for tally in tallies.values()]


async def _ask_all(texts: Sequence[str], tally: Tally, rows: Sequence[str], embedder: str) -> None:
    clock = StoppedClock()
    async with new_memory(clock, embedder) as memory:
        ids: dict[str, str] = {}
        for number, text in enumerate(texts):
            clock.at = START + timedelta(hours=number)
            ids[text] = await add(memory, text)
        await embed_waiting(memory)
        clock.at += timedelta(days=1)
        for text, memory_id in ids.items():
            forms = {"as it is": text, "no full stop": text.rstrip(".。"), "lower case": text.lower()}
            results: dict[str, float] = {}
            for form, question in forms.items():
                hits = await ask(memory, question)
                results[form] = rank(hits, memory_id) == 1
                if not results[form]:
                    tally.miss(f"[{rows[0]}] {question}", text, hits)
            tally.record(rows, results)
