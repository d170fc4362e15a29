"""Compare this server with its peers: recall, latency, start, memory, disk and tokens, in one run on one machine.

    python benchmarks/compare.py --data locomo10.json --plots plots
    python benchmarks/compare.py --data locomo10.json --embedder e5 --only palimpsest mem0

The peers are mem0 with Chroma and with its default store, the official server-memory, plain Chroma and BM25. Each is
installed into an environment of its own, from the registries that pip and npm are configured for. Each gets the same
texts, questions and number of hits, and vectors of the same embedder; `peers/systems.py` has the calls. A peer that
cannot be installed or run is named under the table, and the others are still measured. Nothing is written outside
temporary folders and the given paths. Plots need matplotlib: pip install matplotlib.

The LoCoMo file is not part of this project; see `locomo.py`.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

import embedders
from harness import in_turn, parser_of, percentile, plotting
from locomo import read
from loopback import Embed, OpenAIServer
from palimpsest.core.protocols import Embedder
from peers.measures import Figures, Open, measure_load, measure_paraphrases, measure_recall, record_failures
from peers.systems import PREFIXES, SYSTEMS, Given

PARAPHRASES = Path(__file__).with_name("paraphrases.json")

# How many single vectors are asked for, to time the embeddings server.
EMBEDDED = 50

OUR_COLOUR = "#0b6e4f"
COLOURS = ("#d1495b", "#edae49", "#4f7cac", "#8d6a9f", "#8a8d91")

Measured = Mapping[str, Figures]


@dataclass(frozen=True)
class Row:
    """A figure: how it is named, taken and written, whether more is better, and whether it may be an upper bound."""

    label: str
    take: Callable[[Figures], float | None]
    number_format: str = "{:.1f}"
    more_is_better: bool = False

    def shown(self, figures: Figures) -> str:
        """Return the figure of a system as the table shows it."""
        value = self.take(figures)
        if value is None:
            return "-"
        return ("≤ " if self.more_is_better and figures.bound and value else "") + self.number_format.format(value)


def _median(times: Sequence[float]) -> float | None:
    return percentile(times, 0.5) if times else None


RECALL_5 = Row("LoCoMo recall@5", lambda of: of.recall.get(5), "{:.3f}", more_is_better=True)
RECALL_10 = Row("LoCoMo recall@10", lambda of: of.recall.get(10), "{:.3f}", more_is_better=True)
PARAPHRASED = Row("paraphrase hits@5", lambda of: of.paraphrases and of.paraphrases[0], "{:g}", more_is_better=True)
PARAPHRASED_SHARE = Row(
    "paraphrase hits@5",
    lambda of: of.paraphrases and of.paraphrases[0] / of.paraphrases[1],
    "{:.2f}",
    more_is_better=True,
)
ROWS = (
    RECALL_5,
    RECALL_10,
    PARAPHRASED,
    Row("add p50, ms", lambda of: _median(of.times["add"])),
    Row("search p50, ms", lambda of: _median(of.times["search"])),
    Row("start to first answer, s", lambda of: _median(of.first_answer), "{:.2f}"),
    Row("RSS after the load, MB", lambda of: of.rss, "{:.0f}"),
    Row("disk bytes a memory", lambda of: of.bytes_each, "{:,.0f}"),
    Row("tool schemas, tokens", lambda of: of.schema_tokens, "{:,.0f}"),
)
CHART = "Found among the first hits (more is better; ≤ an upper bound)"
CHARTED = (RECALL_5, RECALL_10, PARAPHRASED_SHARE)


def served(embedder: Embedder) -> Embed:
    """Return a function that embeds texts with one of the `PREFIXES` as questions or as passages."""

    def embed(texts: list[str]) -> list[list[float]]:
        query, passage = PREFIXES["query"], PREFIXES["passage"]
        if texts and all(text.startswith(query) for text in texts):
            return embedder.embed_queries([text.removeprefix(query) for text in texts]).tolist()
        return embedder.embed_passages([text.removeprefix(passage) for text in texts]).tolist()

    return embed


def table(measured: Measured) -> Iterator[str]:
    """Yield the lines of a Markdown table. The best values are in bold."""
    yield "| | " + " | ".join(SYSTEMS[name].name for name in measured) + " |"
    yield "|---" * (len(measured) + 1) + "|"
    for row in ROWS:
        taken = [(value, row.shown(of)) for of in measured.values() if (value := row.take(of)) is not None]
        best = (max if row.more_is_better else min)(taken)[1] if len(taken) > 1 else ""
        shown = [row.shown(of) for of in measured.values()]
        yield f"| {row.label} | " + " | ".join(f"**{text}**" if text == best else text for text in shown) + " |"


def notes(measured: Measured, missing: Mapping[str, str], vector_ms: float) -> Iterator[str]:
    """Yield the notes that explain the figures."""
    for name, reason in missing.items():
        yield f"{name} is missing from the comparison: {reason}."
    for name, figures in measured.items():
        yield from (f"{name} failed in {failure}" for failure in dict.fromkeys(figures.failures))
    yield f"A request of one vector from the embeddings server takes {vector_ms:.1f} ms (p50)."


def draw(measured: Measured, file: Path) -> None:
    """Write a bar chart of recall."""
    pyplot = plotting()
    figure, axes = pyplot.subplots(figsize=(11, 4.6), layout="constrained")
    colours = [OUR_COLOUR, *COLOURS] if "palimpsest" in measured else COLOURS
    width = 0.84 / max(len(measured), 1)
    for number, ((name, figures), colour) in enumerate(zip(measured.items(), colours, strict=False)):
        values = [row.take(figures) or 0.0 for row in CHARTED]
        places = [place + (number - len(measured) / 2 + 0.5) * width for place in range(len(CHARTED))]
        bars = axes.bar(places, values, width * 0.92, color=colour, label=SYSTEMS[name].name)
        axes.bar_label(bars, labels=[row.shown(figures) for row in CHARTED], padding=2, fontsize=8.5)
    axes.set_title(CHART, loc="left", fontsize=12)
    axes.set_xticks(range(len(CHARTED)), [row.label for row in CHARTED])
    axes.margins(y=0.12)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.2), ncols=len(measured), frameon=False)
    figure.savefig(file, dpi=150)


def prepare(names: list[str], given: Given) -> tuple[dict[str, Open], dict[str, str]]:
    """Install the named systems. Return how to open those that are ready, and why the others are not."""
    systems: dict[str, Open] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            systems[name] = SYSTEMS[name].prepare(given)
        except (RuntimeError, OSError) as error:
            missing[name] = str(error)
    return systems, missing


def main() -> None:
    """Install, measure, print the table, and draw plots if asked to."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo JSON file")
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--memories", type=int, default=1000, help="memories that are stored before anything is timed")
    parser.add_argument("--operations", type=int, default=200, help="timed adds, and timed searches, of each system")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write the bar chart recall.png into this folder")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="keep the peers' environments here")
    embedders.add_option(parser)
    options = parser.parse_args()
    conversations, lives = read(options.data), json.loads(PARAPHRASES.read_text("utf-8"))["lives"]
    embedder = embedders.open_named(options.embedder)
    with tempfile.TemporaryDirectory(prefix="compare-") as folder, OpenAIServer(embed=served(embedder)) as server:
        environments = (options.environments or Path(folder)).absolute()
        dims = len(embedder.embed_queries(["dims"])[0])
        given = Given(environments, options.embedder, embedder.fingerprint, server.base_url, dims)
        systems, missing = prepare(options.only, given)
        measured = {name: Figures() for name in systems}
        measure_load(systems, measured, conversations, options.memories, options.operations)
        for name, open_store in systems.items():
            print(f"recall and paraphrases of {name}", file=sys.stderr)
            with record_failures(measured[name], "recall"):
                measure_recall(open_store, measured[name], conversations)
            with record_failures(measured[name], "paraphrases"):
                measure_paraphrases(open_store, measured[name], lives)

        def embed(text: str) -> None:
            httpx.post(f"{server.base_url}/embeddings", json={"input": [text]}, timeout=600).raise_for_status()

        (times,) = in_turn([embed], lives[0]["memories"][:EMBEDDED])
    versions = ", ".join(f"{SYSTEMS[name].name} {SYSTEMS[name].version}" for name in systems)
    questions = sum(len(conversation.questions) for conversation in conversations)
    of_life = sum(len(life["asked"]) for life in lives)
    print(f"{versions}; Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(
        f"{questions} questions, {of_life} paraphrases, {options.memories:,} memories, vectors of {given.fingerprint}\n"
    )
    print("\n".join(table(measured)) + "\n")
    print("\n".join(f"- {note}" for note in notes(measured, missing, percentile(times, 0.5))))
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
        draw(measured, options.plots / "recall.png")


if __name__ == "__main__":
    main()
