"""Measure how fast the server is, and how big, by the number of memories it holds.

    python benchmarks/speed.py --sizes 100 1000 10000 --rounds 200 --json speed.json

The server is spoken to over stdio, with its default embedder and no language model. Every size has a data directory
of its own, filled by `palimpsest import`; what changes it is measured on a copy. `--keep FOLDER` leaves the filled
directories there for the next run, which then tells the import figures of the run that filled them (`--only import`
fills them anew). `--only` repeats some measures. `--plot FILE.png` wants matplotlib: pip install matplotlib.
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
SETTLED = 2.0  # seconds in which nothing may change in an index that is ready
READY_WITHIN = 3600.0
SERVED_WITHIN = 3 * READY_WITHIN  # seconds after which a server is ended, whatever it does


@dataclass(frozen=True)
class Filled:
    """Hold what is measured: a filled directory, its texts, and where to draw questions and new memories."""

    home: Path
    memories: Sequence[str]
    sentences: Sentences

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.home / DATA


@contextmanager
def serving(home: Path) -> Generator[tuple[Server, int]]:
    """Run Palimpsest over the data directory in `home`, past the handshake; give it with its process id."""
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
    """Call a tool and return its structured content. Raises RuntimeError where the tool reports an error."""
    answer = server.request("tools/call", {"name": tool, "arguments": arguments})
    if answer.get("isError"):
        raise RuntimeError(f"{tool} failed: {answer['content']}")
    return answer["structuredContent"]


def timed(act: Callable[[Any], object], given: Sequence[Any]) -> list[float]:
    """Act on each of what is given; return milliseconds, without those of the warm-ups."""
    spent: list[float] = []
    for each in given:
        began = time.perf_counter()
        act(each)
        spent.append((time.perf_counter() - began) * 1000)
    return spent[WARM_UPS:]


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of Palimpsest's over the data directory in `home`."""
    env = {**os.environ, "HOME": str(home), "PALIMPSEST_DATA_DIR": str(home / DATA)}
    words = (sys.executable, "-m", "palimpsest", *arguments)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home, env=env)


def fill(home: Path, memories: Sequence[str]) -> Figures:
    """Import the memories into a new data directory, find the last one, and let a server build the index."""
    shutil.rmtree(home / DATA, ignore_errors=True)
    file = home / "memories.jsonl"
    write_export(file, USER, memories)
    began = time.perf_counter()
    process = command(home, "import", str(file), "--json")
    seen = _watched(process, home / DATA / "ledger.db", len(memories))
    out, errors = process.communicate()
    ended = time.perf_counter()
    if process.returncode or json.loads(out)["new"]["memory"] != len(memories):
        raise RuntimeError(f"the import failed: {out}{errors}")
    file.unlink()
    (first, before), (last, rows) = seen[0], seen[-1]
    with serving(home) as (server, _):
        called = time.perf_counter()
        found = call(server, "search_memories", {"query": memories[-1]})["results"]
        if not any(hit["text"] == memories[-1] for hit in found):
            raise RuntimeError(f"the memory imported last is not found: {found}")
        ready = wait_until_ready(home)
    return {
        "import_seconds": ended - began,
        "import_rate": len(memories) / (ended - began),
        "ledger_rate": (rows - before) / (last - first) if rows > before else None,
        "after_ledger_seconds": ended - last,
        "background_seconds": ready - called,
    }


def _watched(process: subprocess.Popen[str], ledger: Path, wanted: int) -> list[tuple[float, int]]:
    """Look at a ledger while a command fills it, and return when how many rows were there."""
    seen: list[tuple[float, int]] = []
    while process.poll() is None and (not seen or seen[-1][1] < wanted):
        rows = _rows(ledger)
        if rows > (seen[-1][1] if seen else 0):
            seen.append((time.perf_counter(), rows))
        time.sleep(0.02)
    return seen or [(time.perf_counter(), wanted)]


