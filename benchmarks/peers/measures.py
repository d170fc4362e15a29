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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from locomo import Conversation
from palimpsest.text.tokenizer import count_tokens
from peers.child import PeerError, resident_bytes
from peers.systems import Store, System
from peers.workload import SEED, Life, Workload, turns_of

DEPTHS = (5, 10)
WARM_UP = 20
STARTS = 5


@dataclass
class Figures:
    """The figures of one system. A figure that was not measured is None or empty.

    `by_phrase` has the recalls of each of the first two queries alone, and `paraphrases_by_phrase` their numbers of
    hits. `bound` says that the other recalls and hits are upper bounds.
    """

    version: str
    bound: bool = False
    recall: dict[int, float] = field(default_factory=dict[int, float])
    by_phrase: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    questions: int = 0
    paraphrases: tuple[int, int] | None = None
    paraphrases_by_phrase: list[int] = field(default_factory=list[int])
    paraphrases_by_kind: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    add_ms: list[float] = field(default_factory=list[float])
    in_a_row_ms: float | None = None
    search_ms: list[float] = field(default_factory=list[float])
    extra_ms: list[float] = field(default_factory=list[float])
    initialize_s: list[float] = field(default_factory=list[float])
    first_answer_s: list[float] = field(default_factory=list[float])
    rss_bytes: int | None = None
    disk_bytes: int | None = None
    memories: int = 0
    schema_tokens: int | None = None
    reply_tokens: list[int] = field(default_factory=list[int])
    whole_reply_tokens: list[int] = field(default_factory=list[int])
    failures: list[str] = field(default_factory=list[str])

    def times(self, operation: str) -> list[float]:
        """Return the list of times of an operation, to append to."""
        return {"add": self.add_ms, "search": self.search_ms, "extra": self.extra_ms}[operation]

    def as_json(self) -> dict[str, Any]:
        """Return all figures as a JSON object."""
        return asdict(self)


Measured = dict[str, Figures]


