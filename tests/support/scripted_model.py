"""A language model that replies from a script, and records with convenient defaults, all dated at one instant."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loopback import Chat, OpenAIServer, Reply
from palimpsest.core.errors import ModelError
from palimpsest.core.models import Fact, Memory, Message, Scope
from palimpsest.llm.prompts import shipped_directory
from palimpsest.memory import Memory as OpenMemory
from tests.support.memory import StoppedClock, llm_settings, memory_in

# A Friday.
NOW = datetime(2026, 5, 8, 13, 56, tzinfo=UTC)

SCOPE = Scope("ana")


@dataclass(frozen=True)
class Call:
    """One call of the model: the messages and the schema it was sent."""

    messages: tuple[dict[str, str], ...]
    schema: Mapping[str, Any] | None

    @property
    def text(self) -> str:
        """Return all messages as one text."""
        return "\n".join(message["content"] for message in self.messages)

    def input(self, label: str) -> Any:
        """Return the JSON value after `label:`, which begins a line of the user's message."""
        for line in self.messages[1]["content"].splitlines():
            if line.startswith(f"{label}: "):
                return json.loads(line.removeprefix(f"{label}: "))
        raise AssertionError(f"nothing was sent as '{label}'")


class ScriptedModel:
    """A model that returns the replies of a script in order, one per call, and raises a ModelError among them.

    `calls` are the calls so far.
    """

    def __init__(self, replies: Sequence[str | ModelError]) -> None:
        if isinstance(replies, str):
            raise TypeError("a script is a sequence of replies; put a single one into a list")
        self.calls: list[Call] = []
        self.closed = False
        self._script = tuple(replies)

    @property
    def name(self) -> str:
        """Return the model's name, which history records."""
        return "scripted"

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return or raise the next reply of the script."""
        self.calls.append(Call(tuple(dict(message) for message in messages), schema))
        if len(self.calls) > len(self._script):
            raise AssertionError(f"the script ran out: it held {len(self._script)} replies")
        reply = self._script[len(self.calls) - 1]
        if isinstance(reply, ModelError):
            raise reply
        return reply

    async def check(self) -> None:
        """Do nothing: the model is always reachable."""

    async def aclose(self) -> None:
        """Record that the model was closed."""
        self.closed = True


@asynccontextmanager
async def memory_with(
    model: Chat | Sequence[Reply | str], folder: Path, clock: StoppedClock | None = None, **settings: Any
) -> AsyncGenerator[tuple[OpenMemory, OpenAIServer]]:
    """Open Alice's memory in a folder, with a model behind a loopback server: replies in order, or a function."""
    with OpenAIServer(model) as server:
        async with memory_in(folder, clock, llm=llm_settings(server.base_url), **settings) as opened:
            yield opened, server


def message(
    content: str,
    message_id: str = "message-1",
    *,
    role: str = "user",
    name: str = "",
    external_id: str = "",
    said_at: datetime = NOW,
    scope: Scope = SCOPE,
) -> Message:
    """Return a message as the ledger returns it."""
    return Message(message_id, scope, role, content, said_at, NOW, name, external_id)


def fact(
    text: str,
    *,
    sources: Sequence[str] = (),
    happened_at: datetime | None = None,
    keywords: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Fact:
    """Return a fact that was just extracted."""
    return Fact(text, tuple(sources), happened_at, tuple(keywords), tuple(tags))


def memory(
    text: str,
    memory_id: str = "memory-1",
    *,
    created_at: datetime = NOW,
    happened_at: datetime | None = None,
    deleted_at: datetime | None = None,
    superseded_by: str | None = None,
    scope: Scope = SCOPE,
) -> Memory:
    """Return a memory as the ledger returns it."""
    return Memory(
        memory_id,
        scope,
        text,
        created_at,
        created_at,
        created_at,
        happened_at=happened_at,
        deleted_at=deleted_at,
        superseded_by=superseded_by,
    )


def facts_reply(*texts: str, forget: str = "", **rest: Any) -> str:
    """Return an extraction's reply: facts from the first message, with the rest of what is known, and a request."""
    requests = [{"forget": forget, "sources": [1]}] if forget else []
    return json.dumps({"facts": [{"text": text, "sources": [1], **rest} for text in texts], "forget": requests})


def summary_reply(text: str) -> str:
    """Return the reply to a request for a summary."""
    return json.dumps({"summary": text})


def decision(number: int, event: str, memory_id: int | str | None = None, text: str | None = None) -> dict[str, Any]:
    """Return one decision in the form that the prompt describes."""
    return {"fact": number, "event": event, "memory": memory_id, "text": text}


def decisions_reply(*items: Any) -> str:
    """Return a reply with these decisions."""
    return json.dumps({"decisions": items})


def reply_to_decide(request: dict[str, Any]) -> str:
    """Decide as the prompt asks: a fact that says where someone lives replaces every memory that says so."""
    prompt = request["messages"][1]["content"].removeprefix("New facts: ")
    facts, memories = (json.loads(part) for part in prompt.split("\n\nStored memories: "))
    decisions: list[dict[str, Any]] = []
    for fact in facts:
        contradicted = [item["id"] for item in memories if "lives in" in item["text"] and "lives in" in fact["text"]]
        decisions += [{"fact": fact["fact"], "event": "DELETE", "memory": number} for number in contradicted]
        decisions += [] if contradicted else [{"fact": fact["fact"], "event": "ADD"}]
    return json.dumps({"decisions": decisions})


def is_extraction(request: dict[str, Any]) -> bool:
    """Return whether a chat request asks to extract facts."""
    return "New messages: " in request["messages"][1]["content"]


def given(request: dict[str, Any], label: str) -> Any:
    """Return the JSON value that a chat request gives after `label:`."""
    return Call(tuple(request["messages"]), None).input(label)


def prompt_of(request: dict[str, Any]) -> str:
    """Return the name of the shipped prompt file that a chat request was made from."""
    first = str(request["messages"][0]["content"]).partition("\n")[0]
    return next(file.stem for file in shipped_directory().glob("*.md") if first in file.read_text("utf-8"))


def answering(**stages: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], str]:
    """Return a model that answers each request by the function for its prompt, whose value is sent as JSON."""
    return lambda request: json.dumps(stages[prompt_of(request)](request))


def add_all(request: dict[str, Any]) -> dict[str, Any]:
    """Decide that every fact is new."""
    facts = json.loads(request["messages"][1]["content"].removeprefix("New facts: ").split("\n\nStored memories: ")[0])
    return {"decisions": [decision(fact["fact"], "ADD") for fact in facts]}
