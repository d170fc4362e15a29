"""The embedder that comes with the package. It has static vectors and needs no key and no network."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from palimpsest.embed.static import StaticEmbedder
from tests.support.new_interpreter import output_of

DOG = "My dog is a golden retriever."
CODE_WITHOUT_SOCKETS = """
import socket

class Closed(socket.socket):
    def __init__(self, *args, **kwargs):
        raise AssertionError("the local embedder opened a socket")

socket.socket = Closed
from palimpsest.embed.static import StaticEmbedder
print(StaticEmbedder().embed_passages(["no network is needed"]).shape)
"""
CODE_THAT_PRINTS_THE_ROOT_LOGGER = """
import logging

logging.getLogger().setLevel(logging.ERROR)
from palimpsest.embed.static import StaticEmbedder
StaticEmbedder()
print(logging.getLogger().level == logging.ERROR, logging.getLogger().handlers)
"""


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


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
def test_every_text_becomes_a_vector_of_length_one(embedder: StaticEmbedder, text: str) -> None:
    """Guards unit vectors for any language, any character and any length."""
    vectors = embedder.embed_passages([text])
    assert vectors.shape == (1, 256)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors[0]) == pytest.approx(1.0, abs=1e-5)


def test_an_empty_text_has_a_finite_vector(embedder: StaticEmbedder) -> None:
    """Guards against a division by zero: its NaN would spoil the mean of a user's vectors."""
    vectors = embedder.embed_passages(["", DOG])
    assert vectors.shape == (2, 256)
    assert np.isfinite(vectors).all()


def test_an_empty_list_has_no_vectors(embedder: StaticEmbedder) -> None:
    """Guards an empty batch, which the model itself does not accept."""
    assert embedder.embed_passages([]).shape == (0, 256)


def test_the_order_is_kept_whatever_the_lengths_are(embedder: StaticEmbedder) -> None:
    """Guards the sorting by length: each text has the same vector as if it is embedded alone."""
    texts = [f"topic {i} " * (1 + (i * 37) % 90) for i in range(120)]
    together = embedder.embed_passages(texts)
    alone = np.stack([embedder.embed_passages([text])[0] for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_the_same_text_has_the_same_vector_in_every_embedder(embedder: StaticEmbedder) -> None:
    """Guards the fingerprint: vectors of two runs are compared with each other."""
    other_embedder = StaticEmbedder()
    np.testing.assert_array_equal(embedder.embed_passages([DOG, "x"]), other_embedder.embed_passages([DOG, "x"]))
    assert embedder.fingerprint == other_embedder.fingerprint
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
    embedder: StaticEmbedder, text: str, related: str, unrelated: str
) -> None:
    """Guards the meaning of the vectors."""
    query, near, far = embedder.embed_passages([text, related, unrelated])
    assert query @ near > query @ far + 0.1


def test_one_long_text_among_many_does_not_exhaust_the_memory(embedder: StaticEmbedder) -> None:
    """Guards the batches: padded to the longest text, three hundred texts would take two gigabytes."""
    texts = ["short"] * 300 + ["word " * 200_000]
    tracemalloc.start()
    try:
        embedder.embed_passages(texts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


def test_no_network_is_needed() -> None:
    """Guards the default embedder: the first start opens no socket."""
    assert output_of(CODE_WITHOUT_SOCKETS) == "(1, 256)"


def test_the_root_logger_is_not_changed() -> None:
    """Guards the application's logging against the wordllama package, which changes it when it is imported."""
    assert output_of(CODE_THAT_PRINTS_THE_ROOT_LOGGER) == "True []"
