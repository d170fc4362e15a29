"""The settings that say what is to be learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from tests.support.memory import llm_settings, memory_in, memory_texts, messages_from

pytestmark = pytest.mark.anyio

REPLY = json.dumps(
    {
        "facts": [
            {"text": "Ana likes tea.", "sources": [1], "tags": ["preference"]},
            {"text": "Ana has asthma.", "sources": [1], "tags": ["Health"]},
        ]
    }
)


async def test_excluded_topics_are_told_to_the_model_and_checked(tmp_path: Path) -> None:
    """A fact that the model tags with an excluded topic is not kept even if it was extracted; the reply says so."""
    with OpenAIServer([REPLY]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url), excludes=["health"]) as memory:
            result = await memory.add_messages(messages_from(("user", "I like tea. I have asthma.")))
            assert await memory_texts(memory) == ["Ana likes tea."]
            system = server.chat_requests[0]["messages"][0]["content"]
    assert "Never extract anything about these topics: health." in system
    assert "add that topic to its tags" in system
    assert any("exclude 'health'" in note for note in result.notes)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("labels", "is_kept"),
    [
        ({"tags": ["health-issues"]}, False),
        ({"tags": ["health issues"]}, False),
        ({"tags": ["event"], "keywords": ["asthma", "Health Issue"]}, False),
        ({"tags": ["issue"], "keywords": ["asthma"]}, True),
    ],
    ids=str,
)
async def test_an_excluded_topic_is_known_by_its_words(
    tmp_path: Path, labels: dict[str, Any], *, is_kept: bool
) -> None:
    """Models write a topic in another number or case, or among the keywords."""
    reply = json.dumps({"facts": [{"text": "Ana has asthma.", "sources": [1], **labels}]})
    with OpenAIServer([reply]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url), excludes=["health issues"]) as memory:
            await memory.add_messages(messages_from(("user", "I have asthma.")))
            assert (await memory_texts(memory) == ["Ana has asthma."]) is is_kept


@pytest.mark.parametrize("custom_prompt", [None, "List what the user likes as JSON."])
async def test_instructions_and_included_topics_follow_the_prompt(tmp_path: Path, custom_prompt: str | None) -> None:
    """They are added to the shipped prompt and to one of the settings, and a dollar sign in them is a dollar sign.

    What the graph needs comes after them.
    """
    settings: dict[str, Any] = {"custom_fact_extraction_prompt": custom_prompt} if custom_prompt else {}
    with OpenAIServer(['{"facts": []}']) as server:
        async with memory_in(
            tmp_path,
            llm=llm_settings(server.base_url),
            custom_instructions="Prices in $.",
            includes=["work", "plans"],
            **settings,
        ) as memory:
            await memory.add_messages(messages_from(("user", "It costs 5 dollars.")))
            system = server.chat_requests[0]["messages"][0]["content"]
            graph = memory.engine.prompts.get("graph").system
    assert system.endswith(f"Prices in $.\n\nExtract facts about these topics only: work; plans.\n\n{graph}")
    assert system.startswith(custom_prompt or "You keep the long-term memory")
