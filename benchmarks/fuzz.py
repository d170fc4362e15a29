"""Send a server what no client would send, over stdio and HTTP, and check that it answers and lives.

    python benchmarks/fuzz.py --minutes 60

Three servers run on one memory: over stdio in both styles of the protocol, and over HTTP. They get random bytes, JSON
values and MCP messages: mutated, cut, with hostile strings, numbers, filters and ids of every type; over HTTP with
wrong headers, lengths and chunks too. Every request has to get exactly one answer within 30 seconds, and no message an
answer that it should not have. At the end each server has to list its tools, and to find what it adds. Linux only,
because the memory of the servers is read from /proc.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzzing.judge import Tally
from fuzzing.messages import REPLY_CONTENTS, inputs
from fuzzing.over_http import HttpTarget, exchanges
from fuzzing.over_stdio import StdioTarget, stdio_server
from harness import OVER_HTTP, environment, listening, parser_of, table

# How many batches are drawn at a time.
BATCHES = 50

# Of so many rounds of batches one has inputs that are longer than what is accepted.
LONG_SHARE = 20

# The bound of a server's resident memory in MB.
MAX_RESIDENT = 600.0

SEEDS = ("The user was born in Porto", "Ottoline plays the harp", "The server moved to Oslo")

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round sends: batches drawn from a seed, with or without inputs longer than what is accepted."""

    seed: int
    batches: int
    long_ones: bool

    def draw(self, strategy: st.SearchStrategy[Batch], send: Callable[[Batch], None]) -> None:
        """Draw batches and send them. Failures are not made smaller, because what a server saw cannot be undone."""

        @seed(self.seed)
        @settings(
            max_examples=self.batches,
            phases=[Phase.generate],
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
        )
        @given(strategy)
        def send_one(batch: Batch) -> None:
            send(batch)

        send_one()


def fuzz_stdio(target: StdioTarget, plan: Plan, *, modern: bool) -> None:
    """Send batches over stdio, and reply oddly to what the server asks."""

    def send(drawn_inputs: tuple[Any, list[dict[str, Any]]]) -> None:
        batch, replies = drawn_inputs
        if target.has_ended:
            return
        target.reply = lambda: replies.pop() if replies else {"error": {"code": -1, "message": "no more"}}
        target.send(batch)

    strategy = inputs(target.memory_ids(SEEDS), modern=modern, long_ones=plan.long_ones)
    plan.draw(st.tuples(strategy, st.lists(REPLY_CONTENTS, max_size=4)), send)


def run(folder: Path, until: Callable[[int], bool], *, number: int, batches: int, embedder: str) -> list[Tally]:
    """Send batches to three servers until `until`, given the number of rounds, is true. Return what came of it."""
    env = environment(folder, embedder__provider=embedder, http__requests_per_minute="100000000")
    with ExitStack() as stack:
        legacy = StdioTarget(stack.enter_context(stdio_server(folder, env)), Tally("stdio, 2025-11-25"), modern=False)
        modern = StdioTarget(stack.enter_context(stdio_server(folder, env)), Tally("stdio, 2026-07-28"), modern=True)
        server = stack.enter_context(listening((*OVER_HTTP, "all"), folder, env))
        http = HttpTarget(server.base, server.process_id, Tally("HTTP"))
        rounds = 0
        while not (until(rounds) or legacy.has_ended or modern.has_ended):
            plan = Plan(number + rounds, batches, long_ones=rounds % LONG_SHARE == 0)
            fuzz_stdio(legacy, plan, modern=False)
            fuzz_stdio(modern, plan, modern=True)
            plan.draw(exchanges(http.memory_ids(SEEDS), long_ones=plan.long_ones), http.send)
            rounds += 1
        for target in (*(target for target in (legacy, modern) if not target.has_ended), http):
            target.check_life(f"{target.tally.name} still works after seed {number}")
            if target.tally.peak > MAX_RESIDENT:
                target.tally.fail(f"{target.tally.peak:.0f} MB resident, more than {MAX_RESIDENT:.0f}", [])
    return [target.tally for target in (legacy, modern, http)]


def report(tallies: Sequence[Tally]) -> None:
    """Print what was sent and how it was answered, by server, and every failure."""
    rows = [(of.name, of.sent.total(), of.answers.total(), len(of.failures), of.slowest[0], of.peak) for of in tallies]
    print(table(("server", "messages", "answers", "failures", "slowest answer, s", "peak RSS, MB"), *rows))
    for tally in tallies:
        print(f"\n{tally.name}; the slowest answer was to: {tally.slowest[1]}")
        for title, counts in (("sent", tally.sent), ("answers", tally.answers)):
            print(f"  {title}: {', '.join(f'{name} {count:,}' for name, count in sorted(counts.items()))}")
    for failure in (failure for tally in tallies for failure in tally.failures):
        print(f"\n{failure}")


def main() -> None:
    """Read the arguments, send inputs for some minutes, and print what came of it."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to send (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first batches (default 0)")
    parser.add_argument("--embedder", default="e5", choices=("e5", "static"), help="the embedder of the memory")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes

    def until(_rounds: int) -> bool:
        return time.monotonic() >= end

    with tempfile.TemporaryDirectory() as name:
        tallies = run(Path(name), until, number=options.seed, batches=BATCHES, embedder=options.embedder)
    report(tallies)
    sys.exit(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    main()
