"""Frozen values that travel between the floors of the house.

Times are aware datetimes in UTC. Ids are UUID4 strings. An absent part of a scope is the empty string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

MAX_SCOPE_CHARS = 256
"""The longest user, project, agent or run, and the longest name or id of a message."""

UNDO = "undo"
"""How the stage of an edit begins that took others back: their number follows, or the time since which."""

Kind: TypeAlias = Literal["memory", "message"]


class Event(StrEnum):
    """Name what a change did to a memory; the words are Mem0's."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class Scope:
    """Say whose memory is meant: the user always, the rest where given."""

    user_id: str
    project: str = ""
    agent_id: str = ""
    run_id: str = ""

    def __str__(self) -> str:
        """Name the parts that are set, for a reply or an error."""
        parts = {"user": self.user_id, "project": self.project, "agent": self.agent_id, "run": self.run_id}
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


@dataclass(frozen=True, slots=True)
class Message:
    """Hold one turn of a conversation as it was said.

    `external_id` is the caller's own id; `session_id` is the id of the first message of its session
    and is given by the ledger.
    """

    id: str
    scope: Scope
    role: str
    content: str
    said_at: datetime
    created_at: datetime
    name: str = ""
    external_id: str = ""
    session_id: str = ""
    deleted_at: datetime | None = None

    @property
    def source(self) -> str:
        """Name this message as the caller does."""
        return self.external_id or self.id

    @property
    def as_memory(self) -> Memory:
        """Return this turn in the form of a memory, for what is said of both alike."""
        return Memory(
            id=self.id,
            scope=self.scope,
            text=self.content,
            created_at=self.created_at,
            updated_at=self.deleted_at or self.created_at,
            valid_from=self.said_at,
            actor_id=self.name,
            role=self.role,
            deleted_at=self.deleted_at,
        )


@dataclass(frozen=True, slots=True)
class Fact:
    """Hold one thing learnt, before it is decided what becomes of it.

    `sources` are ids of stored messages. `happened_at` is when it happened or will, if that is known.
    """

    text: str
    sources: tuple[str, ...] = ()
    happened_at: datetime | None = None
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    actor_id: str = ""
    role: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Memory:
    """Hold what is believed, as the ledger has it."""

    id: str
    scope: Scope
    text: str
    created_at: datetime
    updated_at: datetime
    valid_from: datetime
    revision: int = 1
    happened_at: datetime | None = None
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    actor_id: str = ""
    role: str = ""
    deleted_at: datetime | None = None
    superseded_by: str | None = None

    @property
    def at(self) -> datetime:
        """Say when the fact belongs in time: when it happened, else when it was last said."""
        return self.happened_at or self.valid_from


@dataclass(frozen=True, slots=True)
class Provenance:
    """Say what made a change: the stage, the model, the prompt's fingerprint and the caller."""

    stage: str
    model: str = ""
    prompt: str = ""
    caller: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Say what is to become of one fact or one memory. Made by a stage or a caller, applied by the ledger.

    ADD stores `fact`, closing the memories named in `replaces`; with `memory_id` it brings that one back. UPDATE
    gives the memory `memory_id` the text of `fact` and adds its sources; its id stays. DELETE closes `memory_id`.
    NONE changes nothing and names in `memory_id` what already says it. DELETE and ADD by id also take a turn of a
    conversation, where `kind` says so.
    """

    event: Event
    fact: Fact | None = None
    memory_id: str | None = None
    replaces: tuple[str, ...] = ()
    kind: Kind = "memory"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Say what one decision did.

    `previous` is the text the memory had, or the texts of the memories it replaced, whose ids are in `replaced`.
    `duplicate_of` names the memory that already held the very text. With kind "message" the turn of a conversation
    stands in `memory`, as `Message.as_memory` gives it.
    """

    event: Event
    memory: Memory
    previous: str | None = None
    duplicate_of: str | None = None
    replaced: tuple[str, ...] = ()
    kind: Kind = "memory"


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """Say what one write did: a change for each decision, in order, and the turns it was given as they are stored.

    `messages` holds each turn once, whether it is new or was known, in the order given; `new` are the ids of those
    that were not known. `notes` say what was odd about it.
    """

    outcomes: tuple[Outcome, ...] = ()
    messages: tuple[Message, ...] = ()
    new: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """Hold one row of a memory's history, oldest first when listed."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Event
    created_at: datetime
    updated_at: datetime
    is_deleted: bool
    actor_id: str
    role: str
    provenance: Provenance
    sources: tuple[str, ...] = ()
    change: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one row of an edit: what became of one memory or turn. `before` and `after` are texts."""

    kind: Kind
    owner_id: str
    event: Event
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold what one write changed, under the number by which it can be taken back."""

    number: int
    made_at: datetime
    provenance: Provenance
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """Say what is to be taken back: one edit, all since an instant, or, with neither, the newest still in effect."""

    change: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Hold a summary of a scope, with the change of the log it is current to."""

    scope: Scope
    kind: str
    text: str
    seq: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold what the search sees of one memory or message: its place in the index and its scope."""

    seq: int
    kind: Kind
    owner_id: str
    scope: Scope


class Candidate(NamedTuple):
    """Hold what is known of a unit besides how it is like a question: a tuple, for a search makes hundreds.

    `by` is who said it or whom it is about, `chars` how long a turn is (0 for a memory), `asks` whether it ends in a
    question mark, `text` the beginning of what it says.
    """

    seq: int
    kind: Kind
    owner_id: str
    at: datetime
    by: str = ""
    session: str = ""
    chars: int = 0
    asks: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class IndexLogRow:
    """Hold one row of the change log: unit `unit_seq` of a user is to be upserted or deleted."""

    seq: int
    unit_seq: int
    user_id: str
    op: Literal["upsert", "delete"]


@dataclass(frozen=True, slots=True)
class Hit:
    """Hold one answer of a search. `score` lies between 0 and 1 and orders the hits of one search only.

    `sources` are the messages behind it as the caller names them, `origins` their ids in the ledger. `parts` say of
    what the place in the order was made, where that was asked for.
    """

    id: str
    kind: Kind
    text: str
    score: float
    at: datetime
    created_at: datetime
    updated_at: datetime
    sources: tuple[str, ...] = ()
    role: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    origins: tuple[str, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
