"""Measure what a search finds, and what an add names as a near-duplicate.

    python benchmarks/quality.py
    python benchmarks/quality.py --only everyday unknown --by-persona --misses
    python benchmarks/quality.py --only everyday unknown near-duplicates --data benchmarks/lives.json
    python benchmarks/quality.py --only budget --locomo locomo10.json --json figures.json

Everything goes through the facade, with no language model and a clock that the benchmark sets. `--embedder` chooses
the embedder, by default the one that an install uses. The data sets were written by hand and are beside this file.
LoCoMo, which `budget` needs, is not part of this project. `measures/` has a file for each family of measures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio

import embedders
from measures.budget import budget
from measures.everyday import cross_language, everyday
from measures.exact import exact
from measures.hand_written import data_file
from measures.near_duplicates import near_duplicates
from measures.other_words import languages, paraphrases
from measures.tables import Row, Table, print_table
from measures.unknown import unknown
from measures.updates import updates

Measure: TypeAlias = Callable[[], Coroutine[Any, Any, list[Table]]]

BUDGET = "budget"


def chosen_measures(options: argparse.Namespace) -> dict[str, Measure]:
    """Return all measures by name, with their options."""
    embedder, personas = options.embedder, options.data
    measures: dict[str, Measure] = {
        "everyday": partial(everyday, personas, embedder, by_persona=options.by_persona),
        "unknown": partial(unknown, personas, embedder, by_persona=options.by_persona),
        "near-duplicates": partial(near_duplicates, personas, embedder, by_persona=options.by_persona),
        "exact": partial(exact, embedder),
        "cross-language": partial(cross_language, [data_file("cross_language")], embedder),
        "paraphrases": partial(paraphrases, embedder),
        "updates": partial(updates, embedder),
        "languages": partial(languages, embedder),
    }
    if options.locomo is not None:
        measures[BUDGET] = partial(budget, options.locomo, embedder)
    return {name: measure for name, measure in measures.items() if options.only is None or name in options.only}


NAMES = (
    "everyday",
    "unknown",
    "near-duplicates",
    "exact",
    "cross-language",
    "paraphrases",
    "updates",
    "languages",
    BUDGET,
)


def main() -> None:
    """Take the chosen measures, print the tables, and write the figures to a file if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, help="take these measures only")
    parser.add_argument(
        "--embedder", choices=embedders.NAMES, default="local", help="embedder.provider (default: local)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[data_file("everyday")],
        help="files of personas for everyday, unknown and near-duplicates (default: everyday.json)",
    )
    parser.add_argument("--by-persona", action="store_true", help="show every persona in a row of its own")
    parser.add_argument("--locomo", type=Path, help=f"a LoCoMo JSON file; `{BUDGET}` needs it")
    parser.add_argument("--misses", action="store_true", help="print every question whose answer was not found")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if options.locomo is None and BUDGET in (options.only or ()):
        parser.error(f"{BUDGET} needs --locomo FILE")
    figures_by_title: dict[str, dict[str, Row]] = {}
    for measure in chosen_measures(options).values():
        for table in anyio.run(measure):
            print_table(table, misses=options.misses)
            figures_by_title[table.title] = table.figures
    if options.json is not None:
        options.json.write_text(json.dumps(figures_by_title, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
