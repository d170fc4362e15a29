"""Measure questions whose answer is two memories away, with links and without, and without a language model.

    python benchmarks/two_hops.py
    python benchmarks/two_hops.py --half kept

Each question of `two_hops.json` names what one fact says, and another fact has the answer. The facts of four made-up
lives are one memory. The bounds of links were chosen by the half "dev"; the half "kept" was put aside until then.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, cast

import anyio

import embedders
from harness import parser_of
from measures.hand_written import read_data
from measures.stores import StoppedClock, add, ask, embed_waiting, new_memory, rank
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory

DEPTHS = (3, 5, 10)


async def measure(embedder: str, half: str, links: str) -> Mapping[str, float]:
    """Return which share of the questions has its answer, and the way to it too, among the first hits."""
    lives = [life for life in read_data("two_hops")["lives"] if life["half"] == half]
    clock = StoppedClock()
    async with new_memory(clock, embedder, links=links) as memory:
        ids = [[await add(memory, fact) for fact in life["facts"]] for life in lives]
        await embed_waiting(memory)
        clock.at = clock.at.replace(hour=clock.at.hour + 1)
        await work_on_jobs(memory.engine, None)
        asked = [(question, known) for life, known in zip(lives, ids, strict=True) for question in life["questions"]]
        ranks = [await _ranks(memory, question, known) for question, known in asked]
    figures = {f"answer@{k}": statistics.fmean(answer <= k for _, answer in ranks) for k in DEPTHS}
    return figures | {f"both@{k}": statistics.fmean(max(pair) <= k for pair in ranks) for k in DEPTHS}


async def _ranks(memory: Memory, question: Mapping[str, Any], ids: list[str]) -> tuple[int, int]:
    """Return the ranks of the fact that the question names and of the one that answers it."""
    hits = await ask(memory, question["text"])
    first, second = (rank(hits, ids[number]) for number in cast("list[int]", question["facts"]))
    return first, second


def main() -> None:
    """Measure both ways and print the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("--half", choices=["dev", "kept"], default="dev")
    embedders.add_option(parser)
    options = parser.parse_args()
    for links in ("off", "on"):
        figures = anyio.run(measure, options.embedder, options.half, links)
        print(f"links {links:<4}" + "".join(f"{name:>11} {value:.3f}" for name, value in figures.items()), flush=True)


if __name__ == "__main__":
    main()
