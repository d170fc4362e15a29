"""Compare this server with its peers: recall, latency, start, memory, disk and tokens, in one go on one machine.

    python benchmarks/compare.py --data locomo10.json --json figures.json --plots plots

The peers are mem0 with Chroma, the official server-memory, plain Chroma and BM25. Each gets an environment of its own
from the registries that pip and npm are set to, and the same texts, questions and number of hits; `peers/systems.py`
says how each is asked. A peer that cannot be installed or run is named under the table, and the others go on. Nothing
is written outside temporary folders and the places named. Plots want `pip install matplotlib` first.

The LoCoMo file is not part of this project: see `locomo.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from locomo import Conversation, read
from loopback import OpenAIServer
from palimpsest.embed.static import LocalEmbedder
from peers.child import PeerError
from peers.given import read_lives, timed
from peers.measures import WARM_UP, Figures, Measured, measure_load, measure_paraphrases, measure_recall, noted
from peers.plots import draw
from peers.report import notes, table
from peers.systems import SYSTEMS, System

PARAPHRASES = Path(__file__).parent / "paraphrases.json"
OPERATIONS = 200
MOST_MEMORIES = 20_000  # there are enough different texts for these


def prepare(names: Sequence[str], environments: Path, base_url: str) -> tuple[dict[str, System], dict[str, str]]:
    """Install what is asked for; return the systems that are ready, and why the others are not."""
    systems: dict[str, System] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            systems[name] = SYSTEMS[name](environments, base_url)
        except PeerError as error:
            missing[name] = str(error)
    return systems, missing


def measure(
    systems: Mapping[str, System], conversations: Sequence[Conversation], options: argparse.Namespace
) -> Measured:
    """Take every measure of every system."""
    measured = {name: Figures(system.version) for name, system in systems.items()}
    lives = read_lives(options.paraphrases) if options.paraphrases.is_file() else []
    with tempfile.TemporaryDirectory(prefix="compare-") as root:
        given = timed(conversations, options.memories, options.operations + WARM_UP)
        with told("latency, memory, disk and start of all"):
            measure_load(systems, measured, given, Path(root))
    for name, system in systems.items():
        with told(f"recall of {name}"), noted(measured[name], "recall"):
            measure_recall(system, measured[name], conversations)
        with told(f"paraphrases of {name}"), noted(measured[name], "paraphrases"):
            if lives:
                measure_paraphrases(system, measured[name], lives)
    return measured


@contextmanager
def told(what: str) -> Generator[None]:
    """Say on stderr how long a part took."""
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo JSON file")
    parser.add_argument("--paraphrases", type=Path, default=PARAPHRASES, help="a file of lives (default: beside this)")
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--memories", type=int, default=1000, help="memories stored before the clock runs")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="timed adds, and searches, of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write bar charts into this folder")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="keep the peers' environments here")
    options = parser.parse_args()
    if not 1 <= options.memories <= MOST_MEMORIES or not 1 <= options.operations <= MOST_MEMORIES:
        parser.error(f"--memories and --operations must be between 1 and {MOST_MEMORIES}")
    if options.plots and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plots wants matplotlib: pip install matplotlib")
    return options


def main() -> None:
    """Install, measure, print the table, write figures and plots where asked."""
    options = arguments()
    conversations = read(options.data)
    embedder = LocalEmbedder()
    with (
        tempfile.TemporaryDirectory(prefix="compare-") as folder,
        OpenAIServer(embed=lambda texts: embedder.embed(texts).tolist()) as server,
    ):
        environments = (options.environments or Path(folder)).absolute()
        with told("installing"):
            systems, missing = prepare(options.only, environments, server.base_url)
        measured = measure(systems, conversations, options)
    labels = {name: system.name for name, system in systems.items()}
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    versions = ", ".join(f"{system.name} {system.version}" for system in systems.values())
    questions = max((figures.questions for figures in measured.values()), default=0)
    print(f"{versions}; {machine}; {questions} questions, {options.memories:,} memories\n")
    print(table(measured, labels) + "\n")
    for note in notes(measured, missing):
        print(f"- {note}")
    if options.json:
        figures = {name: each.as_json() for name, each in measured.items()}
        sizes = {"memories": options.memories, "conversations": len(conversations), "questions": questions}
        whole = {"machine": machine, **sizes, "missing": missing, "systems": figures}
        options.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    if options.plots:
        for file in draw(measured, labels, options.plots):
            print(f"wrote {file}", file=sys.stderr)


if __name__ == "__main__":
    main()
