"""The OpenAI-compatible embedder, against a real HTTP server on loopback."""

from __future__ import annotations

import math
import socket
import threading

import numpy as np
import pytest

from loopback import EMBEDDING_DIMS, OpenAIServer, word_vectors
from palimpsest.core.errors import EmbedderError
from palimpsest.embed.openai import BATCH, MAX_CHARS, OpenAIEmbedder

KEY = "sk-never-shown-0123456789"


def embedder_at(base_url: str, *, dims: int | None = None, timeout: float = 5.0) -> OpenAIEmbedder:
    return OpenAIEmbedder("scripted", api_key=KEY, base_url=base_url, dims=dims, timeout=timeout)


def batch_sizes(server: OpenAIServer) -> list[int]:
    """Return the number of texts in each request."""
    return [len(request["input"]) for request in server.embedding_requests]


class TestEmbedding:
    @pytest.mark.parametrize(
        ("texts", "requests"),
        [(1, [1]), (BATCH, [BATCH]), (BATCH + 1, [BATCH, 1]), (300, [BATCH, BATCH, 44])],
    )
    def test_texts_are_sent_in_batches_and_their_vectors_keep_the_order(self, texts: int, requests: list[int]) -> None:
        """Guards the limits of endpoints, and the order of the vectors."""
        inputs = [f"word{i} and word{i * 7}" for i in range(texts)]
        with OpenAIServer() as server:
            vectors = embedder_at(server.base_url).embed_passages(inputs)
            assert batch_sizes(server) == requests
        assert vectors.shape == (texts, EMBEDDING_DIMS)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, np.array(word_vectors(inputs)), atol=1e-6)

    def test_a_proxy_is_not_asked_for_what_is_on_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards privacy: a local endpoint was chosen so that nothing leaves the machine."""
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        with OpenAIServer() as server:
            assert len(embedder_at(server.base_url).embed_passages(["word"])) == 1

    def test_an_empty_list_sends_no_request(self) -> None:
        """Guards against an empty batch, to which endpoints respond with status 400."""
        with OpenAIServer() as server:
            assert len(embedder_at(server.base_url).embed_passages([])) == 0
            assert server.requests == []

    def test_vectors_are_normalized(self) -> None:
        """Guards unit length for vectors of any length, without a division by zero."""
        raw_vectors = [[3.0, 4.0], [0.001, 0.0], [0.0, 0.0]]
        with OpenAIServer(embed=lambda _: raw_vectors) as server:
            vectors = embedder_at(server.base_url).embed_passages(["a", "b", "c"])
        np.testing.assert_allclose(vectors, [[0.6, 0.8], [1.0, 0.0], [0.0, 0.0]], atol=1e-6)

    @pytest.mark.parametrize("dims", [None, 8])
    def test_dimensions_are_sent_only_if_they_are_set(self, dims: int | None) -> None:
        """Guards endpoints that do not know the parameter, and the setting for those that do."""
        with OpenAIServer() as server:
            embedder = embedder_at(server.base_url, dims=dims)
            vectors = embedder.embed_passages(["one text"])
            (request,) = server.embedding_requests
        assert request.get("dimensions") == dims
        assert vectors.shape == (1, dims or EMBEDDING_DIMS)
        assert embedder.fingerprint == f"openai:scripted:{dims or 'own'}"

    def test_the_model_the_key_and_the_address_of_the_settings_are_used(self) -> None:
        """Guards against requests to another address, for another model or without the key."""
        with OpenAIServer(api_key=KEY) as server:
            embedder_at(server.base_url).embed_passages(["one text"])
            (request,) = server.requests
        assert request["path"] == "/v1/embeddings"
        assert request["json"]["model"] == "scripted"
        assert request["headers"]["authorization"] == f"Bearer {KEY}"

    def test_only_the_beginning_of_a_long_text_is_sent(self) -> None:
        """Guards against status 400 for a text longer than the model accepts."""
        with OpenAIServer() as server:
            embedder_at(server.base_url).embed_passages(["x" * (MAX_CHARS + 1), "short"])
            (request,) = server.embedding_requests
        assert [len(text) for text in request["input"]] == [MAX_CHARS, 5]


class TestFailures:
    @pytest.mark.parametrize(
        "vectors",
        [
            pytest.param([[1.0, 0.0]], id="too few"),
            pytest.param([[1.0, 0.0]] * 3, id="too many"),
            pytest.param([], id="none"),
            pytest.param([[1.0, 0.0], [math.nan, 1.0]], id="not a number"),
            pytest.param([[1.0, 0.0], [math.inf, 1.0]], id="infinite"),
            pytest.param([[1.0, 0.0], [1.0]], id="ragged"),
        ],
    )
    def test_vectors_that_are_not_valid_are_refused(self, vectors: list[list[float]]) -> None:
        """Guards the ledger against wrong vectors, which would stay in it."""
        with OpenAIServer(embed=lambda _: vectors) as server, pytest.raises(EmbedderError, match="scripted"):
            embedder_at(server.base_url).embed_passages(["a", "b"])

    def test_a_failure_in_a_later_batch_fails_the_whole_call(self) -> None:
        """Guards against vectors for only some of the texts."""
        replies = iter([[[1.0, 0.0]] * BATCH, [[1.0, 0.0]]])
        with OpenAIServer(embed=lambda _: next(replies)) as server, pytest.raises(EmbedderError):
            embedder_at(server.base_url).embed_passages(["text"] * (BATCH + 2))

    def test_the_error_about_a_wrong_key_does_not_contain_it(self) -> None:
        """Guards the error text: it says what to check and contains no secret."""
        with (
            OpenAIServer(api_key="another") as server,
            pytest.raises(EmbedderError, match=r"401.*Check embedder\.config") as error,
        ):
            embedder_at(server.base_url).embed_passages(["a"])
        assert KEY not in str(error.value)

    def test_a_wrong_path_is_reported(self) -> None:
        """Guards against a wrong path in the base URL of a running server."""
        with OpenAIServer() as server, pytest.raises(EmbedderError, match=r"404.*openai_base_url"):
            embedder_at(f"{server.base_url}/nothing").embed_passages(["a"])

    @pytest.mark.nightly
    def test_a_server_that_is_not_running_is_reported(self) -> None:
        """Guards the error for a local server that is not running."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with pytest.raises(EmbedderError, match="could not be reached"):
            embedder_at(f"http://127.0.0.1:{port}/v1").embed_passages(["a"])

    @pytest.mark.nightly
    def test_a_timeout_is_reported(self) -> None:
        """Guards the timeout in the settings: a write must not hang on its embedder."""
        released = threading.Event()

        def embed_late(texts: list[str]) -> list[list[float]]:
            released.wait(30)
            return word_vectors(texts)

        with OpenAIServer(embed=embed_late) as server:
            try:
                with pytest.raises(EmbedderError, match="timed out"):
                    embedder_at(server.base_url, timeout=0.1).embed_passages(["a"])
            finally:
                released.set()
