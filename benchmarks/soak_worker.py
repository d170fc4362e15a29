"""Work on a memory until killed: the process that `soak.py` starts in each of its rounds.

It prints a line when its modules are imported, one before each write begins, and one after it is acknowledged.
"""

from __future__ import annotations

import json
import random
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from harness import TOPICS, USER, new_note
from palimpsest.admin.backup import back_up, restore
from palimpsest.core.clock import now
from palimpsest.core.errors import InputError
from palimpsest.core.models import EXPIRES_AT, PINNED, UNDO, Relation, Scope, Undo
from palimpsest.core.settings import Settings, load_settings
from palimpsest.memory import Memory, open_memory

SCOPE = Scope(USER)
NAMES = ("Ana", "Tom", "Zürich", "Zurich", "Ferrow", "Ferrow AG", "Lyon", "Mika Øst", "王芳", "github.com/a/b")
RELATIONS = ("lives in", "works at", "knows", "reports to")

# How often the scripted model may be asked a day in the background. Long runs reach it.
CALLS_PER_DAY = 60

# How long a memory lasts that is stored with an end. Some end while a worker lives, some after it.
LASTING_SECONDS = 2.0

# The share of the texts that come with relations between names, which all rounds have in common.
RELATED = 0.7


def settings_for(folder: Path, base_url: str = "", embedder: str = "local") -> Settings:
    """Return the settings, which are the same for the workers and for the check. Everything is on."""
    values: dict[str, Any] = {
        "user_id": USER,
        "llm": {"provider": "none"},
        "links": "on",
        "forgetting": "rank",
        "summary": {"every": 3},
        "background": {"calls_per_day": CALLS_PER_DAY},
    }
    if base_url:
        config = {"openai_base_url": base_url, "api_key": "k", "model": "scripted"}
        values["llm"] = {"provider": "openai", "config": config}
    if embedder == "openai":
        values["embedder"] = {
            "provider": "openai",
            "config": {"openai_base_url": base_url, "api_key": "k", "model": "words", "embedding_dims": 32},
        }
    return load_settings(None, data_dir=folder, **values)


async def export(folder: Path) -> None:
    """Write the file that a round of the kind "import" reads."""
    (folder / "moved.jsonl").unlink(missing_ok=True)
    async with open_memory(settings_for(folder), background=False) as memory:
        await memory.care.export(folder / "moved.jsonl", lambda _done, _total: None)


async def work(kind: str, folder: Path, base_url: str, seed: int) -> None:
    """Write, and do what is of this kind, until killed."""
    worker = _Worker(random.Random(seed), is_alone=kind != "living")  # noqa: S311 - not a secret
    embedder = "openai" if kind == "reembed" else "local"
    settings = settings_for(folder, base_url if kind in ("summary", "reembed", "living") else "", embedder)
    print("opening", flush=True)
    async with open_memory(settings) as memory:
        while True:
            await worker.write(memory)
            if kind == "rebuild":
                await memory.care.rebuild()
            elif kind == "summary":
                await memory.summary(SCOPE, refresh=True)
            elif kind == "living":
                await worker.live(memory)
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
    is_alone: bool
    own: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    edits: list[int] = field(default_factory=list[int])

    async def write(self, memory: Memory) -> None:
        """Make one random write. It is printed before it begins and after it is acknowledged."""
        writes = [self.add, self.add, self.edit_entities, self.edit_entities]
        if self.own:
            writes += [self.update, self.delete, self.undo]
        await self.rng.choice(writes)(memory)

    async def add(self, memory: Memory) -> None:
        text = new_note(self.rng)
        self.begin("", text)
        done = await memory.add_text(SCOPE, text, relations=self.relations(), infer=False)
        self.own.append((done.outcomes[0].memory.id, text))
        self.done(*self.own[-1], living=True)

    async def update(self, memory: Memory) -> None:
        index = self.rng.randrange(len(self.own))
        memory_id, old_text = self.own[index]
        text = new_note(self.rng)
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
        self.begin(memory_id, text)
        # Without a number it is the last edit of a person, also if the background made others since.
        await memory.undo(SCOPE, None if self.is_alone else Undo(await self._edit_of(memory, memory_id)))
        self.done(memory_id, text, living=False)

    async def _edit_of(self, memory: Memory, memory_id: str) -> int:
        """Return the number of the edit that added a memory."""
        edits = await memory.log(SCOPE, limit=200)
        return min(edit.number for edit in edits if any(step.owner_id == memory_id for step in edit.steps))

    async def live(self, memory: Memory) -> None:
        """Do what a living memory does, and then all the work that waits in the background, whose model replies."""
        match self.rng.choice(("end", "pin", "search", "link")):
            case "end":
                text = new_note(self.rng)
                ends_at = now() + timedelta(seconds=self.rng.uniform(0, LASTING_SECONDS))
                print(json.dumps({"ending": {"text": text}}), flush=True)
                done = await memory.add_text(SCOPE, text, metadata={EXPIRES_AT: ends_at.isoformat()}, infer=False)
                print(json.dumps({"ends": {"id": done.outcomes[0].memory.id, "text": text}}), flush=True)
            case "pin" if self.own:
                pinned = self.rng.choice((True, 1, 2.5, None))
                with suppress(InputError):  # the block may be full
                    await memory.update(SCOPE, self.rng.choice(self.own)[0], metadata={PINNED: pinned})
            case _:
                await memory.search(SCOPE, self.rng.choice(self.own)[1] if self.own else self.rng.choice(TOPICS))
                await memory.fading.write()
        await memory.care.retry_jobs()

    async def edit_entities(self, memory: Memory) -> None:
        """Merge, split or rename entities, or undo such an edit. What is not possible is refused, and changes nothing.

        An edit is printed with its number only when it is acknowledged: one in progress concerns no memory.
        """
        name, other = self.rng.sample(NAMES, 2)
        try:
            match self.rng.choice(("merge", "split", "rename", "undo")):
                case "merge":
                    done = (await memory.graph.merge(SCOPE, name, other)).edit
                case "split":
                    about = [memory_id for memory_id, _ in self.rng.sample(self.own, min(3, len(self.own)))]
                    done = (await memory.graph.split(SCOPE, name, about, new_name=other)).edit
                case "rename":
                    done = (await memory.graph.rename(SCOPE, name, other)).edit
                case _:
                    await memory.undo(SCOPE, Undo(self.rng.choice([0, *self.edits])))
                    edits = await memory.log(SCOPE, limit=20)
                    done = next(edit.number for edit in edits if edit.provenance.stage.startswith(UNDO))
        except InputError:
            return
        if done is not None:
            self.edits.append(done)
            print(json.dumps({"edited": done}), flush=True)

    def relations(self) -> tuple[Relation, ...]:
        if self.rng.random() >= RELATED:
            return ()
        pairs = [self.rng.sample(NAMES, 2) for _ in range(self.rng.randint(1, 3))]
        return tuple(Relation(source, self.rng.choice(RELATIONS), end) for source, end in pairs)

    def begin(self, memory_id: str, text: str, old_text: str | None = None) -> None:
        print(json.dumps({"begun": {"id": memory_id, "text": text, "before": old_text}}), flush=True)

    def done(self, memory_id: str, text: str, *, living: bool) -> None:
        print(json.dumps({"done": {"id": memory_id, "text": text, "living": living}}), flush=True)


if __name__ == "__main__":
    _, kind, folder, base_url, seed = sys.argv
    anyio.run(work, kind, Path(folder), base_url, int(seed))
