"""Let many servers use one memory, all writing and searching at the same time, and check what they answer.

    python benchmarks/servers.py --servers 8 --rounds 10
    python benchmarks/servers.py --store postgres --servers 8 --rounds 200

In each round all servers add, update, delete and search. A search is for what any of them was told to be stored, which
must be found exactly once, or for what was deleted, which must not be found. With SQLite the servers share a data
directory. With PostgreSQL each has one of its own, and in the middle of each round something happens: a server is
killed (SIGKILL); the database is restarted as after a crash; its connections are severed by itself or by the network;
or the network of one server swallows everything for a while. When every call is answered, the ledger is compared with
all that was ever acknowledged. At the end all servers add one text at the same moment, a new server is asked for the
newest memories, and `doctor --deep` compares every row, and the index of every server.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from harness import DATA, STORES, Server, ToolError, environment, new_note, parser_of, serving, table
from network import Network, network_to
from palimpsest.core.clock import now
from palimpsest.core.models import Scope
from palimpsest.core.settings import load_settings
from palimpsest.store import history, memories
from palimpsest.store.ledger import Ledger, open_ledger
from postgresql import Cluster, own_cluster
from soak import differences

# What happens in the rounds, one after the other.
KINDS = {
    "sqlite": ("nothing",),
    "postgres": ("kill", "restart", "sever", "kill", "restart", "sever", "cut", "kill", "restart", "freeze"),
}

USERS = {"sqlite": ("alice",), "postgres": ("alice", "bob")}
DATABASE = "ledger"
COMMAND = (sys.executable, "-m", "palimpsest", "serve")

# The longest time in seconds from the begin of a round until something happens, and how long the servers go on.
MAX_DELAY, AFTER_SECONDS = 1.5, 2.0

# Longer than a connection waits for an answer. Most freezes are shorter.
LONGEST_FREEZE = 100.0

# The share of the adds that are sent again after an error. The others show whether the error told the truth.
SENT_AGAIN = 0.5

# How many memories back updates, deletions and searches go.
NEWEST = 30

# What the text of an error says if the write did not happen. Without it, the write may have happened or not.
NOTHING_WRITTEN = re.compile(r"Nothing was (?:written|stored|changed|deleted)")

PLAIN = re.compile(r"the ledger postgresql://|Nothing was stored|Nothing was changed")


@dataclass
class Write:
    """A write that a server was asked for: a memory's id if it is known, and its text."""

    user: str
    text: str
    memory_id: str = ""
    deletes: bool = False


