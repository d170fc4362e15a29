"""Read the conversations of LoCoMo, LongMemEval and BEAM, and open what finds the context of an answer in them."""

from __future__ import annotations

import importlib
import json
import re
from argparse import Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from anyio import to_thread

import beam
import locomo
from compare import served
from loopback import OpenAIServer
from measures.stores import StoppedClock, embed_waiting
from palimpsest.core.errors import ModelError
from palimpsest.core.models import Message, Scope
from palimpsest.core.protocols import Embedder
from palimpsest.core.settings import load_settings
from palimpsest.core.validation import read_conversation
from palimpsest.memory import open_memory
from palimpsest.text.tokenizer import count_tokens
from peers.worker import mem0_config

# What returns the context of an answer to a question.
Search = Callable[[str], Awaitable[str]]

FULL_CONTEXT = "full context"
MEM0 = "mem0"
# What each way to search Palimpsest finds: memories and messages, one of them, or both with relations.
FILTERS: Mapping[str, dict[str, str]] = {
    "palimpsest": {},
    "palimpsest, memories": {"kind": "memory"},
    "palimpsest, messages": {"kind": "message"},
    "palimpsest, relations": {},
}

RAG = {f"RAG {size}, k={k}": (size, k) for size in (128, 256, 512, 1024, 2048, 4096, 8192) for k in (1, 2)}
SYSTEMS = (*FILTERS, FULL_CONTEXT, *RAG, MEM0)

# The keys under which BEAM's questions have what is to be answered, by their kind.
IDEAL = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance", "rubric")


@dataclass(frozen=True)
class Question:
    """A question with the answer that is right. `id` is its own within a sample."""

    id: str
    text: str
    answer: str
    category: str


@dataclass(frozen=True)
class Sample:
    """A conversation, session by session, and the questions that are asked at a time after it."""

    name: str
    sessions: Sequence[Sequence[Message]]
    questions: Sequence[Question]
    asked_at: datetime

    @property
    def lines(self) -> list[str]:
        """Return the conversation as lines, each with its time and speaker."""
        said = (message for session in self.sessions for message in session)
        return [line(message.said_at, message.name or message.role, message.content) for message in said]


def line(at: datetime, speaker: str, text: str) -> str:
    """Return a line of a context."""
    return f"[{at:%A, %Y-%m-%d %H:%M}] {speaker}: {text}"


def read(path: Path) -> list[Sample]:
    """Return the samples of a file of LoCoMo or LongMemEval, or of a folder of BEAM's chats."""
    if path.is_dir():
        return [_of_beam(chat) for chat in sorted(path.iterdir()) if (chat / "chat.json").is_file()]
    entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    if entries and "haystack_sessions" in entries[0]:
        return [_of_longmemeval(entry) for entry in entries]
    return [_of_locomo(*pair) for pair in zip(locomo.read(path), entries, strict=True)]


def _of_locomo(conversation: locomo.Conversation, entry: dict[str, Any]) -> Sample:
    """Return a conversation with its questions of the categories 1 to 4, as the papers count them."""
    sessions = [locomo.messages_of(session, Scope(conversation.name)) for session in conversation.sessions]
    questions = [
        Question(str(number), asked["question"], str(asked["answer"]), locomo.CATEGORIES[asked["category"]])
        for number, asked in enumerate(entry["qa"])
        if asked["category"] in locomo.CATEGORIES and "answer" in asked
    ]
    return _sample(conversation.name, sessions, questions)


def _of_longmemeval(entry: dict[str, Any]) -> Sample:
    dated = zip(entry["haystack_sessions"], map(_time, entry["haystack_dates"]), strict=True)
    said = ([{**turn, "at": at.isoformat()} for turn in turns] for turns, at in dated)
    read = [read_conversation(turns, Scope("longmemeval"), datetime.now(UTC)).messages for turns in said]
    sessions = [messages for messages in read if messages]
    question = Question(entry["question_id"], entry["question"], str(entry["answer"]), entry["question_type"])
    return Sample(entry["question_id"], sessions, [question], _time(entry["question_date"]))


