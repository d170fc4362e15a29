"""Write summaries, texts about an entity, and gists of pages with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import AliasChoices, Field

from palimpsest.core.models import Message
from palimpsest.core.protocols import LanguageModel
from palimpsest.llm.ask import ReplyModel, ask, written_text
from palimpsest.llm.prompts import Prompt

# The summarize stage: one dense paragraph about a scope (the summary S in section 2.1 of the Mem0 paper).
#
# Each kind of summary has a prompt file of its own.

SUMMARY_INPUTS = frozenset({"today", "name", "kind", "previous", "memories", "messages"})

PROMPTS: Mapping[str, frozenset[str]] = {
    "summarize": SUMMARY_INPUTS - {"name"},
    "recent": SUMMARY_INPUTS - {"name", "kind", "previous"},
    "day": SUMMARY_INPUTS - {"name", "previous"},
    "session": SUMMARY_INPUTS - {"name", "kind", "previous"},
    "profile": SUMMARY_INPUTS - {"kind", "messages"},
    **dict.fromkeys(("project", "procedures"), SUMMARY_INPUTS - {"name", "kind", "messages"}),
}
"""The prompt file of each kind of summary, with those of `INPUTS` that it has. `summarize` is the one of `overall`."""

MAX_SUMMARY_CHARS = 8_000


class SummarizeReply(ReplyModel):
    """The model's reply: `{"summary": "…"}`, or `{"text": "…"}`."""

    summary: str = Field(validation_alias=AliasChoices("summary", "text"))


async def summarize(
    model: LanguageModel,
    prompt: Prompt,
    *,
    kind: str,
    previous: str,
    memories: Sequence[Mapping[str, Any]],
    messages: Sequence[Message],
    name: str = "",
    now: datetime,
) -> str:
    """Return the new summary of a kind, such as "overall" or "day:2026-11-21". It is never empty. Raises ModelError.

    `name` is that of the person it is about, if the prompt asks for it. `memories` are objects with at least `text` and
    `date`, newest first. The prompt is one of `PROMPTS`.
    """
    values = {
        "today": f"{now:%Y-%m-%d, %A}",
        "name": name,
        "kind": kind,
        "previous": previous,
        "memories": list(memories),
        "messages": [{"who": message.name or message.role, "text": message.content} for message in messages],
    }
    rendered = prompt.render(**{name: values[name] for name in PROMPTS[prompt.name]})
    return await ask(
        model, rendered, SummarizeReply, lambda reply: written_text(reply.summary, "summary", MAX_SUMMARY_CHARS)
    )


# The about stage: a short text about one entity, from the lines that the ledger has on it.

ABOUT_INPUTS = frozenset({"today", "name", "lines"})

MAX_CHARS = 4_000
"""How long the text may be: four times the words that the prompt asks for."""


class AboutReply(ReplyModel):
    """The model's reply: `{"about": "…"}`; `summary` and `text` mean the same."""

    about: str = Field(validation_alias=AliasChoices("about", "summary", "text"))


async def about(model: LanguageModel, prompt: Prompt, *, name: str, lines: Sequence[str], now: datetime) -> str:
    """Return a text about an entity, which is never empty. `lines` are all that it may say. Raises ModelError."""
    rendered = prompt.render(today=f"{now:%Y-%m-%d, %A}", name=name, lines=list(lines))
    return await ask(model, rendered, AboutReply, lambda reply: written_text(reply.about, "text", MAX_CHARS))


# Write the gist of a page of a document, as in ReadAgent (Lee et al. 2024, section 3.1).

GIST_INPUTS = frozenset({"title", "headings", "page"})

MAX_GIST_CHARS = 1_000
"""The longest gist. Set by hand: the three sentences that are asked for have a third of it."""


class GistReply(ReplyModel):
    """What the model writes."""

    gist: str = Field(validation_alias=AliasChoices("gist", "text", "summary"))


async def write_gist(model: LanguageModel, prompt: Prompt, *, title: str, headings: Sequence[str], page: str) -> str:
    """Return the gist of a page. It is never empty. Raises ModelError."""
    rendered = prompt.render(title=title, headings=list(headings), page=page)
    return await ask(model, rendered, GistReply, lambda reply: written_text(reply.gist, "gist", MAX_GIST_CHARS))
