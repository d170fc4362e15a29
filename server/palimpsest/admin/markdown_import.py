"""Import a folder of Markdown files that a person edited: compare them with the ledger, and write one edit."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from palimpsest.admin import markdown_files
from palimpsest.admin.markdown_files import FileText, Item, ItemFields, Manifest, ManifestEntry, fields_of, listed
from palimpsest.core.clock import parse_date
from palimpsest.core.errors import InputError, StaleDecisionError, raised_as
from palimpsest.core.models import EXPIRES_AT, PINNED, Decision, Event, Fact, Memory, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import text_from
from palimpsest.learn.commit import apply_as_one, embed_texts, with_names
from palimpsest.learn.edit import without_untold_name
from palimpsest.learn.engine import Engine
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
class Step:
    """A memory to add, change or delete. `fields` is all that its item is to say then, and `parts` what changes of it.

    `where` is the place of its item, or the file that the item was removed from. `memory` is None for a new one, and
    `item` for one that is to be deleted. `outcome` is what became of it, once it is done.
    """

    event: Event
    scope: Scope
    where: str
    fields: ItemFields
    parts: AbstractSet[str] = frozenset(markdown_files.PARTS)
    memory: Memory | None = None
    item: Item | None = None
    outcome: Outcome | None = None

    @property
    def memory_id(self) -> str:
        """Return the id of the memory, or "" for one that would be added."""
        memory = self.memory or (self.outcome and self.outcome.memory)
        return memory.id if memory else ""

    @property
    def before(self) -> ItemFields | None:
        """Return what the memory said before."""
        return fields_of(self.memory) if self.memory else None

    @property
    def after(self) -> ItemFields | None:
        """Return what the memory says then."""
        return self.fields if self.item else None

    @property
    def joined(self) -> str:
        """Return the id of the memory that says the same already, if this one was closed in its favour, or ""."""
        is_closed = self.outcome and (self.event, self.outcome.event) == (Event.UPDATE, Event.DELETE)
        return (self.outcome.duplicate_of or "") if self.outcome and is_closed else ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A memory that file and ledger changed in different ways. `in_file` or `here` is None if it is gone there."""

    memory_id: str
    where: str
    in_file: ItemFields | None
    here: ItemFields | None
    reason: str


@dataclass(frozen=True, slots=True)
class FolderImport:
    """What an import of a folder is to do or did. `edit` is the number that undoes it, 0 if nothing was changed.

    In `done` memories leave first, so that their texts are free for others. `removed` are the memories whose items were
    removed, and which are not deleted, because the caller did not say so. `missing` are the files that are gone with
    their items, each with how many memories that are still here stood in it. `agreed` are the items, by id, that the
    next import leaves alone if they stay as they are: all but conflicts, and the new items that say what a memory says
    already.
    """

    manifest: Manifest
    scope: Scope
    done: tuple[Step, ...]
    removed: tuple[Step, ...]
    conflicts: tuple[Conflict, ...]
    missing: Mapping[str, int]
    agreed: Mapping[str, Item]
    notes: tuple[str, ...]
    edit: int = 0
    outcomes: tuple[Outcome, ...] = ()


