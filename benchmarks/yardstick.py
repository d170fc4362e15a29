"""Measure what the server's speed is compared with: Chroma alone, SQLite's full text alone, embedding alone.

Chroma is a plain collection in a folder, with cosine distance and the same vectors. No code of the server is involved.
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

from palimpsest.core.protocols import Embedder
from palimpsest.text.tokenizer import query_tokens

NEAREST = 100
"""The number of results that each query of Chroma and of the full text asks for."""

SMALL_BATCH, LARGE_BATCH = 50, 1_000
"""The number of vectors in one write to Chroma: as the server writes, and as a program of its own would write."""

Vectors = npt.NDArray[np.float32]
_T = TypeVar("_T")


@contextmanager
def collection(folder: Path) -> Generator[Any]:
    """Open a Chroma folder and yield its collection, which is empty if the folder is new."""
    client: Any = chromadb.PersistentClient(path=str(folder), settings=Settings(anonymized_telemetry=False))
    try:
        yield client.get_or_create_collection(
            "alone", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
    finally:
        client.close()


def filling_rate(folder: Path, vectors: Vectors, batch: int) -> float:
    """Put vectors into a new collection, and return the vectors per second without the first batch."""
    with collection(folder) as chroma:
        _put(chroma, vectors[:SMALL_BATCH], 0)
        began = time.perf_counter()
        for start in range(SMALL_BATCH, len(vectors), batch):
            _put(chroma, vectors[start : start + batch], start)
        return (len(vectors) - SMALL_BATCH) / (time.perf_counter() - began)


def _put(chroma: Any, vectors: Vectors, start: int) -> None:
    chroma.upsert(ids=[str(start + number) for number in range(len(vectors))], embeddings=vectors)


def floor(
    folder: Path, ledger: Path, embedder: Embedder, questions: Sequence[str]
) -> Iterator[tuple[float, float, float]]:
    """Yield for each question the ms to embed it, to query the collection in `folder`, and to query the full text."""
    with collection(folder) as chroma, closing(sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)) as conn:
        for question in questions:
            vector, embed_ms = _timed(lambda text=question: embedder.embed_queries([text])[0])
            result, query_ms = _timed(
                lambda query=vector: chroma.query(query_embeddings=[query], n_results=NEAREST, include=[])
            )
            words = " OR ".join(f'"{word}"' for word in query_tokens(question))
            _, full_text_ms = _timed(lambda match=words: _best_rows(conn, match))
            if not result["ids"][0]:
                raise RuntimeError(f"Chroma found no vectors for: {question}")
            yield embed_ms, query_ms, full_text_ms


def _best_rows(conn: sqlite3.Connection, match: str) -> list[Any]:
    """Return the best rows for a match expression, with the simplest query that FTS5 has."""
    if not match:
        return []
    query = f"SELECT rowid FROM lexical WHERE lexical MATCH ? ORDER BY bm25(lexical) LIMIT {NEAREST}"  # noqa: S608 - a constant number
    return conn.execute(query, (match,)).fetchall()


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    began = time.perf_counter()
    result = work()
    return result, (time.perf_counter() - began) * 1000
