"""The links stage: what is wrong in a reply is asked for once more, and then loses nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palimpsest.core.errors import ReplyError
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.prompts import PromptFiles
from palimpsest.llm.summarize import MAX_CONTEXT_CHARS, Shown, links
from tests.support.scripted_model import ScriptedModel, memory

pytestmark = pytest.mark.anyio

SHOWN = Shown(
    (memory("Bea restores violins.", "bea"), memory("Ana likes tea.", "ana")), {0: (1,), 1: (0,)}, frozenset({0, 1})
)
GOOD: dict[str, Any] = {"memory": 0, "context": "The work of Bea.", "tags": ["work"], "links": []}
LINK = {"memory": 1, "reason": "both are friends"}


@pytest.mark.parametrize(
    "wrong",
    [
        {**GOOD, "memory": 7},
        {**GOOD, "memory": 1, "context": ""},
        {**GOOD, "memory": 1, "context": "null"},
        {**GOOD, "memory": 1, "context": "x" * (MAX_CONTEXT_CHARS + 1)},
        {**GOOD, "memory": 1, "links": [{"memory": 9, "reason": "x"}]},
        {"memory": "none"},
        5,
    ],
    ids=range(7),
)
async def test_one_bad_note_loses_no_other(wrong: Any) -> None:
    """Guards the sound notes beside one that cannot be used; with none that can it is an error."""
    prompt = PromptFiles(NEEDED_PROMPTS).get("links")
    reply = json.dumps({"notes": [{**GOOD, "links": [LINK]}, wrong]})

    (note,) = await links(ScriptedModel([reply, reply]), prompt, SHOWN)

    assert (note.memory_id, note.context, [link.memory_id for link in note.links]) == ("bea", GOOD["context"], ["ana"])
    with pytest.raises(ReplyError):
        await links(ScriptedModel([json.dumps({"notes": [wrong]})] * 2), prompt, SHOWN)