@dataclass
class Record:
    """What was acknowledged: the texts of living and of deleted memories by user and id, and writes of unknown end.

    `touched` counts, by id, how often a write of a memory began or ended: an odd number says that one is under way.
    `slowest` has the seconds of the slowest call by what happened in its round. The counts are of a whole run.
    """

    living: dict[str, dict[str, str]]
    deleted: dict[str, dict[str, str]]
    uncertain: list[Write] = field(default_factory=list[Write])
    refused: list[Write] = field(default_factory=list[Write])
    touched: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    slowest: dict[str, float] = field(default_factory=dict[str, float])
    errors: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    lock: threading.RLock = field(default_factory=threading.RLock)

    def fault(self, kind: str, text: str) -> None:
        """Count and describe a fault."""
        with self.lock:
            self.counts[kind] += 1
            self.faults.append(f"{kind}: {text}")

    def begin(self, write: Write) -> None:
        """Record that a write begins. `acknowledge` or `fail` follows."""
        with self.lock:
            self.touched[write.memory_id] += 1

    def acknowledge(self, write: Write, memory_id: str) -> None:
        """Record a write that was acknowledged, with the id of its memory."""
        with self.lock:
            self.touched[write.memory_id] += 1
            self.counts["acknowledged writes"] += 1
            write.memory_id = memory_id
            self._hold(write)

    def fail(self, write: Write, error: str) -> None:
        """Record a write that was answered by an error, or with "" by nothing, because its server was killed."""
        with self.lock:
            self.touched[write.memory_id] += 1
            self.counts["writes answered by an error" if error else "killed meanwhile"] += 1
            (self.refused if NOTHING_WRITTEN.search(error) else self.uncertain).append(write)

    def settled(self, user: str, *, deleted: bool = False) -> dict[str, tuple[str, int]]:
        """Return the texts of the memories of a user by id whose state is certain, and how often each was touched."""
        with self.lock:
            uncertain = {write.memory_id for write in self.uncertain + self.refused}
            return {
                memory_id: (text, self.touched[memory_id])
                for memory_id, text in (self.deleted if deleted else self.living)[user].items()
                if memory_id not in uncertain and self.touched[memory_id] % 2 == 0
            }

    def _hold(self, write: Write) -> None:
        old_text = self.living[write.user].pop(write.memory_id, None)
        if old_text and not write.deletes:
            self.deleted[write.user][f"{write.memory_id} before {write.text}"] = old_text
        (self.deleted if write.deletes else self.living)[write.user][write.memory_id] = write.text

    def compare(self, ledger: Ledger) -> None:
        """Compare the ledger with the record, when no call is under way. What was uncertain is certain then."""
        stored = {user: _stored(ledger, user) for user in self.living}
        for write in [*self.refused, *self.uncertain]:
            if found := self._happened(write, stored[write.user]):
                if write in self.refused:
                    self.fault("untrue", f"an error said that nothing was written, but it was: {write}")
                else:
                    self.counts["stored untold"] += 1
                self._hold(replace(write, memory_id=found))
        self.refused, self.uncertain = [], []
        for user, texts in self.living.items():
            self._compare_user(ledger, user, texts, stored[user])

    def _happened(self, write: Write, stored: Mapping[str, str]) -> str:
        """Return the id of the memory if a write happened, else ""."""
        known = self.living[write.user]
        if write.deletes:
            return write.memory_id if write.memory_id not in stored and write.memory_id in known else ""
        if write.memory_id:
            return write.memory_id if stored.get(write.memory_id) == write.text != known.get(write.memory_id) else ""
        return next((found for found, text in stored.items() if text == write.text and found not in known), "")

    def _compare_user(self, ledger: Ledger, user: str, expected: Mapping[str, str], stored: Mapping[str, str]) -> None:
        with ledger.read() as conn:
            for memory_id, text in expected.items():
                if stored.get(memory_id) != text:
                    self.fault("lost", f"{memory_id} '{text}' is {stored.get(memory_id)!r}")
                elif not (rows := history.versions_of(conn, memory_id)) or rows[-1].new_memory != text:
                    self.fault("lost", f"'{text}' is not in the last row of its history")
        for text, number in Counter(stored.values()).items():
            if number > 1:
                self.fault("stored twice", f"'{text}' is stored {number} times")
        for memory_id in stored.keys() - expected.keys():
            kind = "back after deletion" if memory_id in self.deleted[user] else "stored twice"
            self.fault(kind, f"{memory_id} '{stored[memory_id]}' was not acknowledged")


def _stored(ledger: Ledger, user: str) -> dict[str, str]:
    with ledger.read() as conn:
        return {memory.id: memory.text for _, memory in memories.list_memories(conn, Scope(user), 1_000_000)}


