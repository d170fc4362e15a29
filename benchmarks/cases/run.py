"""Run a case through the public facade, and return what is in the memory at its end."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cases.data import Case, Step
from cases.endpoint import TIMEOUT, Endpoint, ModelCall
from loopback import Chat, OpenAIServer
from measures.stores import StoppedClock
from palimpsest.core.errors import InputError
from palimpsest.core.models import Entity, KnownRelation
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.settings import Settings, load_settings
from palimpsest.core.validation import conversation_from
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory, open_memory

MAX_LISTED = 100
NEVER = 1_000_000
"""So many edits are between two summaries: a case says itself when one is written."""


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
    resembling = [item.memory.text for found in result.similar.values() for item in found]
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
    versions = (await memory.history(memory.scope, stored.id))[1]
    replaced = await memory.predecessors(memory.scope, stored.id)
    own = [version.old_memory for version in versions if version.old_memory]
    return Held(stored, (*own, *(item.memory.text for item in replaced)))
