"""Measure recall on LoCoMo: learn each conversation through the facade, ask every question.

    python benchmarks/locomo.py --data locomo10.json

The set (Maharana et al., ACL 2024; CC BY-NC 4.0) is not part of this project. Recall at k is the share of a
question's evidence turns among the sources of the first k hits, averaged over the questions of categories 1 to 4.
It is measured twice: with the turns only, and with the set's `observation` facts in place of a language model's
extraction, sent through the real pipeline by an OpenAI-compatible server on loopback.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from loopback import OpenAIServer
from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import Settings, load_settings
from palimpsest.memory import Memory, open_memory

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
DEPTHS = (5, 10, 20)


@dataclass(frozen=True)
class Question:
    """Hold a question, the turns that answer it and its category."""

    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True)
class Session:
    """Hold the turns of one session and the facts that its observations hold: (text, turn ids)."""

    turns: tuple[dict[str, str], ...]
    said_at: datetime
    facts: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Conversation:
    """Hold one conversation of the set."""

    name: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


@dataclass
class Score:
    """Collect recalls by depth and category, and search times in seconds."""

    recalls: dict[tuple[int, int], list[float]] = field(default_factory=dict[tuple[int, int], list[float]])
    seconds: list[float] = field(default_factory=list[float])
    learning: float = 0.0

    def add(self, question: Question, sources: Sequence[Sequence[str]]) -> None:
        """Note the recall of one question at every depth, in its category and in all (0)."""
        for depth in DEPTHS:
            found = {source for hit in sources[:depth] for source in hit}
            recall = len(found & question.evidence) / len(question.evidence)
            for category in (0, question.category):
                self.recalls.setdefault((category, depth), []).append(recall)

    def recall(self, category: int, depth: int) -> float:
        """Return the mean recall of a category (0 for all) at a depth."""
        return statistics.fmean(self.recalls[category, depth])


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a LoCoMo file."""
    return [_conversation(entry) for entry in json.loads(path.read_text("utf-8"))]


def _conversation(entry: dict[str, Any]) -> Conversation:
    spoken = entry["conversation"]
    numbers = sorted(int(key.split("_")[1]) for key in spoken if re.fullmatch(r"session_\d+", key))
    known = {turn["dia_id"] for number in numbers for turn in spoken[f"session_{number}"]}
    sessions = [_session(entry, number, known) for number in numbers]
    return Conversation(entry["sample_id"], tuple(sessions), tuple(_questions(entry["qa"], known)))


