"""What a memory knows over a year of one person's life, with and without a model, with and without forgetting.

    python benchmarks/living.py [--embedder static] [--ways 6]

In the last two ways everything is on that asks a model: facts, summaries, links, and the gists of a handbook of 50
pages that she learns on the first of each month. They differ in `background.calls_per_day`.

The person and what she tells are in `benchmarks/living.json`. The model is scripted (`years/reader.py`): it finds every
fact and writes summaries from nothing but its prompts. So the figures say what the memory brings to a model, and not
how well a model reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict

import anyio

from years.person import read_person
from years.simulation import Way, Year, live

WAYS = (
    Way(with_model=False, forgetting="off"),
    Way(with_model=True, forgetting="off"),
    Way(with_model=False, forgetting="rank"),
    Way(with_model=False, forgetting="archive"),
    Way(with_model=True, forgetting="rank", everything=True),
    Way(with_model=True, forgetting="rank", everything=True, calls_per_day=10),
)

COLUMNS = ("first", "top", "stale", "profile", "profile_stale", "recent", "profile_tokens")


def main() -> None:
    """Live the year in each way, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="static", help="static (default) or e5")
    parser.add_argument("--ways", type=int, default=len(WAYS), help="how many of the ways to live")
    parser.add_argument("--json", action="store_true", help="print the figures of every month as JSON")
    options = parser.parse_args()
    person = read_person()
    for way in WAYS[: options.ways]:
        year = anyio.run(live, person, way, options.embedder)
        if options.json:
            print(json.dumps({"way": str(way), **asdict(year)}, default=str))
        else:
            _print(way, year)


def _print(way: Way, year: Year) -> None:
    print(f"\n{way}")
    print("| month's end |", " | ".join(COLUMNS), "|")
    for month in year.months:
        figures = " | ".join(_shown(getattr(month, column)) for column in COLUMNS)
        print(f"| {month.end} | {figures} |")
    means = (statistics.fmean(getattr(month, column) for month in year.months) for column in COLUMNS)
    print("| mean |", " | ".join(map(_shown, means)), "|")
    for stage, calls in sorted(year.calls.items()):
        hundred = year.turns / 100
        print(f"{stage}: {calls / hundred:.1f} calls and {year.tokens[stage] / hundred:,.0f} tokens per hundred turns")
    if way.with_model:
        print(f"on the busiest day {year.most_calls} calls of a limit of {way.calls_per_day}; {year.turns} turns")
        print(f"jobs that still wait at the end: {', '.join(year.waiting) or 'none'}")


def _shown(value: float) -> str:
    return f"{value:.2f}" if value < 2 else f"{value:.0f}"  # shares, or tokens


if __name__ == "__main__":
    main()
