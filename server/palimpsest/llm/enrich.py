"""The enrich stage: hints for stored memories, which are questions that each answers and other words for it.

The model sees small integers instead of ids, as for links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel, model_validator

from palimpsest.core.models import Memory
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import MAX_HINT_CHARS, object_of
from palimpsest.llm.ask import ReplyModel, ask, labels_in, list_in, number_in
from palimpsest.llm.prompts import Prompt
from palimpsest.text.display import shorten_to_tokens

INPUTS = frozenset({"memories"})

MAX_TEXT_TOKENS = 150
"""How much of a memory the model is shown: most are shorter, and the others begin with what they are about."""

MAX_ASKS, MAX_WORDS = 2, 6
"""How many questions and words are kept: as many as the prompt asks for, because one vector stands for all of them."""


class HintsReply(BaseModel):
    """The hints for memory number `memory`, which is -1 if it cannot be read."""

    memory: int
    asks: list[str]
    words: list[str]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        item = object_of(value)
        return {
            "memory": number_in(item.get("memory", item.get("id"))),
            "asks": labels_in(item.get("asks"), MAX_HINT_CHARS),
            "words": labels_in(item.get("words", item.get("keywords"))),
        }


class EnrichReply(ReplyModel):
    """The model's reply: `{"hints": […]}`, or the bare list."""

    hints: list[HintsReply]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        return {"hints": list_in(value)} if isinstance(value, list) else value


async def enrich(model: LanguageModel, prompt: Prompt, memories: Sequence[Memory]) -> dict[str, tuple[str, ...]]:
    """Return the hints for memories by the ids of these. Raises ModelError.

    A memory for which the model gives none in either reply is left out, and so is what is wrong in the second reply.
    """
    shown = [
        {"id": number, "text": shorten_to_tokens(memory.text, MAX_TEXT_TOKENS)}
        for number, memory in enumerate(memories)
    ]
    messages = prompt.render(memories=shown)
    return await ask(model, messages, EnrichReply, partial(_by_id, memories), when_cut=lambda hints: hints)


def _by_id(memories: Sequence[Memory], reply: EnrichReply) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return the hints of a reply, and what is wrong with it. Raises ValueError if there are none."""
    found: dict[str, tuple[str, ...]] = {}
    faults: list[str] = []
    for item in reply.hints:
        if not 0 <= item.memory < len(memories):
            faults.append(f"there is no memory {item.memory}; the ids are those shown, 0 to {len(memories) - 1}.")
        elif hints := (*item.asks[:MAX_ASKS], *item.words[:MAX_WORDS]):
            found[memories[item.memory].id] = hints
    if missing := [str(number) for number, memory in enumerate(memories) if memory.id not in found]:
        faults.append(f"it has no hints for memory {', '.join(missing)}.")
    if not found:
        raise ValueError(faults[0])
    return found, next(iter(faults), "")
