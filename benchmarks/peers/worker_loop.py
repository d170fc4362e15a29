"""The loop of a worker: one line of JSON in, one out. It runs in the environment of a peer and needs no package.

The first argument contains the options as JSON. Operations: {"op": "add", "texts": […], "keys": […]},
{"op": "search", "query": …, "k": 10}, {"op": "embed", "text": …}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol


class Library(Protocol):
    """A library that stores texts under keys and searches them."""

    def add(self, texts: list[str], keys: list[str]) -> None:
        """Store texts. After this, searches find them."""
        ...

    def search(self, query: str, k: int) -> list[tuple[str, str]]:
        """Return the first k hits as (key, text), best first."""
        ...


def serve(build: Callable[[dict[str, Any]], Library]) -> None:
    """Build the library, report that it is ready, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the library prints must not be mixed with the answers
    library = build(json.loads(sys.argv[1]))

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(_result(library, request))
        except Exception as error:  # noqa: BLE001 - libraries raise anything, and the caller must get it as an answer
            answer({"error": f"{type(error).__name__}: {error}"[:500]})


def _result(library: Any, request: dict[str, Any]) -> dict[str, Any]:
    if request["op"] == "add":
        library.add(request["texts"], request["keys"])
        return {"added": len(request["texts"])}
    if request["op"] == "embed":
        library.embed(request["text"])
        return {"embedded": 1}
    return {"hits": library.search(request["query"], request["k"])}
