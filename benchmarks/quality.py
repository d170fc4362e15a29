"""Measure what a search finds: facts asked for in other words, what holds now, other languages, a small budget.

    python benchmarks/quality.py
    python benchmarks/quality.py --only updates --misses
    python benchmarks/quality.py --only budget --locomo locomo10.json --json figures.json

Everything goes through the facade, with the default embedder and no language model; the clock is the benchmark's.
The first three sets are hand-written and lie beside this file; LoCoMo, which `budget` needs, is not part of this
project.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from locomo import Conversation, Score, _messages, _settings, _stand_in, read  # pyright: ignore[reportPrivateUsage]
from loopback import OpenAIServer
from palimpsest.core.models import Hit, Message, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory

HERE = Path(__file__).parent
SCOPE = Scope("quality")
START = datetime(2026, 5, 8, 9, tzinfo=UTC)
LIMIT = 10
TOP = 5
AMPLE, DEFAULT = 20_000, 800
"""Tokens for a reply: more than ten hits take, and what a client gets that names no number."""

SHOWN = 3
"""Hits shown of a miss."""

BEYOND = LIMIT + 1
"""The place of what is not among the hits."""

MENTIONS = {
    "en": "{subject} was mentioned on page {page} of the newsletter.",
    "ru": "На странице {page} рассылки упомянули: {subject}.",  # noqa: RUF001 - it is Russian
    "zh": "简报第{page}页提到了{subject}。",
}
"""What is said of a subject between an old fact and a new one, by language; it has nothing to do with either."""

Figures: TypeAlias = dict[str, dict[str, float]]
"""By row and column: how many questions, and shares of them."""


@dataclass
class Tally:
    """Collect what was found, by row and column, and what was missed."""

    title: str
    found: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    misses: list[str] = field(default_factory=list[str])

    def note(self, rows: Sequence[str], found: dict[str, bool]) -> None:
        """Note for one question, in each of the rows, which columns it counts in."""
        for row in rows:
            for column, value in found.items():
                self.found.setdefault(row, {}).setdefault(column, []).append(float(value))

    def miss(self, question: str, wanted: str, hits: Sequence[Hit]) -> None:
        """Note a question that was not answered, and what came first instead."""
        shown = [f"    {number}. {hit.text}" for number, hit in enumerate(hits[:SHOWN], start=1)]
        self.misses.append("\n".join([f"  {question}", f"    wanted: {wanted}", *shown]))

    def figures(self) -> Figures:
        """Return the number of questions and the shares, by row."""
        return {
            row: {"n": len(next(iter(columns.values())))}
            | {column: statistics.fmean(values) for column, values in columns.items()}
            for row, columns in self.found.items()
        }


@dataclass
class StoppedClock:
    """Tell the time it was set to."""

    at: datetime = START

    def __call__(self) -> datetime:
        """Return the present instant."""
        return self.at


@dataclass(frozen=True)
class Pair:
    """Hold a fact once believed, what holds now, and a question that asks for the present state."""

    language: str
    stated: str
    old: str
    new: str
    question: str

    def mention(self, page: int) -> str:
        """Return a sentence that names what the pair is about and says nothing of it."""
        return MENTIONS[self.language].format(subject=self._subject(), page=page)

    def _subject(self) -> str:
        if self.language == "zh":
            shared = SequenceMatcher(None, self.old, self.question, autojunk=False).find_longest_match()
            return self.old[shared.a : shared.a + shared.size].strip("的")
        words = [word.strip(".,:«»") for word in self.old.split()]
        return next(word.removesuffix("'s") for word in words if len(word) > 1 and word != "The")


@dataclass(frozen=True)
class Setting:
    """Say how pairs come into the store: as texts or turns, the old replaced or not, with a mention between or not."""

    name: str
    turns: bool = False
    replaces: bool = False
    mention: bool = False


SETTINGS = (
    Setting("a: texts, nothing replaced"),
    Setting("b: texts, the old one replaced", replaces=True),
    Setting("c: turns", turns=True),
    Setting("d: texts, a mention between", mention=True),
)


@asynccontextmanager
async def _opened(clock: StoppedClock) -> AsyncGenerator[Memory]:
    """Open a fresh memory without a language model."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data_dir=Path(folder), llm={"provider": "none"})
        async with open_memory(settings, clock=clock, background=False) as memory:
            yield memory


