"""Import a folder of Markdown files that a person edited: compare them with the ledger, and write one edit."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from palimpsest.admin.markdown_export import current_memories
from palimpsest.admin.markdown_files import (
    INDEX,
    MANIFEST,
    PARTS,
    FileText,
    FolderFiles,
    Item,
    ItemFields,
    Manifest,
    ManifestEntry,
    Place,
    digest,
    fields_digest,
    fields_of,
    is_like_ours,
    items_of,
    listed,
    manifest_entry,
    manifest_text,
    pinned_value,
    read_folder,
    read_manifest,
    split_file,
    write_file,
)
from palimpsest.core.clock import parse_date
from palimpsest.core.errors import InputError, StaleDecisionError
from palimpsest.core.models import EXPIRES_AT, PINNED, Decision, Event, Fact, Memory, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import text_from
from palimpsest.learn.commit import apply_as_one, embed_texts
from palimpsest.learn.edit import without_untold_name
from palimpsest.learn.engine import Engine
from palimpsest.learn.entity_resolution import with_names
from palimpsest.learn.sanitize import Cleaner, sanitize_fact
from palimpsest.store import memories as memory_queries
from palimpsest.store import projects as project_queries
from palimpsest.store.apply import Write
from palimpsest.store.rows import is_seen, memory_hash
from palimpsest.text.display import visible

# Compare what the files say with what the ledger says, memory by memory. This decides and writes nothing.
#
# An item that says what it said at the export is left alone. Any other changes its memory, unless that has changed
# since too: then the two are a conflict, and the ledger stays.


@dataclass(frozen=True, slots=True)
class Change:
    """A memory that is to say something else. `fields` is all that its item is to say then."""

    memory: Memory
    fields: ItemFields
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
    def fields(self) -> ItemFields:
        """Return what the memory is to say."""
        return self.item.fields


@dataclass(frozen=True, slots=True)
class Conflict:
    """A memory that file and ledger changed in different ways. `in_file` or `here` is None if it is gone there."""

    memory_id: str
    where: str
    in_file: ItemFields | None
    here: ItemFields | None
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What an import is to do.

    `missing` are the files that are gone with their items, each with how many memories that are still here stood in it.
    `agreed` are the items, by id, that the next import leaves alone if they stay as they are: all but conflicts, and
    the new items that say what a memory says already.
    """

    changes: tuple[Change, ...] = ()
    removals: tuple[Removal, ...] = ()
    additions: tuple[Addition, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict[str, int])
    agreed: Mapping[str, Item] = field(default_factory=dict[str, Item])


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides. `items` are those with a mark, by the ids of their memories, and `present` the files there are.

    `memories` are those of the manifest as they are now, living or deleted. `living` are all that the scope sees.
    """

    entries: Mapping[str, ManifestEntry]
    items: Mapping[str, Item]
    new: Sequence[tuple[Item, Scope]]
    present: AbstractSet[str]
    memories: Mapping[str, Memory]
    living: Sequence[Memory]


def compare(sides: Sides) -> Comparison:
    """Return what is to be done about both sides."""
    items, new = _with_imported(sides)
    changes: dict[str, Change] = {}
    conflicts: list[Conflict] = []
    agreed: dict[str, Item] = {}
    for memory_id, item in items.items():
        found = _compare_one(memory_id, item, sides.entries[memory_id], sides.memories.get(memory_id))
        if isinstance(found, Conflict):
            conflicts.append(found)
            continue
        agreed[memory_id] = item
        if found is not None:
            changes[memory_id] = found
    for conflict in _exchanged(changes):
        conflicts.append(conflict)
        del changes[conflict.memory_id], agreed[conflict.memory_id]
    additions, known = _additions(new, sides.living, changes)
    agreed = known | agreed
    removals: list[Removal] = []
    missing: Counter[str] = Counter()
    moved = {sides.entries[memory_id].file for memory_id in items}
    for memory_id, entry in sides.entries.items():
        memory = sides.memories.get(memory_id)
        if memory_id in items or memory_id in known or memory is None or memory.deleted_at is not None:
            continue
        if entry.file not in sides.present | moved:
            missing[entry.file] += 1
        elif _is_unchanged(memory, entry):
            removals.append(Removal(memory, entry.file))
        else:
            reason = "removed from the file, and changed here since"
            conflicts.append(Conflict(memory_id, entry.file, None, fields_of(memory), reason))
    return Comparison(tuple(changes.values()), tuple(removals), additions, tuple(conflicts), missing, agreed)


def _with_imported(sides: Sides) -> tuple[dict[str, Item], list[tuple[Item, Scope]]]:
    """Return the items by memory and the new ones. One that was imported, or lost its mark, is known by its text."""
    unseen = {entry.text: memory_id for memory_id, entry in sides.entries.items() if memory_id not in sides.items}
    items, new = dict(sides.items), list[tuple[Item, Scope]]()
    for item, scope in sides.new:
        memory_id = unseen.pop(digest(item.fields.text.encode()), None)
        if memory_id is None:
            new.append((item, scope))
        else:
            items[memory_id] = item
    return items, new


def _compare_one(memory_id: str, item: Item, entry: ManifestEntry, memory: Memory | None) -> Change | Conflict | None:
    if entry.is_of(item):
        return None
    where = str(item.place)
    if memory is None:
        return Conflict(memory_id, where, item.fields, None, "edited in the file, and erased here")
    if memory.deleted_at is not None:
        fate = f"replaced by [{memory.superseded_by[:8]}]" if memory.superseded_by else "deleted"
        return Conflict(memory_id, where, item.fields, None, f"edited in the file, and {fate} here since")
    here = fields_of(memory)
    if not memory.at_precision and item.fields.date == memory.in_zone(UTC).date:  # the day as an export by UTC shows it
        here = replace(here, date=item.fields.date)
    wanted = item.fill_in(here)
    parts = frozenset(part for part in PARTS if getattr(wanted, part) != getattr(here, part))
    if not parts:
        return None
    if not _is_unchanged(memory, entry):
        return Conflict(memory_id, where, wanted, here, "changed in the file, and changed here since")
    return Change(memory, wanted, parts, item.place)


def _is_unchanged(memory: Memory, entry: ManifestEntry) -> bool:
    return memory.revision == entry.revision or fields_digest(fields_of(memory)) == entry.item


def _exchanged(changes: Mapping[str, Change]) -> list[Conflict]:
    """Return the changes to a text that another memory gives up here: only one living memory of a scope may have it.

    Most likely the marks of these items stayed behind when they were sorted.
    """
    held = {(change.memory.scope, memory_hash(change.memory.text)): change for change in changes.values()}
    reason = "its text was exchanged with that of another memory; move items with their marks"
    return [
        Conflict(memory_id, str(change.place), change.fields, fields_of(change.memory), reason)
        for memory_id, change in changes.items()
        if held.get(_claimed(change), change) is not change
    ]


def _claimed(change: Change) -> tuple[Scope, str]:
    return change.memory.scope, memory_hash(change.fields.text)


def _additions(
    new: Iterable[tuple[Item, Scope]], living: Iterable[Memory], changes: Mapping[str, Change]
) -> tuple[tuple[Addition, ...], dict[str, Item]]:
    """Return the new items that no memory says already, each text once, and those that one does, by its id."""
    ids: dict[tuple[Scope, str], str] = {}
    for memory in living:
        change = changes.get(memory.id)
        ids[(memory.scope, memory_hash(memory.text)) if change is None else _claimed(change)] = memory.id
    additions: dict[tuple[Scope, str], Addition] = {}
    known: dict[str, Item] = {}
    for item, scope in new:
        key = (scope, memory_hash(item.fields.text))
        if key in ids:
            known.setdefault(ids[key], item)
        else:
            additions.setdefault(key, Addition(item, scope))
    return tuple(additions.values()), known


# Read all that an import compares: the manifest, the files as they are now, and the ledger. Blocking.


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: the manifest, the scope it is of by its present name, both sides, and notes."""

    manifest: Manifest
    scope: Scope
    sides: Sides
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Items:
    marked: Mapping[str, Item]
    new: Sequence[tuple[Item, Scope]]


