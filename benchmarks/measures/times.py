"""Questions about what held when, asked of lives of ten years: now, then, before, since when, who at the time.

`lives_in_time.json` has lives in the form of `personas.py`, with `today` (when the questions are asked) and `also` in
each question. Beside it, `lives_in_time_help.json` has what an agent gave that saw one statement or one question at a
time: for each fact `text`, `since`, `until`, `relations` and `hints`, for each question `query`, `also` and `held_at`.

*First* and *among 3* are as in `everyday.py`. The facts are asked in three ways: as they were said, with the question
alone; the same with other wordings; and with all that the agent gave. `lives_in_time_blind.json` and its help were
written by three who had not seen the code. Words of languages, one bound (`FURTHEST` in `recall/score.py`), and that
an end tells no beginning were chosen after its answers were seen, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from measures.stores import AMPLE, LIMIT, SCOPE, StoppedClock, embed_waiting, new_memory
from measures.tables import ALL, Table, Tally
from palimpsest.core.clock import parse_instant
from palimpsest.core.validation import relations_from
from palimpsest.memory import Memory

NOON = timedelta(hours=12)

NOTHING: Mapping[str, Any] = {"facts": {}, "questions": {}}

ALONE, ALSO, HELPED = "question alone", "also", "all that an agent gives"


async def times(files: Sequence[Path], embedder: str) -> list[Table]:
    """Ask the questions of each life in the three ways. Return the results by kind and language."""
    tables: list[Table] = []
    for file in files:
        beside = file.with_stem(f"{file.stem}_help")
        help_of_lives: dict[str, Any] = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
        ways = (ALONE, ALSO, HELPED) if help_of_lives else (ALONE, ALSO)
        tallies = {way: Tally(f"{file.stem}: {way}") for way in ways}
        for life in json.loads(file.read_text("utf-8")):
            given = help_of_lives.get(life["persona"], NOTHING)
            for is_helped in (False, True) if help_of_lives else (False,):
                clock = StoppedClock()
                async with new_memory(clock, embedder) as memory:
                    ids = await _store(memory, clock, life["facts"], given["facts"] if is_helped else {})
                    clock.at = parse_instant(life["today"], "today") + NOON
                    for way in (HELPED,) if is_helped else (ALONE, ALSO):
                        for asked in life["questions"]:
                            call = given["questions"].get(asked["q"], {})
                            await _ask(memory, tallies[way], way, life, asked, call, ids)
        tables += [tally.table() for tally in tallies.values()]
    return tables


async def _store(
    memory: Memory, clock: StoppedClock, facts: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
) -> dict[str, str]:
    """Store each fact on its day, with what an agent gave, and return the ids of the memories by those of the facts."""
    ids: dict[str, str] = {}
    for fact in sorted(facts, key=lambda fact: fact["at"]):
        clock.at = parse_instant(fact["at"], "at")
        helped = given.get(fact["id"], {})
        hints = helped.get("hints", {})
        added = await memory.add_text(
            SCOPE,
            helped.get("text", fact["text"]),
            since=helped.get("since") or "",
            until=helped.get("until") or "",
            relations=relations_from(helped.get("relations") or ()),
            hints=(*hints.get("asks", ()), *hints.get("words", ())),
            infer=False,
        )
        ids[fact["id"]] = added.outcomes[0].memory.id
    await embed_waiting(memory, has_relations=bool(given))
    return ids


async def _ask(
    memory: Memory,
    tally: Tally,
    way: str,
    life: Mapping[str, Any],
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
    ids: Mapping[str, str],
) -> None:
    found = await memory.search(
        SCOPE,
        given["query"] if way == HELPED else asked["q"],
        also=given.get("also") or () if way == HELPED else (asked.get("also") or () if way == ALSO else ()),
        held_at=given.get("held_at") or "" if way == HELPED else "",
        limit=LIMIT,
        max_tokens=AMPLE,
    )
    answers = {ids[answer] for answer in asked["answers"]}
    if not tally.record_answers([asked["kind"], life["language"], ALL], answers, found.hits):
        texts = {fact["id"]: fact["text"] for fact in life["facts"]}
        expected = " / ".join(texts[answer] for answer in asked["answers"])
        tally.miss(f"[{life['persona']}, {asked['kind']}] {asked['q']}", expected, found.hits)
