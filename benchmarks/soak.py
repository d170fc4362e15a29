"""Kill a writing process at random moments, again and again, and check that no acknowledged write is lost.

    python benchmarks/soak.py --rounds 200

In each round, a process opens the memory and works on it: it adds texts and relations, updates, deletes, restores and
undoes, and it merges, splits and renames entities; or it rebuilds the indexes, re-embeds
everything with another embedder, writes summaries, imports, or restores a backup. In the rounds "living" two processes
do so at once: they pin memories, add some that soon end, search, and do the work in the background with a scripted
model, which must be asked by one of them at a time, and no more often than the budget allows. A process prints each
write before it begins and after it is acknowledged, and is killed (SIGKILL) at a random moment. Then every write that
was acknowledged in any round must be stored, be in the history, and be found by words and by meaning. The ledger, the
graph, the full text, the vectors and the index must agree row by row. A write that was in progress may have happened or
not.

    python benchmarks/soak.py --store postgres --replicas 8 --rounds 200

does the same to servers over one PostgreSQL database, as `replicas/rounds.py` says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import anyio
from sqlalchemy import select

from clients import STORES, TOPICS
from loopback import OpenAIServer
from palimpsest.admin.doctor import verify
from palimpsest.core.clock import now
from palimpsest.core.models import EXPIRE
from palimpsest.core.settings import Settings
from palimpsest.memory import Memory, open_memory
from palimpsest.store import entries, memories
from palimpsest.store import history as history_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import entity_history
from palimpsest.text.tokenizer import search_tokens
from soak_model import Model
from soak_worker import CALLS_PER_DAY, SCOPE, prepare, settings_for

WORKER = Path(__file__).with_name("soak_worker.py")
KINDS = ("write", "living", "write", "rebuild", "living", "reembed", "summary", "import", "restore")
MAX_DELAY = 1.0
LIVING_DELAY = 4.0
"""The longest time in seconds from when a worker opens the memory, or begins to write, until it is killed. It is longer
for those who work in the background too."""

OPENING_SHARE = 0.2
"""The share of the workers of any kind whose time runs from when they open the memory."""

ORPHANED = re.compile(r"^index \d+: \d+ vectors are not found by a query for themselves;")
"""The only difference that is not ours. An HNSW graph can lose its way to a point."""

LOOKED_FOR = 12
"""How many memories of earlier rounds are searched for after each round. All of them are looked up by id."""


@dataclass
class Tally:
    """The numbers of rounds, acknowledged writes, writes in progress and faults. `faults` describes each fault.

    `asked` is how often the model was asked in the background. `orphaned` are the rounds after which Chroma's graph did
    not lead to a vector that it held. That is no fault if `palimpsest doctor --deep --repair`, which names it, mends
    it.
    """

    rounds: Counter[str] = field(default_factory=Counter[str])
    acknowledged: int = 0
    in_progress: int = 0
    lost: int = 0
    undeleted: int = 0
    twice: int = 0
    not_found: int = 0
    disagreeing: int = 0
    orphaned: int = 0
    asked: int = 0
    faults: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        """Return whether there were no faults."""
        return not (self.lost or self.undeleted or self.twice or self.not_found or self.disagreeing)

    def fault(self, kind: str, text: str) -> None:
        """Count and describe a fault."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.faults.append(f"{kind}: {text}")


@dataclass
class Expected:
    """The acknowledged state: the texts of the memories that exist, of the deleted ones, and of those that end, by id.

    `begun` are the texts of those that end and may have been stored.
    `edited` are the numbers of the edits of entities since the last migration from a schema that knew none.
    """

    living: dict[str, str] = field(default_factory=dict[str, str])
    edited: set[int] = field(default_factory=set[int])
    deleted: dict[str, str] = field(default_factory=dict[str, str])
    ending: dict[str, str] = field(default_factory=dict[str, str])
    begun: set[str] = field(default_factory=set[str])

    def record(self, write: dict[str, Any]) -> None:
        """Record an acknowledged write."""
        memory_id, text = write["id"], write["text"]
        self.living.pop(memory_id, None)
        self.deleted.pop(memory_id, None)
        (self.living if write["living"] else self.deleted)[memory_id] = text


