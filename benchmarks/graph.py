"""Measure the graph: what an entity's dossier takes, and what the graph costs searches and adds.

    python benchmarks/graph.py
    python benchmarks/graph.py --entities 10000 --relations 50000 --rounds 200 --embedder e5 --json graph.json

Memories are written straight into two ledgers, with vectors of `made_vectors`: each states two relations of made-up
people, places and organizations, of which a few are in many memories. In the second ledger the same texts name and
state nothing. Calls go through the facade, with no language model, in turn to both; the second one's with the graph's
code taken out. So a ratio is what the graph costs at that size. Everything is in one process, on one thread of calls.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import anyio

import embedders
from embedders import made_vectors
from palimpsest.core.models import Decision, EntityType, Event, Fact, NamedEntity, Provenance, Relation, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory
from palimpsest.store.apply import Write
from sentences import SYLLABLES

SCOPE = Scope("graph")
AT_ONCE = 500
WARM_UPS = 20
EVEN = 0.5
STEEPNESS = 1.0
"""The exponent of Zipf's law for how many memories mention an entity: the first one is in some thousand of them."""

RELATIONS = ("works with", "lives in", "reports to", "is a friend of", "studies at", "bought", "moved to", "visited")
KINDS: tuple[tuple[EntityType, str], ...] = (("person", "{} {}"), ("place", "{}burg"), ("organization", "{} {} GmbH"))
SHARES = (6, 3, 1)


@dataclass(frozen=True)
class World:
    """Made-up entities, how often each is drawn, and facts about them."""

    entities: Sequence[NamedEntity]
    weights: Sequence[float]
    rng: random.Random

    def fact(self) -> Fact:
        """Return a fact that names three entities and states two relations."""
        source, first, second = self.drawn(3)
        verbs = self.rng.sample(RELATIONS, 2)
        year = self.rng.randint(1990, 2026)
        text = f"{source.name} {verbs[0]} {first.name} and {verbs[1]} {second.name} since {year}."
        relations = (
            Relation(source.name, verbs[0], first.name),
            Relation(source.name, verbs[1], second.name),
        )
        return Fact(text, entities=(source, first, second), relations=relations)

    def drawn(self, count: int) -> list[NamedEntity]:
        """Return different entities."""
        found: dict[str, NamedEntity] = {}
        while len(found) < count:
            (entity,) = self.rng.choices(self.entities, cum_weights=self.weights)
            found[entity.name] = entity
        return list(found.values())