def read_sides(engine: Engine, user_id: str, folder: Path) -> Read:
    """Return what an import compares. Raises InputError for what cannot be read or is of another memory."""
    manifest = read_manifest(folder)
    if manifest.user_id != user_id:
        raise InputError(
            f"{folder} holds the memory of {visible(manifest.user_id)}, and not of {visible(user_id)}. Nothing was "
            "imported. palimpsest --user names the user"
        )
    scope = replace(
        manifest.scope, project=engine.ledger.read_with(project_queries.current_name, user_id, manifest.project)
    )
    found = read_folder(folder)
    for path, reason in found.unread.items():
        if path in manifest.files:
            raise InputError(f"{folder / path} is {reason}, and was a file of the export. Nothing was imported")
    files, notes = _split(manifest, found)
    items = _cleaned(engine, manifest, _items(manifest, scope, files), notes)
    with engine.ledger.read() as conn:
        living = current_memories(conn, scope)
        known = memory_queries.memories_by_id(conn, list(manifest.memories))
    zone = engine.ledger.zones.of(user_id)
    memories = {memory.id: memory.in_zone(zone) for memory in known.values() if is_seen(scope, memory.scope)}
    if manifest.memories and not memories:
        raise InputError(
            f"none of the memories of {folder} is in this memory. Nothing was imported. A Markdown export changes the "
            "memory it comes from; palimpsest export FILE and palimpsest import FILE move a memory"
        )
    present = {file.path for file in files}
    sides = Sides(manifest.memories, items.marked, items.new, present, memories, living)
    return Read(manifest, scope, sides, tuple(notes))


