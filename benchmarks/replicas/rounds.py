"""Let replicas write to one PostgreSQL database while replicas, the database and the network between them fail.

The rounds that `soak.py --store postgres` runs. In each, all replicas add, update, delete and search, and in the middle
something happens: a replica is killed (SIGKILL); the database is restarted as after a crash; its connections are
severed by itself or by the network; or the network of one replica swallows everything for a while. When every call is
answered, the ledger is compared with all that was ever acknowledged, and each replica searches for what others wrote.
At the end `doctor --deep` compares every row, and the index of every replica.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import SecretStr

from network import network_to
from palimpsest.admin.doctor import verify
from palimpsest.core.clock import now
from palimpsest.core.settings import load_settings
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.postgres.postgres_database import CONNECT_SECONDS, SETTLE_SECONDS, SILENCE_SECONDS, WAIT_SECONDS
from postgresql import Cluster, own_cluster
from replicas.record import Record
from replicas.replica import NEWEST, Replica, ReplyError

KINDS = ("kill", "restart", "sever", "kill", "restart", "sever", "cut", "kill", "restart", "freeze")
USERS = ("alice", "bob")
DATABASE = "ledger"
MAX_DELAY = 1.5
"""The longest time in seconds from the begin of a round until something happens."""

AFTER_SECONDS = 2.0
"""How long the replicas go on afterwards."""

LONGEST_FREEZE = 100.0
"""Longer than a connection waits for an answer. Most freezes are shorter."""

LIMIT = SILENCE_SECONDS + SETTLE_SECONDS + WAIT_SECONDS + CONNECT_SECONDS
"""No call may take longer, in seconds. It is what the time limits of a connection add up to."""

SEARCHED = 2
"""How many texts each replica searches for after each round."""


@dataclass(frozen=True)
class Soak:
    """Replicas over the database of a server, each with a way to it that can fail, and what they were told."""

    cluster: Cluster
    ledger: Ledger
    replicas: Sequence[Replica]
    pool: ThreadPoolExecutor
    record: Record
    rng: random.Random

    def round(self, kind: str) -> None:
        """Let the replicas work while something happens, and check what they did."""
        until = threading.Event()
        working = [self.pool.submit(replica.work, kind, until) for replica in self.replicas]
        time.sleep(self.rng.uniform(0, MAX_DELAY))
        _happen(kind, self.cluster, self.rng.choice(self.replicas), self.rng)
        time.sleep(AFTER_SECONDS)
        until.set()
        for work in working:
            work.result()
        self.record.compare(self.ledger)
        list(self.pool.map(self._look, self.replicas))

    def _look(self, replica: Replica) -> None:
        """Let a replica search for some of what was acknowledged."""
        newest = list(self.record.living[replica.user].values())[-NEWEST:]
        for text in replica.rng.sample(newest, min(SEARCHED, len(newest))):
            try:
                found = replica.find(text, "nothing")
            except ReplyError as error:
                self.record.fault("errors", f"{replica.name}: {error}")
                continue
            if found != 1:
                self.record.fault("not_found", f"{replica.name} found '{text}' {found} times")

    def verify(self) -> None:
        """End the replicas, and record what `doctor --deep` finds in the ledger and in the index of each."""
        for replica in self.replicas:
            replica.close()
        for replica in self.replicas:
            settings = load_settings(
                None,
                data_dir=replica.home / "data",
                user_id=replica.user,
                ledger_url=self.cluster.url(DATABASE),
                embedder={"provider": "static"},
            )
            for finding in verify(settings, lambda _done, _total: None, repair=False):
                if not finding.ok or "in use" in finding.text:
                    self.record.fault("disagreeing", f"{replica.name}: {finding.part}: {finding.text}")


@contextmanager
def started(folder: Path, number: int, seed: int) -> Generator[Soak]:
    """Start a database and so many replicas, with all their data in a folder."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    record = Record({user: {} for user in USERS})
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    with ExitStack() as stack:
        cluster = stack.enter_context(own_cluster(folder / "postgresql"))
        cluster.create_database(DATABASE)
        ledger = stack.enter_context(closing(open_ledger(SecretStr(cluster.url(DATABASE)), now)))
        replicas: list[Replica] = []
        for place in range(number):
            name, user = f"replica-{place}", USERS[place % len(USERS)]
            network = stack.enter_context(network_to(cluster.port))
            url = replace(cluster, port=network.port).url(DATABASE)
            own_rng = random.Random(rng.randrange(1 << 30))  # noqa: S311 - not a secret
            replicas.append(Replica(name, user, folder / name, url, network, record, own_rng))
            stack.callback(replicas[-1].close)
        pool = stack.enter_context(ThreadPoolExecutor(number))
        list(pool.map(Replica.start, replicas))
        yield Soak(cluster, ledger, replicas, pool, record, rng)


def run(
    folder: Path, number: int, rounds: int, seed: int, report: Callable[[str], None] = lambda _: None
) -> tuple[Record, Counter[str]]:
    """Run the rounds with so many replicas. Return the record and the number of rounds by what happened."""
    done = Counter[str]()
    with started(folder, number, seed) as soak:
        record, known = soak.record, 0
        for place in range(rounds):
            kind, began = KINDS[place % len(KINDS)], time.monotonic()
            soak.round(kind)
            done[kind] += 1
            report(
                f"round {place + 1}: {kind}, {time.monotonic() - began:.0f} s, {record.acknowledged} acknowledged, "
                f"{record.failed} failed, {sum(record.faults.values())} faults"
            )
            for text in record.described[known:]:
                report(text)
            known = len(record.described)
        soak.verify()
    for kind, seconds in record.slowest.items():
        if seconds > LIMIT:
            record.fault("hanging", f"a call took {seconds:.0f} s in a round of {kind}")
    return record, done


def _happen(kind: str, cluster: Cluster, replica: Replica, rng: random.Random) -> None:
    match kind:
        case "kill":
            replica.kill()
        case "restart":
            cluster.restart()
        case "sever":
            cluster.sever(DATABASE)
        case "cut":
            replica.network.cut()
        case "freeze":
            replica.network.freeze()
            time.sleep(rng.uniform(0, LONGEST_FREEZE))
            replica.network.thaw()
        case _:
            raise ValueError(kind)


FAULTS = ("lost", "undeleted", "twice", "untrue", "not_found", "unclear", "errors", "ended", "hanging", "disagreeing")
"""The faults, in the order of the table's columns."""


def main(folder: Path, replicas: int, rounds: int, seed: int) -> bool:
    """Run, print tables, and return whether there were no faults."""
    record, done = run(folder, replicas, rounds, seed, lambda line: print(line, file=sys.stderr))
    values = [sum(done.values()), record.acknowledged, record.searches, record.failed, record.killed, record.adopted]
    titles = (
        "rounds",
        "acknowledged writes",
        "searches",
        "writes answered by an error",
        "killed meanwhile",
        "stored untold",
    )
    print("| " + " | ".join([*titles, *(name.replace("_", " ") for name in FAULTS)]) + " |")
    print("|---" * (len(titles) + len(FAULTS)) + "|")
    print("| " + " | ".join(f"{value:,}" for value in [*values, *(record.faults[name] for name in FAULTS)]) + " |")
    print("\n| what happened | rounds | slowest call, s |\n|---|---|---|")
    for kind, seconds in record.slowest.items():
        print(f"| {kind} | {done[kind]} | {seconds:.1f} |")
    for error, times in record.errors.most_common():
        print(f"{times} x {error}")
    for text in record.described[:30]:
        print(text)
    return not record.faults
