"""The about stage: a short text about one entity, from the lines that the ledger has on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import AliasChoices, Field

from palimpsest.core.protocols import LanguageModel
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ReplyModel, ask, written_text

INPUTS = frozenset({"today", "name", "lines"})

MAX_CHARS = 4_000
"""How long the text may be: four times the words that the prompt asks for."""


class AboutReply(ReplyModel):
    """The model's reply: `{"about": "…"}`; `summary` and `text` mean the same."""

    about: str = Field(validation_alias=AliasChoices("about", "summary", "text"))


async def about(model: LanguageModel, prompt: Prompt, *, name: str, lines: Sequence[str], now: datetime) -> str:
    """Return a text about an entity, which is never empty. `lines` are all that it may say. Raises ModelError."""
    rendered = prompt.render(today=f"{now:%Y-%m-%d, %A}", name=name, lines=list(lines))
    return await ask(model, rendered, AboutReply, lambda reply: written_text(reply.about, "text", MAX_CHARS))
