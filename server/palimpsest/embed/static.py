"""The embedder that runs everywhere: the static word vectors in WordLlama's wheel. It needs no key and no network.

Only the two files of the wheel are read. Importing the package itself would take longer than everything else here, and
it would convert the vectors to twice their size.
"""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from palimpsest.core.errors import EmbedderError, raised_as
from palimpsest.core.protocols import Vector
from palimpsest.embed.workers import PlainEmbedder

DIMS = 256

WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
TENSOR = "embedding.weight"


class StaticEmbedder(PlainEmbedder):
    """WordLlama with the weights it ships, 256 dimensions. Creating it takes about a tenth of a second."""

    fingerprint = f"local:wordllama-l2-supercat:{DIMS}"
    dims = DIMS
    # Only the beginning of a longer text is embedded, because a mean over more words says less and less.
    max_chars = 8_000

    def __init__(self) -> None:
        advice = ". Reinstall palimpsest-mcp."
        # The tokenizers package raises Exception itself.
        with raised_as(EmbedderError, "the static embedder cannot be loaded", advice, Exception):
            from tokenizers import Tokenizer  # noqa: PLC0415 - slow to import

            if (spec := importlib.util.find_spec("wordllama")) is None or spec.origin is None:
                raise FileNotFoundError("the package wordllama is not installed")
            folder = Path(spec.origin).parent
            self._weights = _mapped_vectors(folder / WEIGHTS)
            self._tokenizer: Any = Tokenizer.from_file(str(folder / TOKENIZER))
            self._tokenizer.no_truncation()

    def _vectors(self, texts: Sequence[str]) -> Vector:
        return np.stack([self._mean(text[: self.max_chars]) for text in texts])

    def _mean(self, text: str) -> Vector:
        """Return the mean of a text's token vectors. Batches are slower: they wake threads for it."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return np.zeros(DIMS, dtype=np.float32)
        return np.asarray(self._weights[ids].mean(axis=0, dtype=np.float32))


def _mapped_vectors(file: Path) -> npt.NDArray[np.float16]:
    """Return the token vectors of a safetensors file, of shape (tokens, 256), without reading them into memory.

    The file begins with the length of its header in eight bytes, and the header
    (https://huggingface.co/docs/safetensors). Raises OSError, ValueError and KeyError.
    """
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        tensor: dict[str, Any] = json.loads(content.read(length))[TENSOR]
    if tensor["dtype"] != "F16" or tensor["shape"][1:] != [DIMS]:
        raise ValueError(f"{file.name} has {tensor['dtype']} vectors of shape {tensor['shape']}")
    start = 8 + length + tensor["data_offsets"][0]
    return np.asarray(np.memmap(file, np.float16, "r", start, tuple(tensor["shape"])))
