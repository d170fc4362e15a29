"""Open embedders by name, make many vectors with a slow one, and measure what one costs in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from palimpsest.core.protocols import Embedder
from palimpsest.core.settings import load_settings
from palimpsest.learn.engine import open_embedder

# The values of `embedder.provider` that need neither an endpoint nor a download.
NAMES = ("local", "static", "e5")

# The embedder that embeds thousands of texts in a second.
QUICK = "static"

# How many texts `made_vectors` embeds with a slow embedder. It embeds some thirty texts in a second.
MAX_EMBEDDED = 1_000

# The share of the second text in a mixture. The mixture then stays nearest to its first text.
SECOND_SHARE = 0.3

Vectors = npt.NDArray[np.float32]

_RSS_SCRIPT = """\
import json, sys
from embedders import open_named
from harness import resident
texts = json.load(sys.stdin)
before = resident("self")
embedder = open_named(sys.argv[1])
for text in texts:
    embedder.embed_passages([text])
    embedder.embed_queries([text])
print(resident("self") - before)
"""


def add_option(parser: ArgumentParser) -> None:
    """Add the option `--embedder` to a parser."""
    parser.add_argument(
        "--embedder", choices=NAMES, default=NAMES[0], help="the embedder.provider of the settings (default: local)"
    )


def open_named(name: str) -> Embedder:
    """Return the embedder with this provider name. Raises EmbedderError."""
    return open_embedder(load_settings(embedder={"provider": name}))


def made_vectors(name: str, texts: Sequence[str]) -> Vectors:
    """Return a unit vector for each text, of shape (n, dims). A slow embedder embeds the first texts only; see `mixed`.

    Vectors that are mixtures are as many and as large as real ones, but say nothing about the texts.
    """
    embedder = open_named(name)
    if name == QUICK or len(texts) <= MAX_EMBEDDED:
        return embedder.embed_passages(texts, background=True)
    return mixed(embedder.embed_passages(texts[:MAX_EMBEDDED], background=True), len(texts))


def mixed(vectors: Vectors, count: int) -> Vectors:
    """Return `count` unit vectors, of shape (count, dims): the given n ones, then mixtures of two of them.

    No pair is mixed twice in the first n * n.
    """
    numbers, n = np.arange(count), len(vectors)
    first, second = numbers % n, (numbers + numbers // n) % n
    share = np.where(first == second, 0.0, SECOND_SHARE)[:, None]
    sums = (1 - share) * vectors[first] + share * vectors[second]
    return np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True), dtype=np.float32)


def model_rss(name: str, texts: Sequence[str]) -> float:
    """Return by how many MB a process grows that opens an embedder and uses it as a search does.

    A model that is mapped from its file takes the memory of the parts that were used. So give it some hundred texts.
    """
    command = (sys.executable, "-c", _RSS_SCRIPT, name)
    process = subprocess.run(
        command, cwd=Path(__file__).parent, input=json.dumps(texts), check=True, capture_output=True, text=True
    )
    return float(process.stdout)
