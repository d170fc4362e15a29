"""Measure what a search finds: facts in other words, the current one of two facts, other languages, a small budget.

    python benchmarks/quality.py
    python benchmarks/quality.py --only updates --misses
    python benchmarks/quality.py --only budget --locomo locomo10.json --json figures.json

Everything goes through the facade, with the default embedder, no language model, and a clock that the benchmark sets.
The first three data sets were written by hand and are beside this file. LoCoMo, which `budget` needs, is not part of
this project.
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

from locomo import Conversation, Score, messages_of, read, scripted_chat, settings_for
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
"""Token budgets of a reply: more than ten hits need, and the default."""

HITS_OF_A_MISS = 3
"""The number of hits that are printed for a miss."""

NOT_FOUND = LIMIT + 1
"""The rank of a memory that is not among the hits."""

MENTIONS = {
    "en": "{subject} was mentioned on page {page} of the newsletter.",
    "ru": "На странице {page} рассылки упомянули: {subject}.",  # noqa: RUF001 - it is Russian
    "zh": "简报第{page}页提到了{subject}。",
}
"""A sentence about a subject, by language. It is stored between an old and a new fact and is related to neither."""

Figures: TypeAlias = dict[str, dict[str, float]]
"""Figures by row and column: the number of questions, and shares of them."""


@dataclass
class Tally:
    """The results of one measure by row and column, and descriptions of the misses."""

    title: str
    results: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    misses: list[str] = field(default_factory=list[str])

    def record(self, rows: Sequence[str], results: dict[str, bool]) -> None:
        """Record for one question, in each of the rows, in which columns it counts."""
        for row in rows:
            for column, value in results.items():
                self.results.setdefault(row, {}).setdefault(column, []).append(float(value))

    def miss(self, question: str, expected: str, hits: Sequence[Hit]) -> None:
        """Describe a question whose answer was not found, and the first hits."""
        lines = [f"    {number}. {hit.text}" for number, hit in enumerate(hits[:HITS_OF_A_MISS], start=1)]
        self.misses.append("\n".join([f"  {question}", f"    expected: {expected}", *lines]))

    def figures(self) -> Figures:
        """Return the number of questions and the shares by row."""
        return {
            row: {"n": len(next(iter(columns.values())))}
            | {column: statistics.fmean(values) for column, values in columns.items()}
            for row, columns in self.results.items()
        }


@dataclass
class StoppedClock:
    """A clock that shows the time it was set to."""

    at: datetime = START

    def __call__(self) -> datetime:
        """Return the present instant."""
        return self.at


@dataclass(frozen=True)
class Pair:
    """An old fact, the fact that is true now, and a question about the present."""

    language: str
    stated: str
    old: str
    new: str
    question: str

    def mention(self, page: int) -> str:
        """Return a sentence that mentions the subject of the pair and says nothing about the facts."""
        return MENTIONS[self.language].format(subject=self._subject(), page=page)

    def _subject(self) -> str:
        if self.language == "zh":
            shared = SequenceMatcher(None, self.old, self.question, autojunk=False).find_longest_match()
            return self.old[shared.a : shared.a + shared.size].strip("的")
        words = [word.strip(".,:«»") for word in self.old.split()]
        return next(word.removesuffix("'s") for word in words if len(word) > 1 and word != "The")


@dataclass(frozen=True)
class Setting:
    """How the pairs are stored: as texts or messages, with `replaces` or not, with a mention in between or not."""

    name: str
    messages: bool = False
    replaces: bool = False
    mention: bool = False


SETTINGS = (
    Setting("a: texts, nothing replaced"),
    Setting("b: texts, the old one replaced", replaces=True),
    Setting("c: messages", messages=True),
    Setting("d: texts, a mention in between", mention=True),
)


@asynccontextmanager
async def _new_memory(clock: StoppedClock) -> AsyncGenerator[Memory]:
    """Open a new memory without a language model."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data_dir=Path(folder), llm={"provider": "none"})
        async with open_memory(settings, clock=clock, background=False) as memory:
            yield memory


