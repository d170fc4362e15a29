"""Measure how fast and how large the server is, by the number of memories.

    python benchmarks/speed.py --sizes 100 1000 10000 --rounds 200
    python benchmarks/speed.py --sizes 1000 10000 100000 --embedder e5

The server is called over stdio, with no language model. Each size has a data directory of its own; measures that change
it use a copy. `--keep FOLDER` keeps the filled directories for the next run. `--only` takes some measures. `--plot
FILE.png` needs matplotlib: pip install matplotlib.

A slow embedder would take an hour for 100,000 memories. It embeds the first 1,000 of a directory; each of the others
gets a mixture of two of their vectors (`made_vectors` in `embedders.py`). The texts of the questions and of the adds
are always embedded.

    python benchmarks/speed.py --store postgres --sizes 1000 10000 100000 1000000 --embedder static --keep FOLDER

measures a ledger in PostgreSQL beside one in SQLite, as `speed_postgres.py` says.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio

import embedders
from harness import (
    AGENT,
    DATA,
    PALIMPSEST,
    STORES,
    Server,
    environment,
    fill,
    in_turn,
    parser_of,
    plotting,
    rebuild,
    resident,
    serving,
    table,
)
from sentences import Sentences

MEASURES = ("disk", "import", "embed", "start", "search", "list", "add")
CALLS = {"search", "list", "add"}
WARM_UPS = 20
START_RUNS = 7
FIRST_SEARCH_RUNS = 3

# Figures by name: one number, or one number for each call.
Figures: TypeAlias = dict[str, Any]

ROWS = {
    "import": "import, memories/s",
    "rebuild": "rebuild of full text and index, s",
    "disk": "disk, bytes a memory",
    "embed": "embed a question, ms",
    "start": "start to `initialize`, ms",
    "minimal": "start of a minimal SDK server, ms",
    "first_search": "start to first search answered, ms",
    "search": "search, whole scope, ms",
    "search_small": "search, 1 % scope, ms",
    "list": "list, first page of 20, ms",
    "add": "add, ms",
    "rss": "resident memory after all calls, MB",
    "rss_model": "of that, the embedder, MB",
}
# A server of the same SDK that does nothing: the least that a start can take.
MINIMAL_SERVER = '''\
from mcp.server import MCPServer

server = MCPServer("minimal", log_level="ERROR")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


server.run("stdio")
'''

PLOTTED = ("add", "search", "search_small", "list", "first_search")


@dataclass(frozen=True)
class Measured:
    """What is measured: a filled directory, its memories, an embedder, and how often each call is made."""

    home: Path
    sentences: Sentences
    memories: Sequence[str]
    embedder: str
    rounds: int

    def serve(self) -> Any:
        """Run a server on the memories."""
        return serving(self.home, embedder__provider=self.embedder, llm__provider="none")

    def questions(self, known: Sequence[str] | None = None) -> Sequence[str]:
        """Return questions about known memories, all by default, also for the warm-ups."""
        return self.sentences.questions(WARM_UPS + self.rounds, known or self.memories)


def measure_import(it: Measured) -> Figures:
    """Import an export of all memories into a new directory, and rebuild the index of theirs."""
    file, new = it.home / "memories.jsonl", it.home / "imported"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    file.unlink(missing_ok=True)
    _run(it.home, "export", str(file))
    imported = _run(new, "import", str(file))
    began = time.perf_counter()
    anyio.run(rebuild, it.home / DATA, it.embedder)
    return {"import": len(it.memories) / imported, "rebuild": time.perf_counter() - began}


def _run(home: Path, *arguments: str) -> float:
    """Run a command on the data directory in `home`, and return the seconds it took."""
    began = time.perf_counter()
    subprocess.run((*PALIMPSEST, *arguments), cwd=home, env=environment(home), check=True, capture_output=True)
    return time.perf_counter() - began


def measure_disk(it: Measured) -> Figures:
    """Return the bytes for each memory, after all processes have closed the directory."""
    files = [path for path in (it.home / DATA).rglob("*") if path.is_file()]
    return {"disk": sum(path.stat().st_size for path in files) / len(it.memories)}


def measure_start(it: Measured) -> Figures:
    """Time starts of Palimpsest and of a minimal server in turn, and starts with a search."""
    ours, minimal = _start_times(it.home, START_RUNS)
    asked = it.questions()[1 : 2 * FIRST_SEARCH_RUNS : 2]  # every second question is about a memory
    searches = [_first_search(it.home, question, it.embedder) for question in asked]
    return {"start": ours, "minimal": minimal, "first_search": searches}


def _start_times(home: Path, runs: int) -> tuple[list[float], list[float]]:
    """Return the ms from spawn to the `initialize` reply of Palimpsest and of a minimal server, run by run.

    They start in turn, after one warm-up.
    """
    script = home / "minimal_server.py"
    script.write_text(MINIMAL_SERVER, encoding="utf-8")
    commands: tuple[Sequence[str], ...] = ((*PALIMPSEST, "serve"), (sys.executable, str(script)))
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for command, of_command in zip(commands, times, strict=True):
            with Server(command, home, environment(home)) as server:
                milliseconds = server.initialize() * 1000
            if run:
                of_command.append(milliseconds)
    return times


def _first_search(home: Path, question: str, embedder: str) -> float:
    """Return the ms from spawning Palimpsest to its reply to a search, which must find something."""
    with serving(home, embedder__provider=embedder) as server:
        hits = server.call("search_memories", query=question)["results"]
        milliseconds = server.age() * 1000
    if not hits:
        raise RuntimeError(f"the first search found nothing for: {question}")
    return milliseconds


def measure_calls(it: Measured, chosen: set[str]) -> Figures:
    """Time calls to one running server whose index is ready, and measure its memory."""
    with it.serve() as server:
        server.call("search_memories", query=it.memories[0])
        figures: Figures = {}
        if "search" in chosen:
            of_agent = [text for number, text in enumerate(it.memories) if number % 100 == 50] or it.memories
            figures["search"] = _searched(server, it.questions())
            figures["search_small"] = _searched(server, it.questions(of_agent), scope={"agent_id": AGENT})
        if "list" in chosen:
            times = in_turn([lambda _: server.call("list_memories", limit=20)], range(WARM_UPS + it.rounds), WARM_UPS)
            figures["list"] = times[0]
        if "add" in chosen:
            texts = it.sentences.memories(WARM_UPS + it.rounds)
            figures["add"] = in_turn([lambda text: server.call("add_memory", text=text)], texts, WARM_UPS)[0]
        figures["rss"] = resident(server.process.pid)
    return figures | {"rss_model": embedders.model_rss(it.embedder, it.memories[: WARM_UPS + it.rounds])}


def _searched(server: Server, questions: Sequence[str], **filters: Any) -> list[float]:
    hits: list[int] = []

    def search(question: str) -> None:
        hits.append(len(server.call("search_memories", query=question, **filters)["results"]))

    (times,) = in_turn([search], questions, WARM_UPS)
    if hits.count(0) > len(hits) / 2:
        raise RuntimeError(f"{hits.count(0)} of {len(hits)} searches found nothing: {filters}")
    return times


def measure(size: int, home: Path, embedder: str, chosen: set[str], rounds: int) -> Figures:
    """Fill a directory, or use the one that is there, and take the chosen measures."""
    sentences = Sentences(size)
    filled = Measured(home, sentences, sentences.memories(size), embedder, rounds)
    fill(home, filled.memories, embedder)
    figures: Figures = {}
    if "disk" in chosen:  # before a rebuild, which keeps the index before it
        figures |= measure_disk(filled)
    if "import" in chosen:
        figures |= measure_import(filled)
    if "embed" in chosen:
        opened = embedders.open_named(embedder)
        figures["embed"] = in_turn([lambda text: opened.embed_queries([text])], filled.questions(), WARM_UPS)[0]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(home / DATA, Path(folder) / DATA)
        copy = Measured(Path(folder), sentences, filled.memories, embedder, rounds)
        if "start" in chosen:
            figures |= measure_start(copy)
        if chosen & CALLS:
            figures |= measure_calls(copy, chosen)
    return figures


def plot(figures_by_size: dict[int, Figures], file: Path) -> None:
    """Draw the medians over the number of memories, with two logarithmic axes."""
    figure, axes = plotting().subplots(figsize=(9, 5), layout="constrained")
    for name, marker in zip(PLOTTED, "os^Dv", strict=True):
        points = [(size, statistics.median(of[name])) for size, of in figures_by_size.items() if name in of]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, label=ROWS[name].removesuffix(", ms"))
    axes.set(xscale="log", yscale="log", xlabel="memories", ylabel="milliseconds, p50", title="Palimpsest over stdio")
    axes.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside right upper")
    figure.savefig(file, dpi=150)


def main() -> None:
    """Read the arguments, measure each size, and print a table."""
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000], help="numbers of memories")
    parser.add_argument("--rounds", type=int, default=100, help=f"calls of each kind, after {WARM_UPS} warm-ups")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=MEASURES, help="take these measures only")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled directories here, and use them")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the medians as a PNG file")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="where the ledger is (default sqlite)")
    embedders.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = (options.keep or Path(folder)).absolute()
        if options.store == "postgres":
            from speed_postgres import measure as measure_postgres  # noqa: PLC0415 - needs an extra

            print(measure_postgres(options.sizes, options.rounds, options.embedder, kept))
            return
        figures: dict[int, Figures] = {}
        for size in options.sizes:
            home = kept / options.embedder / str(size)
            figures[size] = measure(size, home, options.embedder, set(options.only), options.rounds)
            print(f"{size:,} memories measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    rows = [(label, *(of.get(name) for of in figures.values())) for name, label in ROWS.items()]
    print(table(("p50 / p95", *figures), *(row for row in rows if any(value is not None for value in row[1:]))))
    if options.plot:
        plot(figures, options.plot)


if __name__ == "__main__":
    main()
