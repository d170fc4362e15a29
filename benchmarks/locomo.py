"""Measure recall on LoCoMo: add each conversation through the facade, then ask each of its questions.

    python benchmarks/locomo.py --data locomo10.json
    python benchmarks/locomo.py --data locomo10.json --embedder e5 --only messages
    python benchmarks/locomo.py --data locomo10.json --embedder e5 --only facts --links on

The data set (Maharana et al., ACL 2024; CC BY-NC 4.0) is not part of this project. Recall at k is the share of a
question's evidence turns that are sources of the first k hits, averaged over the questions of categories 1 to 4. It is
measured twice: with the messages only, and with the `observation` facts of the data set. An OpenAI-compatible server on
loopback returns these facts in place of a language model's extraction, so they pass through the real pipeline. With
facts, a second figure says how often a memory is what is shown first: the share of the questions with a memory that
cites an evidence turn among the first five hits, of those with such a memory at all. The questions are asked after
every text has its vector. With `--links on` the facts are linked before that, without a model, and searches follow the
links.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import func, select

import embedders
from loopback import OpenAIServer
from measures.stores import StoppedClock, embed_waiting, new_memory
from palimpsest.core.models import Message, Scope
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from palimpsest.store.schema import memory_links

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
DEPTHS = (5, 10, 20)
SETTLED = timedelta(hours=1)
"""How long after the last add the jobs that need no model are worked on: by then all are due."""

FIRST = 5
"""How many hits a memory that cites evidence must be among."""


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


@dataclass
class Score:
    """The recall of each question by category and depth, and how many links there are between memories.

    `cited_first` has for each question of which a fact cites evidence whether a memory among the first hits does.
    """

    recalls: dict[tuple[int, int], list[float]] = field(default_factory=dict[tuple[int, int], list[float]])
    cited_first: list[bool] = field(default_factory=list[bool])
    links: int = 0

    def add(self, question: Question, sources: Sequence[Sequence[str]]) -> None:
        """Record the recall of one question at every depth, in its category and in all categories (0)."""
        for depth in DEPTHS:
            hit_sources = {source for hit in sources[:depth] for source in hit}
            recall = len(hit_sources & question.evidence) / len(question.evidence)
            for category in (0, question.category):
                self.recalls.setdefault((category, depth), []).append(recall)

    def recall(self, category: int, depth: int) -> float:
        """Return the mean recall of a category (0 for all) at a depth."""
        return statistics.fmean(self.recalls[category, depth])


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


async def _measure(memory: Memory, clock: StoppedClock, conversation: Conversation, score: Score) -> None:
    scope = Scope(user_id=conversation.name)
    clock.at += SETTLED
    await work_on_jobs(memory.engine, None)
    with memory.engine.ledger.read() as conn:
        score.links += conn.scalar(select(func.count()).select_from(memory_links)) or 0
    cited = {turn for session in conversation.sessions for _, turns in session.facts for turn in turns}
    for question in conversation.questions:
        reply = await memory.search(scope, question.text, limit=max(DEPTHS), max_tokens=20_000)
        score.add(question, [hit.sources for hit in reply.hits])
        if question.evidence & cited:
            memories = [hit for hit in reply.hits[:FIRST] if hit.kind == "memory"]
            score.cited_first.append(any(question.evidence & set(hit.sources) for hit in memories))


async def _run(conversations: Sequence[Conversation], embedder: str, links: str, *, facts: bool) -> Score:
    score = Score()
    for conversation in conversations:
        clock = StoppedClock(datetime.now(UTC))
        async with filled(conversation, clock, embedder, facts=facts, links=links) as memory:
            await _measure(memory, clock, conversation, score)
    return score


@asynccontextmanager
async def filled(
    conversation: Conversation, clock: StoppedClock, embedder: str, *, facts: bool, links: str = "off"
) -> AsyncGenerator[Memory]:
    """Open a memory that has the messages of a conversation, and with `facts` those that a scripted model learned."""
    with OpenAIServer(scripted_chat(conversation.sessions)) as server:
        config = {"openai_base_url": server.base_url, "api_key": "none", "model": "stand-in"}
        llm = {"provider": "openai", "config": config} if facts else {"provider": "none"}
        never = {"every": 1_000_000}  # the stand-in for the model cannot summarize
        async with new_memory(clock, embedder, llm=llm, links=links, summary=never) as memory:
            for session in conversation.sessions:
                messages = messages_of(session, Scope(user_id=conversation.name))
                await memory.add_messages(messages, infer=None if facts else False)
            await embed_waiting(memory)
            yield memory


def _table(name: str, score: Score, *, facts: bool) -> None:
    print(f"\n{name}: {len(score.recalls[0, DEPTHS[0]])} questions, {score.links} links")
    print(f"{'':<14}{'n':>5}" + "".join(f"{f'recall@{depth}':>12}" for depth in DEPTHS))
    for category, label in (*CATEGORIES.items(), (0, "all")):
        if (category, DEPTHS[0]) in score.recalls:
            row = "".join(f"{score.recall(category, depth):>12.3f}" for depth in DEPTHS)
            print(f"{label:<14}{len(score.recalls[category, DEPTHS[0]]):>5}{row}")
    if facts:
        share, asked = statistics.fmean(score.cited_first), len(score.cited_first)
        print(f"with a memory that cites evidence among the first {FIRST}: {share:.3f} of {asked} questions")


def main() -> None:
    """Read the data set, measure in both ways, and print the tables."""
    parser = argparse.ArgumentParser(description="Measure recall on LoCoMo.")
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo JSON file")
    parser.add_argument("--only", choices=["messages", "facts"], help="measure in one way only")
    parser.add_argument("--links", choices=["off", "on"], default="off", help="link memories (default off)")
    embedders.add_option(parser)
    arguments = parser.parse_args()
    conversations = read(arguments.data)
    measure = partial(_run, conversations, arguments.embedder, arguments.links)
    print(f"{len(conversations)} conversations, Python {sys.version.split()[0]}")
    if arguments.only != "facts":
        _table("messages only", anyio.run(partial(measure, facts=False)), facts=False)
    if arguments.only != "messages":
        _table("messages and facts", anyio.run(partial(measure, facts=True)), facts=True)


if __name__ == "__main__":
    main()
