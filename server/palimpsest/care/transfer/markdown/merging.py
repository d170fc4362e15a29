"""The three-way merge of an import: what the export said, what the files say now, and what the ledger says now.

It decides and writes nothing. Each part of an item is merged by itself: one that only the file changed is taken, and
one that only the ledger changed stays. If both changed it in different ways, that is a conflict, and the ledger stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC

from palimpsest.care.transfer.markdown.items import PARTS, Item, Place, Shown, full_shown, shown_of
from palimpsest.care.transfer.markdown.manifest import BaseEntry
from palimpsest.core.models import Memory, Scope
from palimpsest.store.mapping import memory_hash


@dataclass(frozen=True, slots=True)
class Change:
    """A memory that is to say something else. `shown` is all that its item is to say then."""

    memory: Memory
    shown: Shown
    parts: AbstractSet[str]
    place: Place


@dataclass(frozen=True, slots=True)
class Removal:
    """A memory whose item was removed from a file that is still there."""

    memory: Memory
    file: str


@dataclass(frozen=True, slots=True)
class Addition:
    """A new item, and the scope that its memory will have."""

    item: Item
    scope: Scope

    @property
    def shown(self) -> Shown:
        """Return what the memory is to say."""
        return self.item.shown


@dataclass(frozen=True, slots=True)
class Conflict:
    """A memory that file and ledger changed in different ways. `in_file` or `here` is None if it is gone there."""

    memory_id: str
    where: str
    in_file: Shown | None
    here: Shown | None
    reason: str


@dataclass(frozen=True, slots=True)
class Merge:
    """What an import is to do.

    `missing` are the files that are gone with their items, each with how many memories that are still here stood in it.
    `agreed` are the items, by id, that are no conflict: what they say is the base of the next import. So are `known`,
    the new items that say what a memory says already.
    """

    changes: tuple[Change, ...] = ()
    removals: tuple[Removal, ...] = ()
    additions: tuple[Addition, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict[str, int])
    agreed: Mapping[str, Item] = field(default_factory=dict[str, Item])
    known: Mapping[str, Item] = field(default_factory=dict[str, Item])


@dataclass(frozen=True, slots=True)
class Sides:
    """The three sides. `items` are those with a mark, by the ids of their memories, and `present` the files there are.

    `memories` are those of the base as they are now, living or deleted. `living` are all that the scope sees.
    """

    bases: Mapping[str, BaseEntry]
    items: Mapping[str, Item]
    new: Sequence[tuple[Item, Scope]]
    present: AbstractSet[str]
    memories: Mapping[str, Memory]
    living: Sequence[Memory]


def merge(sides: Sides) -> Merge:
    """Return what is to be done about all three sides."""
    items, new = _with_lost_marks(sides)
    changes: list[Change] = []
    conflicts: list[Conflict] = []
    agreed: dict[str, Item] = {}
    for memory_id, item in items.items():
        found = _merge_one(memory_id, item, sides.bases[memory_id].shown, sides.memories.get(memory_id))
        if isinstance(found, Change):
            changes.append(found)
        if isinstance(found, Conflict):
            conflicts.append(found)
        else:
            agreed[memory_id] = item
    removals, kept, missing = _removals(sides, items)
    changes, exchanged = _in_order(changes)
    for conflict in exchanged:
        agreed.pop(conflict.memory_id)
    additions, known = _additions(new, sides.living, changes)
    return Merge(tuple(changes), removals, additions, (*conflicts, *kept, *exchanged), missing, agreed, known)


def _removals(sides: Sides, items: Mapping[str, Item]) -> tuple[tuple[Removal, ...], list[Conflict], dict[str, int]]:
    """Return the memories whose items were removed, those of them that changed here since, and files that are gone."""
    removals: list[Removal] = []
    conflicts: list[Conflict] = []
    missing: dict[str, int] = {}
    for memory_id, base in sides.bases.items():
        memory = sides.memories.get(memory_id)
        if memory_id in items or memory is None or memory.deleted_at is not None:
            continue
        here = _here(memory, base.shown)
        if base.file not in sides.present:
            missing[base.file] = missing.get(base.file, 0) + 1
        elif here == base.shown:
            removals.append(Removal(memory, base.file))
        else:
            reason = "removed from the file, and changed here since"
            conflicts.append(Conflict(memory_id, base.file, None, here, reason))
    return tuple(removals), conflicts, missing


def _with_lost_marks(sides: Sides) -> tuple[dict[str, Item], list[tuple[Item, Scope]]]:
    """Return the items by memory and the new ones. An item that lost its mark is known by its text."""
    gone = {
        memory_hash(base.text): memory_id for memory_id, base in sides.bases.items() if memory_id not in sides.items
    }
    items, new = dict(sides.items), list[tuple[Item, Scope]]()
    for item, scope in sides.new:
        memory_id = gone.pop(memory_hash(item.shown.text), None)
        if memory_id is None:
            new.append((item, scope))
        else:
            items[memory_id] = item
    return items, new


def _merge_one(memory_id: str, item: Item, base: Shown, memory: Memory | None) -> Change | Conflict | None:
    wanted = full_shown(item, base)
    edited = {part for part in PARTS if getattr(wanted, part) != getattr(base, part)}
    if not edited:
        return None
    where = str(item.place)
    if memory is None:
        return Conflict(memory_id, where, wanted, None, "edited in the file, and erased here")
    if memory.deleted_at is not None:
        fate = f"replaced by [{memory.superseded_by[:8]}]" if memory.superseded_by else "deleted"
        return Conflict(memory_id, where, wanted, None, f"edited in the file, and {fate} here since")
    here = _here(memory, base)
    to_do = {part for part in edited if getattr(wanted, part) != getattr(here, part)}
    if any(getattr(here, part) != getattr(base, part) for part in to_do):
        return Conflict(memory_id, where, wanted, here, "changed in the file, and changed here since")
    if not to_do:
        return None
    shown = replace(here, **{part: getattr(wanted, part) for part in to_do})
    return Change(memory, shown, frozenset(to_do), item.place)


def _here(memory: Memory, base: Shown) -> Shown:
    """Return what an item says of a memory now. A day that the export showed by UTC has not changed."""
    shown = shown_of(memory)
    is_day_of_utc = not memory.at_precision and base.date == memory.in_zone(UTC).date
    return replace(shown, date=base.date) if is_day_of_utc else shown


def _in_order(changes: Iterable[Change]) -> tuple[list[Change], list[Conflict]]:
    """Return changes so that a text is free before another memory gets it, and as conflicts those in a circle.

    Only one living memory of a scope may have a text. Memories that exchange their texts are most likely items whose
    marks stayed behind when they were sorted.
    """
    waiting = list(changes)
    ordered: list[Change] = []
    while waiting:
        held = {(change.memory.scope, memory_hash(change.memory.text)): change for change in waiting}
        free = [change for change in waiting if held.get(_claimed(change), change) is change]
        if not free:
            reason = "its text was exchanged with that of another memory; move items with their marks"
            return ordered, [
                Conflict(change.memory.id, str(change.place), change.shown, shown_of(change.memory), reason)
                for change in waiting
            ]
        ordered += free
        done = {change.memory.id for change in free}
        waiting = [change for change in waiting if change.memory.id not in done]
    return ordered, []


def _claimed(change: Change) -> tuple[Scope, str]:
    return change.memory.scope, memory_hash(change.shown.text)


def _additions(
    new: Iterable[tuple[Item, Scope]], living: Iterable[Memory], changes: Iterable[Change]
) -> tuple[tuple[Addition, ...], dict[str, Item]]:
    """Return the new items that no memory says already, each text once, and those that one does, by its id."""
    changed = {change.memory.id: _claimed(change) for change in changes}
    ids = {changed.get(memory.id, (memory.scope, memory_hash(memory.text))): memory.id for memory in living}
    additions: dict[tuple[Scope, str], Addition] = {}
    known: dict[str, Item] = {}
    for item, scope in new:
        key = (scope, memory_hash(item.shown.text))
        if key in ids:
            known.setdefault(ids[key], item)
        else:
            additions.setdefault(key, Addition(item, scope))
    return tuple(additions.values()), known
