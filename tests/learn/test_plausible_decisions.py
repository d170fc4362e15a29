"""A model's decision is believed about what the fact resembles; one bad decision loses nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Scope
from tests.learn.decisions import Items, ids_of
from tests.support.memory import llm_settings, memory_in, messages_from
from tests.support.scripted_model import given, is_extraction

FILM = "User's favourite film is Alien."
CAR = "User drives a Peugeot 208."
ALLERGY = "User is allergic to penicillin."
NICE = "User lives in Nice."
TRIESTE = "User's sister Clara lives in Trieste."
LYON = "User moved to Lyon."
TEA = "User drinks tea."

IN_TRIESTE = [["Clara", "sister of", "User"], ["Clara", "lives in", "Trieste"]]
IN_NICE = [["User", "lives in", "Nice"]]

CASES: dict[str, dict[str, Any]] = {
    "a sister deletes nothing": {
        "known": [FILM, CAR, ALLERGY],
        "facts": [TRIESTE],
        "decide": [(0, "DELETE", "Alien", TRIESTE), (0, "DELETE", "Peugeot"), (0, "DELETE", "penicillin")],
        "then": [FILM, CAR, ALLERGY, TRIESTE],
        "told": [f'kept, though the model replaced it, because it is about something else than "{TRIESTE}": {FILM}'],
    },
    "a sister's town is not the user's": {
        "known": [{"text": NICE, "relations": IN_NICE}],
        "facts": [{"text": TRIESTE, "relations": IN_TRIESTE}],
        "decide": [(0, "DELETE", "Nice", TRIESTE)],
        "then": [NICE, TRIESTE],
        "told": ["kept, though the model replaced it"],
    },
    "a move replaces": {
        "known": [FILM, NICE],
        "facts": [LYON],
        "decide": [(0, "DELETE", "Nice", LYON), (0, "DELETE", "Alien", LYON)],
        "then": [FILM, LYON],
        "told": [f'about something else than "{LYON}": {FILM}'],
    },
    "the same relation replaces, however it is worded": {
        "known": [
            {"text": "User rents a room near the harbour of Porto.", "relations": [["User", "lives in", "Porto"]]}
        ],
        "facts": [{"text": "The new flat overlooks a square.", "relations": [["User", "lives in", "Lyon"]]}],
        "decide": [(0, "DELETE", "Porto")],
        "then": ["The new flat overlooks a square."],
        "told": [],
    },
    "known by something else": {
        "known": [FILM, CAR],
        "facts": [TRIESTE, CAR],
        "decide": [(0, "NONE", "Alien"), (1, "NONE", "Peugeot")],
        "then": [FILM, CAR, TRIESTE],
        "told": [f'added, though the model found it known by "{FILM}", which says something else: {TRIESTE}'],
    },
    "known by what names nothing of it": {
        "known": [NICE],
        "facts": [{"text": TRIESTE, "entities": ["Clara", ["Trieste", "place"]], "relations": []}],
        "decide": [(0, "NONE", "Nice")],
        "then": [NICE, TRIESTE],
        "told": ["added, though the model found it known"],
    },
    "rewording something else": {
        "known": [FILM, CAR],
        "facts": [TRIESTE],
        "decide": [(0, "UPDATE", "Alien", TRIESTE)],
        "then": [FILM, CAR, TRIESTE],
        "told": ["kept, though the model reworded it"],
    },
    "deleted for no fact, in Mem0's form": {
        "known": [FILM, CAR],
        "facts": [TRIESTE],
        "decide": [(None, "ADD", None, TRIESTE), (None, "DELETE", "Alien", FILM)],
        "then": [FILM, CAR, TRIESTE],
        "told": ["kept, though the model deleted it, because nothing that was said is about it"],
    },
    "listed as staying, in Mem0's form": {
        "known": [FILM, CAR],
        "facts": [TRIESTE],
        "decide": [(None, "NONE", "Alien", FILM), (None, "NONE", "Peugeot", CAR)],
        "then": [FILM, CAR, TRIESTE],
        "told": ["added, though the model found it known"],
    },
    "one bad decision of each kind": {
        "known": [NICE, FILM],
        "facts": [LYON, TEA, TRIESTE, CAR],
        "decide": [
            *(
                (0, "DELETE", "Nice", LYON),
                (1, "UPDATE", 99, TEA),
                (2, "UPDATE", "Alien", "null"),
                (3, "MERGE", "Alien"),
            ),
            (9, "ADD", None),
        ],
        "then": [FILM, LYON, TEA, TRIESTE, CAR],
        "told": ["there is no memory 99", "has no text", "has no event that there is", "there is no fact 9"],
    },
}


@pytest.mark.anyio
async def test_what_is_not_plausible_or_possible_changes_nothing_and_is_told(tmp_path: Path) -> None:
    """Guards memories against a model's slips: what is sound is applied, the rest is added as it is, with a note."""
    case: dict[str, Any] = {}

    def chat(request: dict[str, Any]) -> str:
        if is_extraction(request):
            return json.dumps({"facts": [{"sources": [1], **as_object(fact)} for fact in case["facts"]]})
        memories: Items = given(request, "Stored memories")
        return json.dumps({"decisions": [decided(memories, *item) for item in case["decide"]]})

    found: dict[str, Any] = {}
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            for number, (name, case) in enumerate(CASES.items()):
                scope = Scope("alice", f"case-{number}")
                known, facts = [*map(as_object, case["known"])], case["facts"]
                case["facts"] = known
                await memory.add_messages(messages_from(("user", "First."), scope=scope))
                case["facts"] = facts
                result = await memory.add_messages(messages_from(("user", "Second."), scope=scope))
                notes = "\n".join(result.notes)
                listed = [item.text for item in (await memory.scope_contents(scope)).memories]
                is_told = all(part in notes for part in case["told"]) and bool(notes) == bool(case["told"])
                found[name] = sorted(listed) if is_told else notes
    assert found == {name: sorted(case["then"]) for name, case in CASES.items()}


def as_object(fact: Any) -> dict[str, Any]:
    """Return a fact as the model gives it."""
    return {"text": fact} if isinstance(fact, str) else fact


def decided(
    memories: Items, fact: int | None, event: str, memory: str | int | None = None, text: str | None = None
) -> dict[str, Any]:
    """Return a decision about the memory whose text has a word; in Mem0's form without a fact."""
    number = ids_of(memories, memory)[0] if isinstance(memory, str) else memory
    named = {"id": "99" if number is None else str(number)} if fact is None else {"fact": fact, "memory": number}
    return {**named, "event": event, "text": text}