async def _add(memory: Memory, text: str, replaces: Sequence[str] = ()) -> str:
    """Store a text as it is and return the id of its memory."""
    done = await memory.add_text(SCOPE, text, replaces=replaces, infer=False)
    change = done.outcomes[0]
    if change.duplicate_of is not None:
        raise RuntimeError(f"the store holds this already: {text}")
    return change.memory.id


async def _ask(memory: Memory, question: str, as_of: datetime | None = None) -> Sequence[Hit]:
    return (await memory.search(SCOPE, question, limit=LIMIT, max_tokens=AMPLE, as_of=as_of)).hits


def _place(hits: Sequence[Hit], wanted: str) -> int:
    """Return the place of a memory or turn among the hits, from 1."""
    return next((place for place, hit in enumerate(hits, start=1) if hit.id == wanted), BEYOND)


async def paraphrases() -> list[Tally]:
    """Ask each life's questions of a store that holds its memories and nothing else."""
    tally = Tally("paraphrases")
    for life in _data("paraphrases")["lives"]:
        async with _opened(StoppedClock()) as memory:
            ids = [await _add(memory, text) for text in life["memories"]]
            for asked in life["asked"]:
                number: int = asked["memory"]
                hits = await _ask(memory, asked["question"])
                place = _place(hits, ids[number])
                tally.note((life["kind"], "all"), {f"first {depth}": place <= depth for depth in (1, TOP, LIMIT)})
                if place > TOP:
                    tally.miss(asked["question"], life["memories"][number], hits)
    return [tally]


async def languages() -> list[Tally]:
    """Ask every language's questions of one store that holds the facts of all languages."""
    tally = Tally("languages")
    facts: dict[str, list[dict[str, str]]] = _data("languages")["languages"]
    async with _opened(StoppedClock()) as memory:
        ids = {fact["fact"]: await _add(memory, fact["fact"]) for each in facts.values() for fact in each}
        for language, each in facts.items():
            for fact in each:
                hits = await _ask(memory, fact["question"])
                place = _place(hits, ids[fact["fact"]])
                tally.note((language, "all"), {f"first {depth}": place <= depth for depth in (1, TOP)})
                if place > TOP:
                    tally.miss(fact["question"], fact["fact"], hits)
    return [tally]


async def updates() -> list[Tally]:
    """Ask for the present state where the store holds the old one too, in each setting, language by language."""
    names = ("language", "stated", "old", "new", "question")
    pairs = [Pair(*(entry[name] for name in names)) for entry in _data("updates")["pairs"]]
    tallies = [Tally(f"updates, {setting.name}") for setting in SETTINGS]
    spoken = list(dict.fromkeys(pair.language for pair in pairs))
    for setting, tally in zip(SETTINGS, tallies, strict=True):
        tally.found = {row: {} for row in (*spoken, *dict.fromkeys(pair.stated for pair in pairs), "all")}
        for language in spoken:
            await _updated(setting, [pair for pair in pairs if pair.language == language], tally)
    return tallies


async def _updated(setting: Setting, pairs: Sequence[Pair], tally: Tally) -> None:
    """Store what was believed, a day later what holds, and ask a day after that."""
    clock = StoppedClock()
    evening, tomorrow = START + timedelta(hours=12), START + timedelta(days=1)
    async with _opened(clock) as memory:
        old = await _kept(memory, clock, setting, [pair.old for pair in pairs])
        if setting.mention:
            clock.at = evening
            await _kept(memory, clock, setting, [pair.mention(page) for page, pair in enumerate(pairs, start=1)])
        clock.at = tomorrow
        new = await _kept(memory, clock, setting, [pair.new for pair in pairs], old if setting.replaces else ())
        clock.at = tomorrow + timedelta(days=1)
        for pair, old_id, new_id in zip(pairs, old, new, strict=True):
            hits = await _ask(memory, pair.question)
            then, now = _place(hits, old_id), _place(hits, new_id)
            found = {"current first": now < then, f"current in {TOP}": now <= TOP, "old first": then < now}
            if not (found["current first"] and found[f"current in {TOP}"]):
                tally.miss(pair.question, f"{pair.new} (place {_told(now)}; place {_told(then)}: {pair.old})", hits)
            if setting.replaces:
                before = await _ask(memory, pair.question, as_of=evening)
                found |= {"old is gone": then == BEYOND, "old as_of": _place(before, old_id) <= TOP}
                if not found["old as_of"]:
                    tally.miss(f"{pair.question} (as_of)", pair.old, before)
            tally.note((pair.language, pair.stated, "all"), found)


