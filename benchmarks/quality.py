"""Measure what a search finds, and what an add names as a near-duplicate.

    python benchmarks/quality.py
    python benchmarks/quality.py --only everyday unknown --misses
    python benchmarks/quality.py --only everyday unknown near-duplicates --data benchmarks/lives.json

Everything goes through the facade, with no language model and a clock that the benchmark sets. `--embedder` chooses
the embedder, by default the one that an install uses. The data sets were written by hand and are beside this file.
`measures/` has a file for each family of measures.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio

import embedders
from measures.entities import entities
from measures.everyday import cross_language, everyday
from measures.exact import exact
from measures.hand_written import data_file
from measures.near_duplicates import changes, near_duplicates, told_changes, weeks
from measures.other_words import languages, paraphrases
from measures.tables import Table, print_table
from measures.times import times
from measures.unasked import unasked
from measures.unknown import unknown
from measures.updates import updates

LIVES_IN_TIME = [data_file("lives_in_time"), data_file("lives_in_time_blind")]

# The measures by name, each with the options of the command line that it uses.
MEASURES: dict[str, Callable[[Namespace], Coroutine[Any, Any, list[Table]]]] = {
    "everyday": lambda options: everyday(options.data, options.embedder),
    "unknown": lambda options: unknown(options.data, options.embedder),
    "near-duplicates": lambda options: near_duplicates(options.data, options.embedder),
    "changes": lambda options: changes(options.embedder),
    "told-changes": lambda options: told_changes(options.embedder),
    "weeks": lambda options: weeks(options.embedder),
    "exact": lambda options: exact(options.embedder),
    "cross-language": lambda options: cross_language([data_file("cross_language")], options.embedder),
    "paraphrases": lambda options: paraphrases(options.embedder),
    "updates": lambda options: updates(options.embedder),
    "entities": lambda _options: entities(),
    "languages": lambda options: languages(options.embedder),
    "unasked": lambda options: unasked(options.embedder),
    "times": lambda options: times(LIVES_IN_TIME, options.embedder),
}


def main() -> None:
    """Take the chosen measures, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=MEASURES, help="take these only")
    embedders.add_option(parser)
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[data_file("everyday"), data_file("work")],
        help="files of personas for everyday, unknown and near-duplicates (default: everyday.json and work.json)",
    )
    parser.add_argument("--misses", action="store_true", help="print every question whose answer was not found")
    options = parser.parse_args()
    for name in options.only:
        for table in anyio.run(MEASURES[name], options):
            print_table(table, misses=options.misses)


if __name__ == "__main__":
    main()
