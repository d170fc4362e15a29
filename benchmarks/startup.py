"""Measure the start over stdio: of `palimpsest`, of a minimal server of the same SDK, and up to a first search.

    python benchmarks/startup.py --runs 15 --memories 10000

The memories are made up, and a search must find some of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from embedders import QUICK
from harness import MINIMAL_SERVER, PALIMPSEST, Server, cell, environment, fill, parser_of, percentile, serving
from sentences import Sentences

SEARCH_RUNS = 3


def start_times(home: Path, runs: int) -> tuple[list[float], list[float]]:
    """Return the ms from spawn to the `initialize` reply of Palimpsest and of a minimal server, run by run.

    They start in turn, after one warm-up.
    """
    script = home / "minimal_server.py"
    script.write_text(MINIMAL_SERVER, encoding="utf-8")
    commands: tuple[Sequence[str], ...] = ((*PALIMPSEST, "serve"), (sys.executable, str(script)))
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for command, of_command in zip(commands, times, strict=True):
            with Server(command, home, environment(home)) as server:
                milliseconds = server.initialize() * 1000
            if run:
                of_command.append(milliseconds)
    return times


def first_search(home: Path, question: str, embedder: str = QUICK) -> float:
    """Return the ms from spawning Palimpsest to its reply to a search, which must find something."""
    with serving(home, embedder__provider=embedder) as server:
        hits = server.call("search_memories", query=question)["results"]
        milliseconds = server.age() * 1000
    if not hits:
        raise RuntimeError(f"the first search found nothing for: {question}")
    return milliseconds


def main() -> None:
    """Read the arguments, measure, and print the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=15, help="the number of timed starts of each server (default 15)")
    parser.add_argument("--memories", type=int, default=10_000, help="the number of memories to search (default 10000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, sentences = Path(folder), Sentences(1)
        ours, minimal = start_times(home, options.runs)
        memories = sentences.memories(options.memories)
        fill(home, memories)
        asked = sentences.questions(2 * SEARCH_RUNS, memories)[1::2]
        searches = [first_search(home, question) for question in asked]
    print(f"start to `initialize`, ms (p50 / p95 of {options.runs} runs)")
    print(f"  palimpsest {cell(ours)}, minimal {cell(minimal)}")
    ratios = [a / b for a, b in zip(ours, minimal, strict=True)]
    print(f"  palimpsest takes {percentile(ratios, 0.5):.2f} times as long, pair by pair")
    print(f"start to first search among {options.memories:,} memories, ms: {cell(searches)}")


if __name__ == "__main__":
    main()
