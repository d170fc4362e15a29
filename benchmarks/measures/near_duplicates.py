"""Which memories the reply to an add names as near-duplicates of the new fact, or as near it.

The facts of each persona are added in the order of their dates. *Recall*: the share of the newer facts of a pair whose
reply names the older one. *Precision*: the share of all named memories that are the older fact of the pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from measures.hand_written import FOLDER, read_data
from measures.personas import Persona, read_personas
from measures.stores import SCOPE, StoppedClock, new_memory
from measures.tables import ALL, Table, Tally, described
from palimpsest.core import validation
from palimpsest.core.models import Fact
from palimpsest.core.validation import HintsInput
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory


class Named:
    """The numbers of a row: pairs, pairs whose older fact was named, and all named memories."""

    def __init__(self) -> None:
        self.pairs = self.recalled = self.named = self.right = 0

    def row(self) -> dict[str, float]:
        """Return the figures of this row."""
        return {
            "pairs": self.pairs,
            "named": self.named,
            "recall": self.recalled / max(self.pairs, 1),
            "precision": self.right / max(self.named, 1),
        }


async def near_duplicates(files: Sequence[Path], embedder: str) -> list[Table]:
    """Add the facts of each persona."""
    table = Table("near-duplicates")
    by_row: dict[str, Named] = {}
    for persona in read_personas(files):
        rows = [by_row.setdefault(name, Named()) for name in (persona.language, ALL)]
        clock = StoppedClock()
        async with new_memory(clock, embedder) as memory:
            await _add_facts(memory, clock, persona, rows, table.misses)
    table.figures = {name: named.row() for name, named in by_row.items()}
    return [table]


async def _add_facts(
    memory: Memory, clock: StoppedClock, persona: Persona, rows: Sequence[Named], misses: list[str]
) -> None:
    """Add the facts, and count what the replies name."""
    older_of: dict[str, set[str]] = {}
    for older, newer in persona.updates:
        older_of.setdefault(newer, set()).add(older)
    ids: dict[str, str] = {}
    for fact in persona.facts:
        clock.at = fact.at
        result = await memory.add_text(SCOPE, fact.text, infer=False)
        ids[fact.id] = result.outcomes[0].memory.id
        similar = [item.memory for item in result.similar.get(ids[fact.id], ()) if not item.is_only_near]
        expected = {ids[older] for older in older_of.get(fact.id, ())}
        right = len(expected & {memory.id for memory in similar})
        for row in rows:
            row.pairs += len(expected)
            row.recalled += right
            row.named += len(similar)
            row.right += right
        if len(expected) != right or len(similar) != right:
            older_texts = [persona.texts[older] for older in older_of.get(fact.id, ())]
            misses.append(described(fact.text, " / ".join(older_texts) or "nothing", [item.text for item in similar]))


@dataclass(frozen=True)
class HelpedPair:
    """A fact that is known and one told later, with what an agent gave beside them."""

    user: str
    half: int
    kind: str
    changes: bool
    old: Fact
    new: Fact
    # `since` and `until` of the newer one.
    times: Mapping[str, str]


def helped_pairs() -> list[HelpedPair]:
    """Return the pairs of `change_pairs.json` with `change_pairs_help.json`."""
    pairs, given = read_data("change_pairs")["pairs"], read_data("change_pairs_help")
    return [
        HelpedPair(
            pair["user"],
            pair["half"],
            pair["kind"],
            pair["changes"],
            _fact(pair["old"], old),
            _fact(pair["new"], new),
            {name: new.get(name, "") for name in ("since", "until")},
        )
        for pair, old, new in zip(pairs, given["old"], given["new"], strict=True)
    ]


def _fact(text: str, given: Mapping[str, Any]) -> Fact:
    hints = validation.hints_from(HintsInput(**given.get("hints", {})))
    return Fact(text, relations=validation.relations_from(given.get("relations", ())), keywords=hints)


async def changes(embedder: str) -> list[Table]:
    """Tell what changes an older fact, and what does not, to a memory of all older facts of the same user.

    *Named*: the older fact of the pair is said to resemble the new one. *Shown*: it is named, or said to be near.
    *Lines*: how many memories the reply names or shows. Once with the texts alone, once with what an agent gave. To
    name a repeated fact is right, so it is no needless one.
    """
    return [await _changes(embedder, with_help=False), await _changes(embedder, with_help=True)]


async def weeks(embedder: str) -> list[Table]:
    """Live the weeks of `weeks.json`: what an agent stored, with hints, in the order of its days.

    *Named*, *shown*: as in `changes`, of the texts that change an earlier one. *Needless*: of the others, those with
    something named that they don't repeat.
    """
    tally = Tally("weeks of agents")
    for number, week in enumerate(read_data("weeks")["weeks"], start=1):
        clock = StoppedClock()
        async with new_memory(clock, embedder) as memory:
            ids: list[str] = []
            for text in week["texts"]:
                clock.at = datetime.fromisoformat(text["at"]).replace(hour=9, tzinfo=UTC) + timedelta(minutes=len(ids))
                hints = validation.hints_from(HintsInput(asks=text["asks"], words=text["words"]))
                result = await _stored(memory, Fact(text["text"], keywords=hints), {})
                older: int | None = text.get("changes")
                _record(tally, [f"{number} ({week['language']})", ALL], result, ids[older - 1] if older else None)
                ids.append(result.outcomes[0].memory.id)
    return [tally.table()]


def _alone(pair: HelpedPair) -> dict[str, Any]:
    return {"old": Fact(pair.old.text), "new": Fact(pair.new.text), "times": {}}


async def _stored(memory: Memory, fact: Fact, times: Mapping[str, str]) -> WriteResult:
    relations = fact.relations or None
    return await memory.add_text(
        SCOPE,
        fact.text,
        relations=relations,
        hints=fact.keywords,
        infer=False,
        since=times.get("since", ""),
        until=times.get("until", ""),
    )


async def _changes(embedder: str, *, with_help: bool) -> Table:
    pairs = helped_pairs() if with_help else [replace(pair, **_alone(pair)) for pair in helped_pairs()]
    tally = Tally(f"changes of facts{', with an agent' if with_help else ''}")
    for user in dict.fromkeys(pair.user for pair in pairs):
        clock = StoppedClock()

        async with new_memory(clock, embedder) as memory:
            own = [pair for pair in pairs if pair.user == user]
            ids: dict[str, str] = {}
            for pair in own:
                ids[pair.old.text] = (await _stored(memory, pair.old, {})).outcomes[0].memory.id
            clock.at += timedelta(days=1)
            for pair in own:
                result = await _stored(memory, pair.new, pair.times)
                items = result.similar[result.outcomes[0].memory.id]
                of_pair = [item for item in items if item.memory.id == ids[pair.old.text]]
                named = any(not item.is_only_near for item in of_pair)
                sort = "changes" if pair.changes else "repeats" if pair.kind == "repeat" else "changes nothing"
                rows = [f"half {pair.half}, {sort}", f"half {pair.half}, {pair.kind}"]
                tally.record(rows, {"named": named, "shown": bool(of_pair), "lines": len(items)})
                await memory.undo(SCOPE)
    return tally.table()


async def told_changes(embedder: str) -> list[Table]:
    """Tell invented memories of `changed/`: all facts, then what only seems to change one, then what does.

    A line `#` begins a memory: its kind, its language, and whose it is. `F` is a fact, `S` seems to change it, and `C`
    does. `Q` is a question that the fact answers, and `N` one that `C` answers; they are not asked here. The columns
    are those of `weeks`. The texts are told alone.
    """
    tally = Tally("told changes")
    for file in sorted((FOLDER / "changed").glob("*.txt")):
        for block in file.read_text("utf-8").strip().split("\n\n"):
            header, *lines = block.splitlines()
            told = {kind: [line[2:] for line in lines if line[0] == kind] for kind in "FSC"}
            rows = [f"{file.stem}, {header.split(' | ')[1]}", ALL]
            clock = StoppedClock()
            async with new_memory(clock, embedder) as memory:
                facts = [(await _stored(memory, Fact(text), {})).outcomes[0].memory.id for text in told["F"]]
                for kind in "SC":
                    clock.at += timedelta(days=1)
                    for fact, text in zip(facts, told[kind], strict=True):
                        _record(tally, rows, await _stored(memory, Fact(text), {}), fact if kind == "C" else None)
    return [tally.table()]


def _record(tally: Tally, rows: Sequence[str], result: WriteResult, changed: str | None) -> None:
    """Record what the reply to one new text names. `changed` is the id of the memory that the text changes, if any."""
    items = result.similar[result.outcomes[0].memory.id]
    named = {item.memory.id for item in items if not item.is_only_near and item.replaced >= item.same}
    if changed is None:
        tally.record([f"{row}, others" for row in rows], {"needless": bool(named)})
    else:
        shown = changed in {item.memory.id for item in items}
        tally.record(rows, {"named": changed in named, "shown": shown})
