"""What the decide stage shows of long memories, of facts and requests, and what it does about them."""

from __future__ import annotations

import pytest

from palimpsest.core.models import Event, ForgetRequest
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.decide import decide
from palimpsest.llm.prompts import Prompt, PromptFiles
from palimpsest.llm.settle import MAX_ENTRY_TOKENS, Comparison, KnownEntry
from palimpsest.text.tokenizer import count_tokens
from tests.support.scripted_model import ScriptedModel, decision, decisions_reply, fact, memory

pytestmark = pytest.mark.anyio

DOCUMENT = memory("Ana's notes on her garden. " + "Roses need water every day. " * 500, "memory-document")
ROSE = fact("Ana's rose is called Flora.")


@pytest.fixture
def prompt() -> Prompt:
    """Return the shipped prompt."""
    return PromptFiles(NEEDED_PROMPTS).get("decide")


async def test_a_memory_as_long_as_a_document_is_shown_shortened(prompt: Prompt) -> None:
    """Guards the size of the prompt: one long memory does not take the room of all others."""
    model = ScriptedModel([decisions_reply(decision(0, "ADD"))])
    await decide(model, prompt, Comparison((ROSE,), (KnownEntry(DOCUMENT, DOCUMENT.stated_at),)))

    (shown,) = model.calls[0].input("Stored memories")
    assert DOCUMENT.text.startswith(shown["text"].removesuffix("…"))
    assert count_tokens(shown["text"]) <= MAX_ENTRY_TOKENS


async def test_a_memory_that_is_shown_shortened_is_not_rewritten(prompt: Prompt) -> None:
    """Guards the rest of the text: the model completes only what it has seen whole."""
    model = ScriptedModel([decisions_reply(decision(0, "UPDATE", 0, "Ana has a garden and a rose called Flora."))])
    result = await decide(model, prompt, Comparison((ROSE,), (KnownEntry(DOCUMENT, DOCUMENT.stated_at),)))

    (made,) = result.decisions
    assert (made.event, made.fact) == (Event.ADD, ROSE)


async def test_a_request_sees_what_each_entry_is(prompt: Prompt) -> None:
    """Guards what a request may mean: memories, messages, and the facts of its own call."""
    message = KnownEntry(memory("Mark drinks.", "message-1"), DOCUMENT.stated_at, "message")
    comparison = Comparison((ROSE,), (message,), (ForgetRequest("Mark", ("id-1",)),), ({}, {}), (0,), (frozenset(),))
    model = ScriptedModel([decisions_reply(decision(0, "ADD"), decision(1, "DELETE", 0))])
    result = await decide(model, prompt, comparison)

    marks = [(item["id"], item.get("message"), item.get("new")) for item in model.calls[0].input("Stored memories")]
    assert marks == [(0, True, None), (1, None, "fact 0")]
    assert [made.forgets for made in result.decisions if made.kind == "message"] == [True]