def _plan(engine: Engine, folder: Path, *, deletes: bool) -> FolderImport:
    """Return what is to be done about the manifest, the files as they are now, and the ledger. Blocking.

    Raises InputError for what cannot be read or is of another memory.
    """
    manifest, user_id = markdown_files.read_manifest(folder), engine.settings.user_id
    if manifest.user_id != user_id:
        raise InputError(
            f"{folder} holds the memory of {visible(manifest.user_id)}, and not of {visible(user_id)}. Nothing was "
            "imported. palimpsest --user names the user"
        )
    entries = manifest.memories
    project = engine.ledger.read_with(project_queries.current_name, user_id, manifest.project)
    scope = replace(manifest.scope, project=project)
    files, notes = _read_files(manifest, folder)
    cleaner = Cleaner(engine)
    items, new = _read_items(cleaner, manifest, scope, files)
    with engine.ledger.read() as conn:
        living = markdown_files.current_memories(conn, scope)
        known = memory_queries.memories_by_id(conn, list(entries))
    zone = engine.ledger.zones.of(user_id)
    memories = {memory.id: memory.in_zone(zone) for memory in known.values() if is_seen(scope, memory.scope)}
    if entries and not memories:
        raise InputError(
            f"none of the memories of {folder} is in this memory. Nothing was imported. A Markdown export changes the "
            "memory it comes from; palimpsest export FILE and palimpsest import FILE move a memory"
        )
    changes, conflicts = _changes(entries, items, memories)
    contested = {conflict.memory_id for conflict in conflicts}
    additions, unmarked = _additions(new, living, changes)
    agreed = unmarked | {memory_id: item for memory_id, item in items.items() if memory_id not in contested}
    removals: list[Step] = []
    missing: Counter[str] = Counter()
    present = {file.path for file in files} | {entries[memory_id].file for memory_id in items}
    for memory_id, entry in entries.items():
        memory = memories.get(memory_id)
        if memory_id in items or memory_id in unmarked or memory is None or memory.deleted_at is not None:
            continue
        if entry.file not in present:
            missing[entry.file] += 1
        elif _is_unchanged(memory, entry):
            removals.append(Step(Event.DELETE, scope, entry.file, ItemFields(""), memory=memory))
        else:
            reason = "removed from the file, and changed here since"
            conflicts.append(Conflict(memory_id, entry.file, None, fields_of(memory), reason))
    steps = (*(removals if deletes else ()), *changes.values(), *additions)
    kept = () if deletes else tuple(removals)
    all_notes = (*notes, *cleaner.notes())
    return FolderImport(manifest, scope, steps, kept, tuple(conflicts), missing, agreed, all_notes)


def _changes(
    entries: Mapping[str, ManifestEntry], items: Mapping[str, Item], memories: Mapping[str, Memory]
) -> tuple[dict[str, Step], list[Conflict]]:
    """Return the memories to change, by id, and those that cannot be.

    A text that another memory gives up here is a conflict: only one living memory of a scope may have it. Most likely
    the marks of these items stayed behind when they were sorted.
    """
    found = [
        _compare(memory_id, item, entries[memory_id], memories.get(memory_id)) for memory_id, item in items.items()
    ]
    conflicts = [each for each in found if isinstance(each, Conflict)]
    changes = {each.memory_id: each for each in found if isinstance(each, Step)}
    held = {(change.scope, memory_hash(change.memory.text)): change for change in changes.values() if change.memory}
    reason = "its text was exchanged with that of another memory; move items with their marks"
    for change in [change for change in changes.values() if held.get(_claimed(change), change) is not change]:
        conflicts.append(Conflict(change.memory_id, change.where, change.fields, change.before, reason))
        del changes[change.memory_id]
    return changes, conflicts


def _compare(memory_id: str, item: Item, entry: ManifestEntry, memory: Memory | None) -> Step | Conflict | None:
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
    parts = frozenset(part for part in markdown_files.PARTS if getattr(wanted, part) != getattr(here, part))
    if not parts:
        return None
    if not _is_unchanged(memory, entry):
        return Conflict(memory_id, where, wanted, here, "changed in the file, and changed here since")
    return Step(Event.UPDATE, memory.scope, where, wanted, parts, memory, item)


def _is_unchanged(memory: Memory, entry: ManifestEntry) -> bool:
    return memory.revision == entry.revision or markdown_files.fields_digest(fields_of(memory)) == entry.item


def _claimed(step: Step) -> tuple[Scope, str]:
    return step.scope, memory_hash(step.fields.text)


def _additions(
    new: Iterable[tuple[Item, Scope]], living: Iterable[Memory], changes: Mapping[str, Step]
) -> tuple[Iterable[Step], dict[str, Item]]:
    """Return the new items that no memory says already, each text once, and those that one does, by its id."""
    ids: dict[tuple[Scope, str], str] = {}
    for memory in living:
        change = changes.get(memory.id)
        ids[(memory.scope, memory_hash(memory.text)) if change is None else _claimed(change)] = memory.id
    additions: dict[tuple[Scope, str], Step] = {}
    known: dict[str, Item] = {}
    for item, scope in new:
        step = Step(Event.ADD, scope, str(item.place), item.fields, item=item)
        if memory_id := ids.get(_claimed(step)):
            known.setdefault(memory_id, item)
        else:
            additions.setdefault(_claimed(step), step)
    return additions.values(), known


# Read the files as they are now. Blocking.


