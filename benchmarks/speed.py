"""Measure how fast and how large the server is, by the number of memories.

    python benchmarks/speed.py --sizes 100 1000 10000 --rounds 200 --json speed.json

The server is called over stdio, with its default embedder and no language model. Each size has a data directory of its
own, which `palimpsest import` fills; measures that change it use a copy. `--keep FOLDER` keeps the filled directories
for the next run. That run then reports the import figures of the run that filled them, unless `--only import` fills
them again. `--only` repeats some measures. `--plot FILE.png` needs matplotlib: pip install matplotlib.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from figures import EDGE, Figures, plot, table
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from sentences import AGENT, Sentences, agent_of, write_export
from startup import DATA, INITIALIZE, MINIMAL_SERVER, PALIMPSEST, Server, time_start
from yardstick import LARGE_BATCH, SMALL_BATCH, embedded, filling_rate, floor

MEASURES = ("import", "disk", "floor", "start", "search", "list", "add")
CALLS = {"search", "list", "add"}
USER = "speed"
WARM_UPS = 20
START_RUNS = 7
FIRST_SEARCH_RUNS = 3
SETTLED = 2.0  # an index is ready if nothing changes in it for this many seconds
READY_WITHIN = 3600.0
SERVED_WITHIN = 3 * READY_WITHIN  # seconds after which a server is killed


@dataclass(frozen=True)
class Filled:
    """A filled directory, its texts, and the generator of questions and new memories."""

    home: Path
    memories: Sequence[str]
    sentences: Sentences

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.home / DATA


@contextmanager
def serving(home: Path) -> Generator[tuple[Server, int]]:
    """Run Palimpsest on the data directory in `home`. Yield the server after the handshake, and its process id."""
    env = {**os.environ, "HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA)}
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(PALIMPSEST, bufsize=0, stdin=pipe, stdout=pipe, stderr=errors, cwd=home, env=env)
        watchdog = threading.Timer(SERVED_WITHIN, process.kill)
        watchdog.start()
        try:
            with process:
                server = Server(process, errors, began)
                server.request("initialize", INITIALIZE)
                server.notify("notifications/initialized")
                yield server, process.pid
        finally:
            watchdog.cancel()


def call(server: Server, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool and return its structured content. Raises RuntimeError if the tool reports an error."""
    result = server.request("tools/call", {"name": tool, "arguments": arguments})
    if result.get("isError"):
        raise RuntimeError(f"{tool} failed: {result['content']}")
    return result["structuredContent"]