@dataclass
class Worker:
    """A server and its client, who writes and searches, one call after the other. It may fail if `may_fail`."""

    name: str
    user: str
    home: Path
    settings: Mapping[str, str]
    record: Record
    rng: random.Random
    network: Network | None = None
    own: list[str] = field(default_factory=list[str])
    server: Server | None = None
    _again: Write | None = None
    _killed: bool = False

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._killed = False
        self.server = Server(COMMAND, self.home, environment(self.home, self.user, **self.settings))
        self.server.initialize()

    def kill(self) -> None:
        """Kill the server, as the operating system would."""
        if self.server is not None:
            self._killed = True
            self.server.process.kill()

    def close(self) -> None:
        """Close the connection to the server, and wait until it has ended."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def work(self, kind: str, until: threading.Event) -> None:
        """Write and search until an event."""
        while not until.is_set():
            operation = self.rng.choice((self._add, self._add, self._update, self._delete, self._search, self._search))
            try:
                operation(kind)
            except ToolError:
                until.wait(self.rng.uniform(0, 0.2))  # a client would not try again at once
            except RuntimeError as error:
                if not self._killed:
                    self.record.fault("ended", f"{self.name}: {error}")
                self.close()
                self.start()

    def expect(self, text: str, hits: int, kind: str, is_still: Callable[[], bool] = lambda: True) -> None:
        """Search for a text, and note a fault if it is not found as often as expected, and that still holds."""
        results = self.call(kind, "search_memories", query=text, limit=20, max_tokens=3000)["results"]
        found = sum(hit["text"] == text for hit in results)
        with self.record.lock:
            self.record.counts["searches"] += 1
        if found != hits and is_still():
            fault = "not found" if found < hits else "found twice" if hits else "found after deletion"
            self.record.fault(fault, f"{self.name} found '{text}' {found} times")

    def call(self, kind: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool. Raises ToolError for an error, and RuntimeError if the server has ended."""
        if self.server is None:
            raise RuntimeError("the server was not started")
        began = time.monotonic()
        try:
            return self.server.call(tool, **arguments)
        except ToolError as error:
            said = str(error)
            with self.record.lock:  # by its words, without what is different each time
                self.record.errors[re.sub(r"\d+|'[^']*'|[0-9a-f-]{8,}", "…", said)[:300]] += 1
            if kind == "nothing" or not PLAIN.search(said):
                self.record.fault("errors", f"{self.name}: {tool}: {said}")
            raise
        finally:
            with self.record.lock:
                slowest = self.record.slowest
                slowest[kind] = max(slowest.get(kind, 0.0), time.monotonic() - began)

    def _add(self, kind: str) -> None:
        """Add a text. After an error it may be sent again, which must not store it twice."""
        write = self._again or Write(self.user, new_note(self.rng))
        self._again = write if self.rng.random() < SENT_AGAIN else None
        self._write(kind, write, "add_memory", text=write.text)
        self._again = None
        self.own.append(write.memory_id)

    def _update(self, kind: str) -> None:
        if chosen := self._one_of_own():
            write = Write(self.user, new_note(self.rng), chosen[0])
            self._write(kind, write, "update_memory", memory_id=write.memory_id, text=write.text)

    def _delete(self, kind: str) -> None:
        if chosen := self._one_of_own():
            self.own.remove(chosen[0])
            write = Write(self.user, chosen[1], chosen[0], deletes=True)
            self._write(kind, write, "delete_memory", memory_ids=[write.memory_id])

    def _search(self, kind: str) -> None:
        """Search for what any server was told to be stored or deleted. It counts unless it was changed meanwhile."""
        deleted = self.rng.random() < 0.2
        settled = self.record.settled(self.user, deleted=deleted)
        if settled:
            chosen = self.rng.choice(list(settled)[-NEWEST:])

            def is_still() -> bool:
                return self.record.settled(self.user, deleted=deleted).get(chosen) == settled[chosen]

            self.expect(settled[chosen][0], 0 if deleted else 1, kind, is_still)

    def _one_of_own(self) -> tuple[str, str] | None:
        """Return the id and the text of a memory that only this server changes, if there is one."""
        settled = self.record.settled(self.user)
        certain = [memory_id for memory_id in self.own[-NEWEST:] if memory_id in settled]
        chosen = self.rng.choice(certain) if certain else ""
        return (chosen, settled[chosen][0]) if chosen else None

    def _write(self, kind: str, write: Write, tool: str, **arguments: Any) -> None:
        self.record.begin(write)
        try:
            reply = self.call(kind, tool, **arguments)
        except (ToolError, RuntimeError) as error:
            self.record.fail(write, str(error) if isinstance(error, ToolError) else "")
            raise
        self.record.acknowledge(write, write.memory_id or reply["results"][0]["id"])


@dataclass(frozen=True)
class Soak:
    """Servers over one memory, and what they were told. With PostgreSQL each has a way to it that can fail."""

    ledger: Ledger
    workers: Sequence[Worker]
    record: Record
    pool: ThreadPoolExecutor
    rng: random.Random
    cluster: Cluster | None

    def round(self, kind: str) -> None:
        """Let the servers work while something happens, and check what they did."""
        until = threading.Event()
        working = [self.pool.submit(worker.work, kind, until) for worker in self.workers]
        time.sleep(self.rng.uniform(0, MAX_DELAY))
        self._happen(kind, self.rng.choice(self.workers))
        time.sleep(AFTER_SECONDS)
        until.set()
        for work in working:
            work.result()
        self.record.compare(self.ledger)

    def _happen(self, kind: str, worker: Worker) -> None:
        match kind:
            case "kill":
                worker.kill()
            case "restart" if self.cluster:
                self.cluster.restart()
            case "sever" if self.cluster:
                self.cluster.sever(DATABASE)
            case "cut" if worker.network:
                worker.network.cut()
            case "freeze" if worker.network:
                worker.network.freeze()
                time.sleep(self.rng.uniform(0, LONGEST_FREEZE))
                worker.network.thaw()
            case _:
                pass

    def end(self) -> None:
        """Let all servers add one text at once, end them, and look from outside."""
        said = "Every client says just this, note qsame"
        first = [worker for worker in self.workers if worker.user == self.workers[0].user]

        def add(worker: Worker) -> str:
            return worker.call("nothing", "add_memory", text=said)["results"][0]["event"]

        events = list(self.pool.map(add, first))
        if events.count("ADD") != 1:
            self.record.fault("stored twice", f"identical adds gave {events}")
        for worker in self.workers:
            worker.close()
        last = self.workers[-1]
        with serving(last.home, last.user, **last.settings) as server:
            last.server = server
            for texts, hits in ((self.record.living, 1), (self.record.deleted, 0)):
                for text in list(texts[last.user].values())[-NEWEST:]:
                    last.expect(text, hits, "nothing")
            last.server = None
        for worker in {worker.home: worker for worker in self.workers}.values():
            settings = load_settings(
                None,
                data_dir=worker.home / DATA,
                user_id=worker.user,
                ledger_url=self.cluster.url(DATABASE) if self.cluster else None,
                embedder={"provider": "static"},
            )
            for difference in differences(settings):
                self.record.fault("disagreeing", f"{worker.name}: {difference}")


