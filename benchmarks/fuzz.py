"""Send a server what no client would send, over stdio and HTTP, and check that it answers and lives.

    python benchmarks/fuzz.py --minutes 60

Three servers run on one memory: over stdio in both styles of the protocol, and over HTTP. They get random bytes, JSON
values and MCP messages: mutated, cut, with hostile strings, numbers, filters and ids of every type; over HTTP with
wrong headers, lengths and chunks too. Every request has to get exactly one answer within 30 seconds, and no message an
answer that it should not have. At the end each server has to list its tools, and to find what it adds. Linux only,
because the memory of the servers is read from /proc.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzzing.calls import REPLY_CONTENTS
from fuzzing.exchanges import exchanges
from fuzzing.http import HttpTarget
from fuzzing.inputs import inputs
from fuzzing.pipes import stdio_server
from fuzzing.stdio import StdioTarget
from fuzzing.tally import Tally

BATCHES = 50
"""How many batches are drawn at a time."""

LONG_SHARE = 20
"""Of so many rounds of batches one has inputs that are longer than what is accepted."""

MAX_RESIDENT = 600.0
"""The bound of a server's resident memory in MB."""

SEEDS = ("The user was born in Porto", "Ottoline plays the harp", "The server moved to Oslo")

Batch = TypeVar("Batch")


class Target(Protocol):
    """A server that inputs are sent to."""

    tally: Tally

    def memory_ids(self, texts: Sequence[str]) -> list[str]:
        """Add memories and return their ids."""
        ...

    def check_life(self, text: str) -> None:
        """Note a failure if the server does not work any more."""
        ...


def environment(folder: Path, embedder: str) -> dict[str, str]:
    """Return the environment of a server on the memory in a folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PALIMPSEST_", "OPENAI_"))}
    return {
        **inherited,
        "HOME": str(folder),
        "PALIMPSEST_DATA_DIR": str(folder / "data"),
        "PALIMPSEST_USER_ID": "alice",
        "PALIMPSEST_EMBEDDER__PROVIDER": embedder,
        "PALIMPSEST_HTTP__REQUESTS_PER_MINUTE": "100000000",
    }


@contextmanager
def http_server(folder: Path, env: Mapping[str, str]) -> Generator[tuple[str, int, int]]:
    """Run a server over HTTP until the block ends. Yield its host, its port and its process id."""
    command = [sys.executable, "-m", "palimpsest", "serve", "--transport", "all", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=folder) as process:
        try:
            if process.stderr is None:
                raise ValueError("the process was started without pipes")
            url = process.stderr.readline().split()[1]
            threading.Thread(target=_discard, args=(process.stderr,), daemon=True).start()
            host, port = url.removeprefix("http://").split("/", maxsplit=1)[0].split(":")
            yield host, int(port), process.pid
        finally:
            process.terminate()


def _discard(lines: Iterable[str]) -> None:
    for _ in lines:
        pass


@dataclass(frozen=True, slots=True)
class Plan:
    """What one round sends: batches drawn from a seed, with or without inputs longer than what is accepted."""

    seed: int
    batches: int
    long_ones: bool


def drawn(strategy: st.SearchStrategy[Batch], send: Callable[[Batch], None], plan: Plan) -> None:
    """Draw batches and send them. Failures are not made smaller, because what a server has seen cannot be undone."""

    @seed(plan.seed)
    @settings(
        max_examples=plan.batches,
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
    ids = target.memory_ids(SEEDS)

    def send(drawn_inputs: tuple[Any, list[dict[str, Any]]]) -> None:
        batch, replies = drawn_inputs
        if target.has_ended:
            return
        target.reply = lambda: replies.pop() if replies else {"error": {"code": -1, "message": "no more"}}
        target.send(batch)

    strategy = inputs(ids, modern=modern, long_ones=plan.long_ones)
    drawn(st.tuples(strategy, st.lists(REPLY_CONTENTS, max_size=4)), send, plan)


def fuzz_http(target: HttpTarget, plan: Plan) -> None:
    """Send batches over HTTP."""
    drawn(exchanges(target.memory_ids(SEEDS), long_ones=plan.long_ones), target.send, plan)


def run(folder: Path, until: Callable[[int], bool], *, number: int, batches: int, embedder: str) -> list[Tally]:
    """Send batches to three servers until `until`, given the number of rounds, is true. Return what came of it."""
    env = environment(folder, embedder)
    with ExitStack() as stack:
        legacy = StdioTarget(stack.enter_context(stdio_server(folder, env)), Tally("stdio, 2025-11-25"), modern=False)
        modern = StdioTarget(stack.enter_context(stdio_server(folder, env)), Tally("stdio, 2026-07-28"), modern=True)
        http = HttpTarget(*stack.enter_context(http_server(folder, env)), Tally("HTTP"))
        rounds = 0
        while not (until(rounds) or legacy.has_ended or modern.has_ended):
            plan = Plan(number + rounds, batches, long_ones=rounds % LONG_SHARE == 0)
            fuzz_stdio(legacy, plan, modern=False)
            fuzz_stdio(modern, plan, modern=True)
            fuzz_http(http, plan)
            rounds += 1
        living: list[Target] = [target for target in (legacy, modern) if not target.has_ended]
        for target in (*living, http):
            target.check_life(f"{target.tally.name} still works after seed {number}")
            if target.tally.peak > MAX_RESIDENT:
                target.tally.fail(f"{target.tally.peak:.0f} MB resident, more than {MAX_RESIDENT:.0f}", [])
    return [target.tally for target in (legacy, modern, http)]


def report(tallies: Sequence[Tally]) -> None:
    """Print what was sent and how it was answered, by server, and every failure."""
    print("| server | messages | answers | failures | slowest answer, s | peak RSS, MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for tally in tallies:
        counts = f"{tally.sent.total():,} | {tally.answers.total():,} | {len(tally.failures)}"
        print(f"| {tally.name} | {counts} | {tally.slowest[0]:.2f} | {tally.peak:.0f} |")
    for tally in tallies:
        print(f"\n{tally.name}; the slowest answer was to: {tally.slowest[1]}")
        for title, counts in (("sent", tally.sent), ("answers", tally.answers)):
            print(f"  {title}: {', '.join(f'{name} {count:,}' for name, count in sorted(counts.items()))}")
    for failure in (failure for tally in tallies for failure in tally.failures):
        print(f"\n{failure}")


def main() -> None:
    """Read the arguments, send inputs for some minutes, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to send (default 5)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first batches (default 0)")
    parser.add_argument("--embedder", default="e5", choices=("e5", "static"), help="the embedder of the memory")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as name:
        tallies = run(
            Path(name),
            lambda _: time.monotonic() >= end,
            number=options.seed,
            batches=BATCHES,
            embedder=options.embedder,
        )
    report(tallies)
    sys.exit(1 if any(tally.failures for tally in tallies) else 0)


if __name__ == "__main__":
    main()
