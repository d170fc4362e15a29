"""Kill a writing process at random moments, again and again, and check that no acknowledged write is lost.

    python benchmarks/soak.py --rounds 200

In each round, a process (`soak_worker.py`) opens the memory and works on it: it adds texts and relations, updates,
deletes, restores and undoes, and it merges, splits and renames entities; or it rebuilds the indexes, re-embeds
everything with another embedder, writes summaries, imports, or restores a backup. In the rounds "living" two processes
do so at once: they pin memories, add some that soon end, search, and do the work in the background with a scripted
model, which must be asked by one of them at a time, and no more often than the budget allows. A process prints each
write before it begins and after it is acknowledged, and is killed (SIGKILL) at a random moment. Then every write that
was acknowledged in any round must be stored, be in the history, and be found. The ledger, the graph, the full text, the
vectors and the index must agree row by row. A write that was in progress may have happened or not.

`servers.py` does the same to servers over one PostgreSQL database.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import anyio
from sqlalchemy import select

from harness import TOPICS, environment, parser_of, table
from loopback import OpenAIServer
from palimpsest.admin.doctor import verify
from palimpsest.core.models import EXPIRE, Memory
from palimpsest.core.settings import Settings
from palimpsest.index.backfill import Backfill
from palimpsest.memory import open_memory
from palimpsest.store import history, memories
from palimpsest.store.ledger import Ledger
from palimpsest.store.schema import entity_history
from soak_worker import CALLS_PER_DAY, SCOPE, export, settings_for

WORKER = Path(__file__).with_name("soak_worker.py")
KINDS = ("write", "living", "write", "rebuild", "living", "reembed", "summary", "import", "restore")

# The longest time in seconds from when a worker opens the memory, or begins to write, until it is killed. It is longer
# for those who work in the background too.
MAX_DELAY, LIVING_DELAY = 1.0, 4.0

# The share of the workers of any kind whose time runs from when they open the memory.
OPENING_SHARE = 0.2

# The only difference that is not ours. An HNSW graph can lose its way to a point.
ORPHANED = re.compile(r"^index \d+: \d+ vectors are not found by a query for themselves;")

# How many memories of earlier rounds are searched for after each round. All of them are looked up by id.
LOOKED_FOR = 12

# How long the model takes to answer: time enough for another process to ask too.
MODEL_SECONDS = 0.02

MEMORIES = "Memories: "


class Model:
    """A scripted model, which counts how often it is asked, and whether two ask it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Begin a round: nobody who was killed in the last one counts."""
        self.at_once = self.asked = self.most_at_once = 0

    def __call__(self, request: dict[str, Any]) -> str:
        """Answer one request, after the time in which another process would ask too."""
        with self._lock:
            self.asked += 1
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
        time.sleep(MODEL_SECONDS)
        with self._lock:
            self.at_once -= 1
        prompt = request["messages"][1]["content"]
        if prompt.startswith(MEMORIES) and '"near"' in prompt:
            shown = json.loads(prompt.removeprefix(MEMORIES))
            return json.dumps({"notes": [_note(memory, len(shown)) for memory in shown]})
        return json.dumps({"summary": f"A summary of {len(str(request))} characters.", "facts": [], "decisions": []})


def _note(memory: dict[str, Any], number: int) -> dict[str, Any]:
    """Return what the model says of a memory: it is linked with the next one."""
    place = memory["id"]
    links = [{"memory": (place + 1) % number, "reason": "the next"}] if "near" in memory and number > 1 else []
    return {"memory": place, "context": f"Said beside {number} others.", "tags": ["soak"], "links": links}


@dataclass
class Record:
    """What was acknowledged in all rounds, and what is wrong.

    There are the texts of the memories that exist, of the deleted ones, and of those that end, by id; `begun` are the
    texts of those that end and may have been stored, and `edited` the numbers of the edits of entities. `counts` has
    the writes, the faults by their kind, how often the model was asked, and the rounds after which Chroma's graph did
    not lead to a vector that it held. That is no fault if `palimpsest doctor --deep --repair`, which names it, mends
    it.
    """

    living: dict[str, str] = field(default_factory=dict[str, str])
    deleted: dict[str, str] = field(default_factory=dict[str, str])
    ending: dict[str, str] = field(default_factory=dict[str, str])
    begun: set[str] = field(default_factory=set[str])
    edited: set[int] = field(default_factory=set[int])
    rounds: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def fault(self, kind: str, text: str) -> None:
        """Count and describe a fault."""
        self.counts[kind] += 1
        self.faults.append(f"{kind}: {text}")

    def hold(self, memory_id: str, text: str, *, living: bool) -> None:
        """Record that a memory exists with a text, or is deleted."""
        self.living.pop(memory_id, None)
        self.deleted.pop(memory_id, None)
        (self.living if living else self.deleted)[memory_id] = text

    def read(self, lines: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Record what a worker has said, and return the write that it had begun, if any."""
        in_progress: dict[str, Any] | None = None
        for line in lines:
            ((what, value),) = line.items()
            self.counts["acknowledged"] += what in ("ends", "edited", "done")
            match what:
                case "begun":
                    in_progress = value
                case "ending":
                    self.begun.add(value["text"])
                case "ends":
                    self.ending[value["id"]] = value["text"]
                case "edited":
                    self.edited.add(value)
                case "done":
                    in_progress = None
                    self.hold(value["id"], value["text"], living=value["living"])
                case _:
                    raise RuntimeError(line)
        self.counts["in progress"] += in_progress is not None
        return in_progress


