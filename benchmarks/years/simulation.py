"""Tell a memory what a person says over a year, and look at every month's end at what it knows."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from loopback import OpenAIServer
from measures.handbooks import made_handbooks
from measures.stores import SCOPE, StoppedClock
from palimpsest.core.models import Message
from palimpsest.core.settings import BackgroundConfig, load_settings
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory, open_memory
from years.person import Person, Told
from years.reader import Reader

FIRST_DAY = date(2025, 1, 3)
DAYS = 363
RECENT_DAYS = 14
"""How far back the kind `recent` looks."""

TALKS_SHARE = 0.5
"""On how many days there is chatter. Set by hand: about a thousand turns a year."""

MAX_EXCHANGES = 4
QUESTIONS_A_DAY = 2
"""How much chatter a day has at most, and how often she asks something that was told. Set by hand."""

TOP = 5


@dataclass(frozen=True)
class Way:
    """How a year is lived: with the scripted model or without one, and with which settings.

    With `everything` memories are linked, and a handbook is learned every month.
    """

    with_model: bool
    forgetting: str
    everything: bool = False
    calls_per_day: int = BackgroundConfig().calls_per_day

    def __str__(self) -> str:
        """Name it for the table."""
        everything = f", everything on, {self.calls_per_day} calls a day" if self.everything else ""
        return f"{'model' if self.with_model else 'no model'}, forgetting {self.forgetting}{everything}"


@dataclass
class Month:
    """What a memory knows at the end of a month, as shares of what is true then.

    `first` and `top` are how often the current value comes first and among the first five, `stale` how often an
    outdated one comes first. `profile` and `recent` are how much of what is true then the summaries have, and
    `profile_stale` how many outdated values there are in the profile for each true one.
    """

    end: date
    first: float
    top: float
    stale: float
    profile: float
    profile_stale: float
    recent: float
    profile_tokens: int


@dataclass
class Year:
    """The months of a year, and the calls and prompt tokens of the model by stage, of `turns` turns.

    `most_calls` is how many calls of the background there were on the busiest day, and `waiting` are the kinds of the
    jobs that are not done at the end.
    """

    months: list[Month] = field(default_factory=list[Month])
    turns: int = 0
    calls: dict[str, int] = field(default_factory=dict[str, int])
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    most_calls: int = 0
    waiting: list[str] = field(default_factory=list[str])


async def live(person: Person, way: Way, embedder: str) -> Year:
    """Tell a new memory the year, and return what it knew."""
    year, clock, reader = Year(), StoppedClock(), Reader(person)
    chance = random.Random(1)  # noqa: S311 - the same year every time
    async with _opened(way, embedder, clock, reader) as memory:
        for day in (FIRST_DAY + timedelta(days=number) for number in range(DAYS)):
            clock.at = datetime.combine(day, time(9), UTC)
            earlier = reader.background_calls
            year.turns += await _tell(memory, way, person, day, clock, chance)
            if way.everything and day.day == 1:
                await _learn_handbook(memory, day.month)
            clock.at += timedelta(hours=10)
            await _settle(memory)
            year.most_calls = max(year.most_calls, reader.background_calls - earlier)
            for matter in chance.sample(person.matters, QUESTIONS_A_DAY):
                if matter.current(day) is not None:
                    await memory.search(SCOPE, matter.question)
            if (day + timedelta(days=1)).day == 1:
                year.months.append(await _month(memory, person, day))
        year.waiting = [report.job.kind for report in await memory.care.jobs() if report.job.state == "waiting"]
    year.calls, year.tokens = dict(reader.calls), dict(reader.tokens)
    return year


@asynccontextmanager
async def _opened(way: Way, embedder: str, clock: StoppedClock, reader: Reader) -> AsyncGenerator[Memory]:
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(reader) as server:
        endpoint = {"openai_base_url": server.base_url, "api_key": "none", "model": "scripted"}
        model: dict[str, Any] = {"provider": "openai", "config": endpoint} if way.with_model else {"provider": "none"}
        settings = load_settings(
            data_dir=Path(folder),
            user_id=SCOPE.user_id,
            llm=model,
            embedder={"provider": embedder},
            project="",
            forgetting=way.forgetting,
            links="on" if way.everything else "off",
            background={"calls_per_day": way.calls_per_day},
        )
        async with open_memory(settings, clock=clock) as memory:
            yield memory


async def _tell(memory: Memory, way: Way, person: Person, day: date, clock: StoppedClock, chance: random.Random) -> int:
    """Pass on what is said on a day, and return how many turns that are."""
    told = person.told_on(day)
    exchanges = [(item.said, "Noted.") for item in told]
    if chance.random() < TALKS_SHARE:
        exchanges += chance.sample(person.chatter, chance.randint(1, MAX_EXCHANGES))
    turns = [turn for exchange in exchanges for turn in zip(("user", "assistant"), exchange, strict=True)]
    if turns:
        await memory.add_messages(
            [Message(str(uuid4()), SCOPE, role, text, clock(), clock()) for role, text in turns],
            infer=None if way.with_model else False,
        )
    if not way.with_model:
        for item in told:
            await memory.add_text(SCOPE, item.text, replaces=await _outdated(memory, person, item))
    return len(turns)


async def _learn_handbook(memory: Memory, month: int) -> None:
    """Learn one of the handbooks as a file, another one each month until all are known."""
    texts = list(made_handbooks().texts.items())
    if month > len(texts):
        return
    name, text = texts[month - 1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.md")
        await anyio.Path(file).write_text(text, "utf-8")
        await memory.documents.learn_file(SCOPE, file)


async def _outdated(memory: Memory, person: Person, item: Told) -> Sequence[str]:
    """Return which memories an agent replaces that looks before it writes: what a search shows of the same matter."""
    matter = person.matter_of(item.text)
    if matter is None:
        return []
    hits = (await memory.search(SCOPE, item.text, limit=TOP)).hits
    return [hit.id for hit in hits if hit.kind == "memory" and hit.text in {told.text for told in matter.told}]


async def _settle(memory: Memory) -> None:
    """Let all jobs that are due be done."""
    while not await work_on_jobs(memory.engine, memory.engine.own_model):  # noqa: ASYNC110 - another task works on them
        await anyio.sleep(0.01)


async def _month(memory: Memory, person: Person, day: date) -> Month:
    known = [(matter, current) for matter in person.matters if (current := matter.current(day)) is not None]
    first = top = stale = 0
    for matter, current in known:
        hits = (await memory.search(SCOPE, matter.question, limit=TOP)).hits
        texts = [hit.text for hit in hits]
        first += bool(texts) and _says(texts[0], current)
        top += any(_says(text, current) for text in texts)
        stale += (
            bool(texts) and any(_says(texts[0], old) for old in matter.known(day)[:-1]) and not _says(texts[0], current)
        )
    profile = await memory.summary(SCOPE, "profile", refresh=True)
    recent = await memory.summary(SCOPE, "recent", refresh=True)
    new = [told for told in person.all_told if day - timedelta(days=RECENT_DAYS) < told.on <= day]
    outdated = [old for matter, _ in known for old in matter.known(day)[:-1]]
    return Month(
        day,
        first / len(known),
        top / len(known),
        stale / len(known),
        sum(current.text in profile.text for _, current in known) / len(known),
        sum(old.text in profile.text for old in outdated) / len(known),
        sum(told.text in recent.text for told in new) / max(len(new), 1),
        len(profile.text) // 4,
    )


def _says(text: str, told: Told) -> bool:
    """Return whether a hit is what she told, as a fact or in her own words."""
    return told.text in text or told.said in text
