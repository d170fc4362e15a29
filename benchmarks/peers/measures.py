"""The measures: recall, paraphrases, latency, start, memory, disk, tokens. Each fills in a system's figures."""

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
from peers.given import SEED, Life, Timed, turns_of
from peers.systems import Store, System

DEPTHS = (5, 10)
WARM_UP = 20
STARTS = 5


@dataclass
class Figures:
    """Hold what was measured of one system; None is what was not.

    `by_phrase` holds recalls, and `paraphrases_by_phrase` hits, with each of a store's first two phrases alone.
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
    beside_ms: list[float] = field(default_factory=list[float])
    initialize_s: list[float] = field(default_factory=list[float])
    first_answer_s: list[float] = field(default_factory=list[float])
    rss_bytes: int | None = None
    disk_bytes: int | None = None
    memories: int = 0
    schema_tokens: int | None = None
    reply_tokens: list[int] = field(default_factory=list[int])
    whole_reply_tokens: list[int] = field(default_factory=list[int])
    troubles: list[str] = field(default_factory=list[str])

    def times(self, operation: str) -> list[float]:
        """Return the times of an operation, to be added to."""
        return {"add": self.add_ms, "search": self.search_ms, "beside": self.beside_ms}[operation]

    def as_json(self) -> dict[str, Any]:
        """Return all figures as they were taken."""
        return asdict(self)


Measured = dict[str, Figures]


def middle(values: Sequence[float], share: float = 0.5) -> float | None:
    """Return the median, or the value that a share of all stays below; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return statistics.median(ordered) if share == 0.5 else ordered[int(share * len(ordered))]


