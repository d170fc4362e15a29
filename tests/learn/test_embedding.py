"""Each text of an add is embedded once: to compare it, to write it, and to name its near-duplicates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer, Reply
from tests.support.ledger_access import second_writer
from tests.support.memory import ALICE, llm_settings, memory_in, memory_texts, messages_from
from tests.support.scripted_model import facts_reply
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

NICE, LYON, METZ = "User lives in Nice", "User lives in Lyon", "User lives in Metz"


def decision(event: str, text: str | None = None) -> str:
    """Return the reply that decides on the first fact, beside the first memory."""
    return json.dumps({"decisions": [{"fact": 0, "event": event, "memory": 0, "text": text}]})


@pytest.mark.parametrize("infer", [None, False], ids=["reconciled", "as it is"])
async def test_a_text_is_embedded_once(tmp_path: Path, *, infer: bool | None) -> None:
    """Guards the cost of an add with an embedder behind a network."""
    with OpenAIServer([decision("ADD")]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as plain:
            await plain.add_text(ALICE, NICE, infer=False)
            memory, embedder = watched(plain)
            added = await memory.add_text(ALICE, LYON, infer=infer)
    assert embedder.texts == [(LYON,)]
    (similar,) = added.similar.values()
    assert [item.memory.text for item in similar] == [NICE]


async def test_messages_are_embedded_once_and_their_facts_once(tmp_path: Path) -> None:
    """Guards the same for messages; a fact in the very words of a message has its vector."""
    texts = ("I moved to Lyon", "User drinks tea")
    replies = [facts_reply(LYON, texts[1]), json.dumps({"decisions": [{"fact": n, "event": "ADD"} for n in (0, 1)]})]
    with OpenAIServer(replies) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as plain:
            await plain.add_text(ALICE, NICE, infer=False)
            memory, embedder = watched(plain)
            await memory.add_messages(messages_from(*(("user", text) for text in texts)))
            assert await memory_texts(plain) == sorted([NICE, LYON, texts[1]])
    assert embedder.texts == [texts, (LYON,)]


async def test_only_a_text_of_the_model_s_own_is_embedded_besides(tmp_path: Path) -> None:
    """Guards decisions that give a memory another text than that of the fact."""
    merged = "User lives in Lyon, and lived in Nice before"
    with OpenAIServer([decision("UPDATE", merged)]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as plain:
            await plain.add_text(ALICE, NICE, infer=False)
            memory, embedder = watched(plain)
            await memory.add_text(ALICE, LYON)
            assert await memory_texts(plain) == [merged]
            assert (await plain.search(ALICE, merged)).notes == ()
    assert embedder.texts == [(LYON,), (merged,)]


async def test_a_text_is_embedded_once_however_often_it_is_decided_on(tmp_path: Path) -> None:
    """Guards the comparison that is repeated because another client was faster."""
    async with memory_in(tmp_path) as plain:
        await plain.add_text(ALICE, NICE)

    def chat(_: dict[str, Any]) -> str:
        if len(server.chat_requests) == 1:
            with second_writer(tmp_path) as add:
                add(METZ)
        return decision("ADD")

    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as plain:
            memory, embedder = watched(plain)
            await memory.add_text(ALICE, LYON)
    assert len(server.chat_requests) == 2
    assert embedder.texts == [(LYON,)]


async def test_a_text_is_embedded_once_if_the_model_fails(tmp_path: Path) -> None:
    """Guards the way on without a model: the text is stored as it is."""
    with OpenAIServer(lambda _: Reply(status=401)) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as plain:
            await plain.add_text(ALICE, NICE, infer=False)
            memory, embedder = watched(plain)
            added = await memory.add_text(ALICE, LYON)
    assert "not reconciled" in added.notes[0]
    assert embedder.texts == [(LYON,)]


async def test_an_update_embeds_its_text_once_and_other_metadata_nothing(tmp_path: Path) -> None:
    """Guards the same for updates."""
    async with memory_in(tmp_path) as plain:
        added = await plain.add_text(ALICE, NICE)
        await plain.add_text(ALICE, METZ)
        memory, embedder = watched(plain)
        updated = await memory.update(ALICE, added.outcomes[0].memory.id, text=LYON)
        await memory.update(ALICE, added.outcomes[0].memory.id, metadata={"sure": True})
    assert embedder.texts == [(LYON,)]
    (similar,) = updated.similar.values()
    assert [item.memory.text for item in similar] == [METZ]
