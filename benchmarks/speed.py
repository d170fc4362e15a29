"""Measure how fast and how large the server is, by the number of memories.

    python benchmarks/speed.py --sizes 100 1000 10000 --rounds 200 --json speed.json
    python benchmarks/speed.py --sizes 1000 10000 100000 --embedder e5

The server is called over stdio, with no language model. Each size has a data directory of its own, which `palimpsest
import` fills; measures that change it use a copy. `--keep FOLDER` keeps the filled directories for the next run. That
run then reports the import figures of the run that filled them, unless `--only import` fills them again. `--only`
repeats some measures. `--plot FILE.png` needs matplotlib: pip install matplotlib.

A slow embedder would take an hour for 100,000 memories. It embeds the first 1,000 of a directory; each of the others
gets a mixture of two of their vectors (`made_vectors` in `embedders.py`), written straight into the ledger. The texts
of the questions and of the adds are always embedded. Rows that are "less the embedding" are the median of the calls
less the median time in which the same embedder, in the process of the benchmark, embeds the same text after the call.

    python benchmarks/speed.py --store postgres --sizes 1000 10000 100000 1000000 --embedder static --keep FOLDER

measures a ledger in PostgreSQL beside one in SQLite, as `replicas/speed.py` says.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

import embedders
from clients import STORES
from embedders import made_vectors, model_rss, open_named, resident
from figures import EDGE, Figures, plot, table
from filling import USER, Filled, call, copied, fill, serving, wait_until_ready
from palimpsest.core.protocols import Embedder
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from sentences import AGENT, Sentences, agent_of
from startup import DATA, MINIMAL_SERVER, PALIMPSEST, Server, time_start
from yardstick import LARGE_BATCH, SMALL_BATCH, filling_rate, floor

MEASURES = ("import", "disk", "floor", "start", "search", "list", "add")
CALLS = {"search", "list", "add"}
WARM_UPS = 20
START_RUNS = 7
FIRST_SEARCH_RUNS = 3


def timed(function: Callable[[Any], object], arguments: Sequence[Any]) -> list[float]:
    """Call a function with each argument, and return the milliseconds of each call after the warm-ups."""
    (milliseconds,) = timed_in_turn([function], arguments)
    return milliseconds


def timed_in_turn(functions: Sequence[Callable[[Any], object]], arguments: Sequence[Any]) -> list[list[float]]:
    """Call all functions with each argument, and return the milliseconds of each function after the warm-ups."""
    milliseconds: list[list[float]] = [[] for _ in functions]
    for argument in arguments:
        for function, times in zip(functions, milliseconds, strict=True):
            began = time.perf_counter()
            function(argument)
            times.append((time.perf_counter() - began) * 1000)
    return [times[WARM_UPS:] for times in milliseconds]


def difference(longer: Sequence[float], shorter: Sequence[float]) -> float:
    """Return the difference of two medians."""
    return statistics.median(longer) - statistics.median(shorter)


def measure_import(filled: Filled) -> Figures:
    """Rebuild the index of a copy, and fill plain Chroma collections with the same vectors."""
    vectors = made_vectors(filled.embedder, filled.memories)
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
        await memory.care.rebuild(report)
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
    filling_rate(home / "alone", made_vectors(filled.embedder, filled.memories), LARGE_BATCH)
    parts = list(floor(home / "alone", home / DATA / "ledger.db", open_named(filled.embedder), questions))[WARM_UPS:]
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
    embedder = open_named(filled.embedder)
    with serving(home) as (server, process_id):
        call(server, "search_memories", {"query": filled.memories[0]})
        wait_until_ready(home)
        figures: Figures = {"rss_ready": resident(process_id)}
        figures["ping"] = timed(lambda _: server.request("ping", {}), range(number))
        if "search" in chosen:
            figures |= _searched(server, filled, embedder, number)
        if "list" in chosen:
            figures |= _listed(server, number)
        if "add" in chosen:
            figures |= _added(server, embedder, filled.sentences.memories(number))
            wait_until_ready(home)
        figures["rss"] = resident(process_id)
    before, after = model_rss(filled.embedder, filled.memories[:number])
    return figures | {"rss_model": after, "rss_model_share": after - before}


def _searched(server: Server, filled: Filled, embedder: Embedder, number: int) -> Figures:
    small = [text for place, text in enumerate(filled.memories) if agent_of(place)]
    scope = {"agent_id": AGENT}
    figures: Figures = {}
    for name, known, filters in (("search", filled.memories, {}), ("search_small", small, {"scope": scope})):
        hits: list[int] = []

        def search(question: str, counts: list[int], more: dict[str, Any]) -> None:
            counts.append(len(call(server, "search_memories", {"query": question, **more})["results"]))

        def embed(question: str) -> None:
            embedder.embed_queries([question])

        calls = (partial(search, counts=hits, more=filters), embed)
        figures[name], embedding = timed_in_turn(calls, filled.sentences.questions(number, known))
        figures[f"{name}_less_embedding"] = difference(figures[name], embedding)
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


def _added(server: Server, embedder: Embedder, texts: Sequence[str]) -> Figures:
    events: list[str] = []

    def add(text: str) -> None:
        events.extend(result["event"] for result in call(server, "add_memory", {"text": text})["results"])

    times, embedding = timed_in_turn((add, lambda text: embedder.embed_passages([text])), texts)
    return {
        "add": times,
        "add_less_embedding": difference(times, embedding),
        "add_first": times[:EDGE],
        "add_last": times[-EDGE:],
        "add_known": len(texts) - events.count("ADD"),
    }


def measure(size: int, home: Path, embedder: str, chosen: set[str], rounds: int, *, refill: bool) -> Figures:
    """Fill a directory, or use the one that is there, and take the chosen measures."""
    home.mkdir(parents=True, exist_ok=True)
    sentences = Sentences(size)
    filled = Filled(home, sentences.memories(size), sentences, embedder)
    name = hashlib.sha256("\n".join(filled.memories).encode()).hexdigest()[:12]
    # The name changes with the texts and the embedder, so that a directory with others is not used.
    fill_figures_file = home / f"filled-{embedder}-{name}.json"
    if refill or not fill_figures_file.exists():
        fill_figures_file.unlink(missing_ok=True)
        fill_figures_file.write_text(json.dumps(fill(home, filled.memories, embedder)), "utf-8")
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


def _measure_postgres(options: argparse.Namespace) -> None:
    from replicas.speed import main as main_of_postgres  # noqa: PLC0415 - needs the driver of PostgreSQL

    with tempfile.TemporaryDirectory() as folder:
        kept = options.keep or Path(folder)
        main_of_postgres(options.sizes, options.rounds, options.embedder, kept, options.json)


def main() -> None:
    """Read the arguments, measure size by size, print a table, and write the figures to files if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000], help="the numbers of memories"
    )
    parser.add_argument("--rounds", type=int, default=200, help=f"timed calls, after {WARM_UPS} warm-ups (default 200)")
    embedders.add_option(parser)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=[], help="take these measures only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the medians")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled directories here, and use them")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="where the ledger is (default sqlite)")
    options = parser.parse_args()
    if min(options.sizes) < 100 or options.rounds < 1:
        parser.error("--sizes must be 100 or more, and --rounds 1 or more")
    for name in [name for name in os.environ if name.startswith(("PALIMPSEST_", "OPENAI_"))]:
        del os.environ[name]
    os.environ |= {"PALIMPSEST_USER_ID": USER, "PALIMPSEST_LLM__PROVIDER": "none"}
    os.environ["PALIMPSEST_EMBEDDER__PROVIDER"] = options.embedder
    if options.store == "postgres":
        _measure_postgres(options)
        return
    chosen: set[str] = set(options.only or MEASURES)
    refill = "import" in options.only
    about = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "embedder": options.embedder,
        **{name: version(name) for name in ("palimpsest-mcp", "chromadb", "mcp")},
    }
    figures_by_size: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in options.sizes:
            home = (options.keep or Path(folder)).absolute() / options.embedder / str(size)
            figures_by_size[size] = measure(size, home, options.embedder, chosen, options.rounds, refill=refill)
            if options.json:  # after every size: the largest takes long
                figures = {
                    "about": about,
                    "embedder": options.embedder,
                    "rounds": options.rounds,
                    "sizes": figures_by_size,
                }
                options.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
            print(f"{size:,} memories measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print(table(figures_by_size))
    if options.plot:
        plot(figures_by_size, options.plot)


if __name__ == "__main__":
    main()
