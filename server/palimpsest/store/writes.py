"""Write memories, messages and conversations inside a transaction."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, insert, select, update

from palimpsest.core.clock import Precision, finer, shown_date, span_of
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import (
    BECAUSE,
    DELETE,
    EXPIRES_AT,
    MAX_SCOPE_CHARS,
    ORIGIN,
    PINNED,
    UNDO,
    USER_NAME,
    Annotation,
    Decision,
    Event,
    Fact,
    Memory,
    Message,
    Outcome,
    Relation,
    Scope,
    has_expired,
    labels_of,
    name_key,
)
from palimpsest.core.validation import one_line
from palimpsest.store import links, rows, usage
from palimpsest.store import memories as pinned
from palimpsest.store.entries import Transaction, put_entry
from palimpsest.store.graph import statements as statement_queries
from palimpsest.store.graph.entities import about_user
from palimpsest.store.graph.identity import MAX_QUOTED, mention_known, mention_with
from palimpsest.store.memories import name_of_user
from palimpsest.store.messages import read_messages
from palimpsest.store.schema import (
    OF_CONVERSATION,
    conversations,
    history,
    memories,
    memory_sources,
    message_history,
    messages,
    vectors,
)
from palimpsest.text import relation_updates as updates
from palimpsest.text.dates.date_finder import appointments_in, dates_in
from palimpsest.text.dates.date_spans import DateSpan
from palimpsest.text.display import shorten
from palimpsest.text.names.known_names import told_self_name

# The rows that several steps of a write need.


def record(tx: Transaction, event: Event, memory: Memory, old: str | None, *, is_annotated: bool = False) -> str:
    """Insert the row of history of a changed memory and return the row's id.

    `is_annotated` says that the memory says what it said before.
    """
    history_id = str(uuid.uuid4())
    deleted = event is Event.DELETE
    row = {
        "id": history_id,
        "memory_id": memory.id,
        "old_memory": old,
        "new_memory": None if deleted else memory.text,
        "event": event.value,
        **rows.memory_columns(memory, ("created_at", "actor_id", "role")),
        "updated_at": tx.now,
        "is_deleted": deleted,
        "state": rows.memory_state(memory),
        **asdict(tx.provenance),
        "change": tx.edit,
    }
    tx.conn.execute(insert(history), row)
    (tx.touched.annotated if is_annotated else tx.touched.memories).add(memory.id)
    return history_id


def record_message(tx: Transaction, event: Event, message_id: str) -> None:
    """Insert the row of history of a message that was stored, deleted or restored."""
    tx.conn.execute(insert(message_history), {"message_id": message_id, "event": event.value, **tx.made})
    tx.touched.messages.add(message_id)


def cite(tx: Transaction, memory_id: str, fact: Fact, history_id: str | None) -> None:
    """Store which messages a memory came from.

    `history_id` is the row of history that brought them. Without it, they are stored under the memory's newest row.
    """
    if not fact.sources:
        return
    of_memory = select(memory_sources.c.message_id).where(memory_sources.c.memory_id == memory_id)
    known = set(tx.conn.execute(of_memory).scalars())
    new = [source for source in dict.fromkeys(fact.sources) if source not in known]
    if not new:
        return
    if history_id is None:
        newest = select(history.c.id).where(history.c.memory_id == memory_id).order_by(history.c.seq.desc()).limit(1)
        history_id = tx.conn.execute(newest).scalar_one()
    cited = [{"memory_id": memory_id, "message_id": source, "history_id": history_id} for source in new]
    tx.conn.execute(insert(memory_sources), cited)
    mention_with(tx.conn, memory_id)
    tx.touched.memories.add(memory_id)


def find_duplicate(conn: Connection, scope: Scope, text: str) -> Memory | None:
    """Return the living memory of exactly this scope with the same text, as `memory_hash` sees it."""
    row = conn.execute(_DUPLICATE, {**rows.scope_values(scope), "digest": rows.memory_hash(text)}).one_or_none()
    return None if row is None else rows.to_memory(row)


# The condition for the living memory of a scope, given by its parts, with a text of a `digest`.
IS_DUPLICATE = and_(
    rows.is_named_scope(memories), memories.c.content_hash == bindparam("digest"), memories.c.deleted_at.is_(None)
)

_DUPLICATE: rows.Query = select(memories).where(IS_DUPLICATE)


def find(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the memory with that id in this scope, living or deleted. Raises MemoryNotFoundError."""
    found = pinned.read_memories(tx.conn, memories.c.id == memory_id, rows.sees(memories, tx.scope))
    if not found:
        raise MemoryNotFoundError(f"there is no memory {memory_id} in this scope; nothing was changed")
    return found[0]


