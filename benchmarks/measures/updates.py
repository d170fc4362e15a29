"""Pairs of an outdated and a current fact, and questions about the present."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import SequenceMatcher

from measures.hand_written import read_data
from measures.stores import (
    NOT_FOUND,
    SCOPE,
    START,
    TOP,
    StoppedClock,
    add,
    ask,
    embed_waiting,
    new_memory,
    rank,
)
from measures.tables import ALL, Table, Tally
from palimpsest.core.models import Message
from palimpsest.memory import Memory

MENTIONS = {
    "en": "{subject} was mentioned on page {page} of the newsletter.",
    "ru": "На странице {page} рассылки упомянули: {subject}.",  # noqa: RUF001 - it is Russian
    "zh": "简报第{page}页提到了{subject}。",
}
"""A sentence about a subject, by language. It is stored between an old and a new fact and is related to neither."""


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


async def updates(embedder: str) -> list[Table]:
    """Ask about the present in a store that also contains the old facts, for each setting and language."""
    names = ("language", "stated", "old", "new", "question")
    pairs = [Pair(*(entry[name] for name in names)) for entry in read_data("updates")["pairs"]]
    tallies = [Tally(f"updates, {setting.name}") for setting in SETTINGS]
    languages_used = list(dict.fromkeys(pair.language for pair in pairs))
    for setting, tally in zip(SETTINGS, tallies, strict=True):
        tally.results = {row: {} for row in (*languages_used, *dict.fromkeys(pair.stated for pair in pairs), ALL)}
        for language in languages_used:
            await _measure_updates(setting, [pair for pair in pairs if pair.language == language], tally, embedder)
    return [tally.table() for tally in tallies]


async def _measure_updates(setting: Setting, pairs: Sequence[Pair], tally: Tally, embedder: str) -> None:
    """Store the old facts, store the new facts a day later, and ask a day after that."""
    clock = StoppedClock()
    evening, tomorrow = START + timedelta(hours=12), START + timedelta(days=1)
    async with new_memory(clock, embedder) as memory:
        old = await _store(memory, clock, setting, [pair.old for pair in pairs])
        if setting.mention:
            clock.at = evening
            await _store(memory, clock, setting, [pair.mention(page) for page, pair in enumerate(pairs, start=1)])
        clock.at = tomorrow
        new = await _store(memory, clock, setting, [pair.new for pair in pairs], old if setting.replaces else ())
        await embed_waiting(memory)
        clock.at = tomorrow + timedelta(days=1)
        for pair, old_id, new_id in zip(pairs, old, new, strict=True):
            hits = await ask(memory, pair.question)
            old_rank, new_rank = rank(hits, old_id), rank(hits, new_id)
            results: dict[str, float] = {
                "current first": new_rank < old_rank,
                f"current in {TOP}": new_rank <= TOP,
                "old first": old_rank < new_rank,
            }
            if not (results["current first"] and results[f"current in {TOP}"]):
                ranks = f"rank {_shown(new_rank)}; rank {_shown(old_rank)}: {pair.old}"
                tally.miss(pair.question, f"{pair.new} ({ranks})", hits)
            if setting.replaces:
                hits_as_of = await ask(memory, pair.question, as_of=evening)
                results |= {"old is gone": old_rank == NOT_FOUND, "old as_of": rank(hits_as_of, old_id) <= TOP}
                if not results["old as_of"]:
                    tally.miss(f"{pair.question} (as_of)", pair.old, hits_as_of)
            tally.record((pair.language, pair.stated, ALL), results)


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
        ids.append(await add(memory, text, replaced[number : number + 1]))
    return ids
