"""The vectors of the last questions are kept, and a long question is cut."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.embed.workers import KEPT, QuestionCache
from palimpsest.text.tokenizer import QUESTION_WORDS
from tests.support.watched_embedder import WholeTextEmbedder


class Counting(WholeTextEmbedder):
    """An embedder that counts its calls and can fail."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.fails = False

    def embed_query(self, text: str) -> Vector:
        """Return a vector that depends on the length of the question."""
        self.questions.append(text)
        if self.fails:
            raise EmbedderError("the embedder failed")
        return np.array([len(text), 1], dtype=np.float32)


def test_a_question_is_embedded_once() -> None:
    """Agents ask the same question again, and one call may need its vector twice."""
    embedder = Counting()
    cache = QuestionCache(embedder)
    first, again, other = (cache.embed_query(text) for text in ("Who?", "Who?", "Where?"))
    assert embedder.questions == ["Who?", "Where?"]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_kept_vector_cannot_be_changed() -> None:
    """A caller that changed it would change the answers to later questions."""
    vector = QuestionCache(Counting()).embed_query("Who?")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 0


def test_the_question_asked_longest_ago_is_dropped() -> None:
    """The memory of a server that runs for months is bounded."""
    embedder = Counting()
    cache = QuestionCache(embedder)
    for number in range(KEPT):
        cache.embed_query(str(number))
    cache.embed_query("0")
    cache.embed_query("one more")
    embedder.questions.clear()
    for text in ("0", "one more", "1"):
        cache.embed_query(text)
    assert embedder.questions == ["1"]


def test_a_failure_is_not_kept() -> None:
    """The next call tries again."""
    embedder = Counting()
    cache = QuestionCache(embedder)
    embedder.fails = True
    with pytest.raises(EmbedderError):
        cache.embed_query("Who?")
    embedder.fails = False
    assert cache.embed_query("Who?").tolist() == [4, 1]


def test_a_long_question_is_cut() -> None:
    """A pasted page costs as much as a long question, and is the same question with another end."""
    embedder = Counting()
    cache = QuestionCache(embedder)
    page = "word " * 5_000
    np.testing.assert_array_equal(cache.embed_query(page), cache.embed_query(page + "and more"))
    (question,) = embedder.questions
    assert len(question.split()) == QUESTION_WORDS


def test_many_threads_may_ask_at_once() -> None:
    """Calls of a server run in several threads."""
    cache = QuestionCache(Counting())
    texts = [str(10**digits) for digits in range(50)] * 20
    with ThreadPoolExecutor(8) as pool:
        assert [vector[0] for vector in pool.map(cache.embed_query, texts)] == [len(text) for text in texts]
