"""A worker around rank-bm25, with lower-case words, an index in memory, and the texts in a file of JSON lines."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

from worker_loop import serve


class Bm25:
    """A BM25 index. It is rebuilt on every add, because the library cannot extend one."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._library: Any = importlib.import_module("rank_bm25")
        self._file = Path(options["folder"]) / "texts.jsonl"
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        self._texts: list[tuple[str, str]] = [(key, text) for key, text in map(json.loads, lines)]
        self._words = [_words(text) for _, text in self._texts]
        self._index: Any = self._library.BM25Okapi(self._words) if lines else None

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Append the texts to the file and index them."""
        added = list(zip(keys, texts, strict=True))
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(item) + "\n" for item in added)
        self._texts += added
        self._words += [_words(text) for text in texts]
        self._index = self._library.BM25Okapi(self._words)

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Return the texts with the highest scores, without those that share no word with the query."""
        scores = self._index.get_scores(_words(query))
        return [self._texts[number] for number in scores.argsort()[::-1][:k] if scores[number] > 0]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower()) or [text]


if __name__ == "__main__":
    serve(Bm25)