def timed(function: Callable[[Any], object], arguments: Sequence[Any]) -> list[float]:
    """Call a function with each argument, and return the milliseconds of each call after the warm-ups."""
    milliseconds: list[float] = []
    for argument in arguments:
        began = time.perf_counter()
        function(argument)
        milliseconds.append((time.perf_counter() - began) * 1000)
    return milliseconds[WARM_UPS:]


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of Palimpsest on the data directory in `home`."""
    env = {**os.environ, "HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA)}
    words = (sys.executable, "-m", "palimpsest", *arguments)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home, env=env)


def fill(home: Path, memories: Sequence[str]) -> Figures:
    """Import the memories into a new data directory, search for the last one, and let a server build the index."""
    shutil.rmtree(home / DATA, ignore_errors=True)
    file = home / "memories.jsonl"
    write_export(file, USER, memories)
    began = time.perf_counter()
    process = command(home, "import", str(file), "--json")
    samples = _watched(process, home / DATA / "ledger.db", len(memories))
    out, errors = process.communicate()
    ended = time.perf_counter()
    if process.returncode or json.loads(out)["new"]["memory"] != len(memories):
        raise RuntimeError(f"the import failed: {out}{errors}")
    file.unlink()
    (first, first_rows), (last, rows) = samples[0], samples[-1]
    with serving(home) as (server, _):
        called = time.perf_counter()
        hits = call(server, "search_memories", {"query": memories[-1]})["results"]
        if not any(hit["text"] == memories[-1] for hit in hits):
            raise RuntimeError(f"the memory imported last was not found: {hits}")
        ready = wait_until_ready(home)
    return {
        "import_seconds": ended - began,
        "import_rate": len(memories) / (ended - began),
        "ledger_rate": (rows - first_rows) / (last - first) if rows > first_rows else None,
        "after_ledger_seconds": ended - last,
        "background_seconds": ready - called,
    }


def _watched(process: subprocess.Popen[str], ledger: Path, expected_rows: int) -> list[tuple[float, int]]:
    """Watch a ledger while a command fills it. Return samples of (time, number of rows)."""
    samples: list[tuple[float, int]] = []
    while process.poll() is None and (not samples or samples[-1][1] < expected_rows):
        rows = _rows(ledger)
        if rows > (samples[-1][1] if samples else 0):
            samples.append((time.perf_counter(), rows))
        time.sleep(0.02)
    return samples or [(time.perf_counter(), expected_rows)]


def _rows(ledger: Path) -> int:
    """Return the number of the last memory. The file is closed at once: its writer must close it last."""
    if not ledger.with_name("ledger.db-wal").exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as conn:
            return conn.execute("SELECT max(seq) FROM memories").fetchone()[0] or 0
    except sqlite3.OperationalError:  # the table does not exist yet
        return 0


def wait_until_ready(home: Path) -> float:
    """Wait until the running server's index is stable and up to date for `doctor`. Return when it last changed."""
    began = changed = time.perf_counter()
    previous: dict[Path, tuple[int, int]] = {}
    while time.perf_counter() < began + READY_WITHIN:
        time.sleep(0.1)
        current = _stamps(home / DATA / "index")
        if current != previous:
            previous, changed = current, time.perf_counter()
        elif current and time.perf_counter() > changed + SETTLED:
            out, _ = command(home, "doctor", "--json").communicate()
            index_finding = next(each["text"] for each in json.loads(out)["findings"] if each["part"] == "index")
            if "in use by a server, 0 changes behind" in index_finding:
                return changed
    raise RuntimeError(f"the index in {home} was not ready within {READY_WITHIN:.0f} s")


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    stamps: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Chroma deletes files meanwhile
            stamps[path] = (path.stat().st_size, path.stat().st_mtime_ns)
    return stamps


def measure_import(filled: Filled) -> Figures:
    """Rebuild the index of a copy, and fill plain Chroma collections with the same vectors."""
    vectors = embedded(filled.memories)
    with copied(filled) as home:
        began = time.perf_counter()
        ticks = anyio.run(_rebuilt, home / DATA)
        seconds = time.perf_counter() - began
        (first, first_done), (last, last_done) = ticks[0], ticks[-1]
        rate = (last_done - first_done) / (last - first)
        small = filling_rate(home / "small", vectors, SMALL_BATCH)
        large = filling_rate(home / "large", vectors, LARGE_BATCH)
    return {
        "rebuild_seconds": seconds,
        "index_rate": rate,
        "chroma_rate_small": small,
        "chroma_rate_large": large,
        "index_to_chroma_small": rate / small,
        "index_to_chroma_large": rate / large,
    }


async def _rebuilt(data_dir: Path) -> list[tuple[float, int]]:
    """Rebuild as `palimpsest rebuild` does. Return samples of (time, vectors in the index)."""
    ticks: list[tuple[float, int]] = []

    def report(done: int, _: int) -> None:
        if ticks and done < ticks[-1][1]:
            ticks.clear()  # the reports so far were about another part of the work
        ticks.append((time.perf_counter(), done))

    async with open_memory(load_settings(data_dir=data_dir), background=False) as memory:
        await memory.rebuild(report)
    return ticks


