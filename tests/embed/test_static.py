"""The embedder that comes with the package: static vectors, no key, no network."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from palimpsest.embed.static import LocalEmbedder

DOG = "My dog is a golden retriever."
NOBODY_IS_CALLED = """
import socket

class Closed(socket.socket):
    def __init__(self, *args, **kwargs):
        raise AssertionError("the local embedder opened a socket")

socket.socket = Closed
from palimpsest.embed.static import LocalEmbedder
print(LocalEmbedder().embed(["no network is needed"]).shape)
"""
LOGGING_IS_LEFT_ALONE = """
import logging

logging.getLogger().setLevel(logging.ERROR)
from palimpsest.embed.static import LocalEmbedder
LocalEmbedder()
print(logging.getLogger().level == logging.ERROR, logging.getLogger().handlers)
"""


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


def in_a_new_process(code: str) -> str:
    """Run code in a new interpreter. Any warning fails it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        " ",
        "\x00",
        "日本語のテキスト",
        "🧑‍🚀" * 40,
        "a" * 8_001,
        pytest.param("word " * 200_000, id="one megabyte of words"),
        pytest.param("x" * 1_000_000, id="one megabyte without a space"),
    ],
)
def test_every_text_becomes_a_vector_of_length_one(embedder: LocalEmbedder, text: str) -> None:
    """Guards unit vectors for any language, any character and any length."""
    vectors = embedder.embed([text])
    assert vectors.shape == (1, 256)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors[0]) == pytest.approx(1.0, abs=1e-5)


def test_an_empty_text_becomes_finite_numbers(embedder: LocalEmbedder) -> None:
    """Guards against a division by zero, whose NaN would spoil the mean of a user's vectors."""
    vectors = embedder.embed(["", DOG])
    assert vectors.shape == (2, 256)
    assert np.isfinite(vectors).all()


def test_no_texts_are_no_vectors(embedder: LocalEmbedder) -> None:
    """Guards an empty batch, which the weights themselves cannot take."""
    assert embedder.embed([]).shape == (0, 256)


def test_the_order_is_kept_whatever_the_lengths(embedder: LocalEmbedder) -> None:
    """Guards the sorting by length: each text gets its own vector, the same as when it is embedded alone."""
    texts = [f"topic {i} " * (1 + (i * 37) % 90) for i in range(120)]
    together = embedder.embed(texts)
    alone = np.stack([embedder.embed([text])[0] for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_the_same_text_has_the_same_vector_in_every_embedder(embedder: LocalEmbedder) -> None:
    """Guards the fingerprint: vectors of two runs are compared with each other."""
    again = LocalEmbedder()
    np.testing.assert_array_equal(embedder.embed([DOG, "x"]), again.embed([DOG, "x"]))
    assert embedder.fingerprint == again.fingerprint
    assert embedder.fingerprint.endswith(":256")


@pytest.mark.parametrize(
    ("text", "related", "unrelated"),
    [
        (DOG, "The puppy loves to play fetch.", "Interest rates rose last quarter."),
        ("She moved to Berlin.", "He relocated to Munich.", "The soup needs more salt."),
        ("What does he do for work?", "He is employed as an engineer.", "It rained all night."),
    ],
)
def test_a_related_text_is_nearer_than_another(
    embedder: LocalEmbedder, text: str, related: str, unrelated: str
) -> None:
    """Guards that the vectors mean something at all."""
    asked, near, far = embedder.embed([text, related, unrelated])
    assert asked @ near > asked @ far + 0.1


def test_one_long_text_among_many_does_not_blow_the_memory(embedder: LocalEmbedder) -> None:
    """Guards the batches: padded to the longest, three hundred texts would take two gigabytes."""
    texts = ["short"] * 300 + ["word " * 200_000]
    tracemalloc.start()
    try:
        embedder.embed(texts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


def test_no_network_is_needed() -> None:
    """Guards the default embedder: the first start opens no socket."""
    assert in_a_new_process(NOBODY_IS_CALLED) == "(1, 256)"


def test_the_root_logger_is_left_as_it_was() -> None:
    """Guards the application's logging, which the package changes when it is imported."""
    assert in_a_new_process(LOGGING_IS_LEFT_ALONE) == "True []"
