"""Simulate a year of a memory that forgets: what is still found of what matters, and how much of what is over.

    python benchmarks/forgetting.py
    python benchmarks/forgetting.py --plot docs/plots/forgetting.png

Twelve people have four lasting facts each, all told in the first days. Every day something passing is told of one of
them, which matters for two weeks. Three questions a day ask for what matters then: most of them for lasting facts, some
of which are asked for far more often than others (Zipf), the rest for what passes. At each month's end everything that
matters is asked for. These questions are no uses. The memory is the real one, with a clock that the simulation sets,
and without a language model, so nothing has a tag.

*Found*: the fact that a question is about is among the first five hits. *Stale*: the share of the first five hits that
tell what was passing and is over. Needs matplotlib for the plot.
"""

from __future__ import annotations

import argparse
import importlib
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio

import embedders
from measures.stores import SCOPE, START, StoppedClock
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory

Mode: TypeAlias = Literal["off", "rank", "archive"]

MODES: tuple[Mode, ...] = ("off", "rank", "archive")
COLOURS = ("#8a8d91", "#4f7cac", "#0b6e4f")
DAYS, MONTH, MATTERS_DAYS = 365, 30, 14
QUESTIONS_A_DAY = 3
LASTING_SHARE = 0.7
"""How many of the questions are about lasting facts."""
FIRST = 5
SEED = 11

NAMES = ("Mara", "Tomás", "Ingrid", "Youssef", "Leonie", "Kenji", "Olga", "Baptiste", "Noor", "Piet", "Salome", "Ravi")
_WORDS = {
    "foods": "peanuts shellfish kiwis celery sesame mustard walnuts lupins gluten almonds soy strawberries",
    "jobs": "joiner pilot nurse baker notary welder botanist teacher surveyor tailor vet plumber",
    "cities": "Porto Malmö Lyon Ghent Trieste Bergen Brno Cork Graz Vigo Turku Bilbao",
    "instruments": "cello oboe trumpet harp accordion viola banjo flute organ tuba mandolin clarinet",
    "tools": "ladder drill tent projector sander scanner canoe trailer pump telescope toolbox kayak",
    "books": "Middlemarch Ulysses Emma Nostromo Villette Dracula Kim Walden Candide Persuasion Cranford Hunger",
}
FOODS, JOBS, CITIES, INSTRUMENTS, TOOLS, BOOKS = (words.split() for words in _WORDS.values())
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


@dataclass(frozen=True)
class Told:
    """A fact, the question it answers, the day it is told on, and the last day it matters on; None for always."""

    text: str
    question: str
    day: int
    until: int | None = None


@dataclass
class Month:
    """What was found at the end of a month: facts asked for and found, by whether they last, and stale hits."""

    asked: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    found: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    shown: int = 0
    stale: int = 0

    @property
    def recall(self) -> float:
        """Return the share of what matters that is found."""
        return sum(self.found.values()) / sum(self.asked.values())

    def share_found(self, *, lasting: bool) -> float:
        """Return the share that is found of what lasts, or of what passes and still matters."""
        return self.found[lasting] / self.asked[lasting]

    @property
    def stale_share(self) -> float:
        """Return the share of the hits that are over."""
        return self.stale / max(self.shown, 1)


def lasting_facts() -> list[Told]:
    """Return four facts of each person, told in the first days."""
    facts: list[tuple[str, str]] = []
    for name, food, job, city, instrument in zip(NAMES, FOODS, JOBS, CITIES, INSTRUMENTS, strict=True):
        facts += [
            (f"{name} is allergic to {food}", f"What is {name} allergic to?"),
            (f"{name} works as a {job}", f"What does {name} do for a living?"),
            (f"{name} grew up in {city}", f"Where did {name} grow up?"),
            (f"{name} plays the {instrument}", f"Which instrument does {name} play?"),
        ]
    return [Told(text, question, number % 7) for number, (text, question) in enumerate(facts)]


def passing_facts(rng: random.Random) -> list[Told]:
    """Return a fact a day that matters for two weeks, about people who have many such facts in a year."""
    told: list[Told] = []
    for day in range(DAYS):
        name, city, tool, book = (rng.choice(values) for values in (NAMES, CITIES, TOOLS, BOOKS))
        text, question = rng.choice(
            (
                (f"{name} is in {city} for a few days", f"Where is {name} these days?"),
                (f"{name} has borrowed the {tool}", f"What has {name} borrowed?"),
                (f"{name} is reading {book}", f"Which book is {name} reading?"),
                (f"{name} has a cold and works from home", f"Is {name} ill?"),
                (f"{name} comes to dinner on {rng.choice(WEEKDAYS)}", f"When does {name} come to dinner?"),
            )
        )
        told.append(Told(f"{text} ({START + timedelta(day):%d %B})", question, day, day + MATTERS_DAYS))
    return told


