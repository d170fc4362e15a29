"""Name entities, embed, apply in one transaction, and return what every write returns."""

import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.errors import EmbedderError
from palimpsest.core.models import EXPIRES_AT, SELF_NAMES, Decision, Event, Fact, NamedEntity, Outcome, Scope, name_key
from palimpsest.core.protocols import Embedder, Vector
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine, OfMemory
from palimpsest.llm.user_name import behind_user, is_about_user
from palimpsest.recall.similar import SimilarMemory
from palimpsest.store.apply import Write
from palimpsest.store.graph.identity import known_types
from palimpsest.store.jobs import JobRequest
from palimpsest.store.memories import memories_telling_name, name_of_user
from palimpsest.store.rows import memory_hash
from palimpsest.text.display import counted
from palimpsest.text.names.known_names import name_candidates, told_self_name
from palimpsest.text.names.name_finder import find_names
from palimpsest.text.tokenizer import within

# How long a call embeds. A client waits for it.
CALL_SECONDS = 2.0

# What a write of decisions asks for if memories are linked. An undo brings the links back that there were.
LINK_LATER = JobRequest("link", about="memories")

# How notes begin on what waits to be embedded.
_BY_WORDS, _BY_BEGINNING = "found by words only", "found by the meaning of its beginning"

# How much text of a call is embedded first: half a second of one core with the slowest embedder.
FIRST_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class LearnedDocument:
    """What keeping a document did: how many pages it has now, and how many of them were added and deleted."""

    id: str
    title: str
    uri: str
    pages: int
    added: int = 0
    removed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Return whether the document was kept before as it is."""
        return not self.added and not self.removed


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: its outcomes, for each changed memory the others that resemble it, and notes for the caller.

    `is_learning` says that messages are learned from in the background. `entity_edits` are those of the notes that say
    what an undo did to entities. `document` is what a long text was kept as. `edit` is the number of the edit, and 0 if
    nothing was changed. `questions` are requests to forget that are only done after a question.
    """

    outcomes: tuple[Outcome, ...] = ()
    similar: Mapping[str, Sequence[SimilarMemory]] = field(default_factory=dict[str, Sequence[SimilarMemory]])
    kept_messages: int = 0
    notes: tuple[str, ...] = ()
    is_learning: bool = False
    entity_edits: tuple[str, ...] = ()
    document: LearnedDocument | None = None
    edit: int = 0
    questions: tuple[models.ForgetQuestion, ...] = ()


# What awaits a write in a scope and does what follows every write; it returns the result with its own notes.
AfterWrite: TypeAlias = Callable[[Scope, Awaitable[WriteResult]], Awaitable[WriteResult]]


def is_on_embedding(note: str) -> bool:
    """Return whether a note says that something waits to be embedded."""
    return note.startswith((_BY_WORDS, _BY_BEGINNING))


async def embed_texts(
    engine: Engine, texts: Sequence[str], known: Mapping[str, Vector] | None = None
) -> tuple[dict[str, Vector], list[str]]:
    """Return the vectors of texts, and notes about texts that wait. Only texts without a known vector are embedded.

    Of a long text only the first window is embedded, and of many texts only those that take about `CALL_SECONDS`. The
    background work does the rest. The returned vectors include the known ones. After a failure they are the known ones
    only.
    """
    vectors = dict(known or {})
    missing = [text for text in dict.fromkeys(texts) if text not in vectors]
    if not missing:
        return vectors, []
    try:
        embedded, long = await engine.run(lambda: _embed_in_time(engine.embedder, missing))
    except EmbedderError as error:
        return vectors, [f"{_BY_WORDS}, until it can be embedded: {error}"]
    notes: list[str] = []
    if late := len(missing) - len(embedded):
        notes.append(f"{_BY_WORDS}, until the background has embedded it: {late} of {counted(len(missing), 'text')}")
    if long:
        notes.append(f"{_BY_BEGINNING}, until the rest is embedded: {counted(long, 'long text')}")
    return vectors | dict(zip(missing, embedded, strict=False)), notes


