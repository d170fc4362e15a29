"""The loop of a worker: one JSON line in, one out. It runs inside a peer's own environment and needs nothing.

The options come as JSON in the first argument. Operations: {"op": "add", "texts": […], "keys": […]},
{"op": "search", "query": …, "k": 10}, {"op": "embed", "text": …}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol


class Library(Protocol):
    """Store texts under keys and find them again."""

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Store texts; when this returns, a search finds them."""
        ...

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Return the first k hits as (key, text), best first."""
        ...


def serve(build: Callable[[dict[str, Any]], Library]) -> None:
    """Build the library, say that it is ready, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not come among the answers
    library = build(json.loads(sys.argv[1]))

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer(_done(library, asked))
        except Exception as error:  # noqa: BLE001 - vendors raise anything, and the caller has to hear of it
            answer({"error": f"{type(error).__name__}: {error}"[:500]})


def _done(library: Any, asked: dict[str, Any]) -> dict[str, Any]:
    if asked["op"] == "add":
        library.add(asked["texts"], asked["keys"])
        return {"added": len(asked["texts"])}
    if asked["op"] == "embed":
        library.embed(asked["text"])
        return {"embedded": 1}
    return {"hits": library.search(asked["query"], asked["k"])}
