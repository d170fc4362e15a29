"""Measure recall on LoCoMo: add each conversation through the facade, then ask each of its questions.

    python benchmarks/locomo.py --data locomo10.json
    python benchmarks/locomo.py --data locomo10.json --embedder e5 --only messages

The data set (Maharana et al., ACL 2024; CC BY-NC 4.0) is not part of this project. Recall at k is the share of a
question's evidence turns that are sources of the first k hits, averaged over the questions of categories 1 to 4. It is
measured twice: with the messages only, and with the `observation` facts of the data set. An OpenAI-compatible server on
loopback returns these facts in place of a language model's extraction, so they pass through the real pipeline. The
questions are asked after every text has its vector.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio

import embedders
from loopback import OpenAIServer
from measures.stores import StoppedClock, embed_waiting, new_memory
from measures.tables import ALL, Table, Tally, print_table
from palimpsest.core.models import Message, Scope
from palimpsest.memory import Memory

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
DEPTHS = (5, 10, 20)


@dataclass(frozen=True)
class Question:
    """A question, the ids of the turns that answer it, and its category."""

    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True)
class Session:
    """The turns of one session, and the facts of its observations as (text, turn ids)."""

    turns: tuple[dict[str, str], ...]
    said_at: datetime
    facts: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Conversation:
    """One conversation of the data set."""

    name: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a LoCoMo file."""
    return [_conversation(entry) for entry in json.loads(path.read_text("utf-8"))]


def _conversation(entry: dict[str, Any]) -> Conversation:
    conversation = entry["conversation"]
    numbers = sorted(int(key.split("_")[1]) for key in conversation if re.fullmatch(r"session_\d+", key))
    known = {turn["dia_id"] for number in numbers for turn in conversation[f"session_{number}"]}
    sessions = [_session(entry, number, known) for number in numbers]
    return Conversation(entry["sample_id"], tuple(sessions), tuple(_questions(entry["qa"], known)))


def _session(entry: dict[str, Any], number: int, known: set[str]) -> Session:
    conversation = entry["conversation"]
    said_at = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(
        tzinfo=UTC
    )
    facts: list[tuple[str, tuple[str, ...]]] = []
    for observations in entry["observation"].get(f"session_{number}_observation", {}).values():
        for text, evidence in observations:
            cited = re.findall(r"D\d+:\d+", json.dumps(evidence))
            facts.append((text, tuple(turn for turn in cited if turn in known)))
    return Session(tuple(conversation[f"session_{number}"]), said_at, tuple(facts))


def _questions(entries: list[dict[str, Any]], known: set[str]) -> Iterator[Question]:
    """Yield the questions of categories 1 to 4 whose evidence names existing turns."""
    for entry in entries:
        evidence = {turn for item in entry["evidence"] for turn in re.findall(r"D\d+:\d+", item)}
        if entry["category"] in CATEGORIES and evidence & known:
            yield Question(entry["question"], frozenset(evidence & known), entry["category"])


def messages_of(session: Session, scope: Scope) -> list[Message]:
    """Return the turns of a session as messages one minute apart. The caption of a shared picture is text too."""
    messages: list[Message] = []
    for minute, turn in enumerate(session.turns):
        caption = turn.get("blip_caption")
        caption_text = f" [shares {caption}]" if caption else ""
        said_at = session.said_at + timedelta(minutes=minute)
        messages.append(
            Message(
                id=str(uuid.uuid4()),
                scope=scope,
                role="user",
                content=turn["text"] + caption_text,
                said_at=said_at,
                created_at=said_at,
                name=turn["speaker"],
                external_id=turn["dia_id"],
            )
        )
    return messages


def scripted_chat(sessions: Sequence[Session]) -> Callable[[dict[str, Any]], str]:
    """Return a chat function that answers an extraction with the facts of its messages, and a decision with ADD.

    A long session is extracted in pieces. A fact belongs to the piece of the last turn that it cites.
    """
    scope = Scope("nobody")
    turn_ids = {
        (f"{message.said_at:%Y-%m-%d %H:%M}", message.content): message.external_id
        for session in sessions
        for message in messages_of(session, scope)
    }
    facts = [fact for session in sessions for fact in session.facts if fact[1]]

    def extraction(messages: list[dict[str, Any]]) -> str:
        numbers = {turn_ids[message["said_at"][:16], message["text"]]: message["number"] for message in messages}
        found = [
            {"text": text, "sources": [numbers[turn] for turn in cited if turn in numbers], "happened_at": None}
            for text, cited in facts
            if cited[-1] in numbers
        ]
        return json.dumps({"facts": found})

    def chat(request: dict[str, Any]) -> str:
        user: str = request["messages"][1]["content"]
        if "New messages: " in user:
            return extraction(json.loads(user.split("New messages: ", 1)[1]))
        count = len(json.loads(user.split("New facts: ", 1)[1].split("\n\nStored memories:", 1)[0]))
        decisions = [{"fact": number, "event": "ADD", "memory": None, "text": None} for number in range(count)]
        return json.dumps({"decisions": decisions})

    return chat


async def _recall(conversations: Sequence[Conversation], embedder: str, *, facts: bool) -> Table:
    """Ask the questions of each conversation, and return the recall by category."""
    tally = Tally("messages and facts" if facts else "messages only")
    for conversation in conversations:
        async with filled(conversation, embedder, facts=facts) as memory:
            for question in conversation.questions:
                scope = Scope(user_id=conversation.name)
                reply = await memory.search(scope, question.text, limit=max(DEPTHS), max_tokens=20_000)
                recalls: dict[str, float] = {}
                for depth in DEPTHS:
                    sources = {source for hit in reply.hits[:depth] for source in hit.sources}
                    recalls[f"recall@{depth}"] = len(sources & question.evidence) / len(question.evidence)
                tally.record((CATEGORIES[question.category], ALL), recalls)
    return tally.table()


@asynccontextmanager
async def filled(conversation: Conversation, embedder: str, *, facts: bool) -> AsyncGenerator[Memory]:
    """Open a memory that has the messages of a conversation, and with `facts` those that a scripted model learned."""
    with OpenAIServer(scripted_chat(conversation.sessions)) as server:
        config = {"openai_base_url": server.base_url, "api_key": "none", "model": "stand-in"}
        llm = {"provider": "openai", "config": config} if facts else {"provider": "none"}
        never = {"every": 1_000_000}  # the stand-in for the model cannot summarize
        async with new_memory(StoppedClock(datetime.now(UTC)), embedder, llm=llm, summary=never) as memory:
            for session in conversation.sessions:
                messages = messages_of(session, Scope(user_id=conversation.name))
                await memory.add_messages(messages, infer=None if facts else False)
            await embed_waiting(memory)
            yield memory


def main() -> None:
    """Read the data set, measure in both ways, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure recall on LoCoMo.")
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo JSON file")
    parser.add_argument("--only", choices=["messages", "facts"], help="measure in one way only")
    embedders.add_option(parser)
    arguments = parser.parse_args()
    conversations = read(arguments.data)
    print(f"{len(conversations)} conversations, Python {sys.version.split()[0]}")
    for way, facts in (("messages", False), ("facts", True)):
        if arguments.only in (None, way):
            recall = partial(_recall, conversations, arguments.embedder, facts=facts)
            print_table(anyio.run(recall), misses=False)


if __name__ == "__main__":
    main()