def measure_disk(filled: Filled) -> Figures:
    """Return the bytes for each memory, after all processes have closed the directory."""
    sizes = {path.relative_to(filled.data): path.stat().st_size for path in filled.data.rglob("*") if path.is_file()}
    count = len(filled.memories)
    return {
        "bytes_total": sum(sizes.values()) / count,
        "bytes_ledger": sum(size for path, size in sizes.items() if path.name.startswith("ledger.db")) / count,
        "bytes_index": sum(size for path, size in sizes.items() if path.parts[0] == "index") / count,
    }


def measure_floor(filled: Filled, home: Path, rounds: int) -> Figures:
    """Time the steps that every search by meaning and by words needs."""
    questions = filled.sentences.questions(WARM_UPS + rounds, filled.memories)
    filling_rate(home / "alone", embedded(filled.memories), LARGE_BATCH)
    parts = list(floor(home / "alone", home / DATA / "ledger.db", questions))[WARM_UPS:]
    embed, near, words = (list(part) for part in zip(*parts, strict=True))
    return {"floor_embed": embed, "floor_vectors": near, "floor_words": words, "floor": [sum(part) for part in parts]}


def measure_start(filled: Filled, home: Path) -> Figures:
    """Time starts of Palimpsest and of a minimal server in turn, after a warm-up of each, and starts with a search."""
    script = home / "minimal_server.py"
    script.write_text(MINIMAL_SERVER, encoding="utf-8")
    minimal = (sys.executable, str(script))
    pairs = [(time_start(PALIMPSEST, home), time_start(minimal, home)) for _ in range(START_RUNS + 1)][1:]
    searches: list[float] = []
    for question in filled.sentences.questions(2 * FIRST_SEARCH_RUNS, filled.memories)[1::2]:
        with serving(home) as (server, _):
            hits = call(server, "search_memories", {"query": question})["results"]
            searches.append(server.age() * 1000)
        if not hits:
            raise RuntimeError(f"the first search found nothing for: {question}")
    return {
        "start": [ours * 1000 for ours, _ in pairs],
        "start_minimal": [theirs * 1000 for _, theirs in pairs],
        "start_ratio": [ours / theirs for ours, theirs in pairs],
        "first_search": searches,
    }


def measure_calls(filled: Filled, home: Path, chosen: set[str], rounds: int) -> Figures:
    """Time calls to one running server whose index is ready, and measure its memory."""
    number = WARM_UPS + rounds
    with serving(home) as (server, process_id):
        call(server, "search_memories", {"query": filled.memories[0]})
        wait_until_ready(home)
        figures: Figures = {"rss_ready": resident(process_id)}
        figures["ping"] = timed(lambda _: server.request("ping", {}), range(number))
        if "search" in chosen:
            figures |= _searched(server, filled, number)
        if "list" in chosen:
            figures |= _listed(server, number)
        if "add" in chosen:
            figures |= _added(server, filled.sentences.memories(number))
            wait_until_ready(home)
        figures["rss"] = resident(process_id)
    return figures


def _searched(server: Server, filled: Filled, number: int) -> Figures:
    small = [text for place, text in enumerate(filled.memories) if agent_of(place)]
    scope = {"agent_id": AGENT}
    figures: Figures = {}
    for name, known, filters in (("search", filled.memories, {}), ("search_small", small, {"scope": scope})):
        searches = [{"query": question, **filters} for question in filled.sentences.questions(number, known)]
        hits: list[int] = []

        def search(arguments: dict[str, Any], counts: list[int] = hits) -> None:
            counts.append(len(call(server, "search_memories", arguments)["results"]))

        figures[name] = timed(search, searches)
        if hits.count(0) > number / 2:
            raise RuntimeError(f"{hits.count(0)} of {number} searches found nothing: {filters}")
    return figures


def _listed(server: Server, number: int) -> Figures:
    cursor: dict[str, str] = {}

    def turn_page(_: int) -> None:
        page = call(server, "list_memories", {"limit": 20, **cursor})
        cursor.clear()
        cursor.update({"cursor": page["cursor"]} if page["cursor"] else {})

    first = timed(lambda _: call(server, "list_memories", {"limit": 20}), range(number))
    return {"list": first, "list_next": timed(turn_page, range(number))}


