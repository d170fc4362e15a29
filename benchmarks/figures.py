"""Show the measured figures by the number of memories, as a table and as a plot."""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any, TypeAlias

from yardstick import LARGE_BATCH, NEAREST, SMALL_BATCH

EDGE = 50
"""The number of adds at the beginning and at the end that have rows of their own in the table."""

Figures: TypeAlias = dict[str, Any]
"""Figures by name: one number, or one number for each call."""

ROWS = {
    "import_seconds": "import: the whole command, s",
    "import_rate": "import: memories/s of the whole command",
    "ledger_rate": "import: rows/s into the ledger",
    "after_ledger_seconds": "import: s after the last row",
    "background_seconds": "vectors and index: s in a server's background, from the first call",
    "rebuild_seconds": "rebuild: full text and index, s",
    "index_rate": "rebuild: vectors/s into the index",
    "chroma_rate_small": f"Chroma alone: vectors/s, batches of {SMALL_BATCH}",
    "chroma_rate_large": f"Chroma alone: vectors/s, batches of {LARGE_BATCH}",
    "index_to_chroma_small": f"rebuild / Chroma alone, batches of {SMALL_BATCH}",
    "index_to_chroma_large": f"rebuild / Chroma alone, batches of {LARGE_BATCH}",
    "bytes_total": "disk: bytes a memory",
    "bytes_ledger": "disk: bytes a memory, ledger",
    "bytes_index": "disk: bytes a memory, index",
    "floor_embed": "floor: embed a question, ms",
    "floor_vectors": f"floor: Chroma, {NEAREST} nearest, ms",
    "floor_words": f"floor: FTS5, best {NEAREST} by BM25, ms",
    "floor": "floor: the three together, ms",
    "search_to_floor": "search p50 / floor p50",
    "start": "start to `initialize` reply, ms",
    "start_minimal": "start of a minimal SDK server, ms",
    "start_ratio": "start / minimal, pair by pair",
    "first_search": "start to first search answered, ms",
    "ping": "ping, ms",
    "search": "search_memories, whole scope, ms",
    "search_less_embedding": "search_memories, whole scope, p50 less the embedding of the question, ms",
    "search_small": "search_memories, 1 % scope, ms",
    "search_small_less_embedding": "search_memories, 1 % scope, p50 less the embedding of the question, ms",
    "list": "list_memories, first page of 20, ms",
    "list_next": "list_memories, following pages, ms",
    "add": "add_memory, ms",
    "add_less_embedding": "add_memory, p50 less the embedding of the text, ms",
    "add_first": f"add_memory, first {EDGE}, ms",
    "add_last": f"add_memory, last {EDGE}, ms",
    "add_known": "add_memory: not added, of all",
    "rss_ready": "RSS with the index ready, MB",
    "rss": "RSS after all calls, MB",
    "rss_model": "RSS of a process that only opens the embedder and embeds, MB",
    "rss_model_share": "of that, the embedder's share, MB",
}
PLOTTED = {
    "add": "add",
    "search": "search",
    "search_small": "search, 1 % scope",
    "list": "list",
    "first_search": "start and first search",
}


def cell(value: float | list[float] | None) -> str:
    """Return a number, or the p50 and p95 of several, with three significant digits."""
    if value is None:
        return "-"
    if isinstance(value, list):
        ordered = sorted(value)
        return f"{cell(statistics.median(ordered))} / {cell(ordered[int(0.95 * len(ordered))])}"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def table(figures_by_size: dict[int, Figures]) -> str:
    """Return a Markdown table with a row for each measure and a column for each size."""
    lines = [["p50 / p95 of what is measured many times", *(f"{size:,}" for size in figures_by_size)]]
    lines.append(["---", *("---:" for _ in figures_by_size)])
    for name, label in ROWS.items():
        if any(name in figures for figures in figures_by_size.values()):
            lines.append([label, *(cell(figures.get(name)) for figures in figures_by_size.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plot(figures_by_size: dict[int, Figures], file: Path) -> None:
    """Draw the medians over the number of memories, with two logarithmic axes."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for (name, label), marker in zip(PLOTTED.items(), "os^Dv", strict=True):
        points = [
            (size, statistics.median(figures[name])) for size, figures in figures_by_size.items() if name in figures
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, label=label)
    axes.set(xscale="log", yscale="log", xlabel="memories", ylabel="milliseconds, p50", title="Palimpsest over stdio")
    axes.grid(visible=True, which="both", alpha=0.25)
    figure.legend(loc="outside right upper")
    figure.savefig(file, dpi=150)