def _split(manifest: Manifest, found: FolderFiles) -> tuple[list[FileText], list[str]]:
    """Return the files that may hold items, and notes on what is not imported."""
    files: list[FileText] = []
    unread = dict(found.unread)
    for path, data in found.files.items():
        is_ours = path in manifest.files
        try:
            file = split_file(path, data)
        except InputError:
            if is_ours or is_like_ours(data):
                raise
            unread[path] = "no text that can be read"
            continue
        if is_ours and not file.kind:
            file = replace(file, kind="page")
        if file.kind != INDEX:
            files.append(file)
    notes: list[str] = []
    if unread:
        notes.append(f"not read: {listed([f'{path} ({reason})' for path, reason in unread.items()])}")
    if others := [file.path for file in files if not file.kind]:
        notes.append(f"not from an export, and not imported: {listed(others)}")
    return files, notes


def _items(manifest: Manifest, scope: Scope, files: Sequence[FileText]) -> _Items:
    ids = sorted(manifest.memories)
    marked: dict[str, Item] = {}
    new: list[tuple[Item, Scope]] = []
    for file in files:
        for item in items_of(file, is_ours=lambda mark: bool(_ids_with(ids, mark))):
            if not item.mark:
                new.append((item, _scope_of(manifest, scope, file)))
                continue
            memory_id = _id_of(ids, item)
            other = marked.setdefault(memory_id, item)
            if other.fields != item.fields:
                raise InputError(
                    f"{item.place}: ^{item.mark} is also the mark of {other.place}, which says something else. Nothing "
                    "was imported. Remove the mark of the one that is to be a new memory, or one of both items"
                )
    return _Items(marked, new)


def _id_of(ids: Sequence[str], item: Item) -> str:
    found = _ids_with(ids, item.mark)
    if len(found) == 1:
        return found[0]
    fault = "is the beginning of several marks" if found else "is the mark of no memory in this export"
    raise InputError(
        f"{item.place}: ^{item.mark} {fault}. Nothing was imported. Without that line the text is a new memory; "
        "palimpsest undelete brings back one that was deleted"
    )


def _ids_with(ids: Sequence[str], mark: str) -> Sequence[str]:
    start = bisect_left(ids, mark)
    return [memory_id for memory_id in ids[start : start + 2] if memory_id.startswith(mark)]


def _scope_of(manifest: Manifest, scope: Scope, file: FileText) -> Scope:
    """Return the scope of a new item: that of the project its file names, or the global one."""
    if file.project not in ("", manifest.project, scope.project):
        raise InputError(
            f"{file.path} is of the project {visible(file.project)}, of which this is no export. Nothing was imported"
        )
    return replace(scope, project=scope.project if file.project else "")


def _cleaned(engine: Engine, manifest: Manifest, items: _Items, notes: list[str]) -> _Items:
    """Return the items with valid texts and without secrets. What is as it was exported is left as it is."""
    cleaner = Cleaner(engine)

    def clean(item: Item) -> Item:
        try:
            sanitize_fact(engine, Fact(text_from(item.fields.text)))
        except InputError as error:
            raise InputError(f"{item.place}: {error}. Nothing was imported") from error
        tags = tuple(cleaner.text(tag) for tag in item.fields.tags)
        return replace(item, fields=replace(item.fields, text=cleaner.text(item.fields.text), tags=tags))

    marked = {
        memory_id: item if manifest.memories[memory_id].is_of(item) else clean(item)
        for memory_id, item in items.marked.items()
    }
    new = [(clean(item), scope) for item, scope in items.new]
    notes += cleaner.notes()
    return _Items(marked, new)


# Turn a comparison into writes of the ledger: one for each scope, because a write adds memories to one scope.

