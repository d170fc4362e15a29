"""What the server's speed is held against: Chroma alone, SQLite's full text alone, embedding alone.

Chroma is a plain collection of a folder's, by cosine, with the same vectors; nothing of the server's comes between.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import chromadb
import numpy as np
import numpy.typing as npt
from chromadb.config import Settings

from palimpsest.embed.static import LocalEmbedder
from palimpsest.text.tokenizer import query_tokens

NEAREST = 100
"""How many a query asks for, of Chroma and of the full text."""

SMALL_BATCH, LARGE_BATCH = 50, 1_000
"""Vectors in one write to Chroma: as the server writes, and as one would write alone."""

EMBEDDED_AT_ONCE = 1_000

Vectors = npt.NDArray[np.float32]
_T = TypeVar("_T")


def embedded(texts: Sequence[str]) -> Vectors:
    """Return a vector for each text."""
    embedder = LocalEmbedder()
    starts = range(0, len(texts), EMBEDDED_AT_ONCE)
    return np.concatenate([embedder.embed(texts[start : start + EMBEDDED_AT_ONCE]) for start in starts])


@contextmanager
def collection(folder: Path) -> Generator[Any]:
    """Open a folder of Chroma's and give its collection; a new one is empty."""
    client: Any = chromadb.PersistentClient(path=str(folder), settings=Settings(anonymized_telemetry=False))
    try:
        yield client.get_or_create_collection(
            "alone", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
    finally:
        client.close()


def filling_rate(folder: Path, vectors: Vectors, batch: int) -> float:
    """Put vectors into a new collection and return how many a second, not counting the first ones."""
    with collection(folder) as made:
        _put(made, vectors[:SMALL_BATCH], 0)
        began = time.perf_counter()
        for start in range(SMALL_BATCH, len(vectors), batch):
            _put(made, vectors[start : start + batch], start)
        return (len(vectors) - SMALL_BATCH) / (time.perf_counter() - began)


def _put(made: Any, vectors: Vectors, start: int) -> None:
    made.upsert(ids=[str(start + number) for number in range(len(vectors))], embeddings=vectors)


def floor(folder: Path, ledger: Path, questions: Sequence[str]) -> Iterator[tuple[float, float, float]]:
    """Yield for each question the ms to embed it, to ask the collection in `folder` and to ask the full text."""
    embedder = LocalEmbedder()
    with collection(folder) as made, closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as conn:
        for question in questions:
            vector, embedding = _timed(lambda asked=question: embedder.embed([asked]))
            near, asking = _timed(lambda it=vector: made.query(query_embeddings=it, n_results=NEAREST, include=[]))
            wanted = " OR ".join(f'"{word}"' for word in query_tokens(question))
            _, reading = _timed(lambda words=wanted: _best(conn, words))
            if not near["ids"][0]:
                raise RuntimeError(f"Chroma found nothing near: {question}")
            yield embedding, asking, reading


def _best(conn: sqlite3.Connection, words: str) -> list[Any]:
    """Return the best rows for words, as plainly as FTS5 can be asked."""
    if not words:
        return []
    query = f"SELECT rowid FROM lexical WHERE lexical MATCH ? ORDER BY bm25(lexical) LIMIT {NEAREST}"  # noqa: S608 - a number of ours
    return conn.execute(query, (words,)).fetchall()


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    began = time.perf_counter()
    done = work()
    return done, (time.perf_counter() - began) * 1000