def find_living(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the living memory with that id in this scope. Raises MemoryNotFoundError."""
    memory = find(tx, memory_id)
    if memory.deleted_at is not None:
        raise MemoryNotFoundError(f"memory {memory.id[:8]} was deleted in the meantime; nothing was changed")
    return memory


def find_newest(tx: Transaction, memory_id: str | None) -> Memory:
    """Return the memory with that id, or the last one that took its place. Raises MemoryNotFoundError."""
    memory = find(tx, memory_id)
    return pinned.successors(tx.conn, [memory]).get(memory.id, memory)


# How memories change inside a transaction. Every change leaves a row of history.

# The times of a fact and a memory, each with how exactly it is known.
HAPPENED = ("happened_at", "happened_precision")
DATES = (HAPPENED, rows.VALIDITY[:2], rows.VALIDITY[2:])

# What a new memory has as its fact has it.
_OF_FACT = (*HAPPENED, *rows.VALIDITY, "keywords", "tags", "actor_id", "role", "entities")

# Until when a memory held, and how exactly that is known.
_Ended: TypeAlias = tuple[datetime, Precision]


def add(tx: Transaction, fact: Fact, replaces: Sequence[str], scope: Scope, *, sets_relations: bool = False) -> Outcome:
    """Store a fact as a memory of a scope and close the memories it replaces. With `sets_relations` it takes none over.

    If a memory already has the same text, the fact's metadata, labels and sources are added to that memory instead.
    What that memory has already replaced stays closed: the same call came twice.
    """
    duplicate = find_duplicate(tx.conn, scope, fact.text)
    named = [find(tx, memory_id) for memory_id in dict.fromkeys(replaces)]
    replaced = [
        find_living(tx, memory.id) for memory in named if duplicate is None or memory.superseded_by != duplicate.id
    ]
    if duplicate is not None:
        others = [memory for memory in replaced if memory.id != duplicate.id]
        again = replace(fact if others else _said_again(duplicate, fact), text=duplicate.text)
        if others:  # what the memory states already is said again, and ends what it contradicts
            known = () if sets_relations else duplicate.relations
            stated = {relation.key: relation for relation in (*known, *fact.relations)}
            again = replace(again, relations=tuple(stated.values()), entities=(*duplicate.entities, *fact.entities))
        given = with_handed_on(tx, again, others, duplicate, sets_relations=sets_relations)
        outcome = change(tx, duplicate, given, sets_relations=sets_relations and bool(others))
        outcome = replace(outcome, handed_on=_handed_on(again, given, others))
        dropped = str(duplicate.metadata.get(ORIGIN, "")) if ORIGIN not in outcome.memory.metadata else ""
        return _replacing(tx, replace(outcome, duplicate_of=duplicate.id, dropped_origin=dropped), others)
    given = with_handed_on(tx, fact, replaced, sets_relations=sets_relations)
    memory = _store(tx, given, replaced, scope)
    return _replacing(tx, Outcome(Event.ADD, memory, handed_on=_handed_on(fact, given, replaced)), replaced)


def _handed_on(fact: Fact, given: Fact, replaced: Sequence[Memory]) -> tuple[str, ...]:
    """Return the names of what a fact was given besides relations by the memories that it replaces."""
    others = [memory.keywords for memory in replaced if memory.text != fact.text]
    hints = ["hints"] if fact.keywords and fact.keywords in others else []
    return (*(key for key in given.metadata if key not in fact.metadata), *hints)


def _replacing(tx: Transaction, outcome: Outcome, replaced: Sequence[Memory]) -> Outcome:
    """Close what a memory replaces, also where it was only handed on to. Return the outcome with what it closes."""
    memory = outcome.memory
    closed = [old for old in replaced if _close(tx, old, memory).deleted_at is not None]
    others, told = statement_queries.handed_on_otherwise(tx.conn, memory, closed)
    for other in others:
        before = find(tx, other.id)
        if other != before:
            record(tx, Event.UPDATE, update_row(tx, before, other), old=before.text)
    outcome = _with_replaced(outcome, replaced, closed)
    return replace(outcome, closed=tuple(each for each in outcome.closed if each.key not in told))


def _said_again(memory: Memory, fact: Fact) -> Fact:
    """Return a fact that says what a memory says. An origin stays only while nobody said the same without one."""
    if (ORIGIN in memory.metadata) == (ORIGIN in fact.metadata):
        return fact
    return replace(fact, metadata={**fact.metadata, ORIGIN: None})


def with_handed_on(
    tx: Transaction,
    fact: Fact,
    replaced: Sequence[Memory],
    successor: Memory | None = None,
    *,
    sets_relations: bool = False,
) -> Fact:
    """Return a fact with what the memories that it replaces hand on: metadata, and the relations that hold on.

    What the fact says itself counts more, and so does what its memory has already, the `successor` if there is one.
    """
    if not replaced:
        return fact
    own: Mapping[str, Any] = {} if successor is None else successor.metadata
    given = {
        key: value
        for memory in replaced
        for key, value in memory.metadata.items()
        if key not in own and _is_handed_on(tx, key, value, replace(fact, metadata={**own, **fact.metadata}))
    }
    told = str(own.get(USER_NAME) or given.get(USER_NAME) or name_of_user(tx.conn, tx.scope))
    fact = replace(fact, metadata={**given, **fact.metadata})
    if sets_relations:
        return fact
    over = [_over(tx, memory, fact) for memory in replaced]
    return statement_queries.handed_on(fact, over, {name_key(told)} - {""})


def _over(tx: Transaction, memory: Memory, fact: Fact) -> Memory:
    """Return a replaced memory with those of its relations that may hold on in the fact that replaces it.

    Of a plan that is called off nothing is left but who somebody's relatives are.
    """
    relations: Sequence[Relation] = memory.relations
    _, day = _over_before(tx, memory, fact) or (None, "")  # an open question was no plan
    is_plan = _lies_ahead(tx, memory) or bool(day)
    if is_plan and updates.calls_off(fact.text):
        relations = [each for each in relations if updates.is_tie(each)]
    elif is_plan and fact.valid_from is None:
        words = updates.words_in(fact.text)
        relations = [each for each in relations if updates.has_name(words, fact.text, each.destination)]
    elif is_plan:  # what is put off begins and ends when the new one does, but for a job or a home beside it
        memory = replace(memory, **{name: getattr(fact, name) for name in rows.VALIDITY})
        lasting = [each for each in relations if len(relations) > 1 and updates.is_standing(each)]
        relations = [replace(each, since=each.since or "") if each in lasting else each for each in relations]
    return replace(memory, relations=tuple(relations))


# The stages that close memories in favour of one that was there before, whose own end is what counts.
_JOINING = ("merge", "settle")


def _is_handed_on(tx: Transaction, key: str, value: Any, fact: Fact) -> bool:
    """Return whether the metadata of a replaced memory holds for what replaces it.

    An end is about the words that were given with it. Whoever names the memory to be replaced is told that it stays.
    Where the replaced one came from, and why it was so, says nothing of the other, and what came from elsewhere is not
    pinned by it.
    """
    if key in fact.metadata or key in {ORIGIN, BECAUSE}:
        return False
    if key == PINNED and (ORIGIN in fact.metadata or not pinned.is_pinned({key: value})):
        return False
    if key != EXPIRES_AT:
        return True
    if tx.provenance.stage in _JOINING or tx.provenance.model or has_expired({key: value}, tx.now):
        return False
    tx.notes.append(f"{EXPIRES_AT} {value} stays, as what was replaced had it; {EXPIRES_AT}=null takes it away")
    return True


def add_between(tx: Transaction, fact: Fact, decision: Decision) -> Outcome:
    """Store a fact as closed by the memory that came after it, and close the memories that it replaced itself."""
    outcome = add_outdated(tx, fact, find(tx, decision.successor), _ended(decision))
    older = [find(tx, memory_id) for memory_id in dict.fromkeys(decision.replaces)]
    older = [memory for memory in older if memory.deleted_at is None and memory.id != outcome.memory.id]
    closed = [close(tx, memory, outcome.memory) for memory in older]
    return _with_replaced(outcome, older, closed)


def add_outdated(tx: Transaction, fact: Fact, successor: Memory, ended: _Ended | None = None) -> Outcome:
    """Store a fact that no longer holds as a memory that was closed by the one that holds now.

    It held until it `ended`, or until the other began to hold. If a memory already has the same text, that memory is
    closed instead, unless it was before.
    """
    same = find_duplicate(tx.conn, tx.scope, fact.text) or _find_superseded(tx, fact.text, successor)
    if same is None:
        memory = _store(tx, fact)
        told = {key: value for key, value in memory.metadata.items() if key == USER_NAME}  # the rest is about the fact
        _hand_on(tx, replace(memory, metadata=told), successor)
        return Outcome(Event.ADD, _close(tx, memory, successor, ended))
    cite(tx, same.id, fact, None)
    if same.id == successor.id or same.deleted_at is not None:
        return Outcome(Event.NONE, same, duplicate_of=same.id)
    return Outcome(Event.DELETE, close(tx, same, successor, ended), previous=same.text)


def _find_superseded(tx: Transaction, text: str, successor: Memory) -> Memory | None:
    says_it = {"content_hash": rows.memory_hash(text), "superseded_by": successor.id, "is_forgotten": False}
    row = tx.conn.execute(select(memories).filter_by(**rows.scope_values(tx.scope), **says_it).limit(1)).one_or_none()
    return None if row is None else rows.to_memory(row)


def _store(tx: Transaction, fact: Fact, replaced: Sequence[Memory] = (), scope: Scope | None = None) -> Memory:
    memory = Memory(
        id=str(uuid.uuid4()),
        scope=scope or tx.scope,
        text=fact.text,
        created_at=tx.now,
        updated_at=tx.now,
        stated_at=_stated_at(tx, fact) or tx.now,
        metadata={key: value for key, value in fact.metadata.items() if value is not None},
        relations=statement_queries.fact_relations(fact),
        **{name: getattr(fact, name) for name in _OF_FACT},
    )
    pinned.note_change(tx.pinned, None, memory)
    named = {"id": memory.id, **rows.scope_values(memory.scope), "text": memory.text}
    row = {**named, "content_hash": rows.memory_hash(memory.text), **rows.memory_columns(memory), "revision": 1}
    tx.conn.execute(insert(memories), row)
    statement_queries.put(tx, memory, replaced)
    put_entry(tx, "memory", memory.id, memory.scope, memory.key_text, memory.text)
    cite(tx, memory.id, fact, record(tx, Event.ADD, memory, old=None))
    return memory


def _with_replaced(outcome: Outcome, replaced: Sequence[Memory], ending: Sequence[Memory]) -> Outcome:
    """Return an outcome with what was replaced and what of it is closed. Until a plan begins, the rest goes on."""
    if not replaced:
        return outcome
    texts = tuple(memory.text for memory in replaced)
    lasting = {relation.key for relation in outcome.memory.relations}
    closed = {relation.key: relation for memory in ending for relation in updates.dated(memory)}
    before = {(relation.key, relation.since) for memory in replaced for relation in updates.dated(memory)}
    carried = {relation.key for relation in updates.dated(outcome.memory) if (relation.key, relation.since) in before}
    return replace(
        outcome,
        closed=tuple(relation for key, relation in closed.items() if key not in lasting),
        carried=frozenset(carried),
        previous="\n".join(texts),
        replaced_texts=texts,
        replaced=tuple(memory.id for memory in replaced),
        replaced_projects=tuple(memory.scope.project for memory in replaced),
    )


def _values(of: Fact | Memory, names: Sequence[str]) -> Any:
    return tuple(getattr(of, name) for name in names)


def _stated_at(tx: Transaction, fact: Fact) -> datetime | None:
    """Return when a fact was said, else when the newest of its source messages was said, if there are any."""
    if fact.said_at or not fact.sources:
        return fact.said_at
    return tx.conn.execute(select(func.max(messages.c.said_at)).where(messages.c.id.in_(fact.sources))).scalar_one()


# How many hints a memory keeps, the newest: what is said again and again comes with others each time, and all are
# embedded as one text.
MAX_KEYWORDS = 24


def change(
    tx: Transaction, memory: Memory, fact: Fact, *, sets_labels: bool = False, sets_relations: bool = False
) -> Outcome:
    """Give a memory the text, metadata, labels and sources of a fact. A fact without a text leaves the text unchanged.

    With `sets_labels` its tags, its hints and the times between which it holds become those of the fact, also if it
    has none; with `sets_relations` its relations do.
    If another memory already has the new text, this one is closed in its favour. Raises MemoryNotFoundError for a
    deleted memory, unless it was closed in favour of exactly this text: the same call came twice.
    """
    fact = fact if fact.text else replace(fact, text=memory.text)
    if memory.deleted_at is not None:
        successor = find_duplicate(tx.conn, memory.scope, fact.text)
        if successor is not None and successor.id == memory.superseded_by:
            return Outcome(Event.NONE, successor, duplicate_of=successor.id)
    memory = find_living(tx, memory.id)
    duplicate = find_duplicate(tx.conn, memory.scope, fact.text)
    if duplicate is not None and duplicate.id != memory.id:
        change(tx, duplicate, with_handed_on(tx, replace(fact, text=duplicate.text), [memory], duplicate))
        closed = _close(tx, memory, duplicate)
        return Outcome(Event.DELETE, closed, previous=memory.text, duplicate_of=duplicate.id)
    fact = fact if sets_relations else _as_before(tx, memory, fact)
    # Labels that are set correct the memory: its relations hold since it does, as before.
    held = {} if fact.valid_from or not sets_relations else {name: getattr(memory, name) for name in rows.VALIDITY}
    stated = statement_queries.fact_relations(replace(fact, **held))
    said = replace(fact, relations=stated, valid_from=None) if sets_labels or sets_relations else fact
    dates: dict[str, Any] = {}
    for names in DATES:
        dates |= zip(names, finer(_values(fact, names), _values(memory, names)), strict=True)
    new = replace(
        memory,
        text=fact.text,
        context=memory.context if fact.text == memory.text else "",  # it was written for the text before
        metadata={key: value for key, value in {**memory.metadata, **fact.metadata}.items() if value is not None},
        keywords=tuple(dict.fromkeys((*fact.keywords, *memory.keywords)))[:MAX_KEYWORDS],
        tags=tuple(dict.fromkeys((*memory.tags, *fact.tags))),
        stated_at=max(memory.stated_at, _stated_at(tx, fact) or memory.stated_at),
        **dates,
        **statement_queries.stated_with(memory, said, sets_relations=sets_relations),
    )
    if sets_labels:
        new = replace(new, **{name: getattr(fact, name) for name in ("tags", "keywords", *rows.VALIDITY)})
        if not sets_relations:
            new = replace(new, relations=tuple(_moved_along(each, memory, new) for each in new.relations))
        if new.valid_until != memory.valid_until:  # whoever says until when it holds outranks a plan
            new = replace(new, superseded_by=None)
    # A later date is a change if the caller gives it. With messages it comes with every mention, which is none.
    is_dated_by_caller = fact.said_at is not None and not fact.sources
    changed = new if is_dated_by_caller else replace(new, stated_at=memory.stated_at)
    if changed == memory:
        cite(tx, memory.id, fact, None)
        return Outcome(Event.NONE, memory)
    new = update_row(tx, memory, new)
    cite(tx, memory.id, fact, record(tx, Event.UPDATE, new, old=memory.text))
    return updated(memory, new)


def _as_before(tx: Transaction, memory: Memory, fact: Fact) -> Fact:
    """Return a fact that gives a memory a text which it had before, with what it stated then."""
    said = select(history.c.state).where(history.c.memory_id == memory.id, history.c.new_memory == fact.text)
    state = tx.conn.execute(said.order_by(history.c.seq.desc()).limit(1)).scalar()
    if state is None or fact.text == memory.text:
        return fact
    before = rows.with_state(memory, fact.text, state, memory.updated_at)
    return replace(fact, relations=(*before.relations, *fact.relations), entities=(*before.entities, *fact.entities))


def _moved_along(relation: Relation, old: Memory, new: Memory) -> Relation:
    """Return a relation that began and ended with a memory with the times that this now has."""
    since = new.since if relation.since == old.since != "" else relation.since
    return replace(relation, since=since, until=new.until if relation.until == old.until != "" else relation.until)


def updated(old: Memory, new: Memory) -> Outcome:
    """Return what an update of a memory did."""
    kept = {relation.key for relation in new.relations}
    unstated = tuple(relation for relation in old.relations if relation.key not in kept)
    labels = labels_of(rows.memory_state(old)) ^ labels_of(rows.memory_state(new))
    changed = tuple(sorted({label.partition(":")[0] for label in labels}))
    return Outcome(Event.UPDATE, new, previous=old.text, unstated=unstated, changed=changed)


def mention(tx: Transaction, memory: Memory, fact: Fact | None) -> Outcome:
    """Add what a fact knows more than a memory that says the same: its sources, its relations, and the user's name."""
    if fact is None:
        return Outcome(Event.NONE, memory)
    name, stated = fact.metadata.get(USER_NAME), statement_queries.also_stated(memory, fact)
    if memory.deleted_at is None and (name or stated):
        # Without the sources, because a mention does not change when the memory was last stated.
        change(tx, memory, Fact(memory.text, metadata={USER_NAME: name} if name else {}, **stated))
    cite(tx, memory.id, fact, None)
    return Outcome(Event.NONE, memory)


def annotate(tx: Transaction, memory: Memory, found: Annotation) -> None:
    """Write the context, the tags, the links and the hints of a living memory.

    It says what it said before: its revision and its dates stay, and no summary that rests on it becomes stale.
    """
    parts: dict[str, Any] = {name: getattr(found, name) for name in links.PARTS}
    new = replace(memory, **parts)
    if memory.deleted_at is not None or new == memory:
        return
    values = rows.memory_columns(new, links.PARTS)
    tx.conn.execute(update(memories).where(memories.c.id == new.id).values(**values))
    if new.links != memory.links:
        links.put(tx.conn, new)
    if new.key_text in tx.vectors:
        put_entry(tx, "memory", new.id, new.scope, new.key_text)
    elif new.key_text != memory.key_text:  # found by what it said before, until the background has embedded it
        tx.conn.execute(update(vectors).filter_by(kind="memory", owner_id=new.id).values(partial=True))
    record(tx, Event.UPDATE, new, old=memory.text, is_annotated=True)


def delete_memory(tx: Transaction, memory: Memory, decision: Decision) -> Outcome:
    """Delete a memory, or close it if the decision says when it ended. A deleted memory stays as it is.

    One that was closed is forgotten if its user deletes it, for questions about the past find it.
    """
    ended = _ended(decision)
    is_findable = memory.valid_until is not None and not memory.is_forgotten
    if memory.deleted_at is not None and not (is_findable and ended is None and tx.provenance.stage == DELETE):
        return Outcome(Event.NONE, memory)
    if memory.deleted_at is None and memory.superseded_by is not None:  # the plan that would replace it will not
        memory = freed(tx, memory)
    gone = _forgotten(memory) if ended is None else _until(memory, ended)
    return Outcome(Event.DELETE, _delete(tx, gone, memory), previous=memory.text)


def _forgotten(memory: Memory) -> Memory:
    """Return a forgotten memory. If it is living it loses the end it was given, or it would look closed at that."""
    if memory.deleted_at is None:
        memory = replace(memory, valid_until=None, valid_until_precision="")
    return replace(memory, is_forgotten=True)


def forget(tx: Transaction, memory: Memory) -> list[Outcome]:
    """Forget a memory, living or closed, and with it the memories that it replaced, which say nearly the same."""
    wanted = [old for old in (memory, *_replaced_by(tx, memory)) if not old.is_forgotten]
    usage.forget(tx.conn, tx.scope.user_id, [old.id for old in wanted])
    outcomes = [Outcome(Event.DELETE, _delete(tx, _forgotten(old), old), previous=old.text) for old in wanted]
    return outcomes or [Outcome(Event.NONE, memory)]


def _replaced_by(tx: Transaction, memory: Memory) -> list[Memory]:
    """Return the memories that a memory replaced, and those that these replaced before."""
    replaced: dict[str, Memory] = {}
    newest = {memory.id}
    while newest:
        old = pinned.read_memories(tx.conn, memories.c.superseded_by.in_(newest), rows.sees(memories, tx.scope))
        found = {each.id: each for each in old if each.id not in replaced and each.id != memory.id}
        newest = set(found)
        replaced |= found
    return list(replaced.values())


def replace_by(tx: Transaction, memory: Memory, successor: Memory) -> Outcome:
    """Close a memory in favour of a living one. A memory that is closed already stays as it is."""
    if memory.deleted_at is not None or memory.id == successor.id:
        return Outcome(Event.NONE, memory)
    return Outcome(Event.DELETE, close(tx, memory, successor), previous=memory.text)


def close(tx: Transaction, memory: Memory, successor: Memory, ended: _Ended | None = None) -> Memory:
    """Mark a memory as superseded by another one, to which it hands on what holds on.

    It held until it `ended`, or until the other began to hold. Until a plan comes into force, it goes on.
    """
    if ended is not None or not _goes_on(tx, memory, successor):
        _hand_on(tx, memory, successor)
    return _close(tx, memory, successor, ended)


def _hand_on(tx: Transaction, memory: Memory, successor: Memory) -> None:
    """Give what holds on of a replaced memory to the living one that stands for it in the end, if there is one."""
    heir = find_newest(tx, successor.id)
    if heir.deleted_at is None and heir.id != memory.id:
        said = Fact(heir.text, entities=heir.entities, relations=heir.relations)
        change(tx, heir, with_handed_on(tx, said, [memory], heir))


def _close(tx: Transaction, memory: Memory, successor: Memory, ended: _Ended | None = None) -> Memory:
    ended = ended or _over_before(tx, memory, successor)
    goes_on = ended is None and _goes_on(tx, memory, successor)
    if not goes_on and _lies_ahead(tx, successor) and memory.valid_from is None:
        ended = ended or (tx.now, "")  # it is off from now on, though the other begins later
    replaced = _until(replace(memory, superseded_by=successor.id), ended or _beginning(successor))
    if not goes_on:
        return _delete(tx, replaced, memory)
    going_on = update_row(tx, memory, replaced)
    record(tx, Event.UPDATE, going_on, old=memory.text)
    if going_on.valid_until is not None:
        until = shown_date(going_on.valid_until, going_on.valid_until_precision)
        tx.notes.append(f"[{memory.id[:8]}] goes on until {until}")
    return going_on


# How long ago the day of what is put off may be, if the new text does not name that day.
_LATELY = timedelta(days=3)


def _over_before(tx: Transaction, memory: Memory, plan: Memory | Fact) -> _Ended | None:
    """Return when a memory ended that does not go on until a plan begins: an appointment, a day, or an open question.

    An appointment has a time beside its day, past or today. Another day was ahead when it was told, and is today,
    lately past, or named by the plan, unless something began on it.
    """
    if not _lies_ahead(tx, plan):
        return None
    if updates.is_unanswered(memory.text):
        return tx.now, ""
    told_at = memory.stated_at.astimezone(tx.now.tzinfo)
    days = [day for day, _ in appointments_in(memory.text, told_at)]
    if not updates.is_lasting(memory):
        named = {day.start for day in dates_in(plan.text, tx.now)}
        ahead = (day for day, _ in appointments_in(memory.text, told_at, timed=False) if day.start > told_at)
        days += [day for day in ahead if tx.now - day.end < _LATELY or day.start in named]
    return next(((day.start, "day") for day in days if day.start <= tx.now and not _may_recur(tx, day, plan)), None)


def _may_recur(tx: Transaction, day: DateSpan, plan: Memory | Fact) -> bool:
    """Return whether a weekday may be that of every week: what takes its place is not on a day of its own."""
    days = appointments_in(plan.text, tx.now, timed=False)
    return day.is_weekday and plan.valid_until is None and all(each.is_weekday for each, _ in days)


def _goes_on(tx: Transaction, memory: Memory, successor: Memory) -> bool:
    """Return whether a memory holds until a plan that is to take its place has begun. Another plan does not.

    What names a day to come is a plan as well, though nobody said from when it holds.
    """
    is_over = memory.has_ended(tx.now) or _over_before(tx, memory, successor) is not None
    if not _lies_ahead(tx, successor) or _lies_ahead(tx, memory) or is_over:
        return False
    dates = dates_in(memory.text, memory.stated_at.astimezone(tx.now.tzinfo))
    ahead = (date for date in dates if date.start > tx.now and date.unit == "day" and date.relation == "in")
    return all(_may_recur(tx, date, successor) for date in ahead)


def _lies_ahead(tx: Transaction, plan: Memory | Fact) -> bool:
    """Return whether what a memory or a fact tells begins only after now."""
    if plan.valid_from is None:
        return False
    return span_of(plan.valid_from, plan.valid_from_precision, tx.now.tzinfo or UTC).first > tx.now


def go_on(tx: Transaction) -> None:
    """Bring what goes on until a plan begins into agreement with the plans that a write changed.

    If the plan begins at another time, so does its end. If it has begun, the other is closed. If it is gone, or what
    replaced it calls it off, the other holds on as if there had been no plan.
    """
    of_plans = rows.among(memories.c.superseded_by, sorted(tx.touched.memories))
    for memory in pinned.read_memories(tx.conn, of_plans, memories.c.deleted_at.is_(None)):
        plan = find(tx, str(memory.superseded_by))
        heir = find_newest(tx, plan.id)
        given = freed(tx, memory)
        is_off = heir.id != plan.id and (heir.valid_from is None or updates.calls_off(heir.text))
        if heir.deleted_at is None and _lies_ahead(tx, heir):
            given = _until(replace(given, superseded_by=heir.id), _beginning(heir))
        elif heir.deleted_at is None and not is_off:
            close(tx, memory, heir)
            continue
        if given != memory:
            record(tx, Event.UPDATE, update_row(tx, memory, given), old=memory.text)
        if given.superseded_by is None:
            told = shorten(one_line(memory.text), MAX_QUOTED)
            tx.notes.append(f"[{memory.id[:8]}] holds on, as the plan to replace it is off: {told}")


def _ended(decision: Decision) -> _Ended | None:
    return None if decision.ended_at is None else (decision.ended_at, decision.ended_precision)


def _beginning(memory: Memory) -> _Ended:
    return memory.holds_from, memory.valid_from_precision if memory.valid_from else ""


def _until(memory: Memory, ended: _Ended) -> Memory:
    """Return a memory that held until a time, or until the end it has already, but not until before it began.

    A memory without a given beginning may have ended before it was told.
    """
    if memory.valid_until is not None:
        ended = min(ended, (memory.valid_until, memory.valid_until_precision), key=lambda time: time[0])
    began = _beginning(memory) if memory.valid_from is not None else ended
    end, precision = max(ended, began, key=lambda time: time[0])
    return replace(memory, valid_until=end, valid_until_precision=precision)


def _delete(tx: Transaction, memory: Memory, old: Memory) -> Memory:
    if old.deleted_at is None and old.metadata.get(USER_NAME):
        tx.told_names.append(old)
    deleted = update_row(tx, old, replace(memory, deleted_at=tx.now))
    record(tx, Event.DELETE, deleted, old=old.text)
    return deleted


def keep_name(tx: Transaction) -> None:
    """Let another memory about the user tell the name that only deleted ones told, if there is one in their project.

    What says nothing but the name takes it along.
    """
    for old in reversed(tx.told_names):
        if name_of_user(tx.conn, Scope(old.scope.user_id, old.scope.project)) or told_self_name(old.text):
            return
        name = str(old.metadata[USER_NAME])
        heir_id = about_user(tx.conn, replace(tx.scope, project=old.scope.project), name_key(name))
        if heir_id is not None:
            heir = find(tx, heir_id)
            change(tx, heir, Fact(heir.text, metadata={USER_NAME: name}))
            return


def restore(tx: Transaction, memory: Memory) -> Outcome:
    """Restore a deleted memory, or one that a plan is to replace: then it goes on. Another living one stays as it is.

    Raises InputError if another memory has the same text.
    """
    if memory.deleted_at is None and memory.superseded_by is None:
        return Outcome(Event.NONE, memory)
    if memory.deleted_at is None:
        going_on = update_row(tx, memory, freed(tx, memory))
        record(tx, Event.UPDATE, going_on, old=memory.text)
        return Outcome(Event.UPDATE, going_on, previous=memory.text)
    if (duplicate := find_duplicate(tx.conn, memory.scope, memory.text)) is not None:
        raise InputError(f"memory {duplicate.id[:8]} already says the same, so {memory.id[:8]} was left deleted")
    living = replace(without_past_end(memory, tx.now), deleted_at=None, is_forgotten=False)
    restored = update_row(tx, memory, freed(tx, living))
    record(tx, Event.ADD, restored, old=None)
    return Outcome(Event.ADD, restored)


def freed(tx: Transaction, memory: Memory) -> Memory:
    """Return a memory that nothing replaces, with the end it had before something was to replace it."""
    is_alone = history.c.state["superseded_by"].as_string().is_(None)
    living = select(history.c.state).where(history.c.memory_id == memory.id, history.c.is_deleted.is_(False), is_alone)
    state: Mapping[str, Any] = tx.conn.execute(living.order_by(history.c.seq.desc()).limit(1)).scalar() or {}
    end = rows.to_time(state.get("valid_until"))
    precision = state.get("valid_until_precision", "")
    return replace(memory, superseded_by=None, valid_until=end, valid_until_precision=precision)


def waits_for(tx: Transaction, memory: Memory) -> bool:
    """Return whether a memory is to be replaced by a plan that has not begun."""
    return memory.superseded_by is not None and _lies_ahead(tx, find(tx, memory.superseded_by))


def without_past_end(memory: Memory, now: datetime) -> Memory:
    """Return a memory that is to live again without the end it had, if that has passed: it would be closed at once."""
    if not has_expired(memory.metadata, now):
        return memory
    return replace(memory, metadata={key: value for key, value in memory.metadata.items() if key != EXPIRES_AT})


# What an update does not write: who said it, when it was stored, and the names, which are written if they differ.
_UNCHANGED = ("actor_id", "role", "created_at", "entities", "relations")


def update_row(tx: Transaction, old: Memory, new: Memory) -> Memory:
    """Write the row and the entry of a changed memory. Return the memory with its next revision."""
    new = replace(new, updated_at=tx.now, revision=old.revision + 1)
    pinned.note_change(tx.pinned, old, new, is_undo=tx.provenance.stage.startswith(UNDO))
    stated = rows.memory_columns(new, rows.STATEMENTS)
    names_others = stated != rows.memory_columns(old, rows.STATEMENTS)  # else the columns may be NULL, and stay so
    is_unnamed = new.text != old.text and not any(stated.values())
    # An earlier text may be one in which names were not looked for. The background looks again, and finds the same.
    columns: dict[str, Any] = dict.fromkeys(stated) if is_unnamed else stated if names_others else {}
    columns |= {name: value for name, value in rows.memory_columns(new).items() if name not in _UNCHANGED}
    columns |= {"text": new.text, "content_hash": rows.memory_hash(new.text)}
    tx.conn.execute(update(memories).where(memories.c.id == new.id).values(**columns))
    if names_others or new.metadata.get(USER_NAME) != old.metadata.get(USER_NAME):
        statement_queries.put(tx, new)
        mention_with(tx.conn, new.id)
    if new.links != old.links or (new.links and (new.deleted_at is None) is not (old.deleted_at is None)):
        links.put(tx.conn, new)
    if new.key_text != old.key_text:
        put_entry(tx, "memory", new.id, new.scope, new.key_text, new.text)
    elif old.deleted_at is not None and new.deleted_at is None:
        tx.conn.execute(update(vectors).filter_by(kind="memory", owner_id=new.id).values(live=True))
    tx.touched.memories.add(new.id)
    return new


# What is known of a conversation besides its messages: the client it was held in, its id there, its title.

NAMESPACE = uuid.UUID("c3d5b0a2-7f3e-4a52-9d0e-2a8a6b1f4e77")

# A longer title is cut: clients write titles of a few words.
MAX_TITLE_CHARS = 300

# The columns of an item of an export, besides the time.
ITEM = ("session_id", "project", "agent_id", "run_id", "client", "external_id", "title")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as its client knows it: the client's name, the client's id of it, and its title if it has one.

    `client` is claude-code, codex, chatgpt, claude or the like. Secrets must be replaced in the title.
    """

    client: str
    external_id: str
    title: str = ""


def session_id_of(scope: Scope, client: str, external_id: str) -> str:
    """Return the id that belongs to a client's conversation in a scope: always the same one."""
    return str(uuid.uuid5(NAMESPACE, "\0".join((*rows.scope_values(scope).values(), client, external_id))))


def record_conversation(tx: Transaction, scope: Scope, conversation: Conversation) -> str:
    """Insert the row of a conversation, or give it a new title, and return the session id of its messages.

    The row is found by the client's id, so a conversation goes on where its scope was moved to.
    """
    external_id = one_line(conversation.external_id)[:MAX_SCOPE_CHARS]
    title = one_line(conversation.title)[:MAX_TITLE_CHARS]
    of_client = {**rows.scope_values(scope), "client": conversation.client, "external_id": external_id}
    newest = select(conversations).filter_by(**of_client).order_by(conversations.c.seq.desc()).limit(1)
    if (known := tx.conn.execute(newest).one_or_none()) is not None:
        if title and title != known.title:
            tx.conn.execute(update(conversations).where(conversations.c.seq == known.seq).values(title=title))
        return str(known.session_id)
    session_id = session_id_of(scope, conversation.client, external_id)
    row = {**of_client, "session_id": session_id, "title": title, "created_at": tx.now}
    tx.conn.execute(insert(conversations).values(**row))
    return session_id


def find_conversation(conn: Connection, scope: Scope, session_id: str) -> int | None:
    """Return the number of the row of exactly this scope with a session id, if there is one."""
    of_session = select(conversations.c.seq).filter_by(**rows.scope_values(scope), session_id=session_id)
    return conn.execute(of_session).scalar_one_or_none()


def store_item(conn: Connection, scope: Scope, item: Mapping[str, Any]) -> bool:
    """Store a conversation of an import, or its title if that is new. Return whether the row is new."""
    if (known := find_conversation(conn, scope, item["session_id"])) is None:
        values = {name: item[name] for name in ITEM} | {"created_at": item["created_at"]}
        conn.execute(insert(conversations).values(user_id=scope.user_id, **values))
    elif item["title"]:
        conn.execute(update(conversations).where(conversations.c.seq == known).values(title=item["title"]))
    return known is None


def erase_empty(conn: Connection) -> None:
    """Delete the rows of conversations that have no message any more, and their titles with them."""
    conn.execute(delete(conversations).where(~exists().where(OF_CONVERSATION)))


# How messages change inside a transaction: each is stored once, deleted or restored. Their text never changes.

# A longer silence in one scope begins a new session. Most breaks within one sitting are shorter.
SESSION_GAP = timedelta(minutes=30)

# The same messages, without ids or times, within this span are a call that was repeated because its reply was lost.
RETRY_WINDOW = timedelta(minutes=10)


def store(
    tx: Transaction, messages_in: Sequence[Message], conversation: Conversation | None = None
) -> tuple[tuple[Message, ...], frozenset[str]]:
    """Store messages, each once. Return them as they are stored, and the ids of those that are new.

    They belong to `conversation`, or, without one, to sessions that a silence ends.
    """
    if (earlier := _stored_by_earlier_call(tx, messages_in)) is not None:
        return earlier, frozenset()
    session_id = "" if conversation is None else record_conversation(tx, messages_in[0].scope, conversation)
    stored: dict[str, Message] = {}
    new_ids: set[str] = set()
    for message in messages_in:
        if (known := _find_known(tx, message)) is None:
            known = _insert_message(tx, message, session_id or _session_id(tx, message))
            new_ids.add(known.id)
        stored[known.id] = known
    mention_known(tx.conn, [stored[message_id] for message_id in stored if message_id in new_ids])
    return tuple(stored.values()), frozenset(new_ids)


def _stored_by_earlier_call(tx: Transaction, messages_in: Sequence[Message]) -> tuple[Message, ...] | None:
    """Return the messages of an earlier call with exactly the same messages, if it came within `RETRY_WINDOW`.

    A client that got no reply repeats its call. Messages with ids or times of their own are recognized by these.
    """
    if any(message.external_id or message.said_at != message.created_at for message in messages_in):
        return None
    first = messages_in[0]
    is_like_first = (messages.c.content_hash == rows.content_hash(first.content), messages.c.external_id == "")
    is_recent = messages.c.created_at >= first.created_at - RETRY_WINDOW
    edits_like_first = select(messages.c.change).where(rows.is_scope(messages, first.scope), *is_like_first, is_recent)
    contents = [(message.role, message.name, rows.content_hash(message.content)) for message in messages_in]
    for edit in tx.conn.execute(edits_like_first.distinct()).scalars():
        stored = tx.conn.execute(select(messages).where(messages.c.change == edit).order_by(messages.c.seq)).all()
        if [(row.role, row.name, row.content_hash) for row in stored] == contents:
            return tuple(rows.to_message(row) for row in stored)
    return None


def _find_known(tx: Transaction, message: Message) -> Message | None:
    """Return the stored message with the same id and text, or with the same text, speaker and time of another call."""
    said = {"digest": rows.content_hash(message.content), "external": message.external_id, "at": message.said_at}
    values = {**rows.scope_values(message.scope), **said, "speaker": message.name, "by": message.role, "edit": tx.edit}
    row = tx.conn.execute(_SAME_ID if message.external_id else _SAME_TEXT, values).first()
    return None if row is None else rows.to_message(row)


_OF_SCOPE = and_(rows.is_named_scope(messages))
_SAME_ID: rows.Query = (
    select(messages)
    .where(_OF_SCOPE, messages.c.content_hash == bindparam("digest"), messages.c.external_id == bindparam("external"))
    .limit(1)
)
_SAME_TEXT = _SAME_ID.where(
    messages.c.said_at == bindparam("at"),
    messages.c.name == bindparam("speaker"),
    messages.c.role == bindparam("by"),
    messages.c.change != bindparam("edit"),
)


def _session_id(tx: Transaction, message: Message) -> str:
    """Return the session of the last message of the scope, or a new one after a silence."""
    last = tx.conn.execute(_LAST, rows.scope_values(message.scope)).first()
    is_same = last is not None and abs(message.said_at - last.said_at) <= SESSION_GAP
    return last.session_id if last is not None and is_same else message.id


def _insert_message(tx: Transaction, message: Message, session_id: str) -> Message:
    stored = replace(message, session_id=session_id)
    row = {**rows.scope_values(stored.scope), **{name: getattr(stored, name) for name in rows.MESSAGE_FIELDS}}
    row |= {"content_hash": rows.content_hash(stored.content), "change": tx.edit}
    tx.conn.execute(insert(messages), row)
    put_entry(tx, "message", stored.id, stored.scope, stored.content)
    record_message(tx, Event.ADD, stored.id)
    return stored


# How many messages are looked through for the last one that no client gave to a conversation.
RECENT = 50


_recent = select(messages).where(_OF_SCOPE).order_by(messages.c.seq.desc()).limit(RECENT).subquery()
_newest = select(_recent.c.session_id, _recent.c.said_at).order_by(_recent.c.seq.desc()).limit(1)
_LAST = _newest.where(~exists().where(rows.agree(_recent, conversations, (*rows.SCOPE, "session_id"))))


def set_deleted(tx: Transaction, message_id: str | None, *, deleted: bool) -> Outcome:
    """Delete or restore a message. One that already is in that state stays. Raises MemoryNotFoundError."""
    if not (found := read_messages(tx.conn, messages.c.id == message_id, rows.sees(messages, tx.scope))):
        raise MemoryNotFoundError(f"there is no message {message_id} any more; nothing was changed")
    message = found[0]
    if (message.deleted_at is not None) is deleted:
        return Outcome(Event.NONE, message.as_memory, kind="message")
    message = replace(message, deleted_at=tx.now if deleted else None)
    tx.conn.execute(update(messages).where(messages.c.id == message.id).values(deleted_at=message.deleted_at))
    if not deleted:
        tx.conn.execute(update(vectors).filter_by(kind="message", owner_id=message.id).values(live=True))
    event = Event.DELETE if deleted else Event.ADD
    record_message(tx, event, message.id)
    return Outcome(event, message.as_memory, previous=message.content if deleted else None, kind="message")
