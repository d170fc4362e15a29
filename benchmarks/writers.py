"""Let many processes add to one ledger at the same time, and measure how long each add waits.

    python benchmarks/writers.py --clients 8 --seconds 20

The processes have no server, embedder or index, so that the ledger is locked nearly all the time. One more process
lists the newest memories meanwhile. At the end every acknowledged text must be stored once.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from harness import TOPICS, USER, parser_of, percentile, table
from palimpsest.core.clock import now
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store import memories
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger, open_ledger

SCOPE = Scope(USER)
LIST_PAUSE = 0.05
"""Seconds between two lists, so that the lists do not take the machine from the adds."""


def work(number: int, path: Path, end: float) -> list[float]:
    """Add memories, or list them if the number is 0, until a time. Return the seconds that each call took."""
    times: list[float] = []
    with closing(open_ledger(path, now)) as ledger:
        while time.time() < end:
            began = time.monotonic()
            if number:
                _add(ledger, _text(number, len(times)))
            else:
                with ledger.read() as conn:
                    memories.list_memories(conn, SCOPE, 20)
            times.append(time.monotonic() - began)
            if not number:
                time.sleep(LIST_PAUSE)
    return times


def _add(ledger: Ledger, text: str) -> None:
    vectors = {text: np.full(384, 384**-0.5, dtype=np.float32)}
    decisions = (Decision(Event.ADD, Fact(text)),)
    ledger.apply(Write(SCOPE, Provenance("add"), decisions=decisions, vectors=vectors, embedder="none"))


def _text(number: int, count: int) -> str:
    return f"{TOPICS[count % len(TOPICS)]}, note {number}-{count}"


def main() -> None:
    """Run, print a table, and exit with 1 if an add was lost."""
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=8, help="the number of processes that add (default 8)")
    parser.add_argument("--seconds", type=float, default=20, help="how long they add (default 20)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palimpsest-writers-") as folder:
        path = Path(folder, "ledger.db")
        open_ledger(path, now).close()
        context = multiprocessing.get_context("spawn")
        begin = context.Barrier(options.clients + 2)  # until all processes run
        with context.Pool(options.clients + 1, threading.Barrier.wait, (begin,)) as pool:
            begin.wait()
            end = time.time() + options.seconds
            lists, *adds = pool.map(partial(work, path=path, end=end), range(options.clients + 1), chunksize=1)
        with closing(open_ledger(path, now)) as ledger, ledger.read() as conn:
            stored = Counter(memory.text for _, memory in memories.list_memories(conn, SCOPE, 1_000_000))
    told = [_text(number, count) for number, times in enumerate(adds, 1) for count in range(len(times))]
    rows = [
        (name, len(times), percentile(times, 0.5), percentile(times, 0.99), max(times))
        for name, times in ((f"add, {options.clients} at once", list(chain(*adds))), ("list beside them", lists))
    ]
    print(table(("seconds", "calls", "median", "99th percentile", "longest"), *rows))
    faults = [f"'{text}' is stored {stored[text]} times" for text in told if stored[text] != 1]
    print("\n".join(faults[:20]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
