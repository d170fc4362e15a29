"""Read all that an import compares: the manifest, the files as they are now, and the ledger. Blocking."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from palimpsest.care.transfer.markdown.folder import FolderFiles, listed, read_folder
from palimpsest.care.transfer.markdown.items import Item, Shown, full_shown
from palimpsest.care.transfer.markdown.manifest import Manifest, read_manifest
from palimpsest.care.transfer.markdown.merging import Sides
from palimpsest.care.transfer.markdown.reading import INDEX, FileText, is_like_ours, items_of, split_file
from palimpsest.care.transfer.markdown.writing import current_memories
from palimpsest.core.errors import InputError
from palimpsest.core.models import Fact, Scope
from palimpsest.core.validation import text_from
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner, sanitize_fact
from palimpsest.store.mapping import is_seen
from palimpsest.store.queries import memories as memory_queries
from palimpsest.text.control_characters import visible


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: the manifest, the scope it is of by its present name, the three sides, and notes."""

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
    scope = replace(manifest.scope, project=engine.ledger.current_project(user_id, manifest.project))
    found = read_folder(folder)
    _refuse_unread(folder, manifest, found)
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
    present = _present(manifest, files)
    return Read(
        manifest, scope, Sides(manifest.memories, items.marked, items.new, present, memories, living), tuple(notes)
    )


def _refuse_unread(folder: Path, manifest: Manifest, found: FolderFiles) -> None:
    for path, reason in found.unread.items():
        if path in manifest.files:
            raise InputError(f"{folder / path} is {reason}, and was a file of the export. Nothing was imported")


def _split(manifest: Manifest, found: FolderFiles) -> tuple[list[FileText], list[str]]:
    """Return the files that may hold items, and notes on what is not imported."""
    files: list[FileText] = []
    edited: list[str] = []
    unread = dict(found.unread)
    for path, data in found.files.items():
        entry = manifest.files.get(path)
        try:
            file = split_file(path, data)
        except InputError:
            if entry is not None or is_like_ours(data):
                raise
            unread[path] = "no text that can be read"
            continue
        if entry is not None and file.front != entry.front:
            edited.append(path)
        if entry is not None and not file.kind:
            file = replace(file, kind="page")
        if file.kind != INDEX:
            files.append(file)
    notes = [f"the front matter was edited, which is not imported: {listed(edited)}"] if edited else []
    if unread:
        notes.append(f"not read: {listed([f'{path} ({reason})' for path, reason in unread.items()])}")
    if others := [file.path for file in files if not file.kind]:
        notes.append(f"not from an export, and not imported: {listed(others)}")
    return files, notes


def _present(manifest: Manifest, files: Sequence[FileText]) -> frozenset[str]:
    """Return the files that are there, with the old paths of renamed ones, which are known by their front matter."""
    here = {file.path for file in files}
    moved = {file.front for file in files if file.path not in manifest.files and file.kind}
    return frozenset(here | {path for path, entry in manifest.files.items() if entry.front in moved})


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
            base = manifest.memories[memory_id].shown
            other = marked.setdefault(memory_id, item)
            if full_shown(other, base) != full_shown(item, base):
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
    marked: dict[str, Item] = {}
    for memory_id, item in items.marked.items():
        base = manifest.memories[memory_id].shown
        marked[memory_id] = _clean(engine, cleaner, item, full_shown(item, base), base)
    new = [(_clean(engine, cleaner, item, item.shown, Shown("")), scope) for item, scope in items.new]
    notes += cleaner.notes()
    return _Items(marked, new)


def _clean(engine: Engine, cleaner: Cleaner, item: Item, said: Shown, base: Shown) -> Item:
    text, tags = item.shown.text, item.shown.tags
    if said.text != base.text:
        try:
            sanitize_fact(engine, Fact(text_from(text)))
        except InputError as error:
            raise InputError(f"{item.place}: {error}. Nothing was imported") from error
        text = cleaner.text(text)
    if said.tags != base.tags:
        tags = tuple(cleaner.text(tag) for tag in tags)
    return replace(item, shown=replace(item.shown, text=text, tags=tags))