def quantile(values: Sequence[float], share: float = 0.5) -> float | None:
    """Return the median, or the value below which a share of all values lies. Return None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    return statistics.median(ordered) if share == 0.5 else ordered[int(share * len(ordered))]


@contextmanager
def record_failures(figures: Figures, part: str) -> Generator[None]:
    """Record a failure of a system among its figures, and continue."""
    try:
        yield
    except (PeerError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        figures.failures.append(f"{part}: {type(error).__name__}: {error}"[:300])


@contextmanager
def fresh(system: System) -> Generator[Store]:
    """Open a system in an empty temporary folder."""
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        store = system.open(Path(folder))
        try:
            yield store
        finally:
            store.close()


def measure_recall(system: System, figures: Figures, conversations: Sequence[Conversation]) -> None:
    """Add the turns of each conversation to a new store, and ask its questions."""
    recalls: dict[int, list[list[float]]] = {depth: [] for depth in DEPTHS}
    for conversation in conversations:
        with fresh(system) as store:
            figures.bound = store.bound
            store.add_turns(turns_of(conversation))
            store.settle()
            for question in conversation.questions:
                hits_by_query = [store.search(phrase, max(DEPTHS)) for phrase in store.phrases(question.text)]
                for depth in DEPTHS:
                    recalls[depth].append([_share(hits[:depth], question.evidence) for hits in hits_by_query])
    figures.recall = {depth: statistics.fmean(map(max, recalls[depth])) for depth in DEPTHS}
    figures.by_phrase = {
        depth: [statistics.fmean(column) for column in list(zip(*recalls[depth], strict=False))[:2]] for depth in DEPTHS
    }
    figures.questions = len(recalls[DEPTHS[0]])


def _share(hits: Sequence[Sequence[str]], evidence: frozenset[str]) -> float:
    return len({key for hit in hits for key in hit} & evidence) / len(evidence)


def measure_paraphrases(system: System, figures: Figures, lives: Sequence[Life]) -> None:
    """Add the memories of each life to a new store one by one, and count the questions answered within five hits."""
    answered: list[list[bool]] = []
    for life in lives:
        first = len(answered)
        with fresh(system) as store:
            for number, text in enumerate(life.memories):
                store.add(text, str(number))
            store.settle()
            for question, memory in life.questions:
                hits_by_query = [store.search(phrase, 5) for phrase in store.phrases(question)]
                answered.append([any(str(memory) in hit for hit in hits[:5]) for hits in hits_by_query])
        figures.paraphrases_by_kind[life.kind] = (sum(map(any, answered[first:])), len(life.questions))
    figures.paraphrases = (sum(map(any, answered)), len(answered))
    figures.paraphrases_by_phrase = [sum(column) for column in list(zip(*answered, strict=False))[:2]]


def measure_load(systems: Mapping[str, System], measured: Measured, workload: Workload, root: Path) -> None:
    """Fill a store of each system, time adds and searches in turn, measure memory and disk, then time starts."""
    stores: dict[str, Store] = {}
    for name, system in systems.items():
        home = root / name
        home.mkdir()
        with record_failures(measured[name], "filling"):
            stores[name] = system.open(home)
            stores[name].add_many(workload.stored, [str(number) for number in range(len(workload.stored))])
            stores[name].settle()
    try:
        _time_in_turn(stores, measured, workload)
        _time_in_a_row(stores, measured, workload)
        for name, store in stores.items():
            with record_failures(measured[name], "memory and replies"):
                measured[name].rss_bytes = resident_bytes(store.child.pid)
                _count(store, measured[name], workload.queries)
    finally:
        for store in stores.values():
            store.close()
    for name, store in stores.items():
        files = [path for path in (root / name).rglob("*") if path.is_file() and not path.is_symlink()]
        measured[name].disk_bytes = sum(path.stat().st_size for path in files)
        measured[name].memories = store.stored
    _time_starts({name: systems[name] for name in stores}, measured, workload, root)


def _time_in_turn(stores: Mapping[str, Store], measured: Measured, workload: Workload) -> None:
    """In each round, let every system add one text and search once. The order is shuffled in each round."""
    rng = random.Random(SEED)  # noqa: S311 - not a secret
    for number in range(len(workload.added)):
        operations = [(name, operation) for name in stores for operation in ("add", "search", "extra")]
        rng.shuffle(operations)
        for name, operation in operations:
            figures = measured[name]
            if any(failure.startswith(("filling", "timing")) for failure in figures.failures):
                continue
            with record_failures(figures, "timing"):
                function = _operation(stores[name], operation, number, workload)
                milliseconds = _milliseconds(function) if function is not None else None
                if milliseconds is not None and number >= WARM_UP:
                    figures.times(operation).append(milliseconds)


def _operation(store: Store, operation: str, number: int, workload: Workload) -> Callable[[], object] | None:
    """Return an operation of a store in one round, ready to be timed, or None if the store does not have it."""
    question = workload.queries[number % len(workload.queries)]
    if operation == "add":
        return lambda: store.add(workload.added[number], f"added-{number}")
    if operation == "search":
        phrase = store.phrase(question)
        return lambda: store.search(phrase, 10)
    extra = store.extra_operation
    if extra is None or number >= len(workload.extra):
        return None
    return lambda: extra(workload.extra[number])


def _time_in_a_row(stores: Mapping[str, Store], measured: Measured, workload: Workload) -> None:
    """Time adds that follow each other at once. Work that a system postpones then delays the next add."""
    for name, store in stores.items():
        with record_failures(measured[name], "adds in a row"):
            began = time.perf_counter()
            for number, text in enumerate(workload.in_a_row):
                store.add(text, f"in-a-row-{number}")
            measured[name].in_a_row_ms = (time.perf_counter() - began) * 1000 / len(workload.in_a_row)


def _milliseconds(operation: Callable[[], object]) -> float:
    began = time.perf_counter()
    operation()
    return (time.perf_counter() - began) * 1000


def _count(store: Store, figures: Figures, queries: Sequence[str]) -> None:
    schemas = store.schemas()
    if schemas is None:
        return
    figures.schema_tokens = _tokens(schemas)
    for reply in store.ten_hits(queries):
        text = "\n".join(block["text"] for block in reply["content"] if block["type"] == "text")
        figures.reply_tokens.append(count_tokens(text))
        figures.whole_reply_tokens.append(_tokens(reply))


def _tokens(content: Any) -> int:
    return count_tokens(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def _time_starts(systems: Mapping[str, System], measured: Measured, workload: Workload, root: Path) -> None:
    """Time from spawn to the first answered search in the folders filled before, the systems in turn."""
    rng = random.Random(SEED)  # noqa: S311 - not a secret
    for run in range(STARTS + 1):  # the first is a warm-up
        for name in rng.sample(sorted(systems), len(systems)):
            figures = measured[name]
            with record_failures(figures, "start"):
                initialized, first_answer = _start(systems[name], root / name, workload)
                if run:
                    figures.first_answer_s.append(first_answer)
                    if initialized is not None:
                        figures.initialize_s.append(initialized)


def _start(system: System, home: Path, workload: Workload) -> tuple[float | None, float]:
    query = max(re.findall(r"\w+", workload.stored[0]), key=len)
    store = system.open(home)
    try:
        hits = store.search(query, 10)
        seconds = store.child.age()
        initialized = store.initialized
    finally:
        store.close()
    if not hits:
        raise PeerError("the first search found nothing")
    return initialized, seconds
