"""Chroma's default embedder: all-MiniLM-L6-v2 as ONNX.

It downloads 80 MB on first use, so it is used only if the settings choose it.
"""

import importlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from palimpsest.core.errors import EmbedderError, raised_as
from palimpsest.core.protocols import Vector
from palimpsest.embed.workers import PlainEmbedder


class ChromaEmbedder(PlainEmbedder):
    """Chroma's default embedding function, with 384 dimensions."""

    fingerprint = "chroma:all-MiniLM-L6-v2:384"
    dims = 384
    # The model reads 256 tokens and ignores the rest. English has about four characters in a token.
    max_chars = 1_000

    def __init__(self) -> None:
        with raised_as(EmbedderError, "Chroma's embedder cannot be loaded", "", ImportError, ValueError):
            from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2  # noqa: PLC0415 - slow, rarely used

            # The Windows builds of onnxruntime send telemetry to Microsoft unless it is disabled.
            importlib.import_module("onnxruntime").disable_telemetry_events()
            self._function: Any = ONNXMiniLM_L6_V2()

    def _vectors(self, texts: Sequence[str]) -> Vector:
        advice = ". It downloads its model on first use."
        # httpx, onnxruntime, tarfile and the system all raise here.
        with raised_as(EmbedderError, "Chroma's embedder failed", advice, Exception):
            return np.array(cast("list[Any]", self._function(list(texts))), dtype=np.float32)
