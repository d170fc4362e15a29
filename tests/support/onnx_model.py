"""Make the folder of a tiny sentence embedder or cross-encoder: real ONNX models of a few hundred bytes.

The embedder looks up one vector for each token. The cross-encoder looks up one number for each, and returns their mean.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.core.protocols import Vector

WORDS = ("[CLS]", "[SEP]", "[UNK]", "query", "passage", ":", "anna", "lives", "in", "lyon", "violin", "old")
DIMS = 6

# The vectors of the words, of shape (words, dims).
WEIGHTS: Vector = np.random.default_rng(7).normal(size=(len(WORDS), DIMS)).astype(np.float32)

# Types of elements in ONNX.
INT64, FLOAT = 7, 1


def make_model(
    folder: Path, configs: Mapping[str, Any] | None = None, *, model: str = "model.onnx", has_cache: bool = False
) -> Path:
    """Write a model, its tokenizer and configuration files by their names. Return the folder.

    With `has_cache` it also takes what a decoder kept of earlier tokens.
    """
    _write(folder, model, _model(has_cache=has_cache))
    for name, content in (configs or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), "utf-8")
    return folder


def make_reranker(folder: Path, *, model: str = "onnx/model.onnx") -> Path:
    """Write a cross-encoder and its tokenizer. It prefers texts with the word "old". Return the folder."""
    _write(folder, model, _cross_encoder())
    return folder


def _write(folder: Path, model: str, content: bytes) -> None:
    path = folder / model
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    tokenizers: Any = importlib.import_module("tokenizers")
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - a token of the model
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    specials = [("[CLS]", 0), ("[SEP]", 1)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=specials
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def word_vectors(text: str) -> Vector:
    """Return the vectors of a text's tokens, of shape (tokens, dims)."""
    words = ["[CLS]", *text.lower().replace(":", " : ").split(), "[SEP]"]
    return WEIGHTS[[WORDS.index(word) if word in WORDS else WORDS.index("[UNK]") for word in words]]


def _model(*, has_cache: bool) -> bytes:
    """Return a ModelProto whose only node looks up the rows of the weights."""
    sizes = [_text(2, "batch"), _number(1, 2), _text(2, "earlier"), _number(1, 3)]
    cache = _tensor("past_key_values.0.key", FLOAT, sizes)
    rest = _field(12, _value("last_hidden_state", FLOAT, 3)) + has_cache * _field(11, cache)
    return _lookup(WEIGHTS, "last_hidden_state", rest)


def _cross_encoder() -> bytes:
    """Return a ModelProto that looks up a number for each token, and takes the mean over the tokens."""
    numbers = np.array([[10.0 * (word == "old")] for word in WORDS], dtype=np.float32)
    axes = _text(1, "axes") + _field(8, _varint(1)) + _number(20, 7)
    keeps = _text(1, "keepdims") + _number(3, 0) + _number(20, 2)
    mean = _text(1, "found") + _text(2, "logits") + _text(4, "ReduceMean") + _field(5, axes) + _field(5, keeps)
    return _lookup(numbers, "found", _field(1, mean) + _field(12, _value("logits", FLOAT, 2)))


def _lookup(weights: Vector, name: str, rest: bytes) -> bytes:
    """Return a ModelProto that looks up the rows of the weights under a name, and the rest of its graph."""
    node = _text(1, "weights") + _text(1, "input_ids") + _text(2, name) + _text(4, "Gather")
    tensor = b"".join(_number(1, size) for size in weights.shape) + _number(2, FLOAT) + _text(8, "weights")
    graph = _field(1, node) + _text(2, "graph") + _field(5, tensor + _field(9, weights.tobytes()))
    graph += _field(11, _value("input_ids", INT64, 2)) + _field(11, _value("attention_mask", INT64, 2)) + rest
    return _number(1, 8) + _field(7, graph) + _field(8, _number(2, 13))


def _value(name: str, element: int, rank: int) -> bytes:
    """Return a ValueInfoProto of a tensor whose sizes are not known."""
    return _tensor(name, element, [_text(2, f"{name}{axis}") for axis in range(rank)])


def _tensor(name: str, element: int, sizes: Sequence[bytes]) -> bytes:
    """Return a ValueInfoProto of a tensor, given the content of each Dimension."""
    shape = b"".join(_field(1, size) for size in sizes)
    return _text(1, name) + _field(2, _field(1, _number(1, element) + _field(2, shape)))


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