def _embed_in_time(embedder: Embedder, texts: Sequence[str]) -> tuple[list[Vector], int]:
    """Return the vectors of the first texts, each of shape (dims,), and how many of these have further windows.

    The parts that are embedded at once double in length, and each is expected to take twice as long as the last.
    """
    windows = [embedder.windows(text) for text in texts]
    first = [parts[0] for parts in windows]
    vectors: list[Vector] = []
    began, max_chars, expected = time.monotonic(), FIRST_CHARS, 0.0
    while len(vectors) < len(texts) and time.monotonic() - began + expected < CALL_SECONDS:
        part_began = time.monotonic()
        vectors.extend(embedder.embed_passages(within(first[len(vectors) :], max_chars)))
        expected, max_chars = 2 * (time.monotonic() - part_began), 2 * max_chars
    return vectors, sum(len(parts) > 1 for parts in windows[: len(vectors)])


async def apply_decisions(engine: Engine, write: Write, notes: Sequence[str] = ()) -> WriteResult:
    """Apply what a caller decided and return what that did, with notes for the caller before its own."""
    applied = await apply_write(engine, write)
    has_changed = any(outcome.event is not Event.NONE for outcome in applied.outcomes)
    dropped = [
        f"no longer marked as from {one_line(outcome.dropped_origin)}, since it was said again without an origin"
        for outcome in applied.outcomes
        if outcome.dropped_origin
    ]
    notes = (*notes, *dropped, *applied.notes)
    return WriteResult(applied.outcomes, notes=notes, edit=applied.edit if has_changed else 0)


async def apply_write(engine: Engine, write: Write) -> models.AppliedWrite:
    """Apply a write in a worker thread. Vectors of long texts are marked as those of the first window."""
    return await engine.write(lambda: engine.ledger.apply(_prepared(engine, write)))


async def apply_as_one(engine: Engine, writes: Sequence[Write]) -> Sequence[models.AppliedWrite]:
    """Do the same with writes in several scopes of a user, in one transaction and as one edit."""
    return await engine.write(lambda: engine.ledger.apply_as_one([_prepared(engine, write) for write in writes]))


def _prepared(engine: Engine, write: Write) -> Write:
    partial = frozenset(text for text in write.vectors if len(engine.embedder.windows(text)) > 1)
    links = engine.settings.links == "on" and write.decisions and write.provenance.stage != models.ENRICH
    later = (*write.later, LINK_LATER) if links else write.later
    return replace(write, embedder=engine.embedder.fingerprint, partial=partial, later=later)


# Methods of an open memory that write.

_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound="Writing")


class Writing(OfMemory):
    """Methods of an open memory that write. `after_write` does what follows every write."""

    def __init__(self, engine: Engine, after_write: AfterWrite) -> None:
        super().__init__(engine)
        self._after_write = after_write

    async def _apply(
        self, scope: Scope, decisions: list[Decision], stage: str, caller: str, notes: Sequence[str] = (), **more: Any
    ) -> WriteResult:
        """Apply what a caller decided, with `more` that a write may have, and do what follows."""
        write = Write(scope, models.Provenance(stage, caller=caller), decisions=tuple(decisions), **more)
        return await self._after_write(scope, apply_decisions(self.engine, write, notes))


def writes(
    method: Callable[Concatenate[_Self, Scope, _P], Awaitable[WriteResult]],
) -> Callable[Concatenate[_Self, Scope, _P], Coroutine[Any, Any, WriteResult]]:
    """Make a method that writes do what follows every write, too."""

    @wraps(method)
    async def write(self: _Self, scope: Scope, *args: _P.args, **options: _P.kwargs) -> WriteResult:
        return await self._after_write(scope, method(self, scope, *args, **options))  # pyright: ignore[reportPrivateUsage] - its own

    return write


