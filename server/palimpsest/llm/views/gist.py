"""Write the gist of a page of a document, as in ReadAgent (Lee et al. 2024, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from palimpsest.core.protocols import LanguageModel
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ReplyModel, ask, written_text

INPUTS = frozenset({"title", "headings", "page"})

MAX_GIST_CHARS = 1_000
"""The longest gist. Set by hand: the three sentences that are asked for have a third of it."""


class GistReply(ReplyModel):
    """What the model writes."""

    gist: str = Field(validation_alias=AliasChoices("gist", "text", "summary"))


async def write_gist(model: LanguageModel, prompt: Prompt, *, title: str, headings: Sequence[str], page: str) -> str:
    """Return the gist of a page. It is never empty. Raises ModelError."""
    rendered = prompt.render(title=title, headings=list(headings), page=page)
    return await ask(model, rendered, GistReply, lambda reply: written_text(reply.gist, "gist", MAX_GIST_CHARS))