@contextmanager
def noted(figures: Figures, what: str) -> Generator[None]:
    """Note a peer's failure among its figures and go on."""
    try:
        yield
    except (PeerError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
        figures.troubles.append(f"{what}: {type(error).__name__}: {error}"[:300])


@contextmanager
def fresh(system: System) -> Generator[Store]:
    """Open a system over an empty folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        store = system.open(Path(folder))
        try:
            yield store
        finally:
            store.close()


def measure_recall(system: System, figures: Figures, conversations: Sequence[Conversation]) -> None:
    """Give a fresh store each conversation's turns, and ask its questions."""
    taken: dict[int, list[list[float]]] = {depth: [] for depth in DEPTHS}
    for conversation in conversations:
        with fresh(system) as store:
            figures.bound = store.bound
            store.add_turns(turns_of(conversation))
            for question in conversation.questions:
                tries = [store.search(phrase, max(DEPTHS)) for phrase in store.phrases(question.text)]
                for depth in DEPTHS:
                    taken[depth].append([_share(hits[:depth], question.evidence) for hits in tries])
    figures.recall = {depth: statistics.fmean(map(max, taken[depth])) for depth in DEPTHS}
    figures.by_phrase = {
        depth: [statistics.fmean(column) for column in list(zip(*taken[depth], strict=False))[:2]] for depth in DEPTHS
    }
    figures.questions = len(taken[DEPTHS[0]])


def _share(hits: Sequence[Sequence[str]], evidence: frozenset[str]) -> float:
    return len({key for hit in hits for key in hit} & evidence) / len(evidence)


def measure_paraphrases(system: System, figures: Figures, lives: Sequence[Life]) -> None:
    """Give a fresh store each life's memories one by one, and count the questions answered among five hits."""
    rights: list[list[bool]] = []
    for life in lives:
        before = len(rights)
        with fresh(system) as store:
            for number, text in enumerate(life.memories):
                store.add(text, str(number))
            for question, memory in life.asked:
                tries = [store.search(phrase, 5) for phrase in store.phrases(question)]
                rights.append([any(str(memory) in hit for hit in each[:5]) for each in tries])
        figures.paraphrases_by_kind[life.kind] = (sum(map(any, rights[before:])), len(life.asked))
    figures.paraphrases = (sum(map(any, rights)), len(rights))
    figures.paraphrases_by_phrase = [sum(column) for column in list(zip(*rights, strict=False))[:2]]


def measure_load(systems: Mapping[str, System], measured: Measured, given: Timed, root: Path) -> None:
    """Fill a store of each system, time adds and searches in turn, look at memory and disk, then time starts."""
    stores: dict[str, Store] = {}
    for name, system in systems.items():
        home = root / name
        home.mkdir()
        with noted(measured[name], "filling"):
            stores[name] = system.open(home)
            stores[name].add_many(given.stored, [str(number) for number in range(len(given.stored))])
    try:
        _time_in_turn(stores, measured, given)
        _time_in_a_row(stores, measured, given)
        for name, store in stores.items():
            with noted(measured[name], "memory and replies"):
                measured[name].rss_bytes = resident_bytes(store.child.pid)
                _count(store, measured[name], given.queries)
    finally:
        for store in stores.values():
            store.close()
    for name, store in stores.items():
        files = [path for path in (root / name).rglob("*") if path.is_file() and not path.is_symlink()]
        measured[name].disk_bytes = sum(path.stat().st_size for path in files)
        measured[name].memories = store.stored
    _time_starts({name: systems[name] for name in stores}, measured, given, root)


def _time_in_turn(stores: Mapping[str, Store], measured: Measured, given: Timed) -> None:
    """Let every system add one text and search once a round, all of that in a new order each round."""
    chance = random.Random(SEED)  # noqa: S311 - an order, no secret
    for number in range(len(given.added)):
        turns = [(name, operation) for name in stores for operation in ("add", "search", "beside")]
        chance.shuffle(turns)
        for name, operation in turns:
            figures = measured[name]
            if any(trouble.startswith(("filling", "timing")) for trouble in figures.troubles):
                continue
            with noted(figures, "timing"):
                done = _operation(stores[name], operation, number, given)
                passed = _milliseconds(done) if done is not None else None
                if passed is not None and number >= WARM_UP:
                    figures.times(operation).append(passed)


def _operation(store: Store, operation: str, number: int, given: Timed) -> Callable[[], object] | None:
    """Return what a store does in a round, ready to be timed; None where that is nothing."""
    question = given.queries[number % len(given.queries)]
    if operation == "add":
        return lambda: store.add(given.added[number], f"added-{number}")
    if operation == "search":
        phrase = store.phrase(question)
        return lambda: store.search(phrase, 10)
    beside = store.beside
    if beside is None or number >= len(given.beside):
        return None
    return lambda: beside(given.beside[number])


def _time_in_a_row(stores: Mapping[str, Store], measured: Measured, given: Timed) -> None:
    """Time adds one right after the other: what a system leaves for later delays the next one."""
    for name, store in stores.items():
        with noted(measured[name], "adds in a row"):
            began = time.perf_counter()
            for number, text in enumerate(given.in_a_row):
                store.add(text, f"in-a-row-{number}")
            measured[name].in_a_row_ms = (time.perf_counter() - began) * 1000 / len(given.in_a_row)


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


def _time_starts(systems: Mapping[str, System], measured: Measured, given: Timed, root: Path) -> None:
    """Time from spawn to the first search answered over the folders filled before, the systems in turn."""
    chance = random.Random(SEED)  # noqa: S311 - an order, no secret
    for run in range(STARTS + 1):  # the first is a warm-up
        for name in chance.sample(sorted(systems), len(systems)):
            figures = measured[name]
            with noted(figures, "start"):
                initialized, answered = _start(systems[name], root / name, given)
                if run:
                    figures.first_answer_s.append(answered)
                    if initialized is not None:
                        figures.initialize_s.append(initialized)


def _start(system: System, home: Path, given: Timed) -> tuple[float | None, float]:
    query = max(re.findall(r"\w+", given.stored[0]), key=len)
    store = system.open(home)
    try:
        hits = store.search(query, 10)
        passed = store.child.age()
        initialized = store.initialized
    finally:
        store.close()
    if not hits:
        raise PeerError("the first search found nothing")
    return initialized, passed
