"""Chroma's default embedder: all-MiniLM-L6-v2 as ONNX.

It downloads 80 MB on first use, so it is used only if the settings choose it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.text.tokenizer import windows

MAX_CHARS = 1_000
"""The model reads 256 tokens and ignores the rest. English has about four characters in a token."""


class ChromaEmbedder:
    """Chroma's default embedding function, with 384 dimensions."""

    def __init__(self) -> None:
        try:
            from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2  # noqa: PLC0415 - slow, rarely used

            # The Windows builds of onnxruntime send telemetry to Microsoft unless it is disabled.
            importlib.import_module("onnxruntime").disable_telemetry_events()
            self._function: Any = ONNXMiniLM_L6_V2()
        except (ImportError, ValueError) as error:
            raise EmbedderError(f"Chroma's embedder cannot be loaded: {error}") from error

    @property
    def fingerprint(self) -> str:
        """Return provider, model and dimensions."""
        return "chroma:all-MiniLM-L6-v2:384"

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to 1,000 characters."""
        return windows(text, MAX_CHARS)

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), 384), as those of passages. Raises EmbedderError."""
        return self.embed_passages(texts)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Raises EmbedderError."""
        del background  # onnxruntime has threads of its own
        if not texts:
            return np.zeros((0, 384), dtype=np.float32)
        try:
            vectors = np.array(cast("list[Any]", self._function(list(texts))), dtype=np.float32)
        except Exception as error:  # httpx, onnxruntime, tarfile and the system all raise here
            raise EmbedderError(
                f"Chroma's embedder failed: {error}. It downloads its model on first use; "
                "without a network set embedder.provider to 'local'."
            ) from error
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