@contextmanager
def started(folder: Path, store: str, number: int, seed: int) -> Generator[Soak]:
    """Start so many servers over a new memory, with all their data in a folder."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    record = Record({user: {} for user in USERS[store]}, {user: {} for user in USERS[store]})
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        place: Path | SecretStr = folder / DATA / "ledger.db"
        cluster = None
        if store == "postgres":
            folder.chmod(0o755)  # PostgreSQL runs as another user
            cluster = stack.enter_context(own_cluster(folder / "postgresql"))
            cluster.create_database(DATABASE)
            place = SecretStr(cluster.url(DATABASE))
        else:
            (folder / DATA).mkdir()
        ledger = stack.enter_context(closing(open_ledger(place, now)))
        workers: list[Worker] = []
        for count in range(number):
            name, user = f"server-{count}", USERS[store][count % len(USERS[store])]
            home, network, settings = folder, None, {"embedder__provider": "static"}
            if cluster:
                network = stack.enter_context(network_to(cluster.port))
                settings["ledger_url"] = replace(cluster, port=network.port).url(DATABASE)
                home = folder / name
            own = random.Random(rng.randrange(1 << 30))  # noqa: S311 - not a secret
            workers.append(Worker(name, user, home, settings, record, own, network))
            stack.callback(workers[-1].close)
        pool = stack.enter_context(ThreadPoolExecutor(number))
        list(pool.map(Worker.start, workers))
        yield Soak(ledger, workers, record, pool, rng, cluster)


def run(
    folder: Path, store: str, number: int, rounds: int, seed: int, report: Callable[[str], None] = lambda _: None
) -> Record:
    """Run the rounds with so many servers, and return what came of it."""
    with started(folder, store, number, seed) as soak:
        record = soak.record
        for place in range(rounds):
            kind, began = KINDS[store][place % len(KINDS[store])], time.monotonic()
            soak.round(kind)
            written, seconds = record.counts["acknowledged writes"], time.monotonic() - began
            report(f"round {place + 1}: {kind}, {seconds:.0f} s, {written} acknowledged, {len(record.faults)} faults")
        soak.end()
    if store == "postgres":
        limit = _limit()
        for kind, seconds in record.slowest.items():
            if seconds > limit:
                record.fault("over the time limit", f"a call took {seconds:.0f} s in a round of {kind}")
    return record


def _limit() -> float:
    """Return how many seconds a call may take: what the time limits of a connection add up to."""
    from palimpsest.store.postgres import postgres_database as limits  # noqa: PLC0415 - needs an extra

    return limits.SILENCE_SECONDS + limits.WAIT_SECONDS + limits.CONNECT_SECONDS


def main() -> None:
    """Run, print tables, and exit with 1 if there were faults."""
    parser = parser_of(__doc__)
    parser.add_argument("--servers", type=int, default=8, help="the number of servers (default 8)")
    parser.add_argument("--rounds", type=int, default=10, help="the number of rounds (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random choices (default 0)")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="where the ledger is (default sqlite)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palimpsest-servers-") as folder:
        record = run(
            Path(folder),
            options.store,
            options.servers,
            options.rounds,
            options.seed,
            lambda line: print(line, file=sys.stderr),
        )
    columns = ("acknowledged writes", "searches", "writes answered by an error", "killed meanwhile", "stored untold")
    faults = ("lost", "back after deletion", "stored twice", "not found", "found twice", "found after deletion")
    others = ("untrue", "errors", "ended", "over the time limit", "disagreeing")
    names = (*columns, *faults, *others)
    print(table(names, [record.counts[name] for name in names]))
    print("\nslowest call, s: " + ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in record.slowest.items()))
    for error, times in record.errors.most_common():
        print(f"{times} x {error}")
    print("\n".join(record.faults[:30]))
    sys.exit(bool(record.faults))


if __name__ == "__main__":
    main()
