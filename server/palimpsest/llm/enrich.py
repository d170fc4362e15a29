"""The enrich stage: hints for stored memories, which are questions that each answers and other words for it.

The model sees small integers instead of ids, as for links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import AliasChoices, Field

from palimpsest.core.models import Memory
from palimpsest.core.protocols import LanguageModel
from palimpsest.llm.ask import Asks, Labels, Number, ReplyItem, ReplyModel, ask, unknown_memory
from palimpsest.llm.prompts import Prompt
from palimpsest.text.display import shorten_to_tokens

INPUTS = frozenset({"memories"})

MAX_TEXT_TOKENS = 150
"""How much of a memory the model is shown: most are shorter, and the others begin with what they are about."""

MAX_ASKS, MAX_WORDS = 2, 6
"""How many questions and words are kept: as many as the prompt asks for, because one vector stands for all of them."""


class HintsReply(ReplyItem):
    """The hints for memory number `memory`, which is -1 if it cannot be read."""

    memory: Number = Field(-1, validation_alias=AliasChoices("memory", "id"))
    asks: Asks
    words: Labels = Field([], validation_alias=AliasChoices("words", "keywords"))


class EnrichReply(ReplyModel):
    """The model's reply: `{"hints": […]}`, or the bare list."""

    LIST_KEY = "hints"

    hints: list[HintsReply]


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
            faults.append(unknown_memory(item.memory, len(memories)))
        elif hints := (*item.asks[:MAX_ASKS], *item.words[:MAX_WORDS]):
            found[memories[item.memory].id] = hints
    if missing := [str(number) for number, memory in enumerate(memories) if memory.id not in found]:
        faults.append(f"it has no hints for memory {', '.join(missing)}.")
    if not found:
        raise ValueError(faults[0])
    return found, next(iter(faults), "")
