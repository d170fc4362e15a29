"""Open a memory in a folder, with a clock that stands still until the test moves it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import Settings, load_settings
from palimpsest.core.validation import conversation_from
from palimpsest.memory import Memory, open_memory
from tests.support.stores import ledger_settings

ALICE = Scope("alice")


@dataclass
class StoppedClock:
    """A clock that shows the time it was set to."""

    at: datetime = datetime(2026, 5, 8, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the time it was set to."""
        return self.at

    def forward(self, **span: float) -> None:
        """Move the clock forward, by the arguments of a timedelta."""
        self.at += timedelta(**span)


@asynccontextmanager
async def memory_in(
    folder: Path, clock: StoppedClock | None = None, *, background: bool = False, **settings: Any
) -> AsyncGenerator[Memory]:
    """Open Alice's memory in a folder, without a language model unless the settings name one."""
    chosen = settings_in(folder, **settings)
    async with open_memory(chosen, clock=clock or StoppedClock(), background=background) as memory:
        yield memory


def settings_in(folder: Path, **settings: Any) -> Settings:
    """Return the settings with which `memory_in` opens Alice's memory."""
    values: dict[str, Any] = {"llm": {"provider": "none"}, "user_id": "alice", **ledger_settings(folder), **settings}
    return load_settings(None, data_dir=folder, **values)


def llm_settings(base_url: str, **config: Any) -> dict[str, Any]:
    """Return the settings for a language model behind a loopback server."""
    return {
        "provider": "openai",
        "config": {"openai_base_url": base_url, "api_key": "test-key", "model": "scripted", **config},
    }


def messages_from(
    *messages: tuple[str, str] | dict[str, Any], scope: Scope = ALICE, at: datetime | None = None
) -> tuple[Message, ...]:
    """Return messages from pairs of role and content, or from objects as add_memory takes them."""
    inputs = [
        message if isinstance(message, dict) else {"role": message[0], "content": message[1]} for message in messages
    ]
    return conversation_from(inputs, scope, at or StoppedClock().at).messages


async def add_text(memory: Memory, text: str, **rest: Any) -> str:
    """Add a memory without asking a model and return its id."""
    return (await memory.add_text(ALICE, text, infer=False, **rest)).outcomes[0].memory.id


async def memory_texts(memory: Memory) -> list[str]:
    """Return the texts of Alice's memories, sorted."""
    return sorted(stored.text for stored in (await memory.scope_contents(ALICE)).memories)