def run(folder: Path, rounds: int, seed: int, report: Callable[[str], None] = lambda _: None) -> Tally:
    """Run the rounds, one kind after the other, and check the memory after each."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    tally, expected = Tally(), Expected()
    anyio.run(first, folder, expected)
    model = Model()
    with OpenAIServer(model) as server:
        for number in range(rounds):
            kind = KINDS[number % len(KINDS)]
            prepare(kind, folder)
            model.begin()
            in_progress = _killed(kind, folder, server.base_url, rng, expected, tally)
            tally.rounds[kind] += 1
            if kind == "living":
                tally.asked += model.asked
                if model.most_at_once > 1:
                    tally.fault("disagreeing", f"{model.most_at_once} asked the model at once")
            anyio.run(judge, folder, in_progress, expected, tally, rng)
            report(f"round {number + 1}: {kind}, {len(expected.living)} memories, {len(tally.faults)} faults")
    return tally


async def first(folder: Path, expected: Expected) -> None:
    """Store the first memories, which later rounds could lose."""
    async with open_memory(settings_for(folder), background=False) as memory:
        for topic in TOPICS:
            done = await memory.add_text(SCOPE, f"{topic}, said first")
            expected.record({"id": done.outcomes[0].memory.id, "text": done.outcomes[0].memory.text, "living": True})


def _killed(
    kind: str, folder: Path, base_url: str, rng: random.Random, expected: Expected, tally: Tally
) -> list[dict[str, Any]]:
    """Let a worker work, in living rounds two; kill them, and return the writes that were in progress."""
    workers = [_worker(kind, folder, base_url, rng) for _ in range(2 if kind == "living" else 1)]
    outputs = [cast("IO[bytes]", worker.stdout) for worker in workers]
    for output in outputs:
        output.readline()  # the worker has imported its modules, and opens the memory now
    # Some workers are killed while they open or embed; the others after they have begun to write.
    is_opening = kind == "reembed" or rng.random() < OPENING_SHARE
    first = [b"" if is_opening else output.readline() for output in outputs]
    time.sleep(rng.uniform(0, LIVING_DELAY if kind == "living" else MAX_DELAY))
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)
    in_progress: list[dict[str, Any]] = []
    for worker, output, line in zip(workers, outputs, first, strict=True):
        whole = [each for each in (line + output.read()).splitlines(keepends=True) if each.endswith(b"\n")]
        worker.wait()
        output.close()
        write = _record([json.loads(each) for each in whole], expected, tally)
        in_progress += [] if write is None else [write]
    tally.in_progress += len(in_progress)
    return in_progress


def _worker(kind: str, folder: Path, base_url: str, rng: random.Random) -> subprocess.Popen[bytes]:
    command = [sys.executable, WORKER, kind, str(folder), base_url, str(rng.randrange(1 << 30))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True)


def _record(lines: Sequence[dict[str, Any]], expected: Expected, tally: Tally) -> dict[str, Any] | None:
    """Record what a worker has said, and return the write that it had begun, if any."""
    in_progress: dict[str, Any] | None = None
    for line in lines:
        if "begun" in line:
            in_progress = line["begun"]
        elif "ending" in line:
            expected.begun.add(line["ending"]["text"])
        elif "ends" in line:
            tally.acknowledged += 1
            expected.ending[line["ends"]["id"]] = line["ends"]["text"]
        elif "edited" in line:
            tally.acknowledged += 1
            expected.edited.add(line["edited"])
        elif "done" in line:
            in_progress = None
            tally.acknowledged += 1
            expected.record(line["done"])
        else:
            raise RuntimeError(line)
    return in_progress


async def judge(
    folder: Path, in_progress: Sequence[dict[str, Any]], expected: Expected, tally: Tally, rng: random.Random
) -> None:
    """Open the memory as the next client would, and compare it with everything that was acknowledged."""
    settings = settings_for(folder)
    async with open_memory(settings, background=False) as memory:
        ledger = memory.engine.ledger
        for write in in_progress:
            _adopt(ledger, write, expected)
        await _count_calls(memory, tally)
        _look_up(ledger, expected, tally)
        await memory.engine.run(lambda: _reembed(memory))
        await memory.engine.run(memory.projection.open)
        wanted = rng.sample(sorted(expected.living), min(LOOKED_FOR, len(expected.living)))
        for memory_id in wanted:
            await _find(memory, memory_id, expected.living[memory_id], tally)
    differences = _differences(settings)
    if differences and all(ORPHANED.search(text) for text in differences):
        tally.orphaned += 1
        list(verify(settings, lambda _done, _total: None, repair=True))
        differences = _differences(settings)
    for text in differences:
        tally.fault("disagreeing", text)


def _differences(settings: Settings) -> list[str]:
    """Return what `palimpsest doctor --deep` finds wrong, or cannot compare."""
    findings = verify(settings, lambda _done, _total: None, repair=False)
    return [f"{finding.part}: {finding.text}" for finding in findings if not finding.ok or "in use" in finding.text]


def _reembed(memory: Memory) -> None:
    from palimpsest.index.backfill import embed_missing  # noqa: PLC0415 - a server does it in the background

    embed_missing(memory.engine.ledger, memory.engine.embedder)


async def _count_calls(memory: Memory, tally: Tally) -> None:
    """Compare how often the model was asked in the background with what the ledger counted, and with the budget."""
    use = await memory.care.model_use()
    counted = sum(use.calls for stages in use.ever.values() for use in stages.values())
    if tally.asked > counted:
        tally.fault("disagreeing", f"the model was asked {tally.asked} times, and the ledger counted {counted}")
    if use.budgeted.calls > CALLS_PER_DAY:
        tally.fault("disagreeing", f"{use.budgeted.calls} calls are more than the budget of {CALLS_PER_DAY}")


def _adopt(ledger: Ledger, in_progress: dict[str, Any], expected: Expected) -> None:
    """Record the write that was in progress if it was stored. It must be stored as a whole or not at all."""
    with ledger.read() as conn:
        stored = {memory.id: memory for _, memory in memories.list_memories(conn, SCOPE, 1_000_000)}
        stored |= {memory.id: memory for _, memory in memories.list_memories(conn, SCOPE, 1_000_000, deleted=True)}
    for memory in stored.values():
        texts = {in_progress["text"], in_progress.get("before")}
        from_this_write = memory.id == in_progress["id"] or (
            memory.id not in expected.living and memory.id not in expected.deleted
        )
        if from_this_write and memory.text in texts:
            expected.record({"id": memory.id, "text": memory.text, "living": memory.deleted_at is None})


def _look_up(ledger: Ledger, expected: Expected, tally: Tally) -> None:
    """Compare every memory, and the last row of its history, with what was acknowledged."""
    with ledger.read() as conn:
        living = {memory.id: memory.text for _, memory in memories.list_memories(conn, SCOPE, 1_000_000)}
        history = {memory_id: history_queries.versions_of(conn, memory_id) for memory_id in expected.living}
        edited = set(conn.execute(select(entity_history.c.change).distinct()).scalars())
    for memory_id, text in expected.living.items():
        if living.get(memory_id) != text:
            tally.fault("lost", f"{memory_id[:8]} '{text}' is {living.get(memory_id)!r}")
        elif not history[memory_id] or history[memory_id][-1].new_memory != text:
            tally.fault("lost", f"{memory_id[:8]} '{text}' is not in the last row of its history")
    for number in expected.edited - edited:
        tally.fault("lost", f"edit {number} of entities is not in their history")
    for memory_id, text in expected.deleted.items():
        if memory_id in living:
            tally.fault("undeleted", f"{memory_id[:8]} '{text}'")
    _look_up_ending(ledger, expected, living, tally)
    _look_for_unknown(expected, living, tally)


def _look_for_unknown(expected: Expected, living: Mapping[str, str], tally: Tally) -> None:
    """Count memories that are stored twice, or that nobody stored. One that ends may have been in progress."""
    for text, number in Counter(living.values()).items():
        if number > 1:
            tally.fault("twice", text)
    known = expected.living.keys() | expected.deleted.keys() | expected.ending.keys()
    for memory_id in living.keys() - known:
        if living[memory_id] in expected.begun:
            expected.ending[memory_id] = living[memory_id]
            continue
        tally.fault("twice", f"{memory_id[:8]} '{living[memory_id]}' was never acknowledged")


def _look_up_ending(ledger: Ledger, expected: Expected, living: Mapping[str, str], tally: Tally) -> None:
    """Compare the memories that end: each is there with its text, or was closed, and its history says so."""
    with ledger.read() as conn:
        history = {memory_id: history_queries.versions_of(conn, memory_id) for memory_id in expected.ending}
    for memory_id, text in expected.ending.items():
        versions = history[memory_id]
        if not versions or versions[0].new_memory != text:
            tally.fault("lost", f"{memory_id[:8]} '{text}' is not in the first row of its history")
        elif memory_id not in living and versions[-1].provenance.stage != EXPIRE:
            tally.fault("lost", f"{memory_id[:8]} '{text}' ended by {versions[-1].provenance.stage}")
        elif memory_id in living and living[memory_id] != text:
            tally.fault("lost", f"{memory_id[:8]} '{text}' is {living[memory_id]!r}")


async def _find(memory: Memory, memory_id: str, text: str, tally: Tally) -> None:
    """Search for a memory by its words only, by its meaning only, and as a client does."""
    ledger, embedder = memory.engine.ledger, memory.engine.embedder
    index_hits = memory.projection.query(SCOPE.user_id, embedder.embed_queries([text])[0], 20)
    with ledger.read() as conn:
        words = search_tokens(text)
        by_words = entries.candidates(
            conn, SCOPE, embedder.fingerprint, list(ledger.full_text.search(conn, SCOPE, words, 20)), now()
        )
        centre = entries.centre(conn, SCOPE.user_id, embedder.fingerprint)
        nearest: list[int] = []
        if index_hits is not None:
            changed = memory.projection.changed_since(conn, SCOPE.user_id, index_hits.log_number)
            nearest = [] if changed is None else [*index_hits.entries, *changed]
        by_meaning = entries.candidates(conn, SCOPE, embedder.fingerprint, nearest, now())
    if memory_id not in {row.candidate.owner_id for row in by_words}:
        tally.fault("not_found", f"by words: '{text}'")
    if centre.mean is None or memory_id not in {row.candidate.owner_id for row in by_meaning}:
        tally.fault("not_found", f"by meaning: '{text}'")
    answer = await memory.search(SCOPE, text, limit=20, max_tokens=5_000)
    if sum(hit.text == text for hit in answer.hits) != 1:
        tally.fault("not_found", f"by search: '{text}'")


def main() -> None:
    """Run, print a table, and exit with 1 if there were faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="the number of rounds (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices (default 0)")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="where the ledger is (default sqlite)")
    parser.add_argument("--replicas", type=int, default=8, help="the number of servers over PostgreSQL (default 8)")
    options = parser.parse_args()
    if options.store == "postgres":
        from replicas.rounds import main as main_of_replicas  # noqa: PLC0415 - needs the driver of PostgreSQL

        with tempfile.TemporaryDirectory(prefix="palimpsest-soak-") as folder:
            sys.exit(0 if main_of_replicas(Path(folder), options.replicas, options.rounds, options.seed) else 1)
    with tempfile.TemporaryDirectory(prefix="palimpsest-soak-") as folder:
        tally = run(Path(folder) / "data", options.rounds, options.seed, lambda line: print(line, file=sys.stderr))
    print(
        "| rounds | acknowledged | in progress | lost | came back after deletion | stored twice | not found | "
        "rounds with differences |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {sum(tally.rounds.values())} | {tally.acknowledged} | {tally.in_progress} | {tally.lost} | "
        f"{tally.undeleted} | {tally.twice} | {tally.not_found} | {tally.disagreeing} |"
    )
    print(f"calls of the model in the background: {tally.asked}")
    print(", ".join(f"{kind} {number}" for kind, number in tally.rounds.items()))
    print(
        f"rounds after which the index had to be rebuilt, because its graph did not lead to a vector: {tally.orphaned}"
    )
    for fault in tally.faults[:20]:
        print(fault)
    sys.exit(0 if tally.clean else 1)


if __name__ == "__main__":
    main()
