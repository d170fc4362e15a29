"""Embed entries that have no vector of the current embedder, after an import, a change of embedder or a failure.

Also embed the rest of long texts, of which a call embeds only the first window.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError
from palimpsest.core.protocols import Embedder, Progress, Vector, unseen
from palimpsest.store import contextual_keys, documents, entries
from palimpsest.store.documents import EmbeddedText
from palimpsest.store.graph import relations
from palimpsest.store.ledger import Ledger
from palimpsest.text.display import counted
from palimpsest.text.tokenizer import within

_Key = TypeVar("_Key", int, str)

BATCH = 64

# How much text is embedded before the next look at whether to stop: two seconds of one core with the slowest embedder.
BATCH_CHARS = 8_000

# A smaller length is taken for zero, and the vector is not scaled up.
TINY = 1e-9

# If this many single texts fail one after the other, the cause is taken to be the embedder and not the texts.
MAX_CONSECUTIVE_REFUSALS = 2


class Backfill:
    """One pass over the entries that wait, oldest first. It can be interrupted and continued.

    `only_failed` skips entries that have a vector of another embedder. Without it, two processes with different
    embedders would keep replacing each other's vectors; so a process makes one such pass only. Work `in_background`
    does not delay a call.
    """

    def __init__(
        self, ledger: Ledger, embedder: Embedder, *, only_failed: bool = False, in_background: bool = True
    ) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self._only_failed = only_failed
        self._in_background = in_background
        self._last = 0
        self._done = 0
        self._refused = 0
        self.is_finished = False

    def run(self, stopped: Callable[[], bool] = lambda: False, progress: Progress = unseen) -> int:
        """Embed entries until none waits or `stopped` says so, and return how many were embedded so far.

        A text that the embedder refuses is skipped. No ledger connection is open while the embedder is called.
        Blocking.

        Raises EmbedderError at the end if texts were refused, or at once if the embedder seems to be unavailable, and
        LedgerError. The vectors stored so far are kept.
        """
        total = self._done + self._ledger.read_with(
            entries.count_missing_vectors, self._embedder.fingerprint, after=self._last, only_failed=self._only_failed
        )
        last_error: EmbedderError | None = None
        batch_size, consecutive_refusals = BATCH, 0
        while not stopped() and not self.is_finished:
            if not (batch := self._next_batch(batch_size)):
                self.is_finished = True
                break
            try:
                embedded = self._embedded(batch, stopped)
            except EmbedderError as error:
                if len(batch) == 1:
                    consecutive_refusals += 1
                    if consecutive_refusals == MAX_CONSECUTIVE_REFUSALS:
                        raise
                    self._last, self._refused, last_error = max(batch), self._refused + 1, error
                batch_size = 1  # find out whether one text or the embedder is the cause
                continue
            if not embedded:
                break
            self._ledger.run(contextual_keys.give_vectors, self._ledger.full_text, embedded, self._ledger.clock())
            self._last, batch_size, consecutive_refusals = max(batch), min(2 * batch_size, BATCH), 0
            self._done += len(batch)
            progress(self._done, max(total, self._done))
        if last_error is not None:
            refused = counted(self._refused, "text")
            raise EmbedderError(f"refused, and left without a vector: {refused}: {last_error}") from last_error
        return self._done

    def _next_batch(self, size: int) -> dict[int, str]:
        """Return the next entries that wait, as many as are embedded in one go."""
        waiting = self._ledger.read_with(
            entries.missing_vectors, self._embedder.fingerprint, size, after=self._last, only_failed=self._only_failed
        )
        return dict(islice(waiting.items(), len(within([*waiting.values()], BATCH_CHARS))))

    def _embedded(self, batch: Mapping[int, str], stopped: Callable[[], bool]) -> dict[int, EmbeddedText]:
        """Return the vectors of whole texts; none if `stopped` says so in the middle of a long text."""
        windows = [self._embedder.windows(text) for text in batch.values()]
        flat = list(chain.from_iterable(windows))
        vectors: list[Vector] = []
        while len(vectors) < len(flat):
            if vectors and stopped():
                return {}
            part = within(flat[len(vectors) :], BATCH_CHARS)
            vectors.extend(self._embedder.embed_passages(part, background=self._in_background))
        rest, name = iter(vectors), self._embedder.fingerprint
        return {
            seq: EmbeddedText(text, name, mean_of_windows(parts, list(islice(rest, len(parts)))))
            for (seq, text), parts in zip(batch.items(), windows, strict=True)
        }


def embed_gists(ledger: Ledger, embedder: Embedder, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Embed the gists whose pages have a vector of the embedder and which have none. Return whether all of them have.

    Blocking. Raises EmbedderError and LedgerError; what is embedded is kept.
    """

    def give(conn: Connection, embedded: Mapping[str, EmbeddedText]) -> None:
        touched = entries.TouchedEntries(messages=documents.give_vectors(conn, embedded))
        contextual_keys.index(conn, ledger.full_text, touched, ledger.clock())

    return _embed_all(ledger, embedder, stopped, documents.without_vector, give)


def embed_relations(ledger: Ledger, embedder: Embedder, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Do the same for relations and their memories."""
    return _embed_all(ledger, embedder, stopped, relations.without_vector, relations.give_vectors)


def _embed_all(
    ledger: Ledger,
    embedder: Embedder,
    stopped: Callable[[], bool],
    waiting: Callable[[Connection, str, int], dict[_Key, str]],
    give: Callable[[Connection, Mapping[_Key, EmbeddedText]], None],
) -> bool:
    while not stopped():
        if not (texts := ledger.read_with(waiting, embedder.fingerprint, BATCH)):
            return True
        made = zip(texts.items(), embedder.embed_passages([*texts.values()], background=True), strict=True)
        ledger.run(give, {key: EmbeddedText(text, embedder.fingerprint, vector) for (key, text), vector in made})
    return False


def mean_of_windows(windows: Sequence[str], vectors: Sequence[Vector]) -> Vector:
    """Return the unit mean of the vectors of a text's windows, of shape (dims,), weighted by their length."""
    if len(windows) == 1:
        return vectors[0]
    weights = np.array([len(window) for window in windows], dtype=np.float32)
    mean = weights @ np.stack(vectors)
    return (mean / max(float(np.linalg.norm(mean)), TINY)).astype(np.float32)