STAGE = "import"


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to be written: the writes, and for each of them what its decisions carry out, in the same order."""

    writes: tuple[Write, ...]
    of_writes: tuple[Sequence[Removal | Change | Addition], ...]


def decide(
    engine: Engine,
    scope: Scope,
    found: Comparison,
    removals: Sequence[Removal],
    vectors: Mapping[str, Vector],
    caller: str,
) -> Decided:
    """Return the writes of a comparison; `vectors` are those of its texts, each of shape (dims,). Blocking.

    Memories leave first, so that their texts are free for others.
    """
    first: list[Removal | Change | Addition] = [*removals, *found.changes]
    by_scope: dict[Scope, list[Removal | Change | Addition]] = {scope: first} if first else {}
    for addition in found.additions:
        by_scope.setdefault(addition.scope, []).append(addition)
    read = {each.memory.id: each.memory.revision for each in (*removals, *found.changes)}
    provenance = Provenance(STAGE, caller=caller)
    writes: list[Write] = []
    for of_scope, steps in by_scope.items():
        decisions = _decisions(engine, of_scope, steps)
        fingerprint = engine.embedder.fingerprint
        write = Write(
            of_scope,
            provenance,
            decisions=decisions,
            vectors=vectors,
            embedder=fingerprint,
            read={} if writes else read,
        )
        writes.append(write)
    return Decided(tuple(writes), tuple(by_scope.values()))


def _decisions(engine: Engine, scope: Scope, steps: Sequence[Removal | Change | Addition]) -> tuple[Decision, ...]:
    facts = with_names(engine, scope, [_fact(step) for step in steps])
    return tuple(_decision(step, fact) for step, fact in zip(steps, facts, strict=True))


def _decision(step: Removal | Change | Addition, fact: Fact) -> Decision:
    if isinstance(step, Removal):
        return Decision(Event.DELETE, memory_id=step.memory.id)
    if isinstance(step, Addition):
        return Decision(Event.ADD, fact)
    return Decision(Event.UPDATE, without_untold_name(step.memory, fact), step.memory.id, sets_labels=True)


def _fact(step: Removal | Change | Addition) -> Fact:
    """Return what a memory is to say. A change leaves out what the item did not change."""
    if isinstance(step, Removal):
        return Fact("")
    shown = step.fields
    happened, since = parse_date(shown.date), parse_date(shown.since)
    labels = {PINNED: pinned_value(shown.pinned), EXPIRES_AT: shown.until or None}
    fact = Fact(shown.text, tags=shown.tags, metadata=labels)
    if since is not None:
        fact = replace(fact, valid_from=since[0], valid_from_precision=since[1])
    if happened is not None:
        fact = replace(fact, happened_at=happened[0], happened_precision=happened[1])
    return fact if isinstance(step, Addition) else _only_changed(step, fact)


def _only_changed(change: Change, fact: Fact) -> Fact:
    """Return a fact with the memory's own labels where the item did not change them: it shows them less exactly."""
    memory, parts = change.memory, change.parts
    keys = {PINNED: "pinned", EXPIRES_AT: "until"}
    fact = replace(fact, metadata={key: value for key, value in fact.metadata.items() if keys[key] in parts})
    if "text" not in parts:
        fact = replace(fact, text="")
    if "tags" not in parts:
        fact = replace(fact, tags=memory.tags)
    if "date" not in parts:
        fact = replace(fact, happened_at=None, happened_precision="")
    if "since" not in parts:
        fact = replace(fact, valid_from=memory.valid_from, valid_from_precision=memory.valid_from_precision)
    return fact


ATTEMPTS = 3
"""How often an import is decided anew because another client changed one of its memories meanwhile."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A memory that an import changed or would change: what it said before, and what it says then.

    `memory_id` is "" for one that would be added. `joined` is the id of the memory that says the same already, if this
    one was closed in its favour.
    """

    event: Event
    memory_id: str
    where: str
    before: ItemFields | None = None
    after: ItemFields | None = None
    joined: str = ""


