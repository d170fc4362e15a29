"""A scripted model whose decisions depend on the facts and memories that it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from tests.support.scripted_model import is_extraction

Items: TypeAlias = list[dict[str, Any]]

# Returns decisions, each as fact, event, memory and text.
Decide: TypeAlias = Callable[[Items, Items], list[tuple[Any, ...]]]


def scripted(extractions: list[str], decide: Decide) -> Callable[[dict[str, Any]], str]:
    """Return a model that extracts these replies in order, and decides on what it is shown."""
    replies = iter(extractions)

    def chat(request: dict[str, Any]) -> str:
        if is_extraction(request):
            return next(replies)
        prompt = str(request["messages"][1]["content"]).removeprefix("New facts: ")
        facts, memories = (json.loads(part) for part in prompt.split("\n\nStored memories: "))
        parts = ("fact", "event", "memory", "text")
        return json.dumps({"decisions": [dict(zip(parts, item, strict=True)) for item in decide(facts, memories)]})

    return chat


def ids_of(memories: Items, word: str) -> list[int]:
    """Return the numbers of the memories whose text contains a word."""
    return [item["id"] for item in memories if word in item["text"]]
