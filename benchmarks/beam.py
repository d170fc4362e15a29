"""Measure recall on BEAM's long technical conversations: store the messages of each, then ask its questions.

    git clone https://github.com/mohammadtavakoli78/BEAM
    python benchmarks/beam.py --data BEAM/chats/100K --chats 1 2 3 4 5 6 7 8

The data set (Tavakoli et al. 2025) is not part of this project. Recall at 10 is the share of the messages that a
question names as its sources which are among the first ten hits, averaged over the questions that name any. In a row of
its own are the questions whose answers depend on rules and wishes that were said in passing.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import anyio

import embedders
from measures.stores import AMPLE, SCOPE, StoppedClock, embed_waiting, new_memory
from measures.tables import ALL, Table, Tally, print_table
from palimpsest.core.models import Message
from palimpsest.memory import Memory

IN_PASSING = ("instruction_following", "preference_following")
DEPTH = 10

# The time between two messages. The data set dates only some of them.
BETWEEN = timedelta(minutes=2)


def sessions_of(chat: Sequence[Any]) -> Iterator[list[Message]]:
    """Yield the messages of each session."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    for turns in (group for batch in chat for group in batch["turns"]):
        messages: list[Message] = []
        for turn in turns:
            try:
                at = max(at, datetime.strptime(turn.get("time_anchor") or "", "%B-%d-%Y").replace(tzinfo=UTC))
            except ValueError:
                at += BETWEEN
            messages.append(
                Message(str(uuid.uuid4()), SCOPE, turn["role"], turn["content"], at, at, external_id=str(turn["id"]))
            )
        yield messages


def _ids(sources: Any) -> set[str]:
    """Return the ids of messages in a list, or in a mapping of lists."""
    if isinstance(sources, Mapping):
        return set[str]().union(*(_ids(part) for part in cast("Mapping[str, Any]", sources).values()))
    if isinstance(sources, list):
        return set[str]().union(*(_ids(part) for part in cast("list[Any]", sources)))
    return {str(sources)}


async def _ask(memory: Memory, questions: Mapping[str, Sequence[Any]], tally: Tally) -> None:
    for kind, asked in questions.items():
        for question in asked:
            expected = _ids(question.get("source_chat_ids", []))
            if not expected:
                continue
            result = await memory.search(SCOPE, question["question"], limit=DEPTH, max_tokens=AMPLE)
            found = {source for hit in result.hits for source in hit.sources}
            rows = (ALL, kind, *(["in passing"] if kind in IN_PASSING else []))
            tally.record(rows, {f"recall@{DEPTH}": len(found & expected) / len(expected)})


async def measure(folder: Path, chats: Sequence[str], embedder: str) -> Table:
    """Return the recall of the questions, by kind."""
    tally = Tally("BEAM")
    for name in chats:
        sessions = list(sessions_of(json.loads((folder / name / "chat.json").read_text("utf-8"))))
        asked = json.loads((folder / name / "probing_questions" / "probing_questions.json").read_text("utf-8"))
        clock = StoppedClock(sessions[-1][-1].said_at + timedelta(days=1))
        async with new_memory(clock, embedder) as memory:
            for messages in sessions:
                await memory.add_messages(messages, infer=False)
            await embed_waiting(memory)
            await _ask(memory, asked, tally)
    return tally.table()


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description="Measure recall on BEAM.")
    parser.add_argument("--data", type=Path, required=True, help="a folder of chats, such as BEAM/chats/100K")
    parser.add_argument("--chats", nargs="+", required=True, help="the names of the chats")
    embedders.add_option(parser)
    arguments = parser.parse_args()
    print_table(anyio.run(measure, arguments.data, arguments.chats, arguments.embedder), misses=False)


if __name__ == "__main__":
    main()