@dataclass(frozen=True, slots=True)
class FolderImport:
    """What an import of a folder did or would do. `edit` is the number that undoes it, 0 if nothing was changed.

    `removed` are the memories whose items were removed, and which were not deleted, because the caller did not say so.
    `missing` are files that are gone, with the number of memories in them.
    """

    scope: Scope
    done: tuple[Imported, ...] = ()
    removed: tuple[Imported, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict[str, int])
    notes: tuple[str, ...] = ()
    edit: int = 0
    outcomes: tuple[Outcome, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was read, how it compares, and which of the removed memories are deleted."""

    read: Read
    comparison: Comparison
    removals: tuple[Removal, ...]

    @property
    def result(self) -> FolderImport:
        """Return what the import would do."""
        found = self.comparison
        steps = (*self.removals, *found.changes, *found.additions)
        kept = () if self.removals else tuple(map(_imported, found.removals))
        done = tuple(map(_imported, steps))
        return FolderImport(self.read.scope, done, kept, found.conflicts, found.missing, self.read.notes)


async def import_folder(
    engine: Engine, user_id: str, folder: Path, *, dry_run: bool = False, deletes: bool = False, caller: str = ""
) -> FolderImport:
    """Bring the edits of a folder into the ledger, as one edit. With `deletes` removed items delete their memories.

    Raises InputError that names file and line for what cannot be read, and the errors of every write; then nothing was
    written. With `dry_run` nothing is written in any case.
    """
    attempts = ATTEMPTS
    while True:
        plan = await engine.run(lambda: _plan(engine, user_id, folder, deletes=deletes))
        if dry_run:
            return plan.result
        try:
            return await _carry_out(engine, folder, plan, caller)
        except StaleDecisionError:
            attempts -= 1
            if not attempts:
                raise


def _plan(engine: Engine, user_id: str, folder: Path, *, deletes: bool) -> _Plan:
    read = read_sides(engine, user_id, folder)
    found = compare(read.sides)
    return _Plan(read, found, found.removals if deletes else ())


async def _carry_out(engine: Engine, folder: Path, plan: _Plan, caller: str) -> FolderImport:
    """Write what a plan decided, and then what the files say into the manifest. Raises as `Ledger.apply`."""
    result, found = plan.result, plan.comparison
    items = dict(found.agreed)
    if result.done:
        texts = [change.fields.text for change in found.changes if "text" in change.parts]
        texts += [addition.fields.text for addition in found.additions]
        vectors, notes = await embed_texts(engine, texts)
        decided = await engine.run(lambda: decide(engine, plan.read.scope, found, plan.removals, vectors, caller))
        applied = await apply_as_one(engine, decided.writes)
        outcomes = [outcome for each in applied for outcome in each.outcomes]
        steps = list(zip((step for of_write in decided.of_writes for step in of_write), outcomes, strict=True))
        items |= {outcome.memory.id: step.item for step, outcome in steps if isinstance(step, Addition)}
        result = replace(
            result,
            done=tuple(_imported(step, outcome) for step, outcome in steps),
            notes=(*result.notes, *notes, *(note for each in applied for note in each.notes)),
            edit=applied[0].edit,
            outcomes=tuple(outcomes),
        )
    failure = await engine.run(lambda: _note_items(engine, folder, plan, items))
    return replace(result, notes=(*result.notes, *failure))


def _imported(step: Removal | Change | Addition, outcome: Outcome | None = None) -> Imported:
    if isinstance(step, Removal):
        return Imported(Event.DELETE, step.memory.id, step.file, before=fields_of(step.memory))
    if isinstance(step, Addition):
        memory_id = outcome.memory.id if outcome is not None else ""
        return Imported(Event.ADD, memory_id, str(step.item.place), after=step.fields)
    joined = outcome.duplicate_of or "" if outcome is not None and outcome.event is Event.DELETE else ""
    where = str(step.place)
    return Imported(Event.UPDATE, step.memory.id, where, fields_of(step.memory), step.fields, joined)


def _note_items(engine: Engine, folder: Path, plan: _Plan, items: Mapping[str, Item]) -> list[str]:
    """Write into the manifest what the files say now, by the ids of memories. Return a note on a failure. Blocking.

    A conflict keeps its old entry, so that it is listed until it is settled.
    """
    manifest = plan.read.manifest
    with engine.ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, list(items))
    removed = {removal.memory.id for removal in plan.removals}
    entries = {memory_id: entry for memory_id, entry in manifest.memories.items() if memory_id not in removed}
    for memory_id, item in items.items():
        old, memory = entries.get(memory_id), memories.get(memory_id)
        if old is not None and old.is_of(item) and old.file == item.place.file:
            continue
        revision = memory.revision if memory is not None else 1
        entries[memory_id] = manifest_entry(item.place.file, revision, item.fields)
    if entries == manifest.memories:
        return []
    try:
        write_file(folder, MANIFEST, manifest_text(manifest.model_copy(update={"memories": entries})))
    except OSError as error:
        return [
            f"{folder / MANIFEST} cannot be written: {error}. The import is done; export to the folder again, so that "
            "the next import knows it"
        ]
    return []