def _added(server: Server, texts: Sequence[str]) -> Figures:
    events: list[str] = []

    def add(text: str) -> None:
        events.extend(result["event"] for result in call(server, "add_memory", {"text": text})["results"])

    times = timed(add, texts)
    known = len(texts) - events.count("ADD")
    return {"add": times, "add_first": times[:EDGE], "add_last": times[-EDGE:], "add_known": known}


def resident(process_id: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{process_id}/status").read_text("utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024 / 1e6


@contextmanager
def copied(filled: Filled) -> Generator[Path]:
    """Yield a folder with a copy of the filled directory, which may be changed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(filled.data, Path(folder) / DATA)
        yield Path(folder)


def measure(size: int, home: Path, chosen: set[str], rounds: int, *, refill: bool) -> Figures:
    """Fill a directory, or use the one that is there, and take the chosen measures."""
    home.mkdir(parents=True, exist_ok=True)
    sentences = Sentences(size)
    filled = Filled(home, sentences.memories(size), sentences)
    name = hashlib.sha256("\n".join(filled.memories).encode()).hexdigest()[:12]
    fill_figures_file = (
        home / f"filled-{name}.json"
    )  # the name changes with the texts, so that other texts are not used
    if refill or not fill_figures_file.exists():
        fill_figures_file.unlink(missing_ok=True)
        fill_figures_file.write_text(json.dumps(fill(home, filled.memories)), "utf-8")
    figures: Figures = {}
    if "import" in chosen:
        figures |= json.loads(fill_figures_file.read_text("utf-8")) | measure_import(filled)
    if "disk" in chosen:
        figures |= measure_disk(filled)
    with copied(filled) as copy:
        if "floor" in chosen:
            figures |= measure_floor(filled, copy, rounds)
        if "start" in chosen:
            figures |= measure_start(filled, copy)
        if calls := CALLS & chosen:
            figures |= measure_calls(filled, copy, calls, rounds)
    if {"search", "floor"} <= chosen:
        figures["search_to_floor"] = statistics.median(figures["search"]) / statistics.median(figures["floor"])
    return figures


def main() -> None:
    """Read the arguments, measure size by size, print a table, and write the figures to files if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000], help="the numbers of memories"
    )
    parser.add_argument("--rounds", type=int, default=200, help=f"timed calls, after {WARM_UPS} warm-ups (default 200)")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=[], help="take these measures only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the medians")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled directories here, and use them")
    options = parser.parse_args()
    if min(options.sizes) < 100 or options.rounds < 1:
        parser.error("--sizes must be 100 or more, and --rounds 1 or more")
    for name in [name for name in os.environ if name.startswith(("PALIMPSEST_", "OPENAI_"))]:
        del os.environ[name]
    os.environ |= {"PALIMPSEST_USER_ID": USER, "PALIMPSEST_LLM__PROVIDER": "none"}
    chosen: set[str] = set(options.only or MEASURES)
    refill = "import" in options.only
    versions = {name: version(name) for name in ("palimpsest-mcp", "chromadb", "mcp")}
    about = {"python": platform.python_version(), "cpus": os.cpu_count(), "sqlite": sqlite3.sqlite_version} | versions
    figures_by_size: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in options.sizes:
            home = (options.keep or Path(folder)).absolute() / str(size)
            figures_by_size[size] = measure(size, home, chosen, options.rounds, refill=refill)
            if options.json:  # after every size: the largest takes long
                figures = {"about": about, "rounds": options.rounds, "sizes": figures_by_size}
                options.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
            print(f"{size:,} memories measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print(table(figures_by_size))
    if options.plot:
        plot(figures_by_size, options.plot)


if __name__ == "__main__":
    main()