def _session(entry: dict[str, Any], number: int, known: set[str]) -> Session:
    spoken = entry["conversation"]
    said_at = datetime.strptime(spoken[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    facts: list[tuple[str, tuple[str, ...]]] = []
    for observed in entry["observation"].get(f"session_{number}_observation", {}).values():
        for text, evidence in observed:
            cited = re.findall(r"D\d+:\d+", json.dumps(evidence))
            facts.append((text, tuple(turn for turn in cited if turn in known)))
    return Session(tuple(spoken[f"session_{number}"]), said_at, tuple(facts))


def _questions(asked: list[dict[str, Any]], known: set[str]) -> Iterator[Question]:
    """Yield the questions of categories 1 to 4 whose evidence names turns that there are."""
    for entry in asked:
        named = {turn for item in entry["evidence"] for turn in re.findall(r"D\d+:\d+", item)}
        if entry["category"] in CATEGORIES and named & known:
            yield Question(entry["question"], frozenset(named & known), entry["category"])


def _messages(session: Session, scope: Scope) -> list[Message]:
    """Return a session's turns as messages a minute apart; what a shared picture shows is part of what was said."""
    messages: list[Message] = []
    for minute, turn in enumerate(session.turns):
        caption = turn.get("blip_caption")
        shown = f" [shares {caption}]" if caption else ""
        said_at = session.said_at + timedelta(minutes=minute)
        messages.append(
            Message(
                id=str(uuid.uuid4()),
                scope=scope,
                role="user",
                content=turn["text"] + shown,
                said_at=said_at,
                created_at=said_at,
                name=turn["speaker"],
                external_id=turn["dia_id"],
            )
        )
    return messages


def _extraction(session: Session) -> str:
    """Return the session's facts as the extraction stage's reply."""
    numbers = {turn["dia_id"]: number for number, turn in enumerate(session.turns, start=1)}
    facts = [
        {"text": text, "sources": [numbers[turn] for turn in cited if turn in numbers], "happened_at": None}
        for text, cited in session.facts
    ]
    return json.dumps({"facts": facts})


def _stand_in(sessions: Iterator[Session]) -> Any:
    """Return a chat function: the next session's facts to an extraction, ADD for every fact to a decision."""

    def chat(request: dict[str, Any]) -> str:
        system, user = (message["content"] for message in request["messages"][:2])
        if "New messages:" in user:
            return _extraction(next(sessions))
        count = len(json.loads(user.split("New facts: ", 1)[1].split("\n\nStored memories:", 1)[0]))
        decisions = [{"fact": number, "event": "ADD", "memory": None, "text": None} for number in range(count)]
        del system
        return json.dumps({"decisions": decisions})

    return chat


async def _measure(memory: Memory, conversation: Conversation, score: Score, *, infer: bool | None) -> None:
    scope = Scope(user_id=conversation.name)
    began = time.perf_counter()
    for session in conversation.sessions:
        await memory.add_messages(_messages(session, scope), infer=infer)
    score.learning += time.perf_counter() - began
    for question in conversation.questions:
        began = time.perf_counter()
        answer = await memory.search(scope, question.text, limit=max(DEPTHS), max_tokens=20_000)
        score.seconds.append(time.perf_counter() - began)
        score.add(question, [hit.sources for hit in answer.hits])


async def _run(conversations: Sequence[Conversation], *, facts: bool) -> Score:
    score = Score()
    for conversation in conversations:
        with tempfile.TemporaryDirectory() as folder, OpenAIServer(_stand_in(iter(conversation.sessions))) as server:
            settings = _settings(Path(folder), server.base_url if facts else None)
            async with open_memory(settings) as memory:
                await _measure(memory, conversation, score, infer=None if facts else False)
    return score


def _settings(folder: Path, base_url: str | None) -> Settings:
    llm = {"provider": "openai", "config": {"openai_base_url": base_url, "api_key": "none", "model": "stand-in"}}
    summary = {"every": 1_000_000}  # a stand-in has no summary to give
    return load_settings(data_dir=folder, llm=llm if base_url else {"provider": "none"}, summary=summary)


def _table(name: str, score: Score) -> None:
    total = len(score.recalls[0, DEPTHS[0]])
    print(f"\n{name}: {total} questions, learnt in {score.learning:.1f} s")
    print(f"{'':<14}{'n':>5}" + "".join(f"{f'recall@{depth}':>12}" for depth in DEPTHS))
    for category, label in (*CATEGORIES.items(), (0, "all")):
        if (category, DEPTHS[0]) in score.recalls:
            row = "".join(f"{score.recall(category, depth):>12.3f}" for depth in DEPTHS)
            print(f"{label:<14}{len(score.recalls[category, DEPTHS[0]]):>5}{row}")
    ordered = sorted(score.seconds)
    p50, p95 = statistics.median(ordered), ordered[int(0.95 * len(ordered))]
    print(f"search: p50 {p50 * 1000:.1f} ms, p95 {p95 * 1000:.1f} ms")


def main() -> None:
    """Read the set, measure both ways, print the tables."""
    parser = argparse.ArgumentParser(description="Measure recall on LoCoMo.")
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo JSON file")
    parser.add_argument("--only", choices=["turns", "facts"], help="measure one way only")
    arguments = parser.parse_args()
    conversations = read(arguments.data)
    print(f"{len(conversations)} conversations, Python {sys.version.split()[0]}")
    if arguments.only != "facts":
        _table("turns only", anyio.run(lambda: _run(conversations, facts=False)))
    if arguments.only != "turns":
        _table("turns and facts", anyio.run(lambda: _run(conversations, facts=True)))


if __name__ == "__main__":
    main()
