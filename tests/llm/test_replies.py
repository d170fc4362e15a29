"""What models really send, through the facade: the table `replies.json`, one row a reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.errors import ModelError, ReplyError
from palimpsest.core.settings import Endpoint, LlmConfig
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.extract import Conversation, extract
from palimpsest.llm.openai import OpenAIModel
from palimpsest.llm.prompts import Prompt, PromptFiles
from tests.support.memory import messages_from
from tests.support.scripted_model import NOW, ScriptedModel

LINES = "Write a fact on each line, or <none>."
"""Instructions that ask for no JSON."""

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("replies.json").read_text("utf-8"))


def sent(row: dict[str, Any]) -> Reply:
    """Return a row as the endpoint's reply: its text, its message, or its whole body."""
    if "reply" in row:
        return Reply(row["reply"])
    body = row.get("body") or {"choices": [{"finish_reason": "stop", "message": row["message"]}]}
    return Reply(body=json.dumps(body).encode())


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    """Return the shipped prompt of the extraction."""
    return PromptFiles(NEEDED_PROMPTS).get("extract")


@pytest.mark.anyio
async def test_the_last_whole_reply_counts_and_never_a_draft(prompt: Prompt) -> None:
    said = Conversation(messages_from(("user", "I drink tea and have a cat.")))
    current = [ROWS[0]]
    wrong: dict[str, Any] = {}
    with OpenAIServer(lambda _: sent(current[-1])) as server:
        config = LlmConfig(model="scripted", temperature=None, max_tokens=300, timeout=9)
        model = OpenAIModel(config, Endpoint(None, server.base_url))
        for row in ROWS:
            current.append(row)
            read: list[str] | str
            try:
                read = [fact.text for fact in (await extract(model, prompt, said, NOW)).facts]
            except ModelError as error:
                read = str(error)
            is_right = row.get("told", "") in read if row["facts"] is None else read == row["facts"]
            if not is_right or isinstance(read, str) is not (row["facts"] is None):
                wrong[row["name"]] = read
        await model.aclose()
    assert wrong == {}


OWN_FORMS: dict[str, tuple[str, str, list[str] | None]] = {
    "bullets": (LINES, "Facts:\n- Name: John.\n- Likes dark themes.", ["Name: John.", "Likes dark themes."]),
    "numbers": (LINES, "1. Name: John.\n2) Likes dark themes.", ["Name: John.", "Likes dark themes."]),
    "none": (LINES, "<none>", []),
    "none as a bullet": (LINES, "- None", []),
    "nothing in Chinese": (LINES, "<\u65e0>", []),
    "prose": (LINES, "The user seems to like tea, and more.", None),
    "Mem0's": ('Return JSON: {"facts": ["\u2026"]}', '{"facts": ["Name: John."]}', ["Name: John."]),
    "bullets that nobody asked for": ("Only what is about food.", "- Hm.\n- The user says hello.", None),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("system", "reply", "facts"), OWN_FORMS.values(), ids=OWN_FORMS)
async def test_replies_in_the_form_of_a_custom_prompt_are_read(
    system: str, reply: str, facts: list[str] | None
) -> None:
    model = ScriptedModel([reply, reply])
    prompt = PromptFiles(NEEDED_PROMPTS, None, {"extract": system}).get("extract")
    said = Conversation(messages_from(("user", "I am John. Dark themes, please.")))

    if facts is None:
        with pytest.raises(ReplyError):
            await extract(model, prompt, said, NOW)
    else:
        assert [fact.text for fact in (await extract(model, prompt, said, NOW)).facts] == facts
    assert len(model.calls) == (2 if facts is None else 1)