def _time(text: str) -> datetime:
    """Return a time of LongMemEval's, such as 2023/05/20 (Sat) 02:21."""
    return datetime.strptime(re.sub(r"\s*\(\w+\)", "", text), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


def _of_beam(chat: Path) -> Sample:
    sessions = list(beam.sessions_of(json.loads((chat / "chat.json").read_text("utf-8"))))
    asked = json.loads((chat / "probing_questions" / "probing_questions.json").read_text("utf-8"))
    return _sample(f"beam-{chat.name}", sessions, list(_beam_questions(asked)))


def _beam_questions(asked: Mapping[str, Sequence[dict[str, Any]]]) -> Iterator[Question]:
    for kind, questions in asked.items():
        for number, question in enumerate(questions):
            answer: Any = next((question[key] for key in IDEAL if question.get(key)), "")
            text = "; ".join(map(str, cast("list[Any]", answer))) if isinstance(answer, list) else str(answer)
            yield Question(f"{kind} {number}", question["question"], text, kind)


def _sample(name: str, sessions: Sequence[Sequence[Message]], questions: Sequence[Question]) -> Sample:
    return Sample(name, sessions, questions, sessions[-1][-1].said_at + timedelta(days=1))


@asynccontextmanager
async def open_systems(
    names: Sequence[str], sample: Sample, options: Namespace, embedder: Embedder
) -> AsyncGenerator[dict[str, Search]]:
    """Open the named systems with a conversation in them, and yield their searches. The options are those of a run."""
    async with AsyncExitStack() as stack:
        rags = [name for name in names if name in RAG]
        searches = {name: await to_thread.run_sync(_rag, sample, *RAG[name], embedder) for name in rags}
        if FULL_CONTEXT in names:
            searches[FULL_CONTEXT] = partial(_whole, "\n".join(sample.lines))
        if ours := [name for name in names if name in FILTERS]:
            searches |= await stack.enter_async_context(_palimpsest(ours, sample, options))
        if MEM0 in names:
            searches[MEM0] = await stack.enter_async_context(_mem0(sample, options, embedder))
        yield searches


async def _whole(conversation: str, _question: str) -> str:
    return conversation


def chunks(lines: Sequence[str], size: int) -> list[str]:
    """Return a conversation in chunks of at most so many tokens. A line is only cut if it is longer than a chunk."""
    found: list[list[str]] = [[]]
    left = size
    for text in lines:
        whole = count_tokens(text) < size
        for part in (text,) if whole else (text[start : start + size] for start in range(0, len(text), size)):
            tokens = count_tokens(part) + 1
            if found[-1] and tokens > left:
                found.append([])
                left = size
            found[-1].append(part)
            left -= tokens
    return ["\n".join(chunk) for chunk in found]


def _rag(sample: Sample, size: int, k: int, embedder: Embedder) -> Search:
    """Return a search that embeds the question and returns the chunks nearest to it, in the order of the talk."""
    texts = chunks(sample.lines, size)
    vectors = embedder.embed_passages(texts, background=True)

    def nearest(question: str) -> str:
        best: list[int] = np.argsort(vectors @ embedder.embed_queries([question])[0])[::-1][:k].tolist()
        return "\n\n".join(texts[number] for number in sorted(best))

    return partial(to_thread.run_sync, nearest)


def _endpoint(options: Namespace) -> dict[str, Any]:
    """Return where the model is asked, by mem0's names."""
    return {"model": options.model, "openai_base_url": options.base_url, "api_key": options.api_key}


async def _fill(folder: Path, sample: Sample, add: Callable[[Sequence[Message]], Awaitable[object]]) -> None:
    """Add the sessions that no earlier run has added."""
    done = folder / "sessions-done"
    first = int(done.read_text("utf-8")) if done.is_file() else 0
    for number, session in enumerate(sample.sessions[first:], start=first + 1):
        await add(session)
        done.write_text(str(number), "utf-8")


@asynccontextmanager
async def _palimpsest(names: Sequence[str], sample: Sample, options: Namespace) -> AsyncGenerator[dict[str, Search]]:
    """Fill a memory. It learns facts unless only messages are asked for."""
    learns = {*names} != {"palimpsest, messages"}
    folder = options.work / "palimpsest" / ("learned" if learns else "messages") / sample.name
    settings = load_settings(
        data_dir=folder,
        llm={"provider": "openai", "config": {**_endpoint(options), "timeout": 300}}
        if learns
        else {"provider": "none"},
        embedder={"provider": options.embedder},
        summary={"every": 1_000_000},
        background={"calls_per_day": 1_000_000, "tokens_per_day": 1_000_000_000},
        user_id=sample.name,
        project="",
    )
    clock, scope = StoppedClock(sample.asked_at), Scope(sample.name)
    async with open_memory(settings, clock=clock, background=False) as memory:

        async def add(session: Sequence[Message]) -> None:
            said = [replace(message, scope=scope) for message in session]
            await memory.add_messages(said, infer=None if learns else False)

        async def search(question: str, name: str) -> str:
            hits, tokens = options.hits, options.hit_tokens
            found = await memory.search(scope, question, limit=hits, max_tokens=tokens, filters=FILTERS[name])
            lines = [line(hit.at, hit.name or hit.role or "noted", hit.text) for hit in found.hits]
            return "\n".join([*lines, *(item.line for item in found.relations if name.endswith("relations"))])

        await _fill(folder, sample, add)
        if learns:
            await memory.care.retry_jobs()  # what a model failed at
            jobs = [each.job for each in await memory.care.jobs() if each.job.kind == "learn"]
            if left := [job for job in jobs if job.state != "done"]:
                raise ModelError(f"{sample.name}: {len(left)} pieces are not learned: {left[0].error}")
        await embed_waiting(memory)
        yield {name: partial(search, name=name) for name in names}


@asynccontextmanager
async def _mem0(sample: Sample, options: Namespace, embedder: Embedder) -> AsyncGenerator[Search]:
    """Fill mem0. It asks the same model, and a server on loopback for the same vectors."""
    folder = options.work / "mem0" / sample.name
    folder.mkdir(parents=True, exist_ok=True)
    dims = len(embedder.embed_queries(["dims"])[0])
    with OpenAIServer(embed=served(embedder)) as server:
        config = mem0_config(str(folder), server.base_url, dims, _endpoint(options))
        memory: Any = await to_thread.run_sync(importlib.import_module("mem0").Memory.from_config, config)

        async def add(session: Sequence[Message]) -> None:
            # mem0 takes today for the day of a message, so each says when it was said.
            texts = [line(each.said_at, each.name or each.role, each.content) for each in session]
            said = [{"role": each.role, "content": text} for each, text in zip(session, texts, strict=True)]
            at = {"timestamp": f"{session[0].said_at:%A, %Y-%m-%d %H:%M}"}
            await to_thread.run_sync(partial(memory.add, said, user_id=sample.name, metadata=at))

        def find(question: str) -> str:
            found = memory.search(question, filters={"user_id": sample.name}, top_k=options.hits)["results"]
            return "\n".join(f"[{item['metadata']['timestamp']}] {item['memory']}" for item in found)

        with closing(memory):
            await _fill(folder, sample, add)
            yield partial(to_thread.run_sync, find)