def _read_files(manifest: Manifest, folder: Path) -> tuple[list[FileText], list[str]]:
    """Return the files that may hold items, and notes on what is not imported."""
    found, unread = markdown_files.read_folder(folder)
    for path, reason in unread.items():
        if path in manifest.files:
            raise InputError(f"{folder / path} is {reason}, and was a file of the export. Nothing was imported")
    files: list[FileText] = []
    for path, data in found.items():
        is_ours = path in manifest.files
        try:
            file = markdown_files.split_file(path, data)
        except InputError:
            if is_ours or markdown_files.is_like_ours(data):
                raise
            unread[path] = "no text that can be read"
            continue
        if is_ours and not file.kind:
            file = replace(file, kind="page")
        if file.kind != markdown_files.INDEX:
            files.append(file)
    notes: list[str] = []
    if unread:
        notes.append(f"not read: {listed([f'{path} ({reason})' for path, reason in unread.items()])}")
    if others := [file.path for file in files if not file.kind]:
        notes.append(f"not from an export, and not imported: {listed(others)}")
    return files, notes


def _read_items(
    cleaner: Cleaner, manifest: Manifest, scope: Scope, files: Sequence[FileText]
) -> tuple[dict[str, Item], list[tuple[Item, Scope]]]:
    """Return the items by the ids of their memories, and the new ones with their scopes.

    An item that was imported, or lost its mark, is known by its text. What is as it was exported is left as it is. All
    else gets valid texts without secrets.
    """
    ids = sorted(manifest.memories)
    marked: dict[str, Item] = {}
    unmarked: list[tuple[Item, Scope]] = []
    for file in files:
        for item in markdown_files.items_of(file, is_ours=lambda mark: bool(_ids_with(ids, mark))):
            if not item.mark:
                unmarked.append((item, _scope_of(manifest, scope, file)))
                continue
            other = marked.setdefault(_id_of(ids, item), item)
            if other.fields != item.fields:
                raise InputError(
                    f"{item.place}: ^{item.mark} is also the mark of {other.place}, which says something else. Nothing "
                    "was imported. Remove the mark of the one that is to be a new memory, or one of both items"
                )
    items = {
        memory_id: item if manifest.memories[memory_id].is_of(item) else _cleaned(cleaner, item)
        for memory_id, item in marked.items()
    }
    unseen = {entry.text: memory_id for memory_id, entry in manifest.memories.items() if memory_id not in items}
    new: list[tuple[Item, Scope]] = []
    for item, of_item in [(_cleaned(cleaner, item), of_item) for item, of_item in unmarked]:
        if memory_id := unseen.pop(markdown_files.digest(item.fields.text.encode()), None):
            items[memory_id] = item
        else:
            new.append((item, of_item))
    return items, new


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


def _cleaned(cleaner: Cleaner, item: Item) -> Item:
    with raised_as(InputError, str(item.place), ". Nothing was imported", InputError):
        sanitize_fact(cleaner.engine, Fact(text_from(item.fields.text)))
    tags = tuple(cleaner.text(tag) for tag in item.fields.tags)
    return replace(item, fields=replace(item.fields, text=cleaner.text(item.fields.text), tags=tags))


# Turn steps into writes of the ledger: one for each scope, because a write adds memories to one scope.


def _decide(
    engine: Engine, plan: FolderImport, vectors: Mapping[str, Vector], caller: str
) -> list[tuple[Write, Sequence[Step]]]:
    """Return the writes, each with its steps; `vectors` are those of the texts, each of shape (dims,). Blocking."""
    by_scope: dict[Scope, list[Step]] = {}
    for step in plan.done:
        by_scope.setdefault(step.scope if step.event is Event.ADD else plan.scope, []).append(step)
    read = {step.memory.id: step.memory.revision for step in plan.done if step.memory is not None}
    decided: list[tuple[Write, Sequence[Step]]] = []
    for scope, steps in by_scope.items():
        with engine.ledger.read() as conn:
            facts = [with_names(conn, scope, _fact(step)) for step in steps]
        write = Write(
            scope,
            Provenance("import", caller=caller),
            decisions=tuple(_decision(step, fact) for step, fact in zip(steps, facts, strict=True)),
            vectors=vectors,
            read={} if decided else read,
        )
        decided.append((write, steps))
    return decided


def _decision(step: Step, fact: Fact) -> Decision:
    if step.memory is None:
        return Decision(Event.ADD, fact)
    if step.event is Event.DELETE:
        return Decision(Event.DELETE, memory_id=step.memory.id)
    return Decision(Event.UPDATE, without_untold_name(step.memory, fact), step.memory.id, sets_labels=True)


