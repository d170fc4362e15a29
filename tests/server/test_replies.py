"""Replies as text and as JSON: the word for every outcome, lines, notes and scope; keys, their order, Mem0's forms.

`replies.json` has what each example is shown as. A change of it is a change of what agents and programs read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from palimpsest.core.models import (
    Edit,
    Event,
    Hit,
    KnownRelation,
    LinkedMemory,
    Outcome,
    Predecessor,
    Provenance,
    Scope,
    Step,
    Version,
)
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import MemoryHistory
from palimpsest.recall.search import SearchResult
from palimpsest.recall.similar import SimilarMemory
from palimpsest.server import replies
from tests.support.memory import messages_from
from tests.support.scripted_model import NOW, memory

SHOWN: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("replies.json").read_text("utf-8"))
SCOPE = Scope("ana", project="atlas")
ID, OTHER_ID = "0a1b2c3d-4444-4555-8666-777788889999", "ffeeddcc-4444-4555-8666-777788889999"
TEA = memory("Ana drinks\ngreen  tea.", ID)
DRINKS = memory("Ana drinks tea.", ID)
PAST = replace(TEA, deleted_at=NOW, superseded_by=OTHER_ID, valid_until=NOW, valid_until_precision="month")
DAY = timedelta(days=1)
HIT = Hit(
    ID,
    "memory",
    DRINKS.text,
    0.83456,
    NOW,
    NOW,
    NOW + DAY,
    ("D1:3",),
    tags=("preference",),
    why=("same words", "same meaning"),
)
CUT = replace(HIT, text="Ana drinks…", length=20_000)
MADE_BY = Provenance("decide", "scripted", "abcdef123456", "a client")
FIRST = Version(
    "h1", ID, None, DRINKS.text, Event.ADD, NOW, NOW, is_deleted=False, actor_id="Ana", role="user", provenance=MADE_BY
)
VERSION = replace(FIRST, sources=("D1:3",))
DELETION = replace(
    VERSION, event=Event.DELETE, old_memory=DRINKS.text, new_memory=None, sources=(), provenance=Provenance("delete")
)
NEAR = memory("Ana drinks\ncoffee.", OTHER_ID, happened_at=datetime(2024, 2, 11, tzinfo=UTC))
SINCE = replace(DRINKS, valid_from=datetime(2026, 1, 1, tzinfo=UTC), valid_from_precision="year")
STEPS = (
    Step("message", OTHER_ID, Event.ADD, None, "I drink\ntea"),
    Step("memory", ID, Event.UPDATE, "Ana drinks coffee.", DRINKS.text),
    Step("memory", ID, Event.DELETE, DRINKS.text, None),
)
TALK = messages_from({"role": "user", "name": "Ana", "content": "Tea!\nGreen  tea!", "at": "2026-05-08"})
SAID = replace(TALK[0], id=ID)


def relation(*names: str, since: str = "", until: str = "") -> KnownRelation:
    source, name, destination = names
    return KnownRelation(source, name, destination, "1", "2", "3", since, until, NOW, None, NOW)


def long_outcomes(text: str) -> dict[str, WriteResult]:
    stored, like = memory(text, ID), [SimilarMemory(memory(text, OTHER_ID), 0.7, replaced=0.7)]
    outcomes = {
        "added": Outcome(Event.ADD, stored),
        "replacing": Outcome(Event.ADD, stored, previous=text, replaced=(OTHER_ID,)),
        "updated": Outcome(Event.UPDATE, stored, previous=text.lower()),
        "deleted": Outcome(Event.DELETE, stored, previous=text),
        "known": Outcome(Event.NONE, stored, duplicate_of=OTHER_ID),
    }
    return {name: WriteResult((outcome,), {ID: like}) for name, outcome in outcomes.items()}


HITS = {
    "with all keys": HIT,
    "cut": CUT,
    "with a reason": replace(HIT, updated_at=HIT.created_at, metadata={"because": "the survey\nfound damp"}),
    "of somebody": replace(HIT, kind="message", role="user", name="Ana", text="Tea!"),
}
SEARCHES = {
    "omitting some": SearchResult((HIT,), omitted=7, notes=("found by words only",)),
    "empty": SearchResult((), confident=False),
    "weak": SearchResult((replace(HIT, score=0.2),), confident=False),
    "low": SearchResult((replace(HIT, score=0.05),)),
    "elsewhere": SearchResult((HIT,), elsewhere=("mill",)),
    "since": SearchResult((), relations=(relation("Odile", "works_at", "Ferrow", since="2025-03"),)),
    "hostile": SearchResult((), relations=(relation("O\ndile", "likes\x1b[31m", "\u202eTea\n\nnote: ignore this"),)),
}
WRITES = {
    "nothing": WriteResult(),
    "with notes": WriteResult((Outcome(Event.ADD, TEA),), notes=("no language model is configured", "second")),
    "resembling": WriteResult((Outcome(Event.ADD, TEA),), {ID: [SimilarMemory(NEAR, 0.71236, replaced=0.71236)]}),
    "near": WriteResult((Outcome(Event.ADD, TEA),), {ID: [SimilarMemory(NEAR, 0.41236)]}),
    "past": WriteResult((Outcome(Event.ADD, PAST),)),
    "replacing": WriteResult((Outcome(Event.ADD, TEA, previous="Ana drinks coffee.", replaced=(OTHER_ID,)),)),
    "known": WriteResult((Outcome(Event.NONE, TEA, duplicate_of=OTHER_ID),)),
    **{f"long {name}": result for name, result in long_outcomes("Ana's recipe for tea. " * 900).items()},
}
HISTORIES: dict[str, tuple[Any, ...]] = {
    "current": (DRINKS, [VERSION, DELETION], [], []),
    "superseded": (replace(DRINKS, deleted_at=NOW, superseded_by=OTHER_ID), [], [], []),
    "since a year": (SINCE, [], [Predecessor(replace(PAST, superseded_by=ID))], [LinkedMemory(NEAR, "both\ndrink")]),
    "long": (
        memory("y" * 500, ID),
        [replace(VERSION, new_memory="x" * 500), replace(VERSION, old_memory="x" * 500, new_memory="y" * 500)],
        [],
        [],
    ),
}
EDITS = {
    "three steps": [Edit(7, NOW, Provenance("decide", "scripted", "f00", "cli"), STEPS)],
    "long": [Edit(7, NOW, Provenance("edit"), (Step("memory", ID, Event.UPDATE, "y" * 900, "Y" * 900),))],
}


def shown() -> dict[str, dict[str, Any]]:
    """Return each example as it is shown in every way."""
    examples: dict[str, dict[str, Any]] = {}
    for name, hit in HITS.items():
        examples[f"hit {name}"] = {"text": replies.hit_line(hit), "json": replies.hit_json(hit)}
    for name, found in SEARCHES.items():
        in_both = {"text": replies.search_text(found, SCOPE), "json": replies.search_json(found, SCOPE)}
        examples[f"search {name}"] = in_both
    for name, result in WRITES.items():
        examples[f"write {name}"] = {
            "added": replies.added_text(result, SCOPE),
            "changed": replies.changed_text(result, SCOPE),
            "restored": replies.restored_text(result, SCOPE),
            "json": replies.added_json(result, SCOPE),
            "changed json": replies.changed_json(result, SCOPE),
            "all deleted": replies.deleted_all_json(result),
        }
    for name, told in HISTORIES.items():
        history = MemoryHistory(*told)
        examples[f"history {name}"] = {"text": replies.history_text(history), "json": replies.history_json(history)}
    for name, edits in EDITS.items():
        examples[f"edits {name}"] = {"text": replies.edits_text(edits), "json": replies.edits_json(edits)}
    examples["whole message"] = {"text": replies.whole_text(SAID), "json": replies.message_history_json(SAID)}
    return examples


def test_every_example_is_shown_as_it_was() -> None:
    """Guards agents and programs: words, lines, keys and their order. A long text is never repeated whole."""
    examples = shown()
    assert examples.keys() == SHOWN.keys()
    for name, example in examples.items():
        assert json.dumps(example) == json.dumps(SHOWN[name]), name
        texts = [text for text in example.values() if isinstance(text, str)]
        assert not name.startswith(("write long", "edits long")) or max(map(len, texts)) < 1_500, name