def made_world(number: int, seed: int) -> World:
    """Return so many entities, all with names of their own."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    words = (("".join(parts)).capitalize() for parts in itertools.product(SYLLABLES, repeat=2))
    syllables = list(words)
    names: dict[str, EntityType] = {}
    while len(names) < number:
        ((kind, form),) = rng.choices(KINDS, SHARES)
        names.setdefault(form.format(*rng.sample(syllables, 2)), kind)
    entities = [NamedEntity(name, kind) for name, kind in names.items()]
    weights = list(itertools.accumulate((rank + 10) ** -STEEPNESS for rank in range(number)))
    return World(entities, weights, rng)


@asynccontextmanager
async def filled(facts: Sequence[Fact], embedder: str) -> AsyncGenerator[Memory]:
    """Open a memory with the facts as they are."""
    with tempfile.TemporaryDirectory(prefix="palimpsest-graph-") as folder:
        settings = load_settings(
            data_dir=Path(folder), llm={"provider": "none"}, embedder={"provider": embedder}, project=""
        )
        async with open_memory(settings, background=False) as memory:
            texts = [fact.text for fact in facts]
            vectors = dict(zip(texts, made_vectors(embedder, texts), strict=True))
            ledger, fingerprint = memory.engine.ledger, memory.engine.embedder.fingerprint
            for start in range(0, len(facts), AT_ONCE):
                part = facts[start : start + AT_ONCE]
                decisions = tuple(Decision(Event.ADD, fact) for fact in part)
                known = {fact.text: vectors[fact.text] for fact in part}
                write = Write(SCOPE, Provenance("add"), decisions=decisions, vectors=known, embedder=fingerprint)
                ledger.apply(write)
            await memory.care.rebuild()
            yield memory


@contextmanager
def graph_taken_out() -> Generator[None]:
    """Let adds look for no names, and write no mentions and relations."""
    with (
        patch("palimpsest.store.graph.statements.put", _write_nothing),
        patch("palimpsest.learn.add.with_named_facts", _as_decided),
    ):
        yield


def _write_nothing(_write: object, _memory: object) -> None:
    pass


def _as_decided(_engine: object, _scope: object, decisions: Sequence[Decision]) -> Sequence[Decision]:
    return decisions


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Return the milliseconds of a call."""
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures, in milliseconds or as ratios of medians."""
    world = made_world(options.entities, options.seed)
    facts = list({fact.text: fact for fact in (world.fact() for _ in range(options.relations // 2))}.values())
    plain = [replace(fact, entities=(), relations=()) for fact in facts]
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(filled(facts, options.embedder))
        with graph_taken_out():
            other = await stack.enter_async_context(filled(plain, options.embedder))
        figures = {"memories": float(len(facts))}
        figures |= await _dossiers(memory, world, facts, options.rounds)
        figures |= await _searches(memory, other, world, options.rounds)
        return figures | await _adds(memory, other, world, options.rounds)


async def _dossiers(memory: Memory, world: World, facts: Sequence[Fact], rounds: int) -> dict[str, float]:
    named = [entity.name for fact in facts for entity in fact.entities]
    names = world.rng.choices(named, k=rounds + WARM_UPS)
    times = [await timed(lambda name=name: memory.summary(SCOPE, f"about:{name}")) for name in names][WARM_UPS:]
    most = world.entities[0].name
    hub = [await timed(lambda: memory.summary(SCOPE, f"about:{most}")) for _ in range(WARM_UPS)]
    return {
        "dossier p50": statistics.median(times),
        "dossier p95": statistics.quantiles(times, n=20)[-1],
        "dossier of the entity with most memories": statistics.median(hub),
    }


async def _searches(memory: Memory, other: Memory, world: World, rounds: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for what, count in (("that names nobody", 0), ("that names one", 1), ("that names three", 3)):
        pairs: list[tuple[float, float]] = []
        for _ in range(rounds + WARM_UPS):
            named = " and ".join(entity.name for entity in world.drawn(count)) if count else "anybody"
            query = f"what does {named} do since {world.rng.randint(1990, 2026)}?"
            calls = partial(memory.search, SCOPE, query), partial(other.search, SCOPE, query, hops=0)
            pairs.append(await _in_turn(world.rng, *calls))
        figures |= _compared(f"search {what}", pairs)
    return figures


async def _adds(memory: Memory, other: Memory, world: World, rounds: int) -> dict[str, float]:
    async def without(text: str) -> None:
        with graph_taken_out():
            await other.add_text(SCOPE, text)

    texts = [f"{world.fact().text} Note {number}." for number in range(rounds + WARM_UPS)]
    pairs = [await _in_turn(world.rng, partial(memory.add_text, SCOPE, text), partial(without, text)) for text in texts]
    return _compared("add", pairs)


async def _in_turn(
    rng: random.Random, ours: Callable[[], Awaitable[object]], theirs: Callable[[], Awaitable[object]]
) -> tuple[float, float]:
    """Return the milliseconds of two calls. Chance says which comes first."""
    if rng.random() < EVEN:
        return await timed(ours), await timed(theirs)
    later = await timed(theirs)
    return await timed(ours), later


def _compared(what: str, pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    ours, theirs = (statistics.median(times) for times in zip(*pairs[WARM_UPS:], strict=True))
    return {f"{what}, p50": ours, f"{what}, without": theirs, f"{what}, ratio": ours / theirs}


def main() -> None:
    """Measure, print a table, and write the figures to a file if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--relations", type=int, default=50_000, help="two for each memory (default 50000)")
    parser.add_argument("--rounds", type=int, default=200, help="calls of each kind (default 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    embedders.add_option(parser)
    options = parser.parse_args()
    figures = anyio.run(measure, options)
    print(f"{options.entities} entities, {options.relations} relations, {figures.pop('memories'):.0f} memories\n")
    print("| | ms, or a ratio of medians |\n|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure:.2f} |")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
