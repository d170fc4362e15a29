"""Measure honest clients with and without attackers, for `http_soak.py --hostile`.

Phases with and without attackers take turns in one run, so that both meet the same machine. The attackers are a process
of their own (`attackers.py`); the server and the honest clients are two more.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from embedders import resident
from palimpsest.core.models import Memory, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from palimpsest.server import access_tokens

HONEST = 50
PAUSE = 5.0
"""The mean seconds between the calls of an honest client, so that 50 make some ten calls a second."""

ADDS = 0.2
"""The share of adds among the calls of an honest client. The others are searches."""

HEALTH_SECONDS = 0.5
TIMEOUT = 120.0


@dataclass
class Figures:
    """What is measured in one kind of phase: milliseconds of calls by tool and of /health, errors, and RSS in MB."""

    calls: dict[str, list[float]] = field(default_factory=lambda: {"search_memories": [], "add_memory": []})
    health: list[float] = field(default_factory=list[float])
    errors: Counter[str] = field(default_factory=Counter[str])
    resident: float = 0.0

    @property
    def all_calls(self) -> list[float]:
        """Return the milliseconds of all calls."""
        return [milliseconds for calls in self.calls.values() for milliseconds in calls]


@dataclass
class Soak:
    """A run: the phase that is on (None while warming up), the figures of both kinds, and what was acknowledged."""

    base: str
    phase: str | None = None
    figures: dict[str, Figures] = field(default_factory=lambda: {"without": Figures(), "with": Figures()})
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])
    answers: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def note(self, phase: str | None, tool: str, milliseconds: float, error: str) -> None:
        """Count a call that began in a phase."""
        if phase is not None:
            self.figures[phase].calls[tool].append(milliseconds)
            if error:
                self.figures[phase].errors[error] += 1


def token(folder: Path, user: str, *, read_only: bool = False) -> str:
    """Create an access token and return its text."""
    return access_tokens.create(folder, user, "", datetime.now(UTC), read_only=read_only, days=None)[0]


async def honest(soak: Soak, bearer: str, number: int) -> None:
    """Add and search as one client, half of them with a session and its stream, for as long as the run lasts."""
    mode = "legacy" if number % 2 else "auto"
    while True:
        try:
            async with connected(soak.base, bearer, mode) as client:
                while True:
                    await anyio.sleep(random.uniform(0, 2 * PAUSE))  # noqa: S311 - not a secret
                    await call(soak, client, number)
        except Exception as error:  # noqa: BLE001 - counted, and the client connects again
            if soak.phase is not None:
                soak.figures[soak.phase].errors[f"connection: {type(error).__name__}"] += 1


@asynccontextmanager
async def connected(base: str, bearer: str, mode: Any) -> AsyncGenerator[Client]:
    """Connect a client with an access token."""
    headers = {"authorization": f"Bearer {bearer}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT) as http,
        Client(streamable_http_client(f"{base}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def call(soak: Soak, client: Client, number: int) -> None:
    """Add a memory or search, and note how long it took."""
    phase, word = soak.phase, f"{number}x{random.randrange(10**9):09}"  # noqa: S311 - not a secret
    is_add = random.random() < ADDS  # noqa: S311 - not a secret
    tool = "add_memory" if is_add else "search_memories"
    text = f"Client {number} keeps the note {word}"
    arguments = {"text": text, "infer": False} if is_add else {"query": f"What does client {number} keep as {word}?"}
    started = time.perf_counter()
    try:
        result = await client.call_tool(tool, arguments)
    except Exception as error:  # whatever it is, it counts as a failed call before it goes on
        soak.note(phase, tool, (time.perf_counter() - started) * 1000, str(error)[:80] or type(error).__name__)
        raise
    content = result.content[0]
    error = getattr(content, "text", "error")[:80] if result.is_error else ""
    soak.note(phase, tool, (time.perf_counter() - started) * 1000, error)
    if is_add and not result.is_error:
        soak.acknowledged[result.structured_content["results"][0]["id"]] = text


async def watch(soak: Soak, process_id: int) -> None:
    """Ask for the server's health, and note how long it took and how much memory the server has."""
    async with httpx2.AsyncClient(timeout=TIMEOUT) as http:
        while True:
            phase, started = soak.phase, time.perf_counter()
            try:
                status = str((await http.get(f"{soak.base}/health")).status_code)
            except httpx2.HTTPError as error:
                status = type(error).__name__
            if phase is not None:
                figures = soak.figures[phase]
                figures.health.append((time.perf_counter() - started) * 1000)
                figures.resident = max(figures.resident, resident(process_id))
                if status != "200":
                    figures.errors[f"/health: {status}"] += 1
            await anyio.sleep(HEALTH_SECONDS)


