"""The describe stage: the picture of a message in words, by a model that sees it."""

from __future__ import annotations

from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.llm.ask import reply_values
from palimpsest.llm.prompts import Prompt, PromptMessages

INPUTS = frozenset({"text"})

MAX_CHARS = 1_000
"""How much of a description is kept: three sentences are less."""


async def describe(model: LanguageModel, prompt: Prompt, text: str, url: str) -> str:
    """Return what the picture at a URL shows, in one line without brackets. Raises ModelError.

    The URL goes to the model's endpoint, which fetches it. `text` is the message that the picture is in.
    """
    *system, asked = prompt.render(text=text)
    reply = await model.complete(PromptMessages(prompt.name, [*system, {**asked, "image": url}]), None)
    words = one_line(reply_values(reply).answer)[:MAX_CHARS]
    return words.translate(str.maketrans("[]", "()"))
