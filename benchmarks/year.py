"""Store the made-up year of `living.json`, with all that the page can show: for its pictures and its tests.

Each fact is told in a conversation, and what changes takes the place of what was told before. The memory also has names
and relations, a project, a document, tags, pinned memories, something deleted, and texts in other scripts: Chinese,
Hebrew and Arabic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import anyio

from palimpsest.core.models import PINNED, Decision, Event, Fact, Message, NamedEntity, Provenance, Relation, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory
from palimpsest.store.apply import Write
from palimpsest.store.writes import Conversation

YEAR: dict[str, Any] = json.loads(Path(__file__).with_name("living.json").read_text("utf-8"))

# The client of all conversations, as an import of its export names it.
CLIENT = "claude"

PROJECT = "choir"


class _Clock:
    """A clock that shows the day that is told about."""

    def __init__(self) -> None:
        self.at = datetime(2025, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


async def store_year(data: Path, user: str) -> None:
    """Store the year in a new data directory, as the memory of a user."""
    settings = load_settings(None, data_dir=data, user_id=user, llm={"provider": "none"}, project="")
    clock, scope = _Clock(), Scope(user)
    async with open_memory(settings, clock=clock, background=False) as memory:
        file = anyio.Path(data).parent / "ward-handbook.md"
        await file.write_text(YEAR["handbook"], "utf-8")
        await memory.documents.learn_file(scope, Path(file), title="Ward handbook", caller="codex")
        known: dict[str, str] = {}
        for fact in YEAR["facts"]:
            clock.at = datetime.combine(datetime.fromisoformat(fact["on"]), time(18, 30), UTC)
            _tell(memory, scope, fact, known)
        for place, texts in ((Scope(user, PROJECT), YEAR["project"]), (scope, YEAR["other_scripts"])):
            for text in texts:
                clock.at += timedelta(minutes=7)
                await memory.add_text(place, text, infer=False, caller="codex")
        await memory.delete(scope, [known[YEAR["deleted"]]], caller="codex")
        await memory.care.rebuild()  # gives all texts their vectors


def _tell(memory: Memory, scope: Scope, told: Mapping[str, Any], known: dict[str, str]) -> None:
    """Store an exchange and what was learned from it. `known` are the ids of what holds, by matter or by text."""
    now, text = memory.engine.clock(), told["text"]
    said = (("user", told["said"], "Nora"), ("assistant", "Noted, I will keep that in mind.", ""))
    exchange = tuple(
        Message(str(uuid5(NAMESPACE_URL, f"{role} {text}")), scope, role, words, now, now, name=name)
        for role, words, name in said
    )
    relations = tuple(Relation(*stated) for stated in told.get("relations", ()))
    names = dict.fromkeys(name for stated in relations for name in (stated.source, stated.destination))
    fact = Fact(
        text,
        sources=(exchange[0].id,),
        said_at=now,
        tags=(told["section"],) if "section" in told else (),
        metadata={PINNED: True} if "pinned" in told else {},
        relations=relations,
        entities=tuple(NamedEntity(name, YEAR["types"].get(name, "person")) for name in names),
    )
    matter = told.get("matter", text)
    decision = Decision(Event.ADD, fact, replaces=(known[matter],) if matter in known else ())
    conversation, provenance = (
        Conversation(CLIENT, f"{now:%Y-%m}", f"Chat of {now:%B %Y}"),
        Provenance("extract", caller=CLIENT),
    )
    writes = (
        Write(scope, provenance, messages=exchange, conversation=conversation),
        Write(scope, provenance, decisions=(decision,)),
    )
    known[matter] = memory.engine.ledger.apply_as_one(writes)[1].outcomes[0].memory.id
