"""Make the folder of a tiny sentence embedder: a real ONNX model that looks up one vector for each token."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.core.protocols import Vector

WORDS = ("[CLS]", "[SEP]", "[UNK]", "query", "passage", ":", "anna", "lives", "in", "lyon", "violin", "old")
DIMS = 6

WEIGHTS: Vector = np.random.default_rng(7).normal(size=(len(WORDS), DIMS)).astype(np.float32)
"""The vectors of the words, of shape (words, dims)."""

INT64, FLOAT = 7, 1
"""Types of elements in ONNX."""


def make_model(folder: Path, configs: Mapping[str, Any] | None = None, *, model: str = "model.onnx") -> Path:
    """Write a model, its tokenizer and configuration files by their names. Return the folder."""
    path = folder / model
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_model())
    tokenizers: Any = importlib.import_module("tokenizers")
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - a token of the model
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    specials = [("[CLS]", 0), ("[SEP]", 1)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=None, special_tokens=specials
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in (configs or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), "utf-8")
    return folder


def word_vectors(text: str) -> Vector:
    """Return the vectors of a text's tokens, of shape (tokens, dims)."""
    words = ["[CLS]", *text.lower().replace(":", " : ").split(), "[SEP]"]
    return WEIGHTS[[WORDS.index(word) if word in WORDS else WORDS.index("[UNK]") for word in words]]


def _model() -> bytes:
    """Return a ModelProto whose only node looks up the rows of the weights."""
    node = _text(1, "weights") + _text(1, "input_ids") + _text(2, "last_hidden_state") + _text(4, "Gather")
    tensor = b"".join(_number(1, size) for size in WEIGHTS.shape) + _number(2, FLOAT) + _text(8, "weights")
    graph = _field(1, node) + _text(2, "graph") + _field(5, tensor + _field(9, WEIGHTS.tobytes()))
    graph += _field(11, _value("input_ids", INT64, 2)) + _field(11, _value("attention_mask", INT64, 2))
    graph += _field(12, _value("last_hidden_state", FLOAT, 3))
    return _number(1, 8) + _field(7, graph) + _field(8, _number(2, 13))


def _value(name: str, element: int, rank: int) -> bytes:
    """Return a ValueInfoProto of a tensor whose sizes are not known."""
    shape = b"".join(_field(1, _text(2, f"{name}{axis}")) for axis in range(rank))
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
