"""The embedder of an OpenAI-compatible `/embeddings` endpoint. Texts are sent in batches."""

from collections.abc import Sequence

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see llm/openai.py
import numpy as np
import openai

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.core.settings import EmbedderConfig, Endpoint
from palimpsest.embed.workers import PlainEmbedder

BATCH = 128

# Only the beginning of a longer text is sent, because common models accept 8,191 tokens.
MAX_CHARS = 8_000


class OpenAIEmbedder(PlainEmbedder):
    """The model of an embeddings endpoint. `embedding_dims` requests vectors of that length from models that can."""

    max_chars = MAX_CHARS

    def __init__(self, config: EmbedderConfig, endpoint: Endpoint) -> None:
        self._model = config.model or ""
        self._endpoint = endpoint
        self.dims = config.embedding_dims or 0
        self.fingerprint = f"openai:{self._model}:{config.embedding_dims or 'own'}"
        self._client = openai.OpenAI(**endpoint.client_options(config.timeout, openai.DefaultHttpxClient, 2))

    def _vectors(self, texts: Sequence[str]) -> Vector:
        parts = [self._ask(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbedderError(f"the embedder {self._model} returned vectors of different lengths")
        return np.concatenate(parts)

    def _ask(self, texts: Sequence[str]) -> Vector:
        try:
            reply = self._client.embeddings.create(
                model=self._model, input=[text[:MAX_CHARS] for text in texts], dimensions=self.dims or openai.omit
            )
            ordered = sorted(reply.data, key=lambda item: item.index)
            vectors = np.array([item.embedding for item in ordered], dtype=np.float32)
        except openai.APIStatusError as error:
            raise self._failed(f"answered {error.status_code}: {error.message}") from error
        except openai.APIConnectionError as error:
            raise self._failed(f"could not be reached: {error.__cause__ or error}") from error
        except (openai.OpenAIError, ValueError, AttributeError, TypeError) as error:
            raise self._failed(f"sent a reply that is not in OpenAI's format: {str(error)[:200]}") from error
        if vectors.shape != (len(texts), self.dims or vectors.shape[-1]) or not vectors.shape[-1]:
            raise self._failed(f"returned vectors of shape {vectors.shape} for {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise self._failed("returned vectors that contain NaN or infinity")
        return vectors

    def _failed(self, what: str) -> EmbedderError:
        text = self._endpoint.without_key(what).rstrip(". ")
        return EmbedderError(f"the embedder {self._model} {text}. Check embedder.config.")
