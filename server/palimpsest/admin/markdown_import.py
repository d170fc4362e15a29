"""Import a folder of Markdown files that a person edited: compare them with the ledger, and write one edit.

An item that says what it said at the export is left alone. Any other changes its memory, unless that has changed since
too: then the two are a conflict, which is listed, and the ledger stays.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from palimpsest.admin import markdown_files
from palimpsest.admin.markdown_files import Item, ItemFields, Manifest, ManifestEntry, fields_digest, fields_of
from palimpsest.core.clock import parse_date
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.models import Decision, Event, Fact, Memory, Outcome, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import text_from
from palimpsest.learn.commit import apply_as_one, embed_texts, with_names
from palimpsest.learn.edit import with_labels, without_untold_name
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner, sanitize_fact
from palimpsest.store import memories as memory_queries
from palimpsest.store import projects as project_queries
from palimpsest.store.apply import Write
from palimpsest.store.rows import grouped, is_seen, memory_hash
from palimpsest.text.display import visible

NOTHING = "Nothing was imported"


@dataclass(frozen=True, slots=True)
class Step:
    """A memory to add, change or delete. `where` is the place of its item, or the file that the item was removed from.

    `memory` is None for a new one, and `after` for one that is to be deleted.
    """

    event: Event
    scope: Scope
    where: str
    memory: Memory | None
    after: ItemFields | None

    @property
    def before(self) -> ItemFields | None:
        """Return what the memory said before."""
        return fields_of(self.memory) if self.memory else None


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
    removed, and which are not deleted, because the caller did not say so.
    """

    done: tuple[Step, ...]
    removed: tuple[Step, ...]
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]
    edit: int = 0
    outcomes: tuple[Outcome, ...] = ()


@dataclass(slots=True)
class _Plan:
    """What an import is to do, while it is worked out.

    `known` are the living memories by what only one of them may say. `items` are those of memories by their ids, and
    `new` the others with their scopes.
    """

    manifest: Manifest
    scope: Scope
    memories: Mapping[str, Memory]
    known: dict[tuple[Scope, str], str]
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    new: list[tuple[Item, Scope]] = field(default_factory=list[tuple[Item, Scope]])
    changes: list[Step] = field(default_factory=list[Step])
    conflicts: list[Conflict] = field(default_factory=list[Conflict])

    def change(self, memory_id: str, item: Item) -> None:
        """Note what an item changes of its memory, or why it cannot."""
        memory, entry = self.memories.get(memory_id), self.manifest.memories.get(memory_id)
        if entry is not None and entry.item == fields_digest(item.fields):
            return
        if memory is None or memory.deleted_at is not None:
            self.conflicts.append(Conflict(memory_id, item.where, item.fields, None, "edited in the file, gone here"))
            return
        here = fields_of(memory)
        if (wanted := item.fill_in(here)) == here:
            return
        if entry is not None and not _is_unchanged(memory, entry):
            self.conflicts.append(Conflict(memory_id, item.where, wanted, here, "changed in the file, and here since"))
        elif (owner := self.known.setdefault(_claim(memory.scope, wanted.text), memory_id)) != memory_id:
            reason = f"[{owner[:8]}] says the same; remove one of the two items, or move it with its mark"
            self.conflicts.append(Conflict(memory_id, item.where, wanted, here, reason))
        else:
            self.changes.append(Step(Event.UPDATE, memory.scope, item.where, memory, wanted))

    def removals(self, present: frozenset[str]) -> list[Step]:
        """Return the memories whose items are no longer in a file that was read."""
        steps: list[Step] = []
        for memory_id, entry in self.manifest.memories.items():
            memory = self.memories.get(memory_id)
            gone = memory_id not in self.items and entry.file in present
            if not gone or memory is None or memory.deleted_at is not None:
                continue
            if _is_unchanged(memory, entry):
                steps.append(Step(Event.DELETE, self.scope, entry.file, memory, None))
            else:
                reason = "removed from the file, changed here since"
                self.conflicts.append(Conflict(memory_id, entry.file, None, fields_of(memory), reason))
        return steps


def _claim(scope: Scope, text: str) -> tuple[Scope, str]:
    """Return what only one living memory may say."""
    return scope, memory_hash(text)


def _is_unchanged(memory: Memory, entry: ManifestEntry) -> bool:
    return memory.revision == entry.revision or fields_digest(fields_of(memory)) == entry.item


