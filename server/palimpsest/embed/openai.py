"""The embedder of an OpenAI-compatible `/embeddings` endpoint. Texts are sent in batches."""

from __future__ import annotations

from collections.abc import Sequence

import httpx as _httpx  # noqa: F401  # pyright: ignore[reportUnusedImport] - see llm/openai.py
import numpy as np
import openai

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.core.settings import is_on_this_machine
from palimpsest.text.tokenizer import windows

BATCH = 128

MIN_KEY_CHARS = 8
"""Shorter keys are placeholders, not secrets, and would match ordinary words in an error text."""

MAX_CHARS = 8_000
"""Only the beginning of a longer text is sent, because common models accept 8,191 tokens."""


class OpenAIEmbedder:
    """An embeddings endpoint. `timeout` is in seconds.

    `dims` requests vectors of that length, from models that support it.
    """

    def __init__(
        self, model: str, *, api_key: str | None, base_url: str | None, dims: int | None, timeout: float
    ) -> None:
        self._model = model
        self._key = api_key or ""
        self._dims = dims
        # Local servers need no key, but the client requires one.
        self._client = openai.OpenAI(
            api_key=api_key or "none",
            base_url=base_url,
            timeout=timeout,
            max_retries=2,
            # A proxy of the environment would take what is for this machine to another one.
            http_client=openai.DefaultHttpxClient(trust_env=False) if is_on_this_machine(base_url) else None,
        )

    @property
    def fingerprint(self) -> str:
        """Return provider, model and requested dimensions."""
        return f"openai:{self._model}:{self._dims or 'own'}"

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to 8,000 characters."""
        return windows(text, MAX_CHARS)

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), dims), as those of passages. Raises EmbedderError."""
        return self.embed_passages(texts)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        del background  # the endpoint does the work
        if not texts:
            return np.zeros((0, self._dims or 0), dtype=np.float32)
        parts = [self._ask(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbedderError(f"the embedder {self._model} returned vectors of different lengths")
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
            raise self._failed(f"sent a reply that is not in OpenAI's format: {str(error)[:200]}") from error
        if vectors.shape != (len(texts), self._dims or vectors.shape[-1]) or not vectors.shape[-1]:
            raise self._failed(f"returned vectors of shape {vectors.shape} for {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise self._failed("returned vectors that contain NaN or infinity")
        return vectors

    def _failed(self, what: str) -> EmbedderError:
        """Return our error. The key is removed from the text, because some endpoints repeat it."""
        text = what.replace(self._key, "…") if len(self._key) >= MIN_KEY_CHARS else what
        return EmbedderError(
            f"the embedder {self._model} {text.rstrip('. ')}. Check embedder.config (model, api_key, openai_base_url)."
        )
