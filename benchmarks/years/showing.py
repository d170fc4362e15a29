"""Store the year of the person of `living.json`, with all that the page can show: for its pictures and its tests.

Each matter is told in a conversation, and what changes takes the place of what was told before. The memory also has
names and relations, a project, a document, tags, pinned memories, something deleted, and texts in other scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import anyio

from palimpsest.core.models import (
    PINNED,
    Decision,
    EntityType,
    Event,
    Fact,
    Message,
    NamedEntity,
    Provenance,
    Relation,
    Scope,
)
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory
from palimpsest.store.apply import Write
from palimpsest.store.writes import Conversation
from years.person import Person, Told, read_person

CLIENT = "claude"
"""The client of all conversations, as an import of its export names it."""

PROJECT = "choir"

IN_PROJECT = (
    "The choir sings Fauré's Requiem on 14 December",
    "Rehearsals are on Mondays at 19:00 in the parish hall",
    "The sheet music is in the blue binder",
)

IN_OTHER_SCRIPTS = (
    "诺拉每个星期四晚上去攀岩",
    "娜拉的猫叫 Musse",
    "נורה שרה אלט במקהלה של לימהמן",
    "تتعلم نورا اللغة الإيطالية منذ يناير",
)
"""Chinese, Hebrew and Arabic: that she climbs, her cat, her choir, her Italian."""

PINNED_TEXTS = frozenset({"Nora is allergic to hazelnuts.", "Nora wants short answers."})

DELETED_TEXT = "Nora has a cold."

RELATIONS = {
    "Nora lives in Gothenburg.": (("Nora", "lives in", "Gothenburg"),),
    "Nora moved to Malmö on 13 June 2025 and lives there now.": (("Nora", "lives in", "Malmö"),),
    "Nora works at Sahlgrenska University Hospital.": (("Nora", "works at", "Sahlgrenska"),),
    "Nora now works at Skåne University Hospital.": (("Nora", "works at", "Skåne University Hospital"),),
    "Nora's boss is Karin Ek.": (("Karin Ek", "is boss of", "Nora"),),
    "Nora's boss is Mehmet Yilmaz.": (("Mehmet Yilmaz", "is boss of", "Nora"),),
    "Nora and Erik married on 16 August 2025.": (("Nora", "is married to", "Erik"),),
    "Erik teaches woodwork at a school in Lund.": (("Erik", "teaches in", "Lund"),),
    "Nora's daughter is called Saga and was born in May 2018.": (("Saga", "is daughter of", "Nora"),),
    "Saga goes to Strandskolan since August 2025.": (("Saga", "goes to", "Strandskolan"),),
    "Nora's best friend is Amina.": (("Amina", "is best friend of", "Nora"),),
    "Amina lives in Copenhagen.": (("Amina", "lives in", "Copenhagen"),),
    "Nora's mother Birgitta moved to a care home in Lund.": (("Birgitta", "lives in", "Lund"),),
    "Nora's brother Johan works at Spotify.": (("Johan", "works at", "Spotify"), ("Johan", "is brother of", "Nora")),
    "Nora sings alto in the choir Limhamnskören.": (("Nora", "sings in", "Limhamnskören"),),
}
"""What some of her facts state, by their texts, as a model would give it."""

TYPES: dict[str, EntityType] = {
    **dict.fromkeys(("Gothenburg", "Malmö", "Lund", "Copenhagen"), "place"),
    **dict.fromkeys(
        ("Sahlgrenska", "Skåne University Hospital", "Strandskolan", "Spotify", "Limhamnskören"), "organization"
    ),
}

HANDBOOK = """# Ward handbook

## Handover

The handover starts at 6:45 in the staff room. The ward manager reads the list of patients aloud. Whoever goes home names what is still open.

## Medicine cabinet

The cabinet is counted every Sunday evening by two people. Both sign in the green book. The spare key is with the ward manager.

## Visitors

Visitors come between 14:00 and 19:00. Children may come at any time, with an adult.
"""  # noqa: E501 - Markdown has a paragraph on a line


class _Clock:
    """A clock that shows the day that is told about."""

    def __init__(self) -> None:
        self.at = datetime(2025, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


async def store_year(data: Path, user: str) -> None:
    """Store the year in a new data directory, as the memory of a user."""
    settings = load_settings(None, data_dir=data, user_id=user, llm={"provider": "none"}, project="")
    clock, person, scope = _Clock(), read_person(), Scope(user)
    async with open_memory(settings, clock=clock, background=False) as memory:
        await _learn_handbook(memory, scope, clock)
        known: dict[str, str] = {}
        for told in sorted(person.all_told, key=lambda told: told.on):
            clock.at = datetime.combine(told.on, time(18, 30), UTC)
            _tell(memory, scope, person, told, known)
        for text in IN_PROJECT:
            clock.at += timedelta(minutes=7)
            await memory.add_text(Scope(user, PROJECT), text, infer=False, caller="codex")
        for text in IN_OTHER_SCRIPTS:
            clock.at += timedelta(minutes=7)
            await memory.add_text(scope, text, infer=False, caller="codex")
        await memory.delete(scope, [known[DELETED_TEXT]], caller="codex")
        await memory.care.rebuild()  # gives all texts their vectors


def _tell(memory: Memory, scope: Scope, person: Person, told: Told, known: dict[str, str]) -> None:
    """Store an exchange and what was learned from it. `known` are the ids of what holds, by matter or by text."""
    now = memory.engine.clock()
    exchange = _exchange(scope, told, now)
    matter = person.matter_of(told.text)
    key = told.text if matter is None else matter.name
    fact = Fact(
        told.text,
        sources=(exchange[0].id,),
        said_at=now,
        tags=(matter.section,) if matter else (),
        metadata={PINNED: True} if told.text in PINNED_TEXTS else {},
        relations=tuple(Relation(*stated) for stated in RELATIONS.get(told.text, ())),
        entities=_named(told.text),
    )
    decision = Decision(Event.ADD, fact, replaces=(known[key],) if key in known else ())
    conversation = Conversation(CLIENT, told.on.strftime("%Y-%m"), told.on.strftime("Chat of %B %Y"))
    provenance = Provenance("extract", caller=CLIENT)
    writes = (
        Write(scope, provenance, messages=tuple(exchange), conversation=conversation),
        Write(scope, provenance, decisions=(decision,)),
    )
    known[key] = memory.engine.ledger.apply_as_one(writes)[1].outcomes[0].memory.id


def _exchange(scope: Scope, told: Told, now: datetime) -> Sequence[Message]:
    said = (("user", told.said, "Nora"), ("assistant", "Noted, I will keep that in mind.", ""))
    return [
        Message(str(uuid5(NAMESPACE_URL, f"{role} {told.text}")), scope, role, text, now, now, name=name)
        for role, text, name in said
    ]


def _named(text: str) -> tuple[NamedEntity, ...]:
    names = dict.fromkeys(name for source, _, target in RELATIONS.get(text, ()) for name in (source, target))
    return tuple(NamedEntity(name, TYPES.get(name, "person")) for name in names)


async def _learn_handbook(memory: Memory, scope: Scope, clock: _Clock) -> None:
    file = anyio.Path(memory.settings.data_dir).parent / "ward-handbook.md"
    await file.write_text(HANDBOOK, "utf-8")
    await memory.documents.learn_file(scope, Path(file), title="Ward handbook", caller="codex")
    clock.at += timedelta(minutes=1)
