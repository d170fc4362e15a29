"""Measure whether the time for a stranger's text grows with its length alone, whatever shape it has.

Each shape goes through each door at a length and at twice that. Doubling must cost at most 2.3 times the CPU time: the
times are medians, without what a call costs anyway. One process, no network, no model but a loopback one.

Run: `python benchmarks/hostile.py`; `--door search --shape stops` measures a part. The exit code is 1 if a shape took
more, or kept the interpreter from other threads for longer than HELD_SECONDS.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx

from harness import parser_of
from loopback import OpenAIServer
from palimpsest.core.clock import now
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import load_settings
from palimpsest.core.validation import conversation_from
from palimpsest.hooks import spool
from palimpsest.hooks.brief import RecallRequest
from palimpsest.memory import Memory, open_memory
from palimpsest.page.page_context import Visitor, Visits
from palimpsest.page.page_server import page_app
from palimpsest.server.access_tokens import AccessTokenVerifier, Grant
from palimpsest.server.session.context import LazyMemory

# How many times as long twice the text may take.
MOST = 2.3

# Less than this is not told from the noise of the machine: such a call is quick at both lengths.
LEAST_SECONDS = 0.03

# For how long a call may keep the event loop and other threads from running at most.
HELD_SECONDS = 1.0

# How often a call is measured if once shows too much. On a busy machine a single time can be wrong.
REPEATS = 3

# A call is not repeated any more when the calls so far took so long.
SLOW_SECONDS = 3.0

# What is repeated to the length that is measured.
SHAPES: Mapping[str, str] = json.loads(Path(__file__).with_name("hostile_shapes.json").read_text("utf-8"))


ALICE = Scope("alice")
KEPT = {"kept": True}
Call: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Place:
    """What doors are measured on: a memory, one with a model that finds nothing, and a browser that is signed in."""

    folder: Path
    memory: Memory
    learning: Memory
    browser: httpx.AsyncClient

    @property
    def new_scope(self) -> Scope:
        """Return the scope of a user that has nothing yet, so that no measurement meets what another stored."""
        return Scope(f"user {time.time_ns()}")

    def file(self, name: str, text: str) -> Path:
        """Write a file and return it."""
        path = self.folder / name
        path.write_text(text, "utf-8")
        return path


def message(scope: Scope, text: str) -> tuple[Message, ...]:
    """Return a text as a message of a user."""
    return conversation_from([{"role": "user", "content": text}], scope, now()).messages


def directly(call: Callable[[Place, str], Awaitable[object]]) -> Callable[[Place, str], Awaitable[Call]]:
    """Return a door that nothing is prepared for."""

    async def prepare(place: Place, text: str) -> Call:
        return lambda: call(place, text)

    return prepare


async def update(place: Place, text: str) -> Call:
    """Give a memory another text."""
    scope = place.new_scope
    kept = await place.memory.add_text(scope, "User drinks tea", infer=False)
    return lambda: place.memory.update(scope, kept.outcomes[0].memory.id, text=text)


async def replace(place: Place, text: str) -> Call:
    """Replace a memory by a text that resembles it."""
    scope = place.new_scope
    kept = await place.memory.add_text(scope, f"{text}tea", infer=False, metadata=KEPT)
    ids = [kept.outcomes[0].memory.id]
    return lambda: place.memory.add_text(scope, f"{text}cup", infer=False, replaces=ids, metadata=KEPT)


async def learn_document(place: Place, text: str) -> Call:
    """Keep a document."""
    file = place.file("document.md", text)
    return lambda: place.memory.documents.learn_file(place.new_scope, file)


async def filter_words(place: Place, text: str) -> None:
    """Search and list with a text in filters."""
    for key in ("words", "entity", "speaker", "session", "note"):
        with suppress(PalimpsestError):
            await place.memory.list(ALICE, filters={key: text})
    with suppress(PalimpsestError):
        await place.memory.search(ALICE, "tea", filters={"words": text})


async def find(place: Place, text: str) -> Call:
    """Search a message that has the text, with its words and with others, and list it."""
    scope = place.new_scope
    await place.memory.add_messages(message(scope, text), infer=False)
    words = " ".join(dict.fromkeys(text[:400].split()[:8]))[:200] or "tea"

    async def call() -> None:
        for query in (words, f"{words} tea milk", "When did Anna buy tea in July?"):
            with suppress(PalimpsestError):
                await place.memory.search(scope, query, limit=20)
        await place.memory.list(scope, filters={"kind": "message", "words": "tea"})

    return call


async def summarize(place: Place, text: str) -> Call:
    """Read summaries of memories that have the text."""
    scope = place.new_scope
    await place.memory.add_text(scope, text, infer=False, metadata=KEPT)

    async def call() -> None:
        for kind in ("overall", "profile", "recent", "about:Anna"):
            with suppress(PalimpsestError):
                await place.memory.summary(scope, kind)

    return call


async def begin(place: Place, text: str) -> Call:
    """Render what a session begins with."""
    scope = place.new_scope
    await place.memory.add_text(scope, text, infer=False, metadata=KEPT)
    await place.memory.add_messages(message(scope, text), infer=False)
    return lambda: place.memory.briefs.instructions(scope)


async def capture(place: Place, text: str) -> Call:
    """Take in a prompt and a reply that a hook left."""
    session = str(time.time_ns())
    for event, role in (("prompt", "user"), ("reply", "assistant")):
        record = spool.new_record("claude-code", event, session, role=role, text=text, user=ALICE.user_id)
        spool.write_record(str(place.memory.settings.data_dir), record)
    return place.memory.capture.take_in


async def import_file(place: Place, text: str) -> Call:
    """Import a file of another tool."""
    file = place.file("mem0.json", json.dumps({"results": [{"id": str(time.time_ns()), "memory": text}]}))
    return lambda: place.memory.care.import_file(place.new_scope, file, lambda _done, _all: None)


async def import_folder(place: Place, text: str) -> Call:
    """Import a folder of Markdown in which a text was added."""
    folder = place.folder / "markdown" / str(time.time_ns())
    await place.memory.care.export_folder(folder, lambda _done, _all: None)
    file = next(file for file in sorted(folder.rglob("*.md")) if "\n- " in file.read_text("utf-8"))
    file.write_text(f"{file.read_text('utf-8')}\n- {text}\n", "utf-8")
    return lambda: place.memory.care.import_folder(folder)


async def search_page(place: Place, text: str) -> None:
    """Search on the page, and sign in with a text."""
    await place.browser.get("/", params={"q": text})
    await place.browser.post("/sign-in", data={"token": text})


async def read_page(place: Place, text: str) -> Call:
    """Look at a memory on the page that has the text."""
    kept = await place.memory.add_text(ALICE, text, infer=False, metadata=KEPT)
    memory_id = kept.outcomes[0].memory.id
    return lambda: place.browser.get(f"/memories/{memory_id}")


# Every door with the length that is doubled: half of what it takes, or what others than attackers come with.
DOORS: Mapping[str, tuple[Callable[[Place, str], Awaitable[Call]], int]] = {
    "add text": (
        directly(lambda at, text: at.memory.add_text(at.new_scope, text, infer=False, metadata=KEPT)),
        10_000,
    ),
    "add metadata": (
        directly(lambda at, text: at.memory.add_text(at.new_scope, "Tea", infer=False, metadata={"note": text})),
        4_500,
    ),
    "update": (update, 10_000),
    "replace": (replace, 9_000),
    "add message": (
        directly(lambda at, text: at.memory.add_messages(message(at.new_scope, text), infer=False)),
        99_000,
    ),
    "learn message": (directly(lambda at, text: at.learning.add_messages(message(at.new_scope, text))), 99_000),
    "learn document": (learn_document, 99_000),
    "search": (directly(lambda at, text: at.memory.search(ALICE, text)), 2_000),
    "filters": (directly(filter_words), 2_000),
    "find in a message": (find, 99_000),
    "summaries": (summarize, 10_000),
    "recall": (directly(lambda at, text: at.memory.briefs.answer(RecallRequest(text, user=ALICE.user_id))), 50_000),
    "instructions": (begin, 10_000),
    "capture": (capture, 50_000),
    "import a file": (import_file, 9_900),
    "import a folder": (import_folder, 9_900),
    "search on the page": (directly(search_page), 1_000),
    "read on the page": (read_page, 10_000),
}


class Watch:
    """Notes for how long nothing but a call ran: the CPU time between two looks of another thread."""

    def __init__(self) -> None:
        self.held = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        last = time.process_time()
        while not self._ended.wait(0.01):
            at = time.process_time()
            self.held = max(self.held, at - last)
            last = at

    def longest(self) -> float:
        """Return the longest time since the last call of this."""
        held, self.held = self.held, 0.0
        return held

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self._thread.join()


async def seconds(place: Place, door: str, text: str, repeats: int) -> float:
    """Return the median CPU time of a call; that it refuses the text is an answer as well."""
    times: list[float] = []
    prepare, _ = DOORS[door]
    for number in range(repeats):
        try:
            call = await prepare(place, f"{text}{number}")
        except PalimpsestError:
            return 0.0
        began = time.process_time()
        with suppress(PalimpsestError):
            await call()
        times.append(time.process_time() - began)
        if sum(times) > SLOW_SECONDS:
            break
    return statistics.median(times)


@dataclass(frozen=True)
class Figure:
    """What a shape costs at a door: seconds without what any call costs, at a length and at twice that."""

    door: str
    shape: str
    once: float
    twice: float
    held: float

    @property
    def ratio(self) -> float:
        """Return how many times as long the double length took; 0 if both are quick."""
        return self.twice / max(self.once, LEAST_SECONDS / MOST) if self.twice > LEAST_SECONDS else 0.0

    @property
    def fault(self) -> str:
        """Return what is wrong, or ""."""
        if self.ratio > MOST:
            return f"{self.ratio:.1f} times"
        return f"held the interpreter for {self.held:.1f} s" if self.held > HELD_SECONDS else ""


async def measured(place: Place, door: str, shapes: Sequence[str], watch: Watch) -> AsyncGenerator[Figure]:
    """Yield the figures of shapes at a door."""
    _, length = DOORS[door]
    await seconds(place, door, "tea", 1)  # whatever is loaded on first use
    base = await seconds(place, door, "tea", REPEATS)
    for shape in shapes:
        unit = SHAPES[shape]
        texts = [(unit * (size // len(unit) + 1))[:size] for size in (length, 2 * length)]
        watch.longest()
        figure = Figure(door, shape, 0.0, 9.0, 0.0)
        for repeats in (1, REPEATS, REPEATS):
            once, twice = [await seconds(place, door, text, repeats) - base for text in texts]
            figure = min(figure, Figure(door, shape, once, twice, 0.0), key=lambda each: each.ratio)
            if figure.ratio <= MOST:
                break
        yield Figure(door, shape, figure.once, figure.twice, watch.longest())


@asynccontextmanager
async def place_in(folder: Path, base_url: str) -> AsyncGenerator[Place]:
    """Open what is measured in a folder."""
    common: dict[str, Any] = {"user_id": ALICE.user_id, "project": "", "embedder": {"provider": "static"}}
    config = {"openai_base_url": base_url, "api_key": "none", "model": "scripted"}
    learning = load_settings(None, data_dir=folder / "learning", llm={"provider": "openai", "config": config}, **common)

    def settings() -> Any:
        return load_settings(None, data_dir=folder / "data", llm={"provider": "none"}, **common)

    async def tell_nobody(_changed: Sequence[object]) -> None:
        pass

    lazy = LazyMemory(settings, tell_nobody, tell_nobody)
    visits = Visits(now, AccessTokenVerifier(settings().http, folder / "data", now))
    async with open_memory(learning, background=False) as with_model, anyio.create_task_group() as tasks:
        tasks.start_soon(lazy.run)
        app = page_app(lazy, visits)
        tasks.start_soon(app.state.care.run)
        memory = await lazy.get()
        for number in range(30):
            await memory.add_text(ALICE, f"Anna bought tea number {number} in July", infer=False)
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as browser:
            await browser.get("/enter", params={"token": visits.invite(Visitor(Grant(ALICE.user_id), is_owner=True))})
            yield Place(folder, memory, with_model, browser)
        tasks.cancel_scope.cancel()


async def run(doors: Sequence[str], shapes: Sequence[str], *, prints_all: bool) -> int:
    """Measure, print what is wrong and the slowest of each door, and return how much is wrong."""
    faults = 0
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(lambda _request: '{"facts": []}') as model:
        async with place_in(Path(folder), model.base_url) as place:
            for door in doors:
                slowest: Figure | None = None
                async for figure in measured(place, door, shapes, watch):
                    faults += bool(figure.fault)
                    if figure.fault or prints_all:
                        print(_line(figure), flush=True)
                    slowest = max(slowest or figure, figure, key=lambda each: each.twice)
                if slowest is not None:
                    print(f"slowest: {_line(slowest)}", flush=True)
    watch.end()
    return faults


def _line(figure: Figure) -> str:
    cost = f"{figure.once * 1_000:.0f} ms, {figure.twice * 1_000:.0f} ms, held {figure.held * 1_000:.0f} ms"
    return f"{figure.door}: {figure.shape}: {cost} {figure.fault.upper()}".rstrip()


def main() -> int:
    """Measure the doors and shapes that are chosen, all by default."""
    parser = parser_of(__doc__)
    parser.add_argument("--door", action="append", choices=DOORS, help="a door; all by default")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="a shape; all by default")
    parser.add_argument("--all", action="store_true", help="print every figure")
    chosen = parser.parse_args()
    doors, shapes = chosen.door or list(DOORS), chosen.shape or list(SHAPES)
    faults = anyio.run(lambda: run(doors, shapes, prints_all=chosen.all))
    print(f"{faults} of {len(doors) * len(shapes)} are wrong")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
