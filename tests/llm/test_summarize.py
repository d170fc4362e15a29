"""The stages that write: a summary is never empty, and one bad note on a memory loses no other."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from palimpsest.core.errors import ReplyError
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.learn.summaries.summary_kinds import memory_item
from palimpsest.llm.prompts import PromptFiles
from palimpsest.llm.summarize import MAX_CONTEXT_CHARS, MAX_SUMMARY_CHARS, Shown, links, summarize
from tests.support.scripted_model import NOW, ScriptedModel, memory, message

pytestmark = pytest.mark.anyio

MEMORIES = (memory("Ana drinks tea.", "memory-1", happened_at=datetime(2024, 2, 11, tzinfo=UTC)), memory("Ana flies."))
MESSAGES = (message("Hello!", name="Ana"), message("Hi.", "message-2", role="assistant"))


async def summary_of(model: ScriptedModel) -> str:
    """Return the summary that a scripted model writes."""
    prompt = PromptFiles(NEEDED_PROMPTS).get("summarize")
    return await summarize(
        model,
        prompt,
        kind="overall",
        previous="Ana drank coffee.",
        memories=list(map(memory_item, MEMORIES)),
        messages=MESSAGES,
        now=NOW,
    )


@pytest.mark.parametrize(
    ("wrong_reply", "fault"),
    [
        ('{"summary": " \\n "}', "the summary is empty."),
        (json.dumps({"summary": "x" * (MAX_SUMMARY_CHARS + 1)}), f"longer than {MAX_SUMMARY_CHARS} characters"),
        ('{"summary": ["Ana", "tea"]}', "summary"),
    ],
    ids=["empty", "too long", "list"],
)
async def test_a_summary_that_is_not_valid_is_repaired_or_refused(wrong_reply: str, fault: str) -> None:
    model = ScriptedModel([wrong_reply, '{"summary": "Ana drinks tea."}'])

    assert await summary_of(model) == "Ana drinks tea."
    assert fault in model.calls[1].messages[-1]["content"]
    with pytest.raises(ReplyError):
        await summary_of(ScriptedModel([wrong_reply, wrong_reply]))


SHOWN = Shown(
    (memory("Bea restores violins.", "bea"), memory("Ana likes tea.", "ana")), {0: (1,), 1: (0,)}, frozenset({0, 1})
)
GOOD: dict[str, Any] = {"memory": 0, "context": "The work of Bea.", "tags": ["work"], "links": []}
LINK = {"memory": 1, "reason": "both are friends"}


@pytest.mark.parametrize(
    "wrong",
    [
        {**GOOD, "memory": 7},
        {**GOOD, "memory": 1, "context": "null"},
        {**GOOD, "memory": 1, "context": "x" * (MAX_CONTEXT_CHARS + 1)},
        {**GOOD, "memory": 1, "links": [{"memory": 9, "reason": "x"}]},
        5,
    ],
    ids=range(5),
)
async def test_one_bad_note_loses_no_other(wrong: Any) -> None:
    prompt = PromptFiles(NEEDED_PROMPTS).get("links")
    hints = ["violin", 5, "violin", "  ", "x" * 41, "What does she do?", None, "luthier"]
    reply = json.dumps({"notes": [{**GOOD, "keywords": hints, "links": [LINK]}, wrong]})

    (note,) = await links(ScriptedModel([reply, reply]), prompt, SHOWN)

    assert (note.memory_id, note.context, [link.memory_id for link in note.links]) == ("bea", GOOD["context"], ["ana"])
    assert note.keywords == ("violin", "luthier")
    with pytest.raises(ReplyError):
        await links(ScriptedModel([json.dumps({"notes": [wrong]})] * 2), prompt, SHOWN)
