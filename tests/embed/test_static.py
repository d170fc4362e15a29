"""The embedder that comes with the package, which needs no key and no network, and the cache of questions."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from palimpsest.core.protocols import Vector
from palimpsest.embed.static import StaticEmbedder
from palimpsest.embed.workers import KEPT, QuestionCache
from palimpsest.text.tokenizer import QUESTION_WORDS
from tests.support.new_interpreter import output_of

DOG = "My dog is a golden retriever."
CODE_WITHOUT_SOCKETS = """
import logging
import socket

class Closed(socket.socket):
    def __init__(self, *args, **kwargs):
        raise AssertionError("the local embedder opened a socket")

socket.socket = Closed
logging.getLogger().setLevel(logging.ERROR)
from palimpsest.embed.static import StaticEmbedder
print(StaticEmbedder().embed_passages(["no network is needed"]).shape)
print(logging.getLogger().level == logging.ERROR, logging.getLogger().handlers)
"""
TEXTS = ("hello", " ", "\x00", "日本語のテキスト", "🧑‍🚀" * 40, "a" * 8_001, "word " * 200_000, "x" * 1_000_000)


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def test_every_text_becomes_a_vector_of_length_one(embedder: StaticEmbedder) -> None:
    for text in TEXTS:
        (vector,) = vectors = embedder.embed_passages([text])
        assert (vectors.shape, vectors.dtype) == ((1, 256), np.float32)
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5), text[:20]
    assert np.isfinite(embedder.embed_passages(["", DOG])).all()
    assert embedder.embed_passages([]).shape == (0, 256)


def test_no_network_is_needed_and_the_root_logger_is_not_changed() -> None:
    """The package wordllama changes the logger when it is imported."""
    assert output_of(CODE_WITHOUT_SOCKETS) == "(1, 256)\nTrue []"


class Counting(StaticEmbedder):
    """An embedder that counts its calls."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return vectors that depend on the length of the questions."""
        self.questions.extend(texts)
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


def test_a_question_is_embedded_once() -> None:
    embedder = Counting()
    cache = QuestionCache(embedder)
    first, again, other = cache.embed_queries(["Who?", "Who?", "Where?"])
    assert embedder.questions == ["Who?", "Where?"]
    np.testing.assert_array_equal(first, again)
    first[0] = 0
    np.testing.assert_array_equal(cache.embed_queries(["Where?", "Who?", "Why?"]), [other, again, [4, 1]])
    assert embedder.questions == ["Who?", "Where?", "Why?"]
    embedder.questions.clear()
    page = "word " * 5_000
    np.testing.assert_array_equal(cache.embed_queries([page])[0], cache.embed_queries([page + "and more"])[0])
    (question,) = embedder.questions
    assert len(question.split()) == QUESTION_WORDS


def test_the_question_kept_longest_is_dropped() -> None:
    """The memory of a server that runs for months is bounded. Its calls run in several threads."""
    embedder = Counting()
    cache = QuestionCache(embedder)
    for text in (*map(str, range(KEPT)), "one more"):
        cache.embed_queries([text])
    embedder.questions.clear()
    for text in ("1", "one more", "0"):
        cache.embed_queries([text])
    assert embedder.questions == ["0"]
    texts = [str(10**digits) for digits in range(50)] * 20
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(cache.embed_queries, ([text] for text in texts))
        assert [vectors[0, 0] for vectors in found] == [len(text) for text in texts]
