"""Vectors that a benchmark makes for a slow embedder, and the memory of an embedder."""

from __future__ import annotations

import numpy as np
import pytest

from embedders import mixed, model_rss


def test_mixtures_are_distinct_unit_vectors_that_begin_with_the_given_ones() -> None:
    """Guards the sizes of the benchmarks of speed: an index with equal vectors would be another one."""
    given = np.eye(7, dtype=np.float32)
    vectors = mixed(given, 49)
    assert np.allclose(vectors[:7], given)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert len({vector.tobytes() for vector in vectors}) == len(vectors)


@pytest.mark.nightly
def test_the_memory_of_a_process_grows_by_its_embedder() -> None:
    """Guards that the share of the model is measured in a process that has it."""
    assert model_rss("static", ["The key is under the mat."]) > 0
