"""The OpenAI-compatible embedder, against a real HTTP server on loopback."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loopback import EMBEDDING_DIMS, OpenAIServer, word_vectors
from palimpsest.core.errors import EmbedderError
from palimpsest.core.settings import EmbedderConfig, Endpoint
from palimpsest.embed.openai import BATCH, MAX_CHARS, OpenAIEmbedder

KEY = "sk-never-shown-0123456789"


def embedder_at(base_url: str, *, dims: int | None = None, timeout: float = 5.0) -> OpenAIEmbedder:
    config = EmbedderConfig(model="scripted", embedding_dims=dims, timeout=timeout)
    return OpenAIEmbedder(config, Endpoint(KEY, base_url))


def test_texts_are_sent_in_batches_and_their_vectors_keep_the_order() -> None:
    with OpenAIServer() as server:
        embedder = embedder_at(server.base_url)
        sizes: dict[int, list[int]] = {0: [], 1: [1], BATCH: [BATCH], BATCH + 1: [BATCH, 1], 300: [BATCH, BATCH, 44]}
        for texts, requests in sizes.items():
            before = len(server.embedding_requests)
            inputs = [f"word{i} and word{i * 7}" for i in range(texts)]
            vectors = embedder.embed_passages(inputs)
            assert [len(request["input"]) for request in server.embedding_requests[before:]] == requests
            assert (len(vectors), vectors.dtype) == (texts, np.float32)
            if texts:
                np.testing.assert_allclose(vectors, np.array(word_vectors(inputs)), atol=1e-6)
        embedder.embed_passages(["x" * (MAX_CHARS + 1), "short"])
        assert [len(text) for text in server.embedding_requests[-1]["input"]] == [MAX_CHARS, 5]


def test_the_settings_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with OpenAIServer(api_key=KEY) as server:
        for dims in (None, 8):
            embedder = embedder_at(server.base_url, dims=dims)
            assert embedder.embed_passages(["one text"]).shape == (1, dims or EMBEDDING_DIMS)
            assert embedder.fingerprint == f"openai:scripted:{dims or 'own'}"
            request = server.requests[-1]
            assert (request["path"], request["json"]["model"]) == ("/v1/embeddings", "scripted")
            assert request["json"].get("dimensions") == dims
            assert request["headers"]["authorization"] == f"Bearer {KEY}"


def test_vectors_that_are_not_valid_are_refused() -> None:
    """Guards the ledger against wrong vectors, which would stay in it. A later batch fails the whole call."""
    wrong: dict[str, list[list[float]]] = {
        "too few": [[1.0, 0.0]],
        "none": [],
        "not a number": [[1.0, 0.0], [math.nan, 1.0]],
        "ragged": [[1.0, 0.0], [1.0]],
    }
    replies = iter([*wrong.values(), [[1.0, 0.0]] * BATCH, [[1.0, 0.0]]])
    with OpenAIServer(embed=lambda _: next(replies)) as server:
        for _ in wrong:
            with pytest.raises(EmbedderError, match="scripted"):
                embedder_at(server.base_url).embed_passages(["a", "b"])
        with pytest.raises(EmbedderError):
            embedder_at(server.base_url).embed_passages(["text"] * (BATCH + 2))


def test_a_wrong_key_or_path_is_reported() -> None:
    with OpenAIServer(api_key="another") as server:
        with pytest.raises(EmbedderError, match=r"401.*Check embedder\.config") as error:
            embedder_at(server.base_url).embed_passages(["a"])
        assert KEY not in str(error.value)
        with pytest.raises(EmbedderError, match=r"40[14].*Check embedder\.config"):
            embedder_at(f"{server.base_url}/nothing").embed_passages(["a"])