def _plan(engine: Engine, folder: Path, *, deletes: bool) -> tuple[_Plan, FolderImport]:
    """Return what is to be done about the manifest, the files as they are now, and the ledger. Blocking.

    Raises InputError for what cannot be read or is of another memory.
    """
    manifest, user_id = markdown_files.read_manifest(folder), engine.settings.user_id
    if manifest.user_id != user_id:
        whose = visible(manifest.user_id)
        raise InputError(f"{folder} holds the memory of {whose}, whom --user names. Nothing was imported")
    project = engine.ledger.read_with(project_queries.current_name, user_id, manifest.project)
    scope = replace(manifest.scope, project=project)
    zone, cleaner = engine.ledger.zones.of(user_id), Cleaner(engine)
    with engine.ledger.read() as conn:
        living = markdown_files.current_memories(conn, scope)
        exported = memory_queries.memories_by_id(conn, list(manifest.memories))
    memories = {memory.id: memory.in_zone(zone) for memory in (*exported.values(), *living)}
    visible_ones = {memory_id: memory for memory_id, memory in memories.items() if is_seen(scope, memory.scope)}
    plan = _Plan(manifest, scope, visible_ones, {_claim(memory.scope, memory.text): memory.id for memory in living})
    files = markdown_files.read_folder(folder)
    _assign_items(cleaner, plan, files)
    for memory_id, item in plan.items.items():
        plan.change(memory_id, item)
    additions = {
        _claim(of_item, item.fields.text): Step(Event.ADD, of_item, item.where, None, item.fields)
        for item, of_item in plan.new
    }
    present = frozenset(file.path for file in files)
    removals = plan.removals(present)
    steps = (*(removals if deletes else ()), *plan.changes, *additions.values())
    missing = sorted({visible(entry.file) for entry in manifest.memories.values()} - present)
    lost = [f"not in the folder, so nothing of it was deleted: {', '.join(missing)}"] if missing else []
    kept = () if deletes else tuple(removals)
    return plan, FolderImport(steps, kept, tuple(plan.conflicts), (*lost, *cleaner.notes()))


def _assign_items(cleaner: Cleaner, plan: _Plan, files: Iterable[markdown_files.ItemFile]) -> None:
    """Find the memory of each item by its mark, or by its text if it has none. What was edited gets no secrets."""
    ids = sorted(plan.manifest.memories)
    said = {entry.item: memory_id for memory_id, entry in plan.manifest.memories.items()}
    unmarked: list[tuple[Item, Scope]] = []
    for file in files:
        of_file = replace(plan.scope, project=plan.scope.project if file.project else "")
        if file.project not in ("", plan.manifest.project, plan.scope.project):
            raise InputError(f"{file.path} is of the project {visible(file.project)}, and the export is not")
        for item in file.items:
            if not item.mark:
                unmarked.append((_cleaned(cleaner, item), of_file))
                continue
            memory_id = _id_of(ids, item)
            is_edited = fields_digest(item.fields) != plan.manifest.memories[memory_id].item
            kept = plan.items.setdefault(memory_id, _cleaned(cleaner, item) if is_edited else item)
            if kept.where != item.where:
                advice = "Remove one of the items, or the mark of the new one"
                raise InputError(f"{item.where}: ^{item.mark} is also the mark of {kept.where}. {NOTHING}. {advice}")
    for item, scope in unmarked:
        memory_id = plan.known.get(_claim(scope, item.fields.text)) or said.get(fields_digest(item.fields))
        if memory_id is None or plan.items.setdefault(memory_id, item) is not item:
            plan.new.append((item, scope))


def _id_of(ids: Sequence[str], item: Item) -> str:
    start = bisect_left(ids, item.mark)
    if len(found := [memory_id for memory_id in ids[start : start + 2] if memory_id.startswith(item.mark)]) == 1:
        return found[0]
    fault = "is the beginning of several marks" if found else "is the mark of no memory in this export"
    raise InputError(f"{item.where}: ^{item.mark} {fault}. {NOTHING}. Without that mark the text is a new memory")


def _cleaned(cleaner: Cleaner, item: Item) -> Item:
    with raised_as(InputError, item.where, ". Nothing was imported", InputError):
        sanitize_fact(cleaner.engine, Fact(text_from(item.fields.text)))
    tags = tuple(cleaner.text(tag) for tag in item.fields.tags)
    return replace(item, fields=replace(item.fields, text=cleaner.text(item.fields.text), tags=tags))


