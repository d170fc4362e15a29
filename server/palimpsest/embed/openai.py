"""Any OpenAI-compatible `/embeddings` endpoint, asked in batches."""

from __future__ import annotations

from collections.abc import Sequence

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see model_openai.py
import numpy as np
import openai

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector

BATCH = 128

MIN_KEY_CHARS = 8
"""A shorter key is no secret and would be found in every other word."""

MAX_CHARS = 8_000
"""Of a longer text only the beginning is sent: the common models take 8,191 tokens."""


class OpenAIEmbedder:
    """Embed over HTTP. `dims` asks the endpoint for shorter vectors, where it can; `timeout` is in seconds."""

    def __init__(
        self, model: str, *, api_key: str | None, base_url: str | None, dims: int | None, timeout: float
    ) -> None:
        self._model = model
        self._key = api_key or ""
        self._dims = dims
        # Local servers want no key, and the client insists on one.
        self._client = openai.OpenAI(api_key=api_key or "none", base_url=base_url, timeout=timeout, max_retries=2)

    @property
    def fingerprint(self) -> str:
        """Name the model and the dimensions asked for."""
        return f"openai:{self._model}:{self._dims or 'own'}"

    def embed_words(self, words: Sequence[str]) -> None:
        """Return None: single words are not embedded at once."""
        del words

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        if not texts:
            return np.zeros((0, self._dims or 0), dtype=np.float32)
        parts = [self._ask(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbedderError(f"the embedder {self._model} answered with vectors of different lengths")
        vectors = np.concatenate(parts)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def _ask(self, texts: Sequence[str]) -> Vector:
        try:
            reply = self._client.embeddings.create(
                model=self._model,
                input=[text[:MAX_CHARS] for text in texts],
                dimensions=openai.omit if self._dims is None else self._dims,
            )
            ordered = sorted(reply.data, key=lambda item: item.index)
            vectors = np.array([item.embedding for item in ordered], dtype=np.float32)
        except openai.APIStatusError as error:
            raise self._failed(f"answered {error.status_code}: {error.message}") from error
        except openai.APIConnectionError as error:
            raise self._failed(f"could not be reached: {error.__cause__ or error}") from error
        except (openai.OpenAIError, ValueError, AttributeError, TypeError) as error:
            raise self._failed(f"answered with no OpenAI reply: {str(error)[:200]}") from error
        if vectors.shape != (len(texts), self._dims or vectors.shape[-1]) or not vectors.shape[-1]:
            raise self._failed(f"answered {len(texts)} texts with vectors of shape {vectors.shape}")
        if not np.isfinite(vectors).all():
            raise self._failed("answered with vectors that hold NaN or infinity")
        return vectors

    def _failed(self, what: str) -> EmbedderError:
        """Return our error, without the key, which some endpoints repeat."""
        said = what.replace(self._key, "…") if len(self._key) >= MIN_KEY_CHARS else what
        return EmbedderError(
            f"the embedder {self._model} {said.rstrip('. ')}. Check embedder.config (model, api_key, openai_base_url)."
        )
