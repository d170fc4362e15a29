"""Any OpenAI-compatible `/embeddings` endpoint, asked in batches."""

from __future__ import annotations

from collections.abc import Sequence

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see model_openai.py
import numpy as np
import openai

from palimpsest.errors import EmbedderError
from palimpsest.ports import Vector

BATCH = 128
MAX_CHARS = 8_000
"""Of a longer text only the beginning is sent: the common models take 8,191 tokens."""


class OpenAIEmbedder:
    """Embed over HTTP. `dims` asks the endpoint for shorter vectors, where it can; `timeout` is in seconds."""

    def __init__(
        self, model: str, *, api_key: str | None, base_url: str | None, dims: int | None, timeout: float
    ) -> None:
        self._model = model
        self._dims = dims
        # Local servers want no key, and the client insists on one.
        self._client = openai.OpenAI(api_key=api_key or "none", base_url=base_url, timeout=timeout, max_retries=2)

    @property
    def fingerprint(self) -> str:
        """Name the model and the dimensions asked for."""
        return f"openai:{self._model}:{self._dims or 'own'}"

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        if not texts:
            return np.zeros((0, self._dims or 0), dtype=np.float32)
        parts = [self._ask(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        vectors = np.concatenate(parts)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def _ask(self, texts: Sequence[str]) -> Vector:
        try:
            reply = self._client.embeddings.create(
                model=self._model,
                input=[text[:MAX_CHARS] for text in texts],
                dimensions=openai.omit if self._dims is None else self._dims,
            )
            vectors = np.array([item.embedding for item in reply.data], dtype=np.float32)
        except openai.APIStatusError as error:
            raise EmbedderError(
                f"the embedder {self._model} answered {error.status_code}: {error.message}. "
                "Check embedder.config (model, api_key, openai_base_url)."
            ) from error
        except (openai.OpenAIError, ValueError) as error:
            raise EmbedderError(f"the embedder {self._model} could not be reached: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():  # noqa: PLR2004 - a matrix
            raise EmbedderError(
                f"the embedder {self._model} answered with vectors of shape {vectors.shape} for {len(texts)} texts"
            )
        return vectors