async def _add(memory: Memory, text: str, replaces: Sequence[str] = ()) -> str:
    """Store a text as one memory, and return the id of the memory."""
    added = await memory.add_text(SCOPE, text, replaces=replaces, infer=False)
    outcome = added.outcomes[0]
    if outcome.duplicate_of is not None:
        raise RuntimeError(f"the store already has this text: {text}")
    return outcome.memory.id


async def _ask(memory: Memory, question: str, as_of: datetime | None = None) -> Sequence[Hit]:
    return (await memory.search(SCOPE, question, limit=LIMIT, max_tokens=AMPLE, as_of=as_of)).hits


def _rank(hits: Sequence[Hit], expected: str) -> int:
    """Return the rank of a memory or message among the hits, from 1."""
    return next((rank for rank, hit in enumerate(hits, start=1) if hit.id == expected), NOT_FOUND)


async def paraphrases() -> list[Tally]:
    """Ask the questions of each life in a store that contains only the memories of this life."""
    tally = Tally("paraphrases")
    for life in _data("paraphrases")["lives"]:
        async with _new_memory(StoppedClock()) as memory:
            ids = [await _add(memory, text) for text in life["memories"]]
            for entry in life["asked"]:
                number: int = entry["memory"]
                hits = await _ask(memory, entry["question"])
                rank = _rank(hits, ids[number])
                tally.record((life["kind"], "all"), {f"first {depth}": rank <= depth for depth in (1, TOP, LIMIT)})
                if rank > TOP:
                    tally.miss(entry["question"], life["memories"][number], hits)
    return [tally]


async def languages() -> list[Tally]:
    """Ask the questions of each language in one store that contains the facts of all languages."""
    tally = Tally("languages")
    facts: dict[str, list[dict[str, str]]] = _data("languages")["languages"]
    async with _new_memory(StoppedClock()) as memory:
        ids = {fact["fact"]: await _add(memory, fact["fact"]) for group in facts.values() for fact in group}
        for language, group in facts.items():
            for fact in group:
                hits = await _ask(memory, fact["question"])
                rank = _rank(hits, ids[fact["fact"]])
                tally.record((language, "all"), {f"first {depth}": rank <= depth for depth in (1, TOP)})
                if rank > TOP:
                    tally.miss(fact["question"], fact["fact"], hits)
    return [tally]


async def updates() -> list[Tally]:
    """Ask about the present in a store that also contains the old facts, for each setting and language."""
    names = ("language", "stated", "old", "new", "question")
    pairs = [Pair(*(entry[name] for name in names)) for entry in _data("updates")["pairs"]]
    tallies = [Tally(f"updates, {setting.name}") for setting in SETTINGS]
    languages_used = list(dict.fromkeys(pair.language for pair in pairs))
    for setting, tally in zip(SETTINGS, tallies, strict=True):
        tally.results = {row: {} for row in (*languages_used, *dict.fromkeys(pair.stated for pair in pairs), "all")}
        for language in languages_used:
            await _measure_updates(setting, [pair for pair in pairs if pair.language == language], tally)
    return tallies


async def _measure_updates(setting: Setting, pairs: Sequence[Pair], tally: Tally) -> None:
    """Store the old facts, store the new facts a day later, and ask a day after that."""
    clock = StoppedClock()
    evening, tomorrow = START + timedelta(hours=12), START + timedelta(days=1)
    async with _new_memory(clock) as memory:
        old = await _store(memory, clock, setting, [pair.old for pair in pairs])
        if setting.mention:
            clock.at = evening
            await _store(memory, clock, setting, [pair.mention(page) for page, pair in enumerate(pairs, start=1)])
        clock.at = tomorrow
        new = await _store(memory, clock, setting, [pair.new for pair in pairs], old if setting.replaces else ())
        clock.at = tomorrow + timedelta(days=1)
        for pair, old_id, new_id in zip(pairs, old, new, strict=True):
            hits = await _ask(memory, pair.question)
            old_rank, new_rank = _rank(hits, old_id), _rank(hits, new_id)
            results = {
                "current first": new_rank < old_rank,
                f"current in {TOP}": new_rank <= TOP,
                "old first": old_rank < new_rank,
            }
            if not (results["current first"] and results[f"current in {TOP}"]):
                ranks = f"rank {_shown(new_rank)}; rank {_shown(old_rank)}: {pair.old}"
                tally.miss(pair.question, f"{pair.new} ({ranks})", hits)
            if setting.replaces:
                hits_as_of = await _ask(memory, pair.question, as_of=evening)
                results |= {"old is gone": old_rank == NOT_FOUND, "old as_of": _rank(hits_as_of, old_id) <= TOP}
                if not results["old as_of"]:
                    tally.miss(f"{pair.question} (as_of)", pair.old, hits_as_of)
            tally.record((pair.language, pair.stated, "all"), results)