def matters(fact: Told, day: int) -> bool:
    """Return whether a fact was told by a day and still matters then."""
    return fact.day <= day and (fact.until is None or day <= fact.until)


def current(facts: Sequence[Told], day: int) -> list[Told]:
    """Return what matters on a day; of passing facts that answer one question the newest."""
    newest = {fact.question: fact for fact in facts if matters(fact, day)}
    return list(newest.values())


def questions_of(lasting: Sequence[Told], passing: Sequence[Told], day: int, rng: random.Random) -> Iterator[Told]:
    """Yield the facts that are asked for on a day. The lasting facts are in the order of how often they are."""
    weights = [1 / place for place in range(1, len(lasting) + 1)]
    now = current(passing, day)
    for _ in range(QUESTIONS_A_DAY):
        if not now or rng.random() < LASTING_SHARE:
            yield rng.choices(lasting, weights)[0]
        else:
            yield rng.choice(now)


async def simulate(mode: Mode, embedder: str) -> list[Month]:
    """Live through a year and return what was found at the end of each month."""
    rng = random.Random(SEED)  # noqa: S311 - not for secrets
    lasting, passing = lasting_facts(), passing_facts(rng)
    rng.shuffle(lasting)
    clock, months, ids = StoppedClock(), list[Month](), dict[Told, str]()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(
            data_dir=Path(folder),
            llm={"provider": "none"},
            embedder={"provider": embedder},
            forgetting=mode,
            project="",
        )
        async with open_memory(settings, clock=clock, background=False) as memory:
            for day in range(DAYS):
                clock.at = START + timedelta(day)
                for fact in (fact for fact in (*lasting, *passing) if fact.day == day):
                    added = await memory.add_text(SCOPE, fact.text, infer=False)
                    ids[fact] = added.outcomes[0].memory.id
                for fact in questions_of([fact for fact in lasting if fact.day <= day], passing, day, rng):
                    await memory.search(SCOPE, fact.question)
                await memory.fading.write()
                if (day + 1) % MONTH == 0:
                    months.append(await month_end(memory, ids, day))
    return months


async def month_end(memory: Memory, ids: Mapping[Told, str], day: int) -> Month:
    """Ask for everything that matters on a day, and look at what is found."""
    month, over = Month(), {memory_id for fact, memory_id in ids.items() if not matters(fact, day)}
    for fact in current(list(ids), day):
        hits = (await memory.search(SCOPE, fact.question, limit=FIRST, is_use=False)).hits
        is_lasting = fact.until is None
        month.asked[is_lasting] += 1
        month.found[is_lasting] += ids[fact] in {hit.id for hit in hits}
        month.shown += len(hits)
        month.stale += sum(hit.id in over for hit in hits)
    return month


def print_table(results: Mapping[Mode, Sequence[Month]]) -> None:
    """Print what was found in the second half of the year as a Markdown table."""
    print("| forgetting | found | of lasting facts | of passing ones | stale hits among the first five |")
    print("|---|---|---|---|---|")
    for mode, months in results.items():
        half = months[len(months) // 2 :]
        shares = (
            mean([month.recall for month in half]),
            mean([month.share_found(lasting=True) for month in half]),
            mean([month.share_found(lasting=False) for month in half]),
            mean([month.stale_share for month in half]),
        )
        print(f"| `{mode}` | {' | '.join(f'{share:.0%}' for share in shares)} |")


def mean(values: Sequence[float]) -> float:
    """Return the mean of values."""
    return sum(values) / len(values)


def draw(results: Mapping[Mode, Sequence[Month]], path: Path) -> None:
    """Draw what was found, and how much of it was stale, by month."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for (mode, months), colour in zip(results.items(), COLOURS, strict=True):
        numbers = range(1, len(months) + 1)
        for axis, values in (
            (axes[0], [month.recall for month in months]),
            (axes[1], [month.stale_share for month in months]),
        ):
            axis.plot(numbers, [100 * value for value in values], label=mode, color=colour, marker="o", markersize=4)
    axes[0].set_title("Found of what still matters, % (more is better)", fontsize=10)
    axes[1].set_title("Hits that are over, % of the first five (less is better)", fontsize=10)
    for axis in axes:
        axis.set_xlabel("months")
        axis.set_ylim(0, 100)
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(title="forgetting", frameon=False, loc="lower left")
    figure.savefig(path, dpi=150)


async def simulate_all(embedder: str) -> dict[Mode, list[Month]]:
    """Return the year by mode."""
    return {mode: await simulate(mode, embedder) for mode in MODES}


def main() -> None:
    """Simulate the year in each mode, print the table, and draw the plot if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    embedders.add_option(parser)
    parser.add_argument("--plot", type=Path, help="draw the plot into this PNG file")
    options = parser.parse_args()
    results = anyio.run(simulate_all, options.embedder)
    print_table(results)
    if options.plot is not None:
        draw(results, options.plot)


if __name__ == "__main__":
    main()