def _rows(ledger: Path) -> int:
    """Return the number of the last memory, without holding the file open: its writer has to close it alone."""
    if not ledger.with_name("ledger.db-wal").exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as conn:
            return conn.execute("SELECT max(seq) FROM memories").fetchone()[0] or 0
    except sqlite3.OperationalError:  # not made yet
        return 0


def wait_until_ready(home: Path) -> float:
    """Wait until the running server's index rests and the doctor finds it up to date; return when it last changed."""
    began = changed = time.perf_counter()
    before: dict[Path, tuple[int, int]] = {}
    while time.perf_counter() < began + READY_WITHIN:
        time.sleep(0.1)
        now = _stamps(home / DATA / "index")
        if now != before:
            before, changed = now, time.perf_counter()
        elif now and time.perf_counter() > changed + SETTLED:
            out, _ = command(home, "doctor", "--json").communicate()
            said = next(each["text"] for each in json.loads(out)["findings"] if each["part"] == "index")
            if "in use by a server, 0 changes behind" in said:
                return changed
    raise RuntimeError(f"the index in {home} was not ready within {READY_WITHIN:.0f} s")


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    found: dict[Path, tuple[int, int]] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Chroma takes files away while they are looked at
            found[path] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def measure_import(filled: Filled) -> Figures:
    """Build the index of a copy anew, and fill collections of Chroma's with as many vectors."""
    vectors = embedded(filled.memories)
    with copied(filled) as home:
        began = time.perf_counter()
        ticks = anyio.run(_rebuilt, home / DATA)
        seconds = time.perf_counter() - began
        (first, before), (last, done) = ticks[0], ticks[-1]
        rate = (done - before) / (last - first)
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
    """Rebuild as `palimpsest rebuild` does, and return when how many vectors were in the index."""
    ticks: list[tuple[float, int]] = []

    def told(done: int, _: int) -> None:
        if ticks and done < ticks[-1][1]:
            ticks.clear()  # what was told before was of another part of the work
        ticks.append((time.perf_counter(), done))

    async with open_memory(load_settings(data_dir=data_dir), background=False) as memory:
        await memory.rebuild(told)
    return ticks


def measure_disk(filled: Filled) -> Figures:
    """Return bytes a memory, after every process has let go of the directory."""
    sizes = {path.relative_to(filled.data): path.stat().st_size for path in filled.data.rglob("*") if path.is_file()}
    count = len(filled.memories)
    return {
        "bytes_total": sum(sizes.values()) / count,
        "bytes_ledger": sum(size for path, size in sizes.items() if path.name.startswith("ledger.db")) / count,
        "bytes_index": sum(size for path, size in sizes.items() if path.parts[0] == "index") / count,
    }


def measure_floor(filled: Filled, home: Path, rounds: int) -> Figures:
    """Time the parts that a search by meaning and by words cannot do without."""
    questions = filled.sentences.questions(WARM_UPS + rounds, filled.memories)
    filling_rate(home / "alone", embedded(filled.memories), LARGE_BATCH)
    parts = list(floor(home / "alone", home / DATA / "ledger.db", questions))[WARM_UPS:]
    embed, near, words = (list(part) for part in zip(*parts, strict=True))
    return {"floor_embed": embed, "floor_vectors": near, "floor_words": words, "floor": [sum(part) for part in parts]}


def measure_start(filled: Filled, home: Path) -> Figures:
    """Time starts, ours and a minimal server's in turn after one of each, and starts with a first search."""
    script = home / "minimal_server.py"
    script.write_text(MINIMAL_SERVER, encoding="utf-8")
    minimal = (sys.executable, str(script))
    pairs = [(time_start(PALIMPSEST, home), time_start(minimal, home)) for _ in range(START_RUNS + 1)][1:]
    searches: list[float] = []
    for question in filled.sentences.questions(2 * FIRST_SEARCH_RUNS, filled.memories)[1::2]:
        with serving(home) as (server, _):
            found = call(server, "search_memories", {"query": question})["results"]
            searches.append(server.age() * 1000)
        if not found:
            raise RuntimeError(f"the first search found nothing for: {question}")
    return {
        "start": [ours * 1000 for ours, _ in pairs],
        "start_minimal": [theirs * 1000 for _, theirs in pairs],
        "start_ratio": [ours / theirs for ours, theirs in pairs],
        "first_search": searches,
    }


