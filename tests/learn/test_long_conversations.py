"""Long conversations and replies that are cut off: what was whole is learned, and the rest is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import Reply
from palimpsest.learn.add import PIECE_TOKENS, pieces
from palimpsest.text.tokenizer import count_tokens
from tests.support.memory import ALICE, memory_texts, messages_from
from tests.support.scripted_model import (
    add_all,
    answering,
    decision,
    decisions_reply,
    facts_reply,
    given,
    memory_with,
)

pytestmark = pytest.mark.anyio


async def test_a_message_longer_than_a_piece_is_split_where_sentences_end(tmp_path: Path) -> None:
    seen: list[str] = []

    def extract(request: dict[str, Any]) -> dict[str, Any]:
        (new,) = given(request, "New messages")
        seen.append(new["text"])
        return {"facts": [{"text": f"Fact of part {len(seen)}.", "sources": [1]}]}

    diary = " ".join(f"On day {day} we looked at the ponds, hedges and sheds of garden {day}." for day in range(800))
    async with memory_with(answering(extract=extract, decide=add_all), tmp_path) as (memory, _):
        result = await memory.add_messages(messages_from(("user", diary)))
        again = await memory.add_messages(messages_from(("user", diary)))
        sources = {hit.message_ids for hit in (await memory.list(ALICE)).hits}
    assert len(seen) > 3
    assert "".join(seen) == diary
    assert all(text.rstrip().endswith(".") and count_tokens(text) <= PIECE_TOKENS for text in seen)
    assert (len(result.outcomes), result.kept_messages) == (len(seen), 1)
    assert len(sources) == 1
    assert again.outcomes == ()


async def test_a_part_of_a_long_message_is_read_with_what_came_before(tmp_path: Path) -> None:
    """Guards who "she" is: a later part is shown how the message begins, what precedes it, and what was found."""
    notes: list[list[str]] = []
    texts: list[str] = []

    def extract(request: dict[str, Any]) -> dict[str, Any]:
        notes.append(given(request, "Notes of the system, for context only"))
        texts.append(given(request, "New messages")[0]["text"])
        return {"facts": [{"text": f"Fact of part {len(notes)}.", "sources": [1]}]}

    letter = "My sister Ida moved in with us. " + "She painted the shed and then the fence. " * 500
    async with memory_with(answering(extract=extract, decide=add_all), tmp_path) as (memory, _):
        await memory.add_messages(messages_from(("user", letter)))
    (first,), *later = notes
    assert first == f"Message 1 is part 1 of {len(notes)} of one long message, which goes on after it"
    assert len(later) > 1
    for number, (part, facts) in enumerate(later, 2):
        assert part.startswith(f"Message 1 is part {number} of {len(notes)} of one long message")
        assert ("goes on" in part) == (number < len(notes))
        assert 'begins: "My sister Ida moved in with us. ' in part
        assert texts[number - 2][-60:].strip() in part
        assert f"Fact of part {number - 1}." in facts


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("unit", [".", ".!", "…a", "\u3002a", "…\n", "? ", "\n", "a. "])
def test_a_text_of_full_stops_is_split_in_linear_time(unit: str) -> None:
    """Guards every caller: in quadratic time such a text takes half an hour, and the interpreter with it."""
    (given_message,) = messages_from(("user", unit * (180_000 // len(unit)) + "end"))
    parts = [part for piece in pieces([given_message]) for part in piece]
    assert "".join(part.message.content for part in parts) == given_message.content
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_pieces_before_a_failure_are_kept_and_the_rest_is_learned_later(tmp_path: Path) -> None:
    """A call that is repeated continues with the messages that nothing was learned from yet."""
    long = "All about gardens, hedges and ponds. " * 100
    conversation = [("user", f"{number} {long}") for number in range(3)]
    replies = [
        facts_reply("First."),
        Reply("no credit", status=402),
        facts_reply("Second."),
        decisions_reply(decision(0, "ADD")),
        facts_reply(),
    ]
    async with memory_with(replies, tmp_path) as (memory, _):
        first = await memory.add_messages(messages_from(*conversation))
        assert any("learned from the first" in note for note in first.notes)
        await memory.add_messages(messages_from(*conversation))
        assert {"First.", "Second."} <= set(await memory_texts(memory))


async def test_a_request_in_a_long_message_waits_until_all_of_it_was_read(tmp_path: Path) -> None:
    extractions = 0

    def extract(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal extractions
        extractions += 1
        text, forget = f"Fact of part {extractions}.", "Mark" if extractions == 1 else ""
        return json.loads(facts_reply(text, forget=forget))

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        mark = next((each["id"] for each in given(request, "Stored memories") if each["text"] == "Mark drinks."), 0)
        made = [
            decision(item["fact"], "DELETE", mark, "") if "forget" in item else decision(item["fact"], "ADD")
            for item in given(request, "New facts")
        ]
        return {"decisions": made}

    diary = "Forget Mark. " + "We looked at the ponds, hedges and sheds. " * 600
    async with memory_with(answering(extract=extract, decide=decide), tmp_path) as (memory, _):
        await memory.add_text(ALICE, "Mark drinks.", infer=False)
        result = await memory.add_messages(messages_from(("user", diary)))
        assert await memory_texts(memory) == [f"Fact of part {number + 1}." for number in range(extractions)]
    assert extractions > 2
    assert any(note.startswith("forgotten, as asked (Mark)") for note in result.notes)
