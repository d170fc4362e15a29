"""Measure recall, paraphrases, latency, start, memory, disk and token counts. Each measure fills in the figures."""

from __future__ import annotations

import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import ToolError, resident
from locomo import Conversation
from palimpsest.text.tokenizer import count_tokens
from peers.systems import Store, turns_of
from sentences import Sentences

SEED = 20
QUERIES = 400
DEPTHS = (5, 10)
WARM_UP = 20
STARTS = 5

Open = Callable[[Path], Store]


@dataclass
class Figures:
    """The figures of one system. A figure that was not measured is None or empty.

    `bound` says that the recalls and hits are upper bounds.
    """

    bound: bool = False
    recall: dict[int, float] = field(default_factory=dict[int, float])
    paraphrases: tuple[int, int] | None = None
    times: dict[str, list[float]] = field(default_factory=lambda: {"add": [], "search": []})
    first_answer: list[float] = field(default_factory=list[float])
    rss: float | None = None
    bytes_each: float | None = None
    schema_tokens: int | None = None
    failures: list[str] = field(default_factory=list[str])


@contextmanager
def record_failures(figures: Figures, part: str) -> Generator[None]:
    """Record a failure of a system among its figures, and continue."""
    try:
        yield
    except (ToolError, RuntimeError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        figures.failures.append(f"{part}: {type(error).__name__}: {error}"[:300])


@contextmanager
def fresh(open_store: Open) -> Generator[Store]:
    """Open a system in an empty temporary folder."""
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        store = open_store(Path(folder))
        with store.server:
            yield store


def measure_recall(open_store: Open, figures: Figures, conversations: Sequence[Conversation]) -> None:
    """Add the turns of each conversation to a new store, and ask its questions."""
    recalls: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for conversation in conversations:
        with fresh(open_store) as store:
            figures.bound = store.bound
            store.add_conversation(conversation)
            store.settle()
            for question in conversation.questions:
                hits_by_query = [store.search(phrase, max(DEPTHS)) for phrase in store.phrases(question.text)]
                for depth in DEPTHS:
                    found = [{key for hit in hits[:depth] for key in hit} for hits in hits_by_query]
                    recalls[depth].append(max(len(keys & question.evidence) for keys in found) / len(question.evidence))
    figures.recall = {depth: statistics.fmean(recalls[depth]) for depth in DEPTHS}


def measure_paraphrases(open_store: Open, figures: Figures, lives: Sequence[Mapping[str, Any]]) -> None:
    """Add the memories of each life to a new store one by one, and count the questions answered within five hits."""
    answered: list[bool] = []
    for life in lives:
        with fresh(open_store) as store:
            for number, text in enumerate(life["memories"]):
                store.add([text], [str(number)])
            store.settle()
            for asked in life["asked"]:
                hits_by_query = [store.search(phrase, 5) for phrase in store.phrases(asked["question"])]
                answered.append(any(str(asked["memory"]) in hit for hits in hits_by_query for hit in hits[:5]))
    figures.paraphrases = (sum(answered), len(answered))


def measure_load(
    systems: Mapping[str, Open],
    measured: Mapping[str, Figures],
    conversations: Sequence[Conversation],
    memories: int,
    operations: int,
) -> None:
    """Fill a store of each system, time adds and searches in turn, measure memory and disk, then time starts."""
    rng = random.Random(SEED)  # noqa: S311 - a repeatable choice, not a secret
    turns = {turn["content"] for one in conversations for session in turns_of(one) for turn in session}
    texts = rng.sample(sorted(turns), len(turns))
    texts += Sentences(SEED).memories(max(0, memories + operations + WARM_UP - len(texts)))
    stored, added = texts[:memories], texts[memories : memories + operations + WARM_UP]
    questions = sorted({question.text for conversation in conversations for question in conversation.questions})
    queries = rng.sample(questions, min(QUERIES, len(questions)))
    stores: dict[str, Store] = {}
    with tempfile.TemporaryDirectory(prefix="compare-") as root:
        homes = {name: Path(root, name) for name in systems}
        for name, open_store in systems.items():
            homes[name].mkdir()
            with record_failures(measured[name], "filling"):
                stores[name] = open_store(homes[name])
                stores[name].add(stored, [str(number) for number in range(len(stored))])
                stores[name].settle()
        _time_in_turn(stores, measured, added, queries, rng)
        for name, store in stores.items():
            figures = measured[name]
            with record_failures(figures, "memory and schemas"):
                figures.rss = resident(store.server.process.pid)
                if (schemas := store.schemas()) is not None:
                    text = json.dumps(schemas, ensure_ascii=False, separators=(",", ":"))
                    figures.schema_tokens = count_tokens(text)
            store.server.close()
            files = [path for path in homes[name].rglob("*") if path.is_file() and not path.is_symlink()]
            figures.bytes_each = sum(path.stat().st_size for path in files) / max(store.stored, 1)
        word = max(re.findall(r"\w+", stored[0]), key=len)
        for run in range(STARTS + 1):  # the first is a warm-up
            for name in rng.sample(sorted(stores), len(stores)):
                with record_failures(measured[name], "start"):
                    seconds = _first_answer(systems[name](homes[name]), word)
                    measured[name].first_answer += [seconds] if run else []


def _first_answer(store: Store, word: str) -> float:
    """Return the seconds from spawn to the first answered search in a folder filled before."""
    with store.server:
        hits = store.search(word, 10)
        seconds = store.server.age()
    if not hits:
        raise RuntimeError("the first search found nothing")
    return seconds


def _time_in_turn(
    stores: Mapping[str, Store],
    measured: Mapping[str, Figures],
    added: Sequence[str],
    queries: Sequence[str],
    rng: random.Random,
) -> None:
    """In each round, let every system add one text and search once. The order is shuffled in each round."""
    for number, text in enumerate(added):
        operations = [(name, operation) for name in stores for operation in ("add", "search")]
        for name, operation in rng.sample(operations, len(operations)):
            store, figures = stores[name], measured[name]
            if any(failure.startswith(("filling", "timing")) for failure in figures.failures):
                continue
            with record_failures(figures, "timing"):
                query = store.phrase(queries[number % len(queries)])
                began = time.perf_counter()
                if operation == "add":
                    store.add([text], [f"added-{number}"])
                else:
                    store.search(query, 10)
                if number >= WARM_UP:
                    figures.times[operation].append((time.perf_counter() - began) * 1000)
