"""Compare this server with its peers: recall, latency, start, memory, disk and tokens, in one run on one machine.

    python benchmarks/compare.py --data locomo10.json --json figures.json --plots plots
    python benchmarks/compare.py --data locomo10.json --embedder e5 --only palimpsest mem0

The peers are mem0 with Chroma, the official server-memory, plain Chroma and BM25. Each is installed into an environment
of its own, from the registries that pip and npm are configured for. Each gets the same texts, questions and number of
hits; `peers/systems.py` has the calls. A peer that cannot be installed or run is named under the tables, and the others
are still measured. Nothing is written outside temporary folders and the given paths. Plots need matplotlib: pip install
matplotlib.

There are two tables. In the first, all systems get vectors of the same embedder. In the second, mem0 and Chroma have
their own default stores and embedders. mem0's default embedder is OpenAI's: without OPENAI_API_KEY it gets the vectors
of the first table there too, and the text above the tables says so.

The LoCoMo file is not part of this project; see `locomo.py`.
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

import embedders
from locomo import Conversation, read
from loopback import Embed, OpenAIServer
from palimpsest.core.protocols import Embedder
from peers.child import PeerError
from peers.measures import (
    WARM_UP,
    Figures,
    Measured,
    measure_load,
    measure_paraphrases,
    measure_recall,
    record_failures,
)
from peers.plots import draw
from peers.report import OURS, notes, table
from peers.systems import PREFIXES, SYSTEMS, WITH_DEFAULTS, Preparation, System
from peers.workload import choose_workload, read_lives

PARAPHRASES = Path(__file__).parent / "paraphrases.json"
OPERATIONS = 200
MAX_MEMORIES = 20_000  # there are enough different texts for this many


def served(embedder: Embedder) -> Embed:
    """Return a function that embeds texts with one of the `PREFIXES` as questions or as passages."""

    def embed(texts: list[str]) -> list[list[float]]:
        query, passage = PREFIXES["query"], PREFIXES["passage"]
        if texts and all(text.startswith(query) for text in texts):
            return [embedder.embed_queries([text.removeprefix(query)])[0].tolist() for text in texts]
        return embedder.embed_passages([text.removeprefix(passage) for text in texts]).tolist()

    return embed


def prepare(names: Sequence[str], given: Preparation) -> tuple[dict[str, System], dict[str, str]]:
    """Install the named systems. Return those that are ready, and the reasons why the others are not."""
    systems: dict[str, System] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            systems[name] = SYSTEMS[name](given)
        except PeerError as error:
            missing[name] = str(error)
    return systems, missing


def measure(
    systems: Mapping[str, System], conversations: Sequence[Conversation], options: argparse.Namespace
) -> Measured:
    """Take all measures of all systems."""
    measured = {name: Figures(system.version) for name, system in systems.items()}
    lives = read_lives(options.paraphrases) if options.paraphrases.is_file() else []
    with tempfile.TemporaryDirectory(prefix="compare-") as root:
        workload = choose_workload(conversations, options.memories, options.operations + WARM_UP)
        with timed_part("latency, memory, disk and start of all"):
            measure_load(systems, measured, workload, Path(root))
    for name, system in systems.items():
        with timed_part(f"recall of {name}"), record_failures(measured[name], "recall"):
            measure_recall(system, measured[name], conversations)
        with timed_part(f"paraphrases of {name}"), record_failures(measured[name], "paraphrases"):
            if lives:
                measure_paraphrases(system, measured[name], lives)
    return measured


@contextmanager
def timed_part(name: str) -> Generator[None]:
    """Print on stderr how long a part took."""
    began = time.perf_counter()
    yield
    print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo JSON file")
    parser.add_argument(
        "--paraphrases", type=Path, default=PARAPHRASES, help="a file of lives (default: the one beside this script)"
    )
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="NAME")
    embedders.add_option(parser)
    parser.add_argument(
        "--memories", type=int, default=1000, help="the number of memories stored before anything is timed"
    )
    parser.add_argument(
        "--operations",
        type=int,
        default=OPERATIONS,
        help="the number of timed adds, and of timed searches, of each system",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="write bar charts into this folder")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="keep the peers' environments here")
    options = parser.parse_args()
    if not 1 <= options.memories <= MAX_MEMORIES or not 1 <= options.operations <= MAX_MEMORIES:
        parser.error(f"--memories and --operations must be between 1 and {MAX_MEMORIES}")
    if options.plots and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plots needs matplotlib: pip install matplotlib")
    return options


def main() -> None:
    """Install, measure, print the table, and write figures and plots if asked to."""
    options = arguments()
    conversations = read(options.data)
    embedder = embedders.open_named(options.embedder)
    with (
        tempfile.TemporaryDirectory(prefix="compare-") as folder,
        OpenAIServer(embed=served(embedder)) as server,
    ):
        environments = (options.environments or Path(folder)).absolute()
        dims = len(embedder.embed_queries(["dims"])[0])
        with timed_part("installing"):
            given = Preparation(environments, options.embedder, embedder.fingerprint, server.base_url, dims)
            systems, missing = prepare(options.only, given)
        measured = measure(systems, conversations, options)
    labels = {name: system.name for name, system in systems.items()}
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    versions = ", ".join(f"{system.name} {system.version}" for system in systems.values())
    questions = max((figures.questions for figures in measured.values()), default=0)
    print(f"{versions}; {machine}; {questions} questions, {options.memories:,} memories\n")
    same = {name: figures for name, figures in measured.items() if name == OURS or name not in WITH_DEFAULTS}
    print(f"All with vectors of {embedder.fingerprint}:\n\n{table(same, labels)}\n")
    own = {name: figures for name, figures in measured.items() if name in WITH_DEFAULTS}
    if len(own) > 1:
        print(f"mem0 and Chroma with their own defaults:\n\n{table(own, labels)}\n")
    for note in notes(measured, missing):
        print(f"- {note}")
    if options.json:
        about = {"machine": machine, "embedder": embedder.fingerprint, "memories": options.memories}
        figures = {name: system_figures.as_json() for name, system_figures in measured.items()}
        document = {**about, "questions": questions, "missing": missing, "systems": figures}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if options.plots:
        for file in draw(measured, labels, options.plots):
            print(f"wrote {file}", file=sys.stderr)


if __name__ == "__main__":
    main()