def _fact(step: Step) -> Fact:
    """Return what a memory is to say.

    A change leaves out what the item did not change, or takes it from the memory: an item shows it less exactly.
    """
    shown, parts, memory = step.fields, step.parts, step.memory
    labels = {"pinned": (PINNED, markdown_files.pinned_value(shown.pinned)), "until": (EXPIRES_AT, shown.until or None)}
    metadata = dict(label for part, label in labels.items() if part in parts)
    fact = Fact(shown.text if "text" in parts else "", tags=shown.tags, metadata=metadata)
    if "date" in parts and (happened := parse_date(shown.date)):
        fact = replace(fact, happened_at=happened[0], happened_precision=happened[1])
    if "since" in parts and (since := parse_date(shown.since)):
        fact = replace(fact, valid_from=since[0], valid_from_precision=since[1])
    if memory is None:
        return fact
    if "since" not in parts:
        fact = replace(fact, valid_from=memory.valid_from, valid_from_precision=memory.valid_from_precision)
    fact = replace(fact, valid_until=memory.valid_until, valid_until_precision=memory.valid_until_precision)
    return replace(fact, keywords=memory.keywords, tags=fact.tags if "tags" in parts else memory.tags)


ATTEMPTS = 3
"""How often an import is decided anew because another client changed one of its memories meanwhile."""


async def import_folder(engine: Engine, folder: Path, *, dry_run: bool, deletes: bool, caller: str) -> FolderImport:
    """Bring the edits of a folder into the ledger, as one edit. With `deletes` removed items delete their memories.

    Raises InputError that names file and line for what cannot be read, and the errors of every write; then nothing was
    written. With `dry_run` nothing is written in any case.
    """
    attempts = ATTEMPTS
    while True:
        plan = await engine.run(lambda: _plan(engine, folder, deletes=deletes))
        if dry_run:
            return plan
        try:
            return await _carry_out(engine, folder, plan, caller)
        except StaleDecisionError:
            attempts -= 1
            if not attempts:
                raise


async def _carry_out(engine: Engine, folder: Path, plan: FolderImport, caller: str) -> FolderImport:
    """Write what a plan decided, and then what the files say into the manifest. Raises as `Ledger.apply`."""
    result, items = plan, dict(plan.agreed)
    if plan.done:
        texts = [step.fields.text for step in plan.done if step.item is not None and "text" in step.parts]
        vectors, notes = await embed_texts(engine, texts)
        decided = await engine.run(lambda: _decide(engine, plan, vectors, caller))
        applied = await apply_as_one(engine, [write for write, _ in decided])
        outcomes = [outcome for each in applied for outcome in each.outcomes]
        steps = zip((step for _, steps in decided for step in steps), outcomes, strict=True)
        done = tuple(replace(step, outcome=outcome) for step, outcome in steps)
        items |= {step.memory_id: step.item for step in done if step.memory is None and step.item}
        result = replace(
            result,
            done=done,
            notes=(*result.notes, *notes, *(note for each in applied for note in each.notes)),
            edit=applied[0].edit,
            outcomes=tuple(outcomes),
        )
    failure = await engine.run(lambda: _note_items(engine, folder, plan, items))
    return replace(result, notes=(*result.notes, *failure))


def _note_items(engine: Engine, folder: Path, plan: FolderImport, items: Mapping[str, Item]) -> list[str]:
    """Write into the manifest what the files say now, by the ids of memories. Return a note on a failure. Blocking.

    A conflict keeps its old entry, so that it is listed until it is settled.
    """
    manifest = plan.manifest
    with engine.ledger.read() as conn:
        memories = memory_queries.memories_by_id(conn, list(items))
    removed = {step.memory.id for step in plan.done if step.memory is not None and step.item is None}
    entries = {memory_id: entry for memory_id, entry in manifest.memories.items() if memory_id not in removed}
    for memory_id, item in items.items():
        old, memory = entries.get(memory_id), memories.get(memory_id)
        if old is not None and old.is_of(item) and old.file == item.place.file:
            continue
        revision = memory.revision if memory is not None else 1
        entries[memory_id] = markdown_files.manifest_entry(item.place.file, revision, item.fields)
    if entries == manifest.memories:
        return []
    try:
        text = markdown_files.manifest_text(manifest.model_copy(update={"memories": entries}))
        markdown_files.write_file(folder, markdown_files.MANIFEST, text)
    except OSError as error:
        return [
            f"{folder / markdown_files.MANIFEST} cannot be written: {error}. The import is done; export to the folder "
            "again, so that the next import knows it"
        ]
    return []
