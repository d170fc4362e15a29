"""Run a case through the public facade, with its script or a real endpoint behind the calls of the model."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, cast

import httpx

from cases.data import Case, Rule, Script, Step, has_words
from loopback import Chat, OpenAIServer, Reply
from measures.stores import StoppedClock
from palimpsest.core.errors import InputError
from palimpsest.core.models import Entity, KnownRelation
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.settings import Settings, load_settings
from palimpsest.core.validation import conversation_from
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory, open_memory
from palimpsest.text.tokenizer import count_tokens

# How much of the end of a reply is missing if the script says that it is cut off.
CUT_CHARS = 25

# How many seconds a real model may take for one reply: a small model without a graphics card takes minutes.
TIMEOUT = 600.0

Items: TypeAlias = list[dict[str, Any]]

_NO_RETRY = {"x-should-retry": "false"}


@dataclass(frozen=True)
class ModelCall:
    """One call of the model: its stage, how long its prompt was, and whether the endpoint itself counted the tokens."""

    stage: str
    prompt_tokens: int
    is_endpoints_count: bool


class Endpoint:
    """A chat function for `OpenAIServer` that passes each request to another one and records the call."""

    def __init__(self, chat: Chat) -> None:
        self.calls: list[ModelCall] = []
        self._chat = chat
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> Reply | str:
        """Return the reply to a request."""
        reply = self._chat(request)
        usage = _usage(reply)
        counted = sum(count_tokens(str(message["content"])) for message in request["messages"])
        with self._lock:
            self.calls.append(ModelCall(stage_of(request), usage or counted, usage is not None))
        return reply


def stage_of(request: dict[str, Any]) -> str:
    """Return which stage of the pipeline a request comes from."""
    user = _user_part(request)
    if "New messages: " in user:
        return "extract"
    return "decide" if user.startswith("New facts: ") else "summarize"


def scripted(script: Script) -> Chat:
    """Return a chat function that replies as a script says."""
    extractions, summaries = iter(script.extract), iter(script.summaries)

    def chat(request: dict[str, Any]) -> Reply | str:
        stage = stage_of(request)
        if stage == "decide":
            facts, memories = _shown(request)
            decisions = _decisions(facts, memories, script.decide)
            form = _mem0_items(decisions, facts, memories) if script.as_mem0 else decisions
            return json.dumps({"memory" if script.as_mem0 else "decisions": form})
        replies: Iterator[Any] = extractions if stage == "extract" else summaries
        reply = next(replies, None)
        if reply is None:
            return Reply(f"The script has no reply to this {stage} call.", status=500, headers=_NO_RETRY)
        if stage == "summarize":
            return json.dumps({"summary": reply})
        text = json.dumps(reply, ensure_ascii=False)
        return Reply(text[:-CUT_CHARS], finish_reason="length") if script.cut else text

    return chat


def forwarded(base_url: str, api_key: str) -> Chat:
    """Return a chat function that asks a real endpoint."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    url = f"{base_url.rstrip('/')}/chat/completions"

    def chat(request: dict[str, Any]) -> Reply:
        try:
            response = httpx.post(url, json=request, headers=headers, timeout=TIMEOUT)
        except httpx.HTTPError as error:
            return Reply(f"{url} cannot be reached: {error}", status=502, headers=_NO_RETRY)
        return Reply(status=response.status_code, body=response.content)

    return chat


def _shown(request: dict[str, Any]) -> tuple[Items, Items]:
    """Return the facts and the memories that a decide call shows."""
    facts, memories = _user_part(request).removeprefix("New facts: ").split("\n\nStored memories: ")
    return cast("Items", json.loads(facts)), cast("Items", json.loads(memories))


def _mem0_items(decisions: Items, facts: Items, memories: Items) -> Items:
    """Return decisions in Mem0's form: every memory with its text and event, and the new memories."""
    made = {decision["memory"]: decision for decision in decisions if decision["memory"] is not None}
    stay = {"event": "NONE", "text": None}
    items = [
        {"id": str(memory["id"]), "event": decision["event"], "text": decision["text"] or memory["text"]}
        for memory in memories
        if "new" not in memory and "message" not in memory
        for decision in (made.get(memory["id"], stay),)
    ]
    texts = {fact["fact"]: fact["text"] for fact in facts if "text" in fact}
    new = [texts[decision["fact"]] for decision in decisions if decision["event"] == "ADD"]
    return [
        *items,
        *({"id": str(len(memories) + number), "event": "ADD", "text": text} for number, text in enumerate(new)),
    ]


def _decisions(facts: Items, memories: Items, rules: tuple[Rule, ...]) -> Items:
    decisions: Items = []
    for fact in facts:
        made = [decision for rule in rules for decision in _by_rule(rule, fact, memories)]
        default = {"fact": fact["fact"], "event": "NONE" if "forget" in fact else "ADD", "memory": None, "text": None}
        decisions += made or [default]
    return decisions


def _by_rule(rule: Rule, fact: dict[str, Any], memories: Items) -> Iterator[dict[str, Any]]:
    if not has_words(fact.get("text") or fact["forget"], rule.fact):
        return
    made = {"fact": fact["fact"], "event": rule.event, "text": rule.text}
    if not rule.memory:
        yield made | {"memory": None}
    for memory in memories:
        if rule.memory and memory.get("new") != f"fact {fact['fact']}" and has_words(memory["text"], rule.memory):
            yield made | {"memory": memory["id"]}