def measure_calls(filled: Filled, home: Path, chosen: set[str], rounds: int) -> Figures:
    """Time calls to one running server whose index is ready, and look how big it is."""
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
    found: Figures = {}
    for name, known, given in (("search", filled.memories, {}), ("search_small", small, {"scope": scope})):
        asked = [{"query": question, **given} for question in filled.sentences.questions(number, known)]
        hits: list[int] = []
        found[name] = timed(lambda it, to=hits: to.append(len(call(server, "search_memories", it)["results"])), asked)
        if hits.count(0) > number / 2:
            raise RuntimeError(f"{hits.count(0)} of {number} searches found nothing: {given}")
    return found


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

    spent = timed(add, texts)
    known = len(texts) - events.count("ADD")
    return {"add": spent, "add_first": spent[:EDGE], "add_last": spent[-EDGE:], "add_known": known}


def resident(process_id: int) -> float:
    """Return the megabytes of a process that lie in memory."""
    status = Path(f"/proc/{process_id}/status").read_text("utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024 / 1e6


@contextmanager
def copied(filled: Filled) -> Generator[Path]:
    """Give a folder with a copy of the filled directory, which may be changed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(filled.data, Path(folder) / DATA)
        yield Path(folder)


def measure(size: int, home: Path, chosen: set[str], rounds: int, *, anew: bool) -> Figures:
    """Fill a directory, or take the one that is there, and measure what was chosen."""
    home.mkdir(parents=True, exist_ok=True)
    sentences = Sentences(size)
    filled = Filled(home, sentences.memories(size), sentences)
    name = hashlib.sha256("\n".join(filled.memories).encode()).hexdigest()[:12]
    note = home / f"filled-{name}.json"  # other texts of an earlier version are not taken for these
    if anew or not note.exists():
        note.unlink(missing_ok=True)
        note.write_text(json.dumps(fill(home, filled.memories)), "utf-8")
    figures: Figures = {}
    if "import" in chosen:
        figures |= json.loads(note.read_text("utf-8")) | measure_import(filled)
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
    """Read the arguments, measure size by size, print a table, and write the figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000], help="memories")
    parser.add_argument("--rounds", type=int, default=200, help=f"timed calls, after {WARM_UPS} untimed (default 200)")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=[], help="measure only these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single figure to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the medians")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled directories here and use them")
    given = parser.parse_args()
    if min(given.sizes) < 100 or given.rounds < 1:
        parser.error("--sizes must be 100 or more, and --rounds 1 or more")
    for name in [name for name in os.environ if name.startswith(("PALIMPSEST_", "OPENAI_"))]:
        del os.environ[name]
    os.environ |= {"PALIMPSEST_USER_ID": USER, "PALIMPSEST_LLM__PROVIDER": "none"}
    chosen: set[str] = set(given.only or MEASURES)
    anew = "import" in given.only
    versions = {name: version(name) for name in ("palimpsest-mcp", "chromadb", "mcp")}
    about = {"python": platform.python_version(), "cpus": os.cpu_count(), "sqlite": sqlite3.sqlite_version} | versions
    found: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            home = (given.keep or Path(folder)).absolute() / str(size)
            found[size] = measure(size, home, chosen, given.rounds, anew=anew)
            if given.json:  # after every size: the largest takes long
                figures = {"about": about, "rounds": given.rounds, "sizes": found}
                given.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
            print(f"{size:,} memories measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print(table(found))
    if given.plot:
        plot(found, given.plot)


if __name__ == "__main__":
    main()
