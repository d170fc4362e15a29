"""Collect the results of a measure and print them as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from harness import table as lines_of
from palimpsest.core.models import Hit

# The number of hits that are printed for a miss.
HITS_OF_A_MISS = 3

TOP = 3

# The row of all questions, which is printed last.
ALL = "all"

# Figures by column. Numbers of things are `int`, shares are `float`.
Row: TypeAlias = dict[str, float]


@dataclass
class Table:
    """The figures of one measure by row and column, and descriptions of the misses."""

    title: str
    figures: dict[str, Row] = field(default_factory=dict[str, Row])
    misses: list[str] = field(default_factory=list[str])


@dataclass
class Tally:
    """The results of single questions by row and column, and descriptions of the misses."""

    title: str
    results: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    misses: list[str] = field(default_factory=list[str])

    def record(self, rows: Sequence[str], results: dict[str, float]) -> None:
        """Record the result of one question, between 0 and 1, in each of the rows and in its columns."""
        for row in rows:
            for column, value in results.items():
                self.results.setdefault(row, {}).setdefault(column, []).append(float(value))

    def record_answers(self, rows: Sequence[str], answers: Set[str], hits: Sequence[Hit]) -> bool:
        """Record whether an answer is first, and the share among three, or as many as there are. Return the first."""
        among = {hit.id for hit in hits[: max(TOP, len(answers))]}
        is_first = bool(hits) and hits[0].id in answers
        self.record(rows, {"first": is_first, f"among {TOP}": len(answers & among) / len(answers)})
        return is_first

    def miss(self, question: str, expected: str, hits: Sequence[Hit]) -> None:
        """Describe a question whose answer was not found, and the first hits."""
        self.misses.append(described(question, expected, [hit.text for hit in hits]))

    def table(self) -> Table:
        """Return the number of questions and the mean results by row."""
        figures: dict[str, Row] = {}
        for row, columns in self.results.items():
            number = len(next(iter(columns.values())))
            figures[row] = {"n": number} | {column: statistics.fmean(values) for column, values in columns.items()}
        return Table(self.title, figures, self.misses)


def described(question: str, expected: str, texts: Sequence[str]) -> str:
    """Return a question, what was expected, and the first texts that came instead, as lines."""
    lines = [f"    {number}. {text}" for number, text in enumerate(texts[:HITS_OF_A_MISS], start=1)]
    return "\n".join([f"  {question}", f"    expected: {expected}", *lines])


def print_table(table: Table, *, misses: bool) -> None:
    """Print the figures, and the misses if asked to."""
    columns = list(dict.fromkeys(column for row in table.figures.values() for column in row))
    names = sorted(table.figures, key=lambda name: name == ALL)
    rows = [(name, *(_cell(table.figures[name].get(column)) for column in columns)) for name in names]
    print(f"\n{table.title}\n{lines_of(('', *columns), *rows)}")
    if misses and table.misses:
        print(f"\n{table.title}: {len(table.misses)} misses")
        print("\n".join(table.misses))


def _cell(value: float | None) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value