def _user_part(request: dict[str, Any]) -> str:
    return str(request["messages"][1]["content"])


def _usage(reply: Reply | str) -> int | None:
    """Return how many prompt tokens a real endpoint counted, or None if the reply does not say."""
    if isinstance(reply, str) or reply.body is None:
        return None
    try:
        tokens = json.loads(reply.body)["usage"]["prompt_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return tokens if isinstance(tokens, int) else None


MAX_LISTED = 100

# So many edits are between two summaries: a case says itself when one is written.
NEVER = 1_000_000


@dataclass(frozen=True)
class Held:
    """A memory at the end of a case, and its earlier texts: its own, and those of the memories that it replaced."""

    memory: StoredMemory
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """What is there at the end of a case.

    `closed` memories held once, `deleted` ones were forgotten. `entities` are those that each expected name means, and
    `related` is all that is known of entities, now or before. `hits` has the texts that a search finds, by question.
    `adds` is how often something was added.
    """

    living: tuple[Held, ...]
    closed: tuple[StoredMemory, ...]
    deleted: tuple[StoredMemory, ...]
    entities: dict[str, tuple[Entity, ...]]
    related: tuple[KnownRelation, ...]
    hits: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    calls: tuple[ModelCall, ...]
    adds: int


async def run(case: Case, chat: Chat, model: str, embedder: str) -> End:
    """Take the steps of a case with a model behind `chat`. Raises PalimpsestError."""
    endpoint = Endpoint(chat)
    clock = StoppedClock(min(step.at for step in case.steps))
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(endpoint) as server:
        settings = _settings(case, Path(folder), server.base_url, model, embedder)
        async with open_memory(settings, clock=clock, background=False) as memory:
            notes: list[str] = []
            for step in case.steps:
                clock.at = max(clock.at, step.at)  # old messages may arrive late, but a clock never goes back
                notes += _notes(await _add(memory, step, step.at, clock.at))
                if step.summarize:
                    notes += (await memory.summary(memory.scope, refresh=True)).notes
            return await _end(memory, case, notes, endpoint.calls)


def _settings(case: Case, folder: Path, base_url: str, model: str, embedder: str) -> Settings:
    config = {"openai_base_url": base_url, "api_key": "none", "model": model, "timeout": TIMEOUT}
    values: dict[str, Any] = {
        "user_id": "user",
        "project": "",
        "llm": {"provider": "openai", "config": config},
        "embedder": {"provider": embedder},
        "summary": {"every": NEVER},
        "learn": {"in_background": False},
    }
    return load_settings(None, data_dir=folder, **(values | case.settings))


async def _add(memory: Memory, step: Step, said_at: datetime, now: datetime) -> WriteResult:
    if step.text:
        return await memory.add_text(memory.scope, step.text, at=said_at, infer=step.infer)
    dated = [{"at": said_at.isoformat(), **message} for message in step.messages]
    messages = conversation_from(dated, memory.scope, now).messages
    result = await memory.add_messages(messages, infer=step.infer)
    for question in result.questions:  # whoever asked for it also confirms it
        await memory.forget(memory.scope, question.ids)
    return result


def _notes(result: WriteResult) -> list[str]:
    resembling = [item.memory.text for found in result.similar.values() for item in found if not item.is_only_near]
    return [*result.notes, *(f"resembles: {text}" for text in resembling)]


async def _end(memory: Memory, case: Case, notes: Sequence[str], calls: Sequence[ModelCall]) -> End:
    scope = memory.scope
    living = [await _held(memory, stored) for stored in (await memory.scope_contents(scope)).memories]
    listed = (await memory.list(scope, deleted=True, limit=MAX_LISTED)).hits
    gone = [(await memory.history(scope, hit.id))[0] for hit in listed]
    hits = {
        item.question: tuple(hit.text for hit in (await memory.search(scope, item.question)).hits)
        for item in case.expected.forgotten
    }
    return End(
        tuple(living),
        tuple(stored for stored in gone if not stored.is_forgotten),
        tuple(stored for stored in gone if stored.is_forgotten),
        {item.name: await _entities(memory, item.name) for item in case.expected.entities},
        await _related(memory),
        hits,
        tuple(notes),
        tuple(calls),
        len(case.steps),
    )


async def _entities(memory: Memory, name: str) -> tuple[Entity, ...]:
    try:
        return tuple(dossier.entity for dossier in await memory.graph.dossiers(memory.scope, name))
    except InputError:  # nobody is called so
        return ()


async def _related(memory: Memory) -> tuple[KnownRelation, ...]:
    """Return the relations that hold, and those that held, of every entity that a living memory mentions."""
    listed = await memory.graph.entities(memory.scope, limit=MAX_LISTED)
    known: dict[KnownRelation, None] = {}
    for item in listed:
        for dossier in await memory.graph.dossiers(memory.scope, item.entity.id):
            known |= dict.fromkeys(dossier.relations)
    return tuple(known)


async def _held(memory: Memory, stored: StoredMemory) -> Held:
    found = await memory.history(memory.scope, stored.id)
    own = [version.old_memory for version in found.versions if version.old_memory]
    return Held(stored, (*own, *(item.memory.text for item in found.predecessors)))