def has_text(memory: models.Memory, text: str) -> bool:
    """Return whether a memory is living and has this text, apart from case and white space."""
    return memory.deleted_at is None and memory_hash(memory.text) == memory_hash(text)


def past_end_notes(engine: Engine, fact: Fact) -> list[str]:
    """Return a note if a fact has expired before it is stored."""
    if not models.has_expired(fact.metadata, engine.clock()):
        return []
    return [f"{EXPIRES_AT} {fact.metadata[EXPIRES_AT]} has passed, so this is kept as what held until then"]


# Name the entities of facts and memories without a model.

USER = NamedEntity("User", "person")


def with_names(conn: Connection, scope: Scope, fact: Fact, *, joins: bool = False) -> Fact:
    """Return a fact with what its text names. One that has entities already keeps those, and gets others if it `joins`.

    One that begins with what the user is called also has that name in its metadata.
    """
    if not fact.text or (fact.entities and not joins):
        return fact
    named = {name_key(entity.name): entity for entity in (*names_in(conn, scope, fact.text), *fact.entities)}
    metadata = fact.metadata if fact.entities else _with_self_name(fact)
    return replace(fact, entities=tuple(named.values()), metadata=metadata)


def name_decision(conn: Connection, scope: Scope, name: str, sources: Sequence[str]) -> Decision | None:
    """Return the decision to store what the user is called, in place of what told another name and nothing else.

    Return None if the name is known, or a longer one that has it.
    """
    if not name or set(name_key(name).split()) <= set(name_key(name_of_user(conn, scope)).split()):
        return None
    fact = Fact(
        f"User's name is {name}.",
        tuple(sources),
        tags=("identity",),
        metadata={models.USER_NAME: name},
        entities=(USER, NamedEntity(name, "person")),
    )
    telling = memories_telling_name(conn, scope)
    older = [memory.id for memory in telling if told_self_name(memory.text) and scope.owns(memory.scope)]
    return Decision(Event.ADD, fact, replaces=tuple(older))


def with_named_facts(conn: Connection, scope: Scope, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """Return decisions whose facts have what their texts name.

    The text of an update is often not the one that was extracted: it joins a fact and a memory. So it has what the fact
    names, and what else is found in it.
    """
    return tuple(
        replace(
            decision,
            fact=decision.fact and with_names(conn, scope, decision.fact, joins=decision.event is Event.UPDATE),
            outdated=tuple(with_names(conn, scope, fact) for fact in decision.outdated),
        )
        for decision in decisions
    )


def names_in(conn: Connection, scope: Scope, text: str) -> tuple[NamedEntity, ...]:
    """Return what a text of a scope names. The user is first, if the text begins with the user."""
    found = find_names(text, known_types(conn, scope, name_candidates(text)))
    return (USER, *found) if is_about_user(text) else tuple(found)


def _introduced(text: str) -> str:
    """Return the full name by which a text introduces the user, as "The user is Ana Ruiz, a vet" does, or ""."""
    rest = behind_user(text)
    people = [found.name for found in find_names(rest, {}) if found.type == "person" and " " in found.name]
    return next((name for name in people if rest.startswith(name) and rest[len(name) :][:1] in {"", *",;.)"}), "")


_CLAUSE_END = re.compile(r"[;,.]\s")


def _with_self_name(fact: Fact) -> Mapping[str, Any]:
    clauses = _CLAUSE_END.split(fact.text, maxsplit=2)
    stated = [f"user {each.name} {each.destination}" for each in fact.relations if name_key(each.source) in SELF_NAMES]
    said = [fact.text, clauses[0], ", ".join(clauses[:2]), *stated]
    name = next((told for text in said if (told := told_self_name(text))), "") or _introduced(fact.text)
    return {models.USER_NAME: name, **fact.metadata} if name else fact.metadata