def run(folder: Path, rounds: int, seed: int, report: Callable[[str], None] = lambda _: None) -> Record:
    """Run the rounds, one kind after the other, and check the memory after each."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    record, model = Record(), Model()
    anyio.run(first, folder, record)
    with OpenAIServer(model) as server:
        for number in range(rounds):
            kind = KINDS[number % len(KINDS)]
            if kind == "import":
                anyio.run(export, folder)
            model.begin()
            in_progress = _killed(kind, folder, server.base_url, rng, record)
            record.rounds[kind] += 1
            if kind == "living":
                record.counts["asked"] += model.asked
                if model.most_at_once > 1:
                    record.fault("disagreeing", f"{model.most_at_once} asked the model at once")
            anyio.run(judge, folder, in_progress, record, rng)
            report(f"round {number + 1}: {kind}, {len(record.living)} memories, {len(record.faults)} faults")
    return record


async def first(folder: Path, record: Record) -> None:
    """Store the first memories, which later rounds could lose."""
    async with open_memory(settings_for(folder), background=False) as memory:
        for topic in TOPICS:
            done = await memory.add_text(SCOPE, f"{topic}, said first")
            record.hold(done.outcomes[0].memory.id, done.outcomes[0].memory.text, living=True)


def _killed(kind: str, folder: Path, base_url: str, rng: random.Random, record: Record) -> list[dict[str, Any]]:
    """Let a worker work, in living rounds two; kill them, and return the writes that were in progress."""
    workers = [_worker(kind, folder, base_url, rng) for _ in range(2 if kind == "living" else 1)]
    outputs = [cast("IO[bytes]", worker.stdout) for worker in workers]
    for output in outputs:
        output.readline()  # the worker has imported its modules, and opens the memory now
    # Some workers are killed while they open or embed; the others after they have begun to write.
    is_opening = kind == "reembed" or rng.random() < OPENING_SHARE
    begun = [b"" if is_opening else output.readline() for output in outputs]
    time.sleep(rng.uniform(0, LIVING_DELAY if kind == "living" else MAX_DELAY))
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)
    in_progress: list[dict[str, Any] | None] = []
    for worker, output, line in zip(workers, outputs, begun, strict=True):
        whole = [each for each in (line + output.read()).splitlines(keepends=True) if each.endswith(b"\n")]
        worker.wait()
        output.close()
        in_progress.append(record.read([json.loads(each) for each in whole]))
    return [write for write in in_progress if write]


def _worker(kind: str, folder: Path, base_url: str, rng: random.Random) -> subprocess.Popen[bytes]:
    command = [sys.executable, WORKER, kind, str(folder), base_url, str(rng.randrange(1 << 30))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(folder), start_new_session=True)


async def judge(folder: Path, in_progress: Sequence[dict[str, Any]], record: Record, rng: random.Random) -> None:
    """Open the memory as the next client would, and compare it with everything that was acknowledged."""
    settings = settings_for(folder)
    async with open_memory(settings, background=False) as memory:
        use = await memory.care.model_use()
        counted = sum(each.calls for each in use.today.values())
        if record.counts["asked"] > counted:
            record.fault("disagreeing", f"the model was asked {record.counts['asked']} times, and counted {counted}")
        if use.budgeted.calls > CALLS_PER_DAY:
            record.fault("disagreeing", f"{use.budgeted.calls} calls are more than the budget of {CALLS_PER_DAY}")
        compare(memory.engine.ledger, in_progress, record)
        await memory.engine.run(lambda: Backfill(memory.engine.ledger, memory.engine.embedder).run())
        await memory.engine.run(memory.projection.open)  # what follows is searched for in the index too
        for memory_id in rng.sample(sorted(record.living), min(LOOKED_FOR, len(record.living))):
            text = record.living[memory_id]
            hits = (await memory.search(SCOPE, text, limit=20, max_tokens=5_000)).hits
            if sum(hit.text == text for hit in hits) != 1:
                record.fault("not found", text)
    found = differences(settings)
    if found and all(ORPHANED.search(text.partition(": ")[2]) for text in found):
        record.counts["orphaned"] += 1
        list(verify(settings, lambda _done, _total: None, repair=True))
        found = differences(settings)
    for text in found:
        record.fault("disagreeing", text)


def differences(settings: Settings) -> list[str]:
    """Return what `palimpsest doctor --deep` finds wrong, or cannot compare."""
    findings = verify(settings, lambda _done, _total: None, repair=False)
    return [f"{finding.part}: {finding.text}" for finding in findings if not finding.ok or "in use" in finding.text]


def compare(ledger: Ledger, in_progress: Sequence[dict[str, Any]], record: Record) -> None:
    """Compare every memory, and its history, with what was acknowledged. A write in progress happened or not."""
    with ledger.read() as conn:
        stored = {memory.id: memory for _, memory in memories.list_memories(conn, SCOPE, 1_000_000)}
        gone = [memory for _, memory in memories.list_memories(conn, SCOPE, 1_000_000, deleted=True)]
        known = {memory_id: history.versions_of(conn, memory_id) for memory_id in (*record.living, *record.ending)}
        edited = set(conn.execute(select(entity_history.c.change).distinct()).scalars())
    for write in in_progress:
        _adopt(write, [*stored.values(), *gone], record)
    living = {memory_id: memory.text for memory_id, memory in stored.items()}
    for memory_id, text in record.living.items():
        versions = known.get(memory_id)
        if living.get(memory_id) != text:
            record.fault("lost", f"{memory_id[:8]} '{text}' is {living.get(memory_id)!r}")
        elif versions is not None and versions[-1].new_memory != text:
            record.fault("lost", f"{memory_id[:8]} '{text}' is not in the last row of its history")
    for memory_id, text in record.ending.items():
        versions = known[memory_id]
        if not versions or versions[0].new_memory != text:
            record.fault("lost", f"{memory_id[:8]} '{text}' is not in the first row of its history")
        elif living.get(memory_id, text) != text:
            record.fault("lost", f"{memory_id[:8]} '{text}' is {living[memory_id]!r}")
        elif memory_id not in living and versions[-1].provenance.stage != EXPIRE:
            record.fault("lost", f"{memory_id[:8]} '{text}' ended by {versions[-1].provenance.stage}")
    for number in record.edited - edited:
        record.fault("lost", f"edit {number} of entities is not in their history")
    _look_for_unknown(living, record)


def _adopt(write: dict[str, Any], stored: Sequence[Memory], record: Record) -> None:
    """Record a write that was in progress if it was stored. It must be stored as a whole or not at all."""
    for memory in stored:
        is_known = memory.id in record.living or memory.id in record.deleted
        if (memory.id == write["id"] or not is_known) and memory.text in (write["text"], write["before"]):
            record.hold(memory.id, memory.text, living=memory.deleted_at is None)


def _look_for_unknown(living: Mapping[str, str], record: Record) -> None:
    """Note memories that came back, are stored twice, or nobody stored. One that ends may have been in progress."""
    for text, number in Counter(living.values()).items():
        if number > 1:
            record.fault("stored twice", text)
    for memory_id in living.keys() - record.living.keys() - record.ending.keys():
        text = living[memory_id]
        if memory_id in record.deleted:
            record.fault("came back after deletion", f"{memory_id[:8]} '{text}'")
        elif text in record.begun:
            record.ending[memory_id] = text
        else:
            record.fault("stored twice", f"{memory_id[:8]} '{text}' was never acknowledged")


def main() -> None:
    """Run, print a table, and exit with 1 if there were faults."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="the number of rounds (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices (default 0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palimpsest-soak-") as folder:
        record = run(Path(folder) / "data", options.rounds, options.seed, lambda line: print(line, file=sys.stderr))
    faults = ("lost", "came back after deletion", "stored twice", "not found", "disagreeing")
    names = ("acknowledged", "in progress", *faults)
    print(table(("rounds", *names), (record.rounds.total(), *(record.counts[name] for name in names))))
    print(", ".join(f"{kind} {number}" for kind, number in record.rounds.items()))
    print(f"calls of the model in the background: {record.counts['asked']}")
    print(f"rounds after which the index had to be rebuilt: {record.counts['orphaned']}")
    print("\n".join(record.faults[:20]))
    sys.exit(bool(record.faults))


if __name__ == "__main__":
    main()
