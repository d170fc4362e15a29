"""Import a folder of Markdown files that a person edited: merge it, write what changed as one edit, keep a new base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from palimpsest.care.transfer.markdown.deciding import decide, new_texts
from palimpsest.care.transfer.markdown.folder import write_file
from palimpsest.care.transfer.markdown.items import Item, Shown, full_shown, shown_of
from palimpsest.care.transfer.markdown.manifest import MANIFEST, BaseEntry, Manifest, base_entry, manifest_text
from palimpsest.care.transfer.markdown.merging import Addition, Change, Conflict, Merge, Removal, merge
from palimpsest.care.transfer.markdown.sides import Read, read_sides
from palimpsest.core.errors import StaleDecisionError
from palimpsest.core.models import Event, Outcome, Scope
from palimpsest.learn.apply import apply_as_one, embed_texts
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import memories as memory_queries

ATTEMPTS = 3
"""How often an import is decided anew because another client changed one of its memories meanwhile. Set by hand."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A memory that an import changed or would change: what it said before, and what it says then.

    `memory_id` is "" for one that would be added. `joined` is the id of the memory that says the same already, if this
    one was closed in its favour.
    """

    event: Event
    memory_id: str
    where: str
    before: Shown | None = None
    after: Shown | None = None
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
    """What was read, how it is merged, and which of the removed memories are deleted."""

    read: Read
    merge: Merge
    removals: tuple[Removal, ...]

    @property
    def result(self) -> FolderImport:
        """Return what the import would do."""
        merged = self.merge
        steps = (*self.removals, *merged.changes, *merged.additions)
        kept = () if self.removals else tuple(map(_imported, merged.removals))
        done = tuple(map(_imported, steps))
        return FolderImport(self.read.scope, done, kept, merged.conflicts, merged.missing, self.read.notes)


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
    merged = merge(read.sides)
    return _Plan(read, merged, merged.removals if deletes else ())


async def _carry_out(engine: Engine, folder: Path, plan: _Plan, caller: str) -> FolderImport:
    """Write what a plan decided, and then the base of the next import. Raises as `Ledger.apply`."""
    result = plan.result
    ids: dict[str, Item] = dict(plan.merge.known)
    if result.done:
        vectors, notes = await embed_texts(engine, new_texts(plan.merge))
        decided = await engine.run(lambda: decide(engine, plan.read.scope, plan.merge, plan.removals, vectors, caller))
        applied = await apply_as_one(engine, decided.writes)
        outcomes = [outcome for each in applied for outcome in each.outcomes]
        steps = [step for of_write in decided.of_writes for step in of_write]
        done = tuple(_imported(step, outcome) for step, outcome in zip(steps, outcomes, strict=True))
        pairs = zip(steps, outcomes, strict=True)
        ids |= {outcome.memory.id: step.item for step, outcome in pairs if isinstance(step, Addition)}
        notes = (*result.notes, *notes, *(note for each in applied for note in each.notes))
        result = replace(result, done=done, notes=notes, edit=applied[0].edit, outcomes=tuple(outcomes))
    failure = await engine.run(lambda: _keep_base(engine, folder, plan, ids))
    return replace(result, notes=(*result.notes, *failure))


def _imported(step: Removal | Change | Addition, outcome: Outcome | None = None) -> Imported:
    if isinstance(step, Removal):
        return Imported(Event.DELETE, step.memory.id, step.file, before=shown_of(step.memory))
    if isinstance(step, Addition):
        memory_id = outcome.memory.id if outcome is not None else ""
        return Imported(Event.ADD, memory_id, str(step.item.place), after=step.shown)
    joined = outcome.duplicate_of or "" if outcome is not None and outcome.event is Event.DELETE else ""
    where = str(step.place)
    return Imported(Event.UPDATE, step.memory.id, where, shown_of(step.memory), step.shown, joined)


def _keep_base(engine: Engine, folder: Path, plan: _Plan, new: Mapping[str, Item]) -> list[str]:
    """Write into the manifest what the files say now: the next import merges from there. Return a note on a failure.

    A conflict keeps its old base, so that it is listed until it is settled. Blocking.
    """
    manifest, merged = plan.read.manifest, plan.merge
    with engine.ledger.read() as conn:
        revisions = {
            memory_id: memory.revision
            for memory_id, memory in memory_queries.memories_by_id(conn, [*manifest.memories, *new]).items()
        }
    deleted = {removal.memory.id for removal in plan.removals}
    bases: dict[str, BaseEntry] = {}
    for memory_id, base in manifest.memories.items():
        item = merged.agreed.get(memory_id)
        if item is not None:
            shown = full_shown(item, base.shown)
            bases[memory_id] = base_entry(item.place.file, revisions.get(memory_id, base.revision), shown)
        elif memory_id not in deleted:
            bases[memory_id] = base
    for memory_id, item in new.items():
        bases.setdefault(memory_id, base_entry(item.place.file, revisions[memory_id], item.shown))
    return _write_base(folder, manifest, manifest.model_copy(update={"memories": bases}))


def _write_base(folder: Path, old: Manifest, new: Manifest) -> list[str]:
    if new == old:
        return []
    try:
        write_file(folder, MANIFEST, manifest_text(new))
    except OSError as error:
        return [
            f"{folder / MANIFEST} cannot be written: {error}. The import is done; export to the folder again, so that "
            "the next import knows it"
        ]
    return []