def _shown(rank: int) -> str:
    return "none" if rank == NOT_FOUND else str(rank)


async def _store(
    memory: Memory, clock: StoppedClock, setting: Setting, texts: Sequence[str], replaced: Sequence[str] = ()
) -> list[str]:
    """Store texts one minute apart, as memories or as the messages of one session, and return their ids."""
    began = clock.at
    times = [began + timedelta(minutes=minute) for minute in range(len(texts))]
    if setting.messages:
        clock.at = times[-1]
        messages = [
            Message(str(uuid.uuid4()), SCOPE, "user", text, said_at=at, created_at=clock.at)
            for text, at in zip(texts, times, strict=True)
        ]
        added = await memory.add_messages(messages, infer=False)
        if added.kept_messages != len(messages):
            raise RuntimeError(f"{added.kept_messages} of {len(messages)} messages were kept: {added.notes}")
        return [message.id for message in messages]
    ids: list[str] = []
    for number, (text, at) in enumerate(zip(texts, times, strict=True)):
        clock.at = at
        ids.append(await _add(memory, text, replaced[number : number + 1]))
    return ids


async def budget(file: Path) -> list[Tally]:
    """Compare the recall at 10 on LoCoMo with an ample token budget and with the default one."""
    tally = Tally("budget (recall@10)")
    conversations = read(file)
    for name, facts in (("messages only", False), ("messages and facts", True)):
        scores = {max_tokens: Score() for max_tokens in (AMPLE, DEFAULT)}
        for conversation in conversations:
            await _measure_recall(conversation, scores, facts=facts)
        ample, default = (scores[max_tokens].recall(0, LIMIT) for max_tokens in (AMPLE, DEFAULT))
        tally.results[name] = {f"{max_tokens} tokens": score.recalls[0, LIMIT] for max_tokens, score in scores.items()}
        tally.results[name]["ratio"] = [default / ample]
    return [tally]


async def _measure_recall(conversation: Conversation, scores: dict[int, Score], *, facts: bool) -> None:
    """Add one conversation as locomo.py does, and ask each of its questions with each token budget."""
    scope = Scope(user_id=conversation.name)
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(scripted_chat(iter(conversation.sessions))) as server:
        async with open_memory(settings_for(Path(folder), server.base_url if facts else None)) as memory:
            for session in conversation.sessions:
                await memory.add_messages(messages_of(session, scope), infer=None if facts else False)
            for question in conversation.questions:
                for max_tokens, score in scores.items():
                    reply = await memory.search(scope, question.text, limit=LIMIT, max_tokens=max_tokens)
                    score.add(question, [hit.sources for hit in reply.hits])


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
    """Take the chosen measures, print the tables, and write the figures to a file if asked to."""
    measures: dict[str, Callable[[], Coroutine[Any, Any, list[Tally]]]] = {
        "paraphrases": paraphrases,
        "updates": updates,
        "languages": languages,
    }
    parser = argparse.ArgumentParser(description="Measure what a search finds.")
    parser.add_argument("--only", nargs="+", choices=[*measures, "budget"], help="take these measures only")
    parser.add_argument("--locomo", type=Path, help="a LoCoMo JSON file; `budget` needs it")
    parser.add_argument("--misses", action="store_true", help="print every question whose answer was not found")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.locomo is not None:
        measures["budget"] = partial(budget, arguments.locomo)
    elif "budget" in (arguments.only or ()):
        parser.error("budget needs --locomo FILE")
    figures_by_title: dict[str, Figures] = {}
    for name, measure in measures.items():
        if arguments.only is None or name in arguments.only:
            for tally in anyio.run(measure):
                _print(tally, misses=arguments.misses)
                figures_by_title[tally.title] = tally.figures()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures_by_title, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