# Turn steps into writes of the ledger: one for each scope, because a write adds memories to one scope.


def _decide(
    engine: Engine, scope: Scope, done: Sequence[Step], vectors: Mapping[str, Vector], caller: str
) -> list[Write]:
    """Return the writes; `vectors` are those of the texts, each of shape (dims,). Blocking."""
    by_scope = grouped((step.scope if step.event is Event.ADD else scope, step) for step in done)
    read = {step.memory.id: step.memory.revision for step in done if step.memory is not None}
    writes: list[Write] = []
    for of_scope, steps in by_scope.items():
        with engine.ledger.read() as conn:
            facts = [with_names(conn, of_scope, _fact(step)) for step in steps]
        decisions = tuple(_decision(step, fact) for step, fact in zip(steps, facts, strict=True))
        made_by = Provenance("import", caller=caller)
        writes.append(Write(of_scope, made_by, decisions=decisions, vectors=vectors, read={} if writes else read))
    return writes


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
    memory, before, after = step.memory, step.before or ItemFields(""), step.after or ItemFields("")
    fact = Fact(after.text if after.text != before.text else "", tags=after.tags)
    if memory is not None:
        fact = with_labels(memory, fact, after.tags, memory.keywords)
    if after.date != before.date and (happened := parse_date(after.date)):
        fact = replace(fact, happened_at=happened[0], happened_precision=happened[1])
    if after.since != before.since:
        since = parse_date(after.since) or (None, "")
        fact = replace(fact, valid_from=since[0], valid_from_precision=since[1])
    return fact


async def import_folder(engine: Engine, folder: Path, *, dry_run: bool, deletes: bool, caller: str) -> FolderImport:
    """Bring the edits of a folder into the ledger, as one edit. With `deletes` removed items delete their memories.

    Raises InputError that names file and line for what cannot be read, and the errors of every write; then nothing was
    written. With `dry_run` nothing is written in any case.
    """
    plan, result = await engine.run(lambda: _plan(engine, folder, deletes=deletes))
    if dry_run:
        return result
    if result.done:
        vectors, notes = await embed_texts(engine, list(filter(None, (_fact(step).text for step in result.done))))
        writes = await engine.run(lambda: _decide(engine, plan.scope, result.done, vectors, caller))
        applied = await apply_as_one(engine, writes)
        outcomes = tuple(outcome for each in applied for outcome in each.outcomes)
        notes = (*result.notes, *notes, *(note for each in applied for note in each.notes))
        result = replace(result, notes=notes, edit=applied[0].edit, outcomes=outcomes)
    failure = await engine.run(lambda: _note_items(engine, folder, plan, result))
    return replace(result, notes=(*result.notes, *failure))


def _note_items(engine: Engine, folder: Path, plan: _Plan, result: FolderImport) -> list[str]:
    """Write into the manifest what the files say now. Return a note on a failure. Blocking.

    A conflict keeps its old entry, so that it is listed until it is settled.
    """
    ids = {_claim(outcome.memory.scope, outcome.memory.text): outcome.memory.id for outcome in result.outcomes}
    added = {ids[claim]: item for item, scope in plan.new if (claim := _claim(scope, item.fields.text)) in ids}
    items = plan.items | added
    for conflict in result.conflicts:
        items.pop(conflict.memory_id, None)
    deleted = {step.memory.id for step in result.done if step.memory is not None and step.after is None}
    entries = {key: entry for key, entry in plan.manifest.memories.items() if key not in deleted}
    memories = engine.ledger.read_with(memory_queries.memories_by_id, list(items))
    for memory_id, item in items.items():
        old, memory, digest = entries.get(memory_id), memories.get(memory_id), fields_digest(item.fields)
        if old is None or (old.item, old.file) != (digest, item.file):
            revision = memory.revision if memory is not None else 1
            entries[memory_id] = ManifestEntry(file=item.file, revision=revision, item=digest)
    try:
        if entries != plan.manifest.memories:
            markdown_files.write_manifest(folder, plan.manifest.model_copy(update={"memories": entries}))
    except OSError as error:
        return [f"the import is done, but {markdown_files.MANIFEST} cannot be written: {error}. Export to it again"]
    return []