def _told(place: int) -> str:
    return "none" if place == BEYOND else str(place)


async def _kept(
    memory: Memory, clock: StoppedClock, setting: Setting, texts: Sequence[str], replaced: Sequence[str] = ()
) -> list[str]:
    """Store texts a minute apart, as memories or as the turns of one session, and return their ids."""
    began = clock.at
    times = [began + timedelta(minutes=minute) for minute in range(len(texts))]
    if setting.turns:
        clock.at = times[-1]
        said = [
            Message(str(uuid.uuid4()), SCOPE, "user", text, said_at=at, created_at=clock.at)
            for text, at in zip(texts, times, strict=True)
        ]
        done = await memory.add_messages(said, infer=False)
        if done.kept_messages != len(said):
            raise RuntimeError(f"{done.kept_messages} of {len(said)} turns were kept: {done.notes}")
        return [message.id for message in said]
    ids: list[str] = []
    for number, (text, at) in enumerate(zip(texts, times, strict=True)):
        clock.at = at
        ids.append(await _add(memory, text, replaced[number : number + 1]))
    return ids


async def budget(file: Path) -> list[Tally]:
    """Compare LoCoMo's recall at ten with ample room for the reply and with the default's."""
    tally = Tally("budget (recall@10)")
    conversations = read(file)
    for name, facts in (("turns only", False), ("turns and facts", True)):
        scores = {room: Score() for room in (AMPLE, DEFAULT)}
        for conversation in conversations:
            await _recalled(conversation, scores, facts=facts)
        ample, default = (scores[room].recall(0, LIMIT) for room in (AMPLE, DEFAULT))
        tally.found[name] = {f"{room} tokens": score.recalls[0, LIMIT] for room, score in scores.items()}
        tally.found[name]["ratio"] = [default / ample]
    return [tally]


async def _recalled(conversation: Conversation, scores: dict[int, Score], *, facts: bool) -> None:
    """Learn one conversation as locomo.py does and ask each of its questions with every room."""
    scope = Scope(user_id=conversation.name)
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(_stand_in(iter(conversation.sessions))) as server:
        async with open_memory(_settings(Path(folder), server.base_url if facts else None)) as memory:
            for session in conversation.sessions:
                await memory.add_messages(_messages(session, scope), infer=None if facts else False)
            for question in conversation.questions:
                for room, score in scores.items():
                    answer = await memory.search(scope, question.text, limit=LIMIT, max_tokens=room)
                    score.add(question, [hit.sources for hit in answer.hits])


def _data(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def _print(tally: Tally, *, misses: bool) -> None:
    figures = tally.figures()
    columns = list(next(iter(figures.values())))
    print(f"\n{tally.title}")
    print(f"{'':<18}" + "".join(f"{column:>15}" for column in columns))
    for row in sorted(figures, key=lambda name: name == "all"):
        n, *shares = figures[row].values()
        print(f"{row:<18}{n:>15.0f}" + "".join(f"{share:>15.3f}" for share in shares))
    if misses and tally.misses:
        print(f"\n{tally.title}: {len(tally.misses)} misses")
        print("\n".join(tally.misses))


def main() -> None:
    """Measure what was asked for, print tables, write the figures."""
    measures: dict[str, Callable[[], Coroutine[Any, Any, list[Tally]]]] = {
        "paraphrases": paraphrases,
        "updates": updates,
        "languages": languages,
    }
    parser = argparse.ArgumentParser(description="Measure what a search finds.")
    parser.add_argument("--only", nargs="+", choices=[*measures, "budget"], help="measure these only")
    parser.add_argument("--locomo", type=Path, help="a LoCoMo JSON file; `budget` needs it")
    parser.add_argument("--misses", action="store_true", help="print every question that was not answered")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.locomo is not None:
        measures["budget"] = partial(budget, arguments.locomo)
    elif "budget" in (arguments.only or ()):
        parser.error("budget needs --locomo FILE")
    written: dict[str, Figures] = {}
    for name, measure in measures.items():
        if arguments.only is None or name in arguments.only:
            for tally in anyio.run(measure):
                _print(tally, misses=arguments.misses)
                written[tally.title] = tally.figures()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(written, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
