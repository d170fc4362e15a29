"""The summarize stage: one dense paragraph about a scope (the summary S in section 2.1 of the Mem0 paper).

Each kind of summary has a prompt file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import AliasChoices, Field

from palimpsest.core.models import Message
from palimpsest.core.protocols import LanguageModel
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ReplyModel, ask, written_text

INPUTS = frozenset({"today", "name", "kind", "previous", "memories", "messages"})

PROMPTS: Mapping[str, frozenset[str]] = {
    "summarize": INPUTS - {"name"},
    "recent": INPUTS - {"name", "kind", "previous"},
    "day": INPUTS - {"name", "previous"},
    "session": INPUTS - {"name", "kind", "previous"},
    "profile": INPUTS - {"kind", "messages"},
    **dict.fromkeys(("project", "procedures"), INPUTS - {"name", "kind", "messages"}),
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
