"""What embedders share: one that treats all texts alike, sessions, threads for urgent work first, and a cache."""

import atexit
import importlib
import itertools
import os
import queue
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from palimpsest.core.protocols import Embedder, Vector
from palimpsest.text.tokenizer import first_words, windows

# The order in which calls are served: a question waits for one other text at most.
QUESTION, PASSAGE = 0, 1

# A smaller length is taken for zero, and the vector is not scaled up.
TINY = 1e-9


class PlainEmbedder(ABC):
    """An embedder that embeds questions like passages, in windows of `max_chars` characters."""

    fingerprint: str
    dims = 0
    max_chars: int

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each of up to `max_chars` characters."""
        return windows(text, self.max_chars)

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), dims), as those of passages. Raises EmbedderError."""
        return self.embed_passages(texts)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        del background  # it takes no time worth speaking of, or others do the work
        if not texts:
            return np.zeros((0, self.dims), dtype=np.float32)
        vectors = self._vectors(texts)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)

    @abstractmethod
    def _vectors(self, texts: Sequence[str]) -> Vector:
        """Return the vectors of one text or more, of shape (len(texts), dims) and of any length."""


def inference_session(model: str | bytes, **settings: Any) -> Any:
    """Return a session of onnxruntime for a model in a file or in memory, with settings for its options."""
    runtime: Any = importlib.import_module("onnxruntime")  # slow to import
    # The Windows builds of onnxruntime send telemetry to Microsoft unless it is disabled.
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    for name, value in settings.items():
        setattr(options, name, value)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning takes cores from others
    # Its own fallback would print to the standard output, which is the protocol's.
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)


# Threads that compute for a caller who waits: one for what is urgent, and slow ones for what has time.
#
# Work in the background must not delay a call. Its threads have the lowest priority that the operating system
# offers, and rest while urgent work is going on.


# The highest niceness of Linux: a thread that has it gets a hundredth of a core beside one that is busy.
_LOWEST_PRIORITY = 19

# Seconds after which a resting thread goes on, so that a busy server also embeds what waits.
_MAX_REST = 1.0

# Seconds that the end of a process waits for the pieces that are being worked on. Most take a tenth of one.
_LAST_PIECE = 10.0


# Work in the order of its rank, and within a rank in the order in which it came.
_Queue: TypeAlias = queue.PriorityQueue[tuple[int, int, Future[Vector], Callable[[], Vector]]]


class Workers:
    """One urgent thread and `background_threads` slow ones. They start at the first work.

    A process that ends waits for the pieces that they are at, and for no more: onnxruntime would abort the process.
    `waiting` is how many callers wait for urgent work.
    """

    def __init__(self, background_threads: int) -> None:
        self._lock = threading.Lock()
        self._has_started = False
        self._numbers = itertools.count()
        self._urgent: _Queue = queue.PriorityQueue()
        self._slow: _Queue = queue.PriorityQueue()
        self._busy = threading.Condition()
        # Of each thread: what it works for, and a lock that it has while it is at a piece of work.
        self._threads = [(waiting, threading.Lock()) for waiting in (self._urgent, *[self._slow] * background_threads)]
        self.waiting = 0

    def vectors(self, rank: int, work: Sequence[Callable[[], Vector]], dims: int, *, background: bool) -> Vector:
        """Return the vectors that pieces of work compute, one or several each, of shape (n, dims).

        Urgent work of a lower rank goes first.
        """
        if not work:
            return np.zeros((0, dims), dtype=np.float32)
        if background:
            return np.vstack([future.result() for future in [self._put(self._slow, 0, piece) for piece in work]])
        with self._busy:
            self.waiting += 1
        try:
            return np.vstack([self._put(self._urgent, rank, piece).result() for piece in work])
        finally:
            with self._busy:
                self.waiting -= 1
                self._busy.notify_all()

    def _put(self, waiting: _Queue, rank: int, work: Callable[[], Vector]) -> Future[Vector]:
        """Have work run, and start the threads with the first."""
        with self._lock:
            if not self._has_started:
                self._has_started = True
                for of_thread in self._threads:
                    threading.Thread(target=self._work, args=of_thread, name="palimpsest-embedder", daemon=True).start()
                atexit.register(_finish, [at_work for _, at_work in self._threads])
        future: Future[Vector] = Future()
        waiting.put((rank, next(self._numbers), future, work))
        return future

    def _work(self, waiting: _Queue, at_work: threading.Lock) -> None:
        is_slow = waiting is self._slow
        if is_slow:
            _lower_priority()
        while True:
            _, _, future, work = waiting.get()
            with self._busy:
                self._busy.wait_for(lambda: not (is_slow and self.waiting), timeout=_MAX_REST)
            with at_work:
                try:
                    future.set_result(work())
                except Exception as error:  # noqa: BLE001 - it is raised again in the thread that waits
                    future.set_exception(error)


def _finish(at_work: Sequence[threading.Lock]) -> None:
    """Wait until no thread is at a piece of work, and let none begin another one."""
    for lock in at_work:
        lock.acquire(timeout=_LAST_PIECE)


def _lower_priority() -> None:
    """Give this thread the lowest priority. Elsewhere than on Linux it only rests while urgent work is going on."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)  # there it is the thread's own, not the process's


# Keep the vectors of the last questions: agents ask the same again, and one call may embed a question twice.

# How many vectors are kept: half a megabyte at 384 dimensions.
KEPT = 256


class QuestionCache:
    """An embedder that cuts questions to their first words and keeps their vectors. It passes on everything else.

    Raises EmbedderError as the embedder does. A failure is not kept.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._kept: dict[tuple[str, str], Vector] = {}
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the embedder."""
        return self._embedder.fingerprint

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return the unit vectors of questions, of shape (len(texts), dims). Those that are not kept are one batch."""
        keys = [(self.fingerprint, first_words(text)) for text in texts]
        with self._lock:
            known = {key: self._kept[key] for key in keys if key in self._kept}
        if new := [key for key in dict.fromkeys(keys) if key not in known]:
            known |= zip(new, self._embedder.embed_queries([text for _, text in new]), strict=True)
        with self._lock:
            self._kept |= known
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return np.stack([known[key] for key in keys])

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return the unit vectors of passages, of shape (len(texts), dims)."""
        return self._embedder.embed_passages(texts, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded."""
        return self._embedder.windows(text)
