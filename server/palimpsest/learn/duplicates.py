"""Find duplicates, contradictions and conflicting relations."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Event, Memory, Outcome, Scope, has_expired, name_key
from palimpsest.core.protocols import Vector
from palimpsest.core.threads import end_if_cancelled
from palimpsest.learn.commit import WriteResult
from palimpsest.learn.engine import Engine
from palimpsest.learn.summaries import portrait_signs
from palimpsest.recall.similar import SimilarMemory, near_duplicates
from palimpsest.store import entries
from palimpsest.store import memories as memory_queries
from palimpsest.store.graph.entities import as_shown
from palimpsest.store.graph.identity import roots_of
from palimpsest.store.graph.relations import merged_into, other_states, relations_like, relations_named
from palimpsest.store.history import predecessors, versions_of
from palimpsest.store.rows import is_seen
from palimpsest.text import relation_updates as changes
from palimpsest.text.dates.date_finder import appointments_in, dates_in
from palimpsest.text.intents import is_exception
from palimpsest.text.stopwords import change_words
from palimpsest.text.tokenizer import query_tokens, search_tokens

# Find memories that say nearly the same, or of which a newer one probably replaces an older one.
#
# Each memory is held against those that the index finds nearest to it, as a new one is whose near-duplicates a reply
# names. So a page of groups takes the same time among a hundred memories and a hundred thousand.

# How many pairs a page has at most.
PAIRS = 20

# How long memories are compared for one page: what somebody waits for.
SECONDS = 1.0

# How many times as long they are compared if nothing was found: nobody likes to turn empty pages.
PATIENCE = 4

# How many memories are compared in any case. The first ones take long after a start, when everything is still cold.
MIN_COMPARED = 10

# How many memories are read at once.
BATCH = 50

# How many memories are kept for each: the nearest ones, of which there seldom are more.
MAX_ALIKE = 5


@dataclass(frozen=True, slots=True)
class AlikeGroup:
    """Memories of one scope that are alike, the newest first. `likeness` is that of the two that are most alike."""

    memories: tuple[Memory, ...]
    likeness: float


@dataclass(frozen=True, slots=True)
class AlikePage:
    """Groups, the surest first, and how many memories were compared for them.

    `cursor` is the row below which the next page begins, and None on the last one. `left` is how many memories there
    are below it, which were not compared yet.
    """

    groups: tuple[AlikeGroup, ...]
    compared: int
    cursor: int | None
    left: int = 0


# Two memories by their rows, or more in a group, and how much those are alike that are most alike. The largest row is
# that of the newest memory.
Pair: TypeAlias = tuple[Mapping[int, Memory], float]

Test: TypeAlias = Callable[[Memory, SimilarMemory], bool]


def is_repeated(newer: Memory, other: SimilarMemory) -> bool:
    """Return whether two memories say nearly the same: neither names a number that the other has not."""
    if _numbers(newer.text) != _numbers(other.memory.text):
        return False
    return other.same >= other.replaced or not is_contradicted(newer, other)


def is_contradicted(newer: Memory, other: SimilarMemory) -> bool:
    """Return whether a newer memory says something else in place of an older one: each has words of its own."""
    words, older_words = (frozenset(query_tokens(text)) for text in (newer.text, other.memory.text))
    return other.replaced > 0 and bool(words - older_words) and bool(older_words - words)


def _numbers(text: str) -> frozenset[str]:
    return frozenset(token for token in query_tokens(text) if any(character.isdigit() for character in token))


def alike(engine: Engine, scope: Scope, before: int | None, is_wanted: Test) -> AlikePage:
    """Return groups of memories of which a test wants the pairs, from below a row. Blocking. Raises LedgerError.

    The newest are compared with older ones first, until there are enough pairs or it has taken long enough.
    """
    began = time.monotonic()
    pairs: list[Pair] = []
    compared, position = 0, before
    while True:
        with engine.ledger.read() as conn:
            batch = memory_queries.list_memories(conn, scope, BATCH, before=position)
            ids = [memory.id for _, memory in batch]
            vectors = entries.own_vectors(conn, engine.embedder.fingerprint, "memory", ids)
        for row, memory in batch:
            end_if_cancelled()
            pairs += _pairs_of(engine, scope, (row, memory), vectors.get(memory.id), is_wanted)
            compared, position = compared + 1, row
            end = began + (SECONDS if pairs else PATIENCE * SECONDS)
            if len(pairs) >= PAIRS or (compared >= MIN_COMPARED and time.monotonic() > end):
                left = engine.ledger.read_with(memory_queries.count_before, scope, position)
                return AlikePage(_groups(pairs), compared, position if left else None, left)
        if len(batch) < BATCH:
            return AlikePage(_groups(pairs), compared, None)


def _pairs_of(
    engine: Engine, scope: Scope, newer: tuple[int, Memory], vector: Vector | None, is_wanted: Test
) -> list[Pair]:
    """Return a memory with the older ones of its scope that are alike, in pairs."""
    row, memory = newer
    if has_expired(memory.metadata, engine.clock()):
        return []
    found = near_duplicates(engine, scope, memory, vector, MAX_ALIKE)
    if not found:
        return []
    rows = engine.ledger.read_with(memory_queries.rows_of, [item.memory.id for item in found])
    return [
        ({row: memory, rows[item.memory.id]: item.memory}, item.likeness)
        for item in found
        if item.memory.scope == memory.scope and rows.get(item.memory.id, row) < row and is_wanted(memory, item)
    ]


def _groups(pairs: Sequence[Pair]) -> tuple[AlikeGroup, ...]:
    """Return pairs with a memory in common as one group."""
    groups: list[Pair] = []
    for members, likeness in pairs:
        touching = [group for group in groups if not group[0].keys().isdisjoint(members)]
        groups = [group for group in groups if group not in touching]
        joined = {row: memory for others, _ in touching for row, memory in others.items()}
        groups.append(({**members, **joined}, max(likeness, *(alike for _, alike in touching), 0.0)))
    found = [AlikeGroup(tuple(members[row] for row in sorted(members)[::-1]), likeness) for members, likeness in groups]
    return tuple(sorted(found, key=lambda group: -group.likeness))


# Name the memories that a new one repeats or contradicts, so that an agent can settle it.

# How many near-duplicates are named for each memory: each costs a line of the agent's context, and the first is the
# likeliest.
MAX_SHOWN = 1


# How many are named that a text settles for certain: who leaves has a place and its hours.
MAX_TOLD = 2


# How many memories are named in all if an agent stores a text: what it changes is the nearest or the next more often
# than it can be recognized, and the agent can tell.
NEAREST_SHOWN = 2


async def with_near_duplicates(
    engine: Engine, scope: Scope, result: WriteResult, vectors: Mapping[str, Vector], *, nearest: int = 0
) -> WriteResult:
    """Return the result of a write with the memories that the new texts repeat or contradict.

    `vectors` are those the texts were written with. If there are fewer than `nearest`, those nearest to a text that
    replaces nothing follow. A failure does not undo the write; it is noted.
    """
    try:
        similar = await engine.run(lambda: _similar(engine, scope, result.outcomes, vectors, nearest))
        return replace(result, similar=similar)
    except LedgerError as error:
        return replace(result, notes=(*result.notes, f"stored, but not compared with what is known: {error}"))


def _similar(
    engine: Engine, scope: Scope, outcomes: Sequence[Outcome], vectors: Mapping[str, Vector], nearest: int
) -> dict[str, list[SimilarMemory]]:
    """Return for each memory with a new text those that it repeats or contradicts, and those nearest. Blocking."""
    new = {
        outcome.memory.text: outcome
        for outcome in outcomes
        if outcome.event is Event.ADD or (outcome.event is Event.UPDATE and outcome.previous != outcome.memory.text)
    }
    found: dict[str, list[SimilarMemory]] = {}
    for outcome in new.values():
        memory, is_settled = outcome.memory, bool(outcome.replaced)
        wanted = 0 if is_settled else nearest
        by_text = near_duplicates(engine, scope, memory, vectors.get(memory.key_text), NEAREST_SHOWN, nearest=wanted)
        # What was replaced and holds until a day to come is settled.
        by_text = [item for item in by_text if item.memory.superseded_by is None]
        by_text = [one for one in by_text if one.same > one.replaced or not _is_over(one.memory, engine.clock())]
        former = _former_states(engine, scope, memory, is_settled=is_settled)
        told = [one.memory.id for one in by_text if wanted and _is_surely_told(memory, one, former)][:MAX_TOLD]
        by_text = [item for item in by_text if item.likeness or item.memory.id in told]
        by_text[MAX_SHOWN:] = map(_unnamed, by_text[MAX_SHOWN:])
        by_text = [_unnamed(item) if _stand_beside(memory, item) else item for item in by_text]
        told += [one.memory.id for one in by_text if one.is_only_near and _is_surely_told(memory, one, former)]
        # Where a relation tells what is replaced, or the agent does, likeness does not guess beside it.
        if is_settled:
            keys = {item.key for item in memory.relations}
            by_text = [each for each in by_text if each.same or keys & {item.key for item in each.memory.relations}]
        if outcome.event is Event.UPDATE:  # what has all words that an edit brings says the same
            brought = {*query_tokens(memory.text)}.difference(query_tokens(outcome.previous or ""))
            by_text = [_unnamed(one) if brought.issubset(query_tokens(one.memory.text)) else one for one in by_text]
        if told or changes.says_besides(memory.text) or not all(item.is_only_near for item in former):
            by_text = [replace(item, replaced=0.0) if item.replaced > item.same else item for item in by_text]
        items = [replace(each, replaced=ANOTHER_STATE) if each.memory.id in told else each for each in by_text]
        items = [
            _unnamed(item) if item.memory.id not in told and _hold_apart(memory, item.memory) else item
            for item in (*former, *items)
            if item.memory.superseded_by != memory.id
        ]
        named = {item.memory.id: item for item in items if not item.is_only_near}
        near = {item.memory.id: item for item in items if item.is_only_near and item.memory.id not in named}
        found[memory.id] = [*named.values(), *list(near.values())[: max(wanted - len(named), 0)]]
    return found


def _is_over(memory: Memory, now: datetime) -> bool:
    """Return whether a memory held only until a day that has passed. What has only an end may tell what was due."""
    is_due = memory.valid_from is None and memory.valid_until is not None and now - memory.valid_until < OVERDUE
    return memory.has_ended(now) and not is_due


# How long what was due is expected.
OVERDUE = timedelta(days=31)


def _unnamed(item: SimilarMemory) -> SimilarMemory:
    return replace(item, same=0.0, replaced=0.0)


def _hold_apart(memory: Memory, other: Memory) -> bool:
    """Return whether one of two memories ends before the other begins, as an appointment: neither replaces the other.

    Two days may be those of one appointment, which was moved. Nor does a memory replace one that tells the same of
    another, and what holds for one time only does not replace what is usual.
    """
    is_once = is_exception(memory.text) is not is_exception(other.text)
    if is_once or _are_two_appointments(memory, other) or changes.is_of_another(memory, other):
        return True
    if changes.is_at_another_time(memory, other) or (memory.since == memory.until and other.since == other.until):
        return False
    # What has only an end was due then, and came, or is late.
    is_due = other.valid_from is None and memory.stated_at >= memory.holds_from
    pairs = ((memory.valid_until, other.valid_from), (None if is_due else other.valid_until, memory.valid_from))
    return any(end is not None and begin is not None and end <= begin for end, begin in pairs)


def _are_two_appointments(memory: Memory, other: Memory) -> bool:
    """Return whether one memory tells of an appointment after another that is over, or of one with somebody else.

    One that is put off is told as a change.
    """
    is_told = changes.says_ended(memory.text, other.text) or changes.puts_off(memory.text, other.text)
    is_told = is_told or bool(change_words(memory.text)) or changes.ends_something(memory.text, ())
    if memory.text == other.text or is_told or changes.says_another_amount(memory.text, other.text, is_told=True):
        return False
    days, before = ([day.start + by for day, by in appointments_in(one.text, one.stated_at)] for one in (memory, other))
    people, others = changes.people_in(memory.text), changes.people_in(other.text)
    is_with_another = bool(days) and days != before and bool(people - others) and bool(others - people)
    return bool(before) and (max(before) <= memory.stated_at or is_with_another)


def _stand_beside(memory: Memory, item: SimilarMemory) -> bool:
    """Return whether one of two memories tells of a day's event, and the other of what is always so, without a change.

    What denies something else stands beside, too: who takes no ibuprofen still takes warfarin.
    """
    if item.same >= item.replaced or change_words(memory.text) or changes.says_ended(memory.text, item.memory.text):
        return False
    if changes.may_end(memory.text) or changes.ends_something(memory.text, memory.relations):
        return changes.denies_else(memory, item.memory)
    return _is_on_a_date(memory) is not _is_on_a_date(item.memory)


def _is_on_a_date(memory: Memory) -> bool:
    is_event = memory.since == memory.until != "" or any(appointments_in(memory.text, memory.stated_at))
    return is_event and any(any(map(str.isdigit, day.phrase)) for day in dates_in(memory.text, memory.stated_at))


def _is_surely_told(memory: Memory, item: SimilarMemory, former: Sequence[SimilarMemory]) -> bool:
    """Return whether a memory settles what another tells, or says who stands in since when, or of an allergy as well.

    Whichever of two allergies is out of date must not be overlooked. The newer text may only name what it was against.
    What puts off or takes the place of one of the `former` states leaves all others. What is not near must at least
    share a name.
    """
    other, both, texts = item.memory, (memory, item.memory), (memory.text, item.memory.text)
    if not item.likeness and not changes.share_a_name(*texts):
        return False
    days = [other.holds_from, *(day.end for day in dates_in(other.text, other.stated_at))]
    is_open = all(item.is_only_near for item in former)
    if changes.settles(*texts) or (is_open and max(days) > memory.stated_at and changes.puts_off(*texts)):
        return True
    people = (_first_names(item.name for item in each.entities if item.type == "person") for each in both)
    sources = (_first_names(item.source for item in each.relations) for each in both)
    # Somebody's mother may be named beside; who has the allergy is whom the relations are of.
    here, before = (named & told or told or named for named, told in zip(people, sources, strict=True))
    names = {word for each in both for entity in each.entities for word in search_tokens(entity.name)}
    names.update(*map(changes.people_in, texts))
    against = query_tokens(" ".join(one.destination for one in other.relations))
    common = {*query_tokens(texts[0])} & {*(against or query_tokens(texts[1]))} - names
    is_told = any((against or len(word) > 1) and not portrait_signs.ALLERGY.count(word) for word in common)
    is_near = item.is_only_near and item.likeness > 0
    is_of_both = is_near and portrait_signs.ALLERGY.count(texts[1]) > 0 and not here.isdisjoint(before)
    return (is_told and is_of_both) or (is_open and memory.valid_from is not None and changes.stands_in(*texts))


def _first_names(names: Iterable[str]) -> set[str]:
    return {first for name in names for first in name_key(name).split()[:1]}


# How probable it is that a memory is replaced that states another end of a relation with one end at a time.
ANOTHER_STATE = 0.9


def _former_states(engine: Engine, scope: Scope, memory: Memory, *, is_settled: bool) -> list[SimilarMemory]:
    """Return the memories that hold now and state another end of a relation, as where somebody lived, newest first.

    Those that the memory contradicts come first: those with another end of a relation of which one has one at a time,
    those with another number, price or day, and those that the text tells as a change. Where one may have several, and
    where the names of relations do not tell, the others are only near. What begins later or has ended contradicts
    nothing.
    """
    now = engine.clock()
    if not memory.relations or memory.deleted_at is not None or memory.has_ended(now):
        return []
    with engine.ledger.read() as conn:
        others = other_states(conn, memory.id)
        known = memory_queries.memories_by_id(conn, [memory_id for memory_id, *_ in others])
    sure, near = dict[str, SimilarMemory](), dict[str, SimilarMemory]()
    for memory_id, key, has_source, has_end in others:
        other, is_same = known.get(memory_id), has_source and has_end
        if other is None or not _is_current(other, scope, now, with_plans=True):
            continue
        # An event to come has its place and its day from now on.
        is_known = is_same or (has_source and key in changes.OF_EVENTS)
        if not is_known and (other.valid_from or memory.holds_from) > memory.holds_from:
            continue
        told = "" if is_settled else memory.text
        is_one = is_same and changes.is_at_another_time(memory, other)
        is_one = is_one or (not is_same and changes.is_of_one(key, told, has_source=has_source))
        before = [each.source for each in other.relations if each.key[1] == key]
        is_one = is_one or (not has_source and any(changes.takes_over_from(told, source) for source in before))
        pairs = () if is_same else product(memory.relations, other.relations)
        if is_one or any(changes.differ_in_number(*each) for each in pairs):
            sure.setdefault(memory_id, SimilarMemory(other, ANOTHER_STATE, replaced=ANOTHER_STATE))
        elif has_source and not is_same and not changes.is_several(key):
            near.setdefault(memory_id, SimilarMemory(other, ANOTHER_STATE))
    return [*list(sure.values())[:MAX_SHOWN], *list(near.values())[:MAX_SHOWN]]


def replaced_by_plan(conn: Connection, plan: Memory, now: datetime) -> list[Memory]:
    """Return the memories that hold on although a plan of their scope, which has come into force, replaces them.

    These are the memories that it was told to replace, and those told before its day that tell only this relation: what
    else a memory tells may hold on. If a later memory names what differs between the two, it may call the plan off, and
    none of the second kind is replaced. Neither is one for which that was undone.
    """
    of_one = {True: changes.SINGLE_VALUED, False: changes.ONE_HOLDER}
    ids = {old for old, key, source, end in other_states(conn, plan.id) if source != end and key in of_one[source]}
    former = [
        memory
        for memory in memory_queries.memories_by_id(conn, list(ids)).values()
        if memory.scope == plan.scope and _is_current(memory, plan.scope, now) and len(memory.relations) == 1
        if not memory_queries.is_block(memory.metadata)
        if max(memory.stated_at, memory.holds_from) < plan.holds_from
        if all(version.superseded_by != plan.id for version in versions_of(conn, memory.id))
    ]
    later = [set(search_tokens(memory.text)) for memory in memory_queries.told_after(conn, plan)] if former else []
    named = [old.memory for old in predecessors(conn, plan.id) if old.memory.deleted_at is None]
    return named + [each for each in former if not any(_differing_words(plan, each) & words for words in later)]


def _differing_words(plan: Memory, former: Memory) -> set[str]:
    """Return the words of what only one of two memories relates."""
    ends = [{end for one in each.relations for end in (one.source, one.destination)} for each in (plan, former)]
    return set(search_tokens(" ".join(ends[0] ^ ends[1])))


# Find relations that can have one value only, and that living memories give several.

# How many relations are read, the newest of them: what a long life says, in less than a second.
MAX_READ = 100_000


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a relation, and the memories that state it, the newest first."""

    name: str
    memories: tuple[Memory, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A relation of a source that has several values, such as Alice, lives in. The value stated last comes first."""

    source: str
    relation: str
    values: tuple[Value, ...]


# The id of a source, a relation, and by the ids of its values those of the memories that state them, newest first.
_Stated: TypeAlias = tuple[str, str, dict[str, list[str]]]


def conflicts(conn: Connection, scope: Scope, now: datetime, memory_id: str = "") -> list[Conflict]:
    """Return the conflicts of a scope's own project, or those of one memory, the newest memories first.

    A plan contradicts nothing, nor does what has ended, nor a memory that itself states several of the values: it tells
    of a change. Raises LedgerError.
    """
    read, of = (relations_like, memory_id) if memory_id else (relations_named, scope.user_id)
    rows = read(conn, of, changes.SINGLE_VALUED, MAX_READ)
    stated = _stated(rows, {key: root.id for key, root in roots_of(conn, merged_into(conn, scope.user_id)).items()})
    ids = {memory_id for _, _, values in stated for of_value in values.values() for memory_id in of_value}
    memories = memory_queries.memories_by_id(conn, sorted(ids)).values()
    current = {memory.id: memory for memory in memories if _is_current(memory, scope, now)}
    contested = [(source, name, found) for source, name, values in stated for found in _by_scope(values, current)]
    ends = {end for source, _, values in contested for end in (source, *values)}
    shown = as_shown(conn, scope, roots_of(conn, ends))
    contested = [each for each in contested if each[0] in shown and shown.keys() >= each[2].keys()]
    names = [(shown[source].name, relation.replace("_", " ")) for source, relation, _ in contested]
    told = [tuple(Value(shown[end].name, tuple(of_end)) for end, of_end in each.items()) for _, _, each in contested]
    return [Conflict(*name, values) for name, values in zip(names, told, strict=True)]


def _stated(rows: Sequence[Row[Any]], roots: Mapping[str, str]) -> list[_Stated]:
    """Return the relations that have several values. What was merged into an entity counts as that entity."""
    stated: dict[tuple[str, str], _Stated] = {}
    for row in rows:
        source = roots.get(row.source_id, row.source_id)
        _, _, values = stated.setdefault((source, row.key), (source, row.name, {}))
        values.setdefault(roots.get(row.destination_id, row.destination_id), []).append(row.memory_id)
    return [found for found in stated.values() if len(found[2]) > 1]


def _is_current(memory: Memory, scope: Scope, now: datetime, *, with_plans: bool = False) -> bool:
    """Return whether a memory of the scope's own project, which the scope sees, holds now.

    With `with_plans`, a plan counts too, and what is overdue.
    """
    if memory.deleted_at is not None or not (scope.owns(memory.scope) and is_seen(scope, memory.scope)):
        return False
    has_begun = with_plans or memory.valid_from is None or memory.valid_from <= now
    return has_begun and not (_is_over(memory, now) if with_plans else memory.has_ended(now))


def _by_scope(
    ids: Mapping[str, Sequence[str]], current: Mapping[str, Memory]
) -> Iterator[Mapping[str, Sequence[Memory]]]:
    """Yield the values of a relation, with what states them, for each scope whose memories give it several."""
    times_stated = Counter(memory_id for of_value in ids.values() for memory_id in set(of_value))
    by_scope: dict[Scope, dict[str, list[Memory]]] = {}
    for value, of_value in ids.items():
        for memory_id in dict.fromkeys(of_value):
            if memory_id in current and times_stated[memory_id] == 1:
                memory = current[memory_id]
                by_scope.setdefault(memory.scope, {}).setdefault(value, []).append(memory)
    yield from (values for values in by_scope.values() if len(values) > 1)