@asynccontextmanager
async def attackers(soak: Soak, arguments: Sequence[str]) -> AsyncGenerator[None]:
    """Run the attackers until the block ends, and count how they were answered."""
    command = [sys.executable, str(Path(__file__).with_name("attackers.py")), *arguments]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None) as process:
        yield
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the attackers have no pipes")
        await process.stdin.aclose()
        output = b"".join([part async for part in process.stdout])
    for name, answer, number in json.loads(output):
        soak.answers[name, answer] += number


async def run(folder: Path, base: str, process_id: int, user: str, seconds: float, phases: int) -> Soak:
    """Let the phases take turns, `phases` of each kind. Each takes `seconds`."""
    soak = Soak(base)
    attacking = {
        "--port": base.rsplit(":", 1)[1],
        "--reader": token(folder, user, read_only=True),
        "--writer": token(folder, "mallory"),
        "--other": token(folder, "mallory"),
    }
    arguments = [part for pair in attacking.items() for part in pair]
    async with anyio.create_task_group() as tasks:
        for number in range(HONEST):
            tasks.start_soon(honest, soak, token(folder, user), number)
        tasks.start_soon(watch, soak, process_id)
        await anyio.sleep(4 * PAUSE)  # until all clients are connected
        for _ in range(phases):
            soak.phase = "without"
            await anyio.sleep(seconds)
            async with attackers(soak, arguments):
                soak.phase = None
                await anyio.sleep(2 * PAUSE)  # until all attackers are at it
                soak.phase = "with"
                await anyio.sleep(seconds)
                soak.phase = None
            await anyio.sleep(2 * PAUSE)
        tasks.cancel_scope.cancel()
    return soak


async def lost(folder: Path, user: str, acknowledged: dict[str, str]) -> int:
    """Return how many acknowledged memories are not stored as they were given."""
    async with open_memory(load_settings(data_dir=folder), background=False) as memory:
        stored = [await memory.get(Scope(user), memory_id) for memory_id in acknowledged]
    texts = [entry.text for entry in stored if isinstance(entry, Memory)]
    return sum(1 for text in acknowledged.values() if text not in set(texts))


def peak_resident(process_id: int) -> float:
    """Return the most memory that a process ever had resident, in MB."""
    status = Path(f"/proc/{process_id}/status").read_text("utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile."""
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


def report(soak: Soak, number_lost: int, peak: float) -> None:
    """Print what was measured."""
    one, five, _ = os.getloadavg()
    print(
        f"{os.cpu_count()} CPUs for the server, {HONEST} honest clients and the attackers; load {one:.1f}, {five:.1f}\n"
    )
    print("| honest clients | calls | p50, ms | p99, ms | longest, ms |\n| --- | ---: | ---: | ---: | ---: |")
    for phase, figures in soak.figures.items():
        for tool, values in {**figures.calls, "all": figures.all_calls}.items():
            middle, high = percentile(values, 0.5), percentile(values, 0.99)
            print(f"| {phase} attackers, {tool} | {len(values):,} | {middle:.0f} | {high:.0f} | {max(values):.0f} |")
    high = {phase: percentile(figures.all_calls, 0.99) for phase, figures in soak.figures.items()}
    print(f"\np99 with attackers: {high['with'] / high['without']:.2f} times that without")
    for phase, figures in soak.figures.items():
        errors = ", ".join(f"{number} of {error}" for error, number in figures.errors.items()) or "no error"
        slowest = f"slowest /health {max(figures.health):.0f} ms of {len(figures.health)}"
        print(f"{phase} attackers: {slowest}; highest RSS seen {figures.resident:.0f} MB; {errors}")
    print(f"peak RSS {peak:.0f} MB; {len(soak.acknowledged):,} adds acknowledged, {number_lost} of them lost\n")
    print("| attack | answers |\n| --- | --- |")
    for name in sorted({name for name, _ in soak.answers}):
        answers = ", ".join(f"{answer}: {n:,}" for (of, answer), n in sorted(soak.answers.items()) if of == name)
        print(f"| {name} | {answers} |")
