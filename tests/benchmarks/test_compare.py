"""The embeddings server of the comparison treats questions and passages of all systems as our own embedder does."""

from __future__ import annotations

import numpy as np

from compare import served
from embedders import open_named
from peers.systems import PREFIXES


def test_marked_texts_are_embedded_as_questions_and_as_passages() -> None:
    """Guards a fair comparison: the mark says how to embed a text and is not a part of it."""
    embedder = open_named("static")
    embed = served(embedder)
    text = "The key is under the mat."
    assert np.allclose(embed([PREFIXES["query"] + text]), [embedder.embed_queries([text])[0]])
    assert np.allclose(embed([PREFIXES["passage"] + text]), embedder.embed_passages([text]))
