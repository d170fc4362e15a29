"""Whether the model is shown the memory that a new fact contradicts, with the graph and without it.

The pairs are those of `updates.json` and of `everyday.json`; `update_relations.json` says what each fact names and
states, and how that was written. One store of one user holds the outdated facts of all pairs, the facts of
`everyday.json` and `lives.json` that are no part of a pair, and made-up sentences, so that each outdated fact is among
1,000 other memories. These state relations too, by a rule: the first word is the source, the second the name. Every
second made-up sentence is about the user.

*Without* and *with graph*: the share of the outdated facts that are shown when the new one is decided about. *More* is
how many memories the graph adds to those shown for a fact, and *tokens* how many tokens these have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from measures.hand_written import data_file, read_data
from measures.personas import Persona, read_personas
from measures.stores import SCOPE, START, StoppedClock, embed_waiting, new_memory
from measures.tables import ALL, Table, Tally, described
from palimpsest.core.models import MAX_NAME_CHARS, Decision, EntityType, Event, Fact, NamedEntity, Provenance, Relation
from palimpsest.learn.commit import apply_write
from palimpsest.learn.reconcile import ReconcileRequest, compare
from palimpsest.memory import Memory
from palimpsest.store.apply import Write
from palimpsest.text.tokenizer import count_tokens
from sentences import Sentences

OTHERS = 1_000
BATCH = 200


@dataclass(frozen=True)
class Pair:
    """An outdated fact and the new one, and the file and language they are from."""

    file: str
    language: str
    old: str
    new: str


async def conflicts(embedder: str) -> list[Table]:
    """Ask for each new fact what would be shown, and look for the outdated one in it."""
    tally = Tally("conflicts")
    stated, pairs = hand_written(), update_pairs()
    facts = [stated[pair.old] for pair in pairs]
    personas = read_personas([data_file("everyday"), data_file("lives")])
    facts += [by_rule(text) for persona in personas for text in _without_updates(persona)]
    clock = StoppedClock(START)
    async with new_memory(clock, embedder) as memory:
        await _store(memory, [*facts, *_made_up(1 + OTHERS - len(facts))])
        await embed_waiting(memory)
        clock.at += timedelta(days=1)
        for pair in pairs:
            await _compare(memory, pair, stated[pair.new], tally)
    return [tally.table()]


def update_pairs() -> list[Pair]:
    """Return the pairs of both files."""
    pairs = [Pair("updates", item["language"], item["old"], item["new"]) for item in read_data("updates")["pairs"]]
    return pairs + [
        Pair("everyday", persona.language, persona.texts[old], persona.texts[new])
        for persona in read_personas([data_file("everyday")])
        for old, new in persona.updates
    ]


def _without_updates(persona: Persona) -> list[str]:
    in_pairs = {fact for pair in persona.updates for fact in pair}
    return [text for fact, text in persona.texts.items() if fact not in in_pairs]


async def _compare(memory: Memory, pair: Pair, fact: Fact, tally: Tally) -> None:
    plain = await _shown(memory, replace(fact, entities=(), relations=()))
    shown = await _shown(memory, fact)
    more = [text for text in shown if text not in plain]
    results: dict[str, float] = {"without": pair.old in plain, "with graph": pair.old in shown}
    results |= {"more": len(more), "tokens": sum(map(count_tokens, more))}
    tally.record((f"{pair.file}, {pair.language}", pair.file, ALL), results)
    if pair.old not in shown:
        tally.misses.append(described(pair.new, pair.old, [*more, *shown]))


async def _store(memory: Memory, facts: Sequence[Fact]) -> None:
    for start in range(0, len(facts), BATCH):
        adds = tuple(Decision(Event.ADD, fact) for fact in facts[start : start + BATCH])
        await apply_write(memory.engine, Write(SCOPE, Provenance("benchmark"), decisions=adds))


async def _shown(memory: Memory, fact: Fact) -> list[str]:
    """Return the texts of the memories that the model is shown for a fact."""
    engine = memory.engine

    def shown() -> list[str]:
        vectors = dict(zip([fact.text], engine.embedder.embed_passages([fact.text]), strict=True))
        basis = compare(engine, ReconcileRequest(SCOPE, (fact,), "benchmark", vectors=vectors))
        return [entry.memory.text for entry in basis.shown.entries]

    return await engine.run(shown)


def hand_written() -> dict[str, Fact]:
    """Return the facts of the pairs with what each names and states, by their texts."""
    data = read_data("update_relations")
    return {item["text"]: _fact(item) for part in ("old", "new") for item in data[part]}


def _fact(item: Mapping[str, Any]) -> Fact:
    named: list[tuple[str, EntityType]] = item["entities"]
    entities = tuple(NamedEntity(name, kind) for name, kind in named)
    return Fact(item["text"], entities=entities, relations=tuple(Relation(*words) for words in item["relations"]))


def _made_up(count: int) -> list[Fact]:
    texts: dict[str, None] = {}
    for number, text in enumerate(Sentences(seed=1).memories(2 * count)):
        texts[f"User {text.split(' ', 1)[1]}" if number % 2 else text] = None
    return [by_rule(text) for text in list(texts)[:count]]


def by_rule(text: str) -> Fact:
    """Return a text with the relation that its first words state, as roughly as a rule can tell."""
    plain = text.rstrip(".。")
    words = plain.split() if " " in plain else [plain[:2], plain[2:4], plain[4:]]
    source, name, destination = words[0], words[1], " ".join(words[2:])[:MAX_NAME_CHARS] or words[1]
    entities = (NamedEntity(source), NamedEntity(destination))
    return Fact(text, entities=entities, relations=(Relation(source, name, destination),))
