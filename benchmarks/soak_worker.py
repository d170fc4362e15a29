"""Work on a memory until killed: the process that `soak.py` starts in each of its rounds.

It prints a line when its modules are imported, one before each write begins, and one after it is acknowledged.
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from clients import TOPICS
from palimpsest.care.backup import back_up, restore
from palimpsest.core.clock import now
from palimpsest.core.models import Scope, Undo
from palimpsest.core.settings import Settings, load_settings
from palimpsest.memory import Memory, open_memory

SCOPE = Scope("alice")


def settings_for(folder: Path, base_url: str = "", embedder: str = "local") -> Settings:
    """Return the settings, which are the same for the workers and for the check."""
    values: dict[str, Any] = {"user_id": "alice", "llm": {"provider": "none"}}
    if base_url:
        config = {"openai_base_url": base_url, "api_key": "k", "model": "scripted"}
        values["llm"] = {"provider": "openai", "config": config}
    if embedder == "openai":
        values["embedder"] = {
            "provider": "openai",
            "config": {"openai_base_url": base_url, "api_key": "k", "model": "words", "embedding_dims": 32},
        }
    return load_settings(None, data_dir=folder, **values)


async def work(kind: str, folder: Path, base_url: str, seed: int) -> None:
    """Write, and do what is of this kind, until killed."""
    worker = _Worker(random.Random(seed))  # noqa: S311 - not a secret
    embedder = "openai" if kind == "reembed" else "local"
    settings = settings_for(folder, base_url if kind in ("summary", "reembed") else "", embedder)
    print("opening", flush=True)
    async with open_memory(settings) as memory:
        while True:
            await worker.write(memory)
            if kind == "rebuild":
                await memory.care.rebuild()
            elif kind == "summary":
                await memory.summary(SCOPE, refresh=True)
            elif kind == "import":
                await memory.care.import_file(SCOPE, folder / "moved.jsonl", lambda _done, _total: None)
            elif kind == "restore":
                await memory.engine.run(lambda: _back_up_and_restore(settings))


def _back_up_and_restore(settings: Settings) -> None:
    """Make a backup and restore it. This must not change anything."""
    restore(settings, back_up(settings, None, now).path, now)


@dataclass
class _Worker:
    rng: random.Random
    own: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def write(self, memory: Memory) -> None:
        """Make one random write. It is printed before it begins and after it is acknowledged."""
        writes = [self.add, self.add]
        if self.own:
            writes += [self.update, self.delete, self.undo]
        await self.rng.choice(writes)(memory)

    async def add(self, memory: Memory) -> None:
        text = self.text()
        self.begin("", text)
        done = await memory.add_text(SCOPE, text, infer=False)
        self.own.append((done.outcomes[0].memory.id, text))
        self.done(*self.own[-1], living=True)

    async def update(self, memory: Memory) -> None:
        index = self.rng.randrange(len(self.own))
        memory_id, old_text = self.own[index]
        text = self.text()
        self.begin(memory_id, text, old_text)
        await memory.update(SCOPE, memory_id, text=text)
        self.own[index] = (memory_id, text)
        self.done(memory_id, text, living=True)

    async def delete(self, memory: Memory) -> None:
        memory_id, text = self.own.pop(self.rng.randrange(len(self.own)))
        self.begin(memory_id, text)
        await memory.delete(SCOPE, [memory_id])
        self.done(memory_id, text, living=False)
        if self.rng.random() < 0.5:
            self.begin(memory_id, text)
            await memory.restore(SCOPE, memory_id)
            self.own.append((memory_id, text))
            self.done(memory_id, text, living=True)

    async def undo(self, memory: Memory) -> None:
        await self.add(memory)
        memory_id, text = self.own.pop()
        edit = (await memory.log(SCOPE, limit=1))[0].number
        self.begin(memory_id, text)
        await memory.undo(SCOPE, Undo(edit))
        self.done(memory_id, text, living=False)

    def text(self) -> str:
        return f"{self.rng.choice(TOPICS)}, note q{uuid.UUID(int=self.rng.getrandbits(128)).hex[:10]}"

    def begin(self, memory_id: str, text: str, old_text: str | None = None) -> None:
        print(json.dumps({"begun": {"id": memory_id, "text": text, "before": old_text}}), flush=True)

    def done(self, memory_id: str, text: str, *, living: bool) -> None:
        print(json.dumps({"done": {"id": memory_id, "text": text, "living": living}}), flush=True)


if __name__ == "__main__":
    _, kind, folder, base_url, seed = sys.argv
    anyio.run(work, kind, Path(folder), base_url, int(seed))
