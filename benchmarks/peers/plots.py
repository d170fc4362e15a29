"""Draw bar charts of a comparison as PNG files: recall, latency, start and memory. Needs matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.measures import Figures, Measured, quantile
from peers.report import OURS, Take

OUR_COLOUR = "#0b6e4f"
COLOURS = ("#d1495b", "#edae49", "#4f7cac", "#8d6a9f", "#8a8d91")
STEPS = tuple(step * 10.0**power for power in range(-2, 5) for step in (1, 2, 5))  # tick marks of a logarithmic scale


@dataclass(frozen=True)
class Panel:
    """One chart with groups of bars. `recall` is as in the rows of the table."""

    title: str
    bars: tuple[tuple[str, Take], ...]
    number_format: str
    log: bool = False
    recall: bool = False


def _paraphrased(figures: Figures) -> float | None:
    return figures.paraphrases[0] / figures.paraphrases[1] if figures.paraphrases else None


CHARTS: dict[str, tuple[Panel, ...]] = {
    "recall": (
        Panel(
            "Share found among the first hits (more is better; ≤ an upper bound, see the table)",
            (
                ("LoCoMo recall@5", lambda f: f.recall.get(5)),
                ("LoCoMo recall@10", lambda f: f.recall.get(10)),
                ("paraphrase hits@5", _paraphrased),
            ),
            "{:.2f}",
            recall=True,
        ),
    ),
    "latency": (
        Panel(
            "Latency of one operation in ms, log scale (less is better)",
            (
                ("add p50", lambda f: quantile(f.add_ms)),
                ("add p95", lambda f: quantile(f.add_ms, 0.95)),
                ("search p50", lambda f: quantile(f.search_ms)),
                ("search p95", lambda f: quantile(f.search_ms, 0.95)),
            ),
            "{:.1f}",
            log=True,
        ),
    ),
    "start-and-memory": (
        Panel(
            "Start in s (less is better)",
            (
                ("to initialize (MCP servers)", lambda f: quantile(f.initialize_s)),
                ("to the first answer", lambda f: quantile(f.first_answer_s)),
            ),
            "{:.2f}",
        ),
        Panel(
            "RSS in MB (less is better)",
            (("after the load", lambda f: f.rss_bytes / 1e6 if f.rss_bytes else None),),
            "{:.0f}",
        ),
    ),
}


def draw(measured: Measured, labels: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the charts into a folder, and return the files."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    patch: Any = importlib.import_module("matplotlib.patches").Patch
    pyplot.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    folder.mkdir(parents=True, exist_ok=True)
    colours = dict(zip((name for name in measured if name != OURS), COLOURS, strict=False)) | {OURS: OUR_COLOUR}
    legend = [patch(color=colours[name], label=labels[name]) for name in measured]
    files: list[Path] = []
    for name, panels in CHARTS.items():
        widths = {"width_ratios": [len(panel.bars) + 0.3 for panel in panels]}
        figure, axes = pyplot.subplots(1, len(panels), figsize=(11, 4.6), squeeze=False, gridspec_kw=widths)
        for axis, panel in zip(axes[0], panels, strict=True):
            _fill(axis, panel, measured, colours)
        figure.legend(handles=legend, loc="lower center", ncols=len(legend), frameon=False)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        files.append(folder / f"{name}.png")
        figure.savefig(files[-1], dpi=150)
        pyplot.close(figure)
    return files


def _fill(axis: Any, panel: Panel, measured: Measured, colours: Mapping[str, str]) -> None:
    """Draw a group of bars for each measure: a bar for each system that has the figure, with the value on top."""
    width = 0.84 / max(len(measured), 1)
    for place, (_, take) in enumerate(panel.bars):
        values = [(name, value) for name, figures in measured.items() if (value := take(figures)) is not None]
        left = place - width * (len(values) - 1) / 2
        for number, (name, value) in enumerate(values):
            bars = axis.bar(left + number * width, value, width * 0.92, color=colours[name])
            prefix = "≤ " if panel.recall and measured[name].bound and value else ""
            axis.bar_label(bars, labels=[prefix + panel.number_format.format(value)], padding=2, fontsize=8.5)
    axis.set_title(panel.title, loc="left", fontsize=12)
    axis.set_xticks(range(len(panel.bars)), [label for label, _ in panel.bars])
    axis.set_xlim(-0.5, len(panel.bars) - 0.5)
    axis.tick_params(axis="x", length=0)
    axis.grid(axis="y", alpha=0.25)
    axis.set_axisbelow(True)
    if panel.log:
        axis.set_yscale("log")
    axis.margins(y=0.12)
    if panel.log:
        low, high = axis.get_ylim()
        ticks = [tick for tick in STEPS if low <= tick <= high]
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.set_ylim(low, high)
