"""Export the current memories of a scope to a folder of Markdown files. Blocking.

The same memory makes the same bytes, so the folder can be kept in git. A file that is not ours is never touched, and
one of ours that was edited since only if the caller says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path

from sqlalchemy import Connection

from palimpsest.care.transfer.markdown.folder import listed, read_folder, refuse_links, remove_file, write_file
from palimpsest.care.transfer.markdown.grouping import Page, pages_of
from palimpsest.care.transfer.markdown.items import shown_of
from palimpsest.care.transfer.markdown.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    base_entry,
    digest,
    has_manifest,
    manifest_text,
    read_manifest,
)
from palimpsest.care.transfer.markdown.pages import Connected, Links, NotHere, index_text, marks_of, page_text
from palimpsest.care.transfer.markdown.reading import is_like_ours, split_file
from palimpsest.core.entities import Entity
from palimpsest.core.errors import InputError
from palimpsest.core.models import Memory, Scope
from palimpsest.core.protocols import Progress
from palimpsest.store.graph import edges, surroundings
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import memories as memory_queries

INDEX_FILE = "index.md"

MAX_RELATIONS = 200
"""How many relations the file of an entity lists, the newest. Set by hand: more are no page that anybody reads."""


@dataclass(frozen=True, slots=True)
class FolderExport:
    """What an export did: how many memories the folder holds, and which files were written, removed or the same.

    `left` are copies of files of an earlier export, which are left as they are.
    """

    memories: int
    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The files as they are to be, by path, and the manifest that belongs to them."""

    files: Mapping[str, str]
    manifest: Manifest


def export_folder(
    ledger: Ledger, scope: Scope, folder: Path, progress: Progress, *, overwrites: bool = False
) -> FolderExport:
    """Write the current memories that a scope sees to a folder, which may hold an earlier export and other files.

    With `overwrites` also over files of ours that were edited or removed since. Raises InputError if a file is in the
    way, or if an edited one is; then nothing was written.
    """
    before = read_manifest(folder) if has_manifest(folder) else None
    if before is not None and before.scope != scope:
        raise InputError(
            f"{folder} holds the export of {before.scope}, and not of {scope}. Nothing was written. Name another folder"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. A Markdown export is a folder: name a new one. Nothing was written")
    with ledger.read() as conn:
        wanted = _wanted(conn, scope, ledger.zones.of(scope.user_id), progress)
    entries = {} if before is None else before.files
    try:
        return _write(folder, wanted, entries, overwrites=overwrites)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error}. What was written so far is whole; export again"
        ) from error


def _wanted(conn: Connection, scope: Scope, zone: tzinfo, progress: Progress) -> _Wanted:
    memories = [memory.in_zone(zone) for memory in current_memories(conn, scope)]
    named = surroundings.entities_named_by(conn, scope, memories)
    pages = pages_of(memories, named)
    links, marks = Links(pages), marks_of([memory.id for memory in memories])
    files: dict[str, str] = {}
    for number, page in enumerate(pages, 1):
        files[page.path] = page_text(page, links, _connected(conn, scope, page, named), marks)
        progress(number, len(pages))
    files[INDEX_FILE] = index_text(scope, pages, _not_here(conn, scope))
    bases = {
        memory.id: base_entry(page.path, memory.revision, shown_of(memory))
        for page in pages
        for memory in page.memories
    }
    entries = {path: _entry(path, text) for path, text in files.items()}
    manifest = Manifest(
        user_id=scope.user_id,
        project=scope.project,
        agent_id=scope.agent_id,
        run_id=scope.run_id,
        files=entries,
        memories=bases,
    )
    return _Wanted(files, manifest)


def current_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that a scope sees: the global ones, and those of its project."""
    projects = dict.fromkeys(("", scope.project))
    return [memory for name in projects for memory in memory_queries.memories_of(conn, replace(scope, project=name))]


def _entry(path: str, text: str) -> FileEntry:
    data = text.encode()
    return FileEntry(sha256=digest(data), front=split_file(path, data).front)


def _connected(conn: Connection, scope: Scope, page: Page, named: Mapping[str, Sequence[Entity]]) -> Connected:
    if page.entity is None:
        beside = _beside(page, named)
        return Connected(beside=beside)
    aliases = surroundings.other_names(conn, scope, page.entity)
    relations = edges.relations_of(conn, scope, [page.entity.id], limit=MAX_RELATIONS)
    return Connected(tuple(aliases), tuple(relations), _beside(page, named))


def _beside(page: Page, named: Mapping[str, Sequence[Entity]]) -> tuple[Entity, ...]:
    """Return the other entities that the memories of a file name, by name."""
    others = {entity.id: entity for memory in page.memories for entity in named.get(memory.id, ())}
    if page.entity is not None:
        others.pop(page.entity.id, None)
    return tuple(sorted(others.values(), key=lambda entity: (entity.name.casefold(), entity.name, entity.id)))


def _not_here(conn: Connection, scope: Scope) -> NotHere:
    counts = memory_queries.counts(conn, scope)
    others = [name for name in memory_queries.projects_of(conn, scope.user_id) if name not in ("", scope.project)]
    return NotHere(counts["deleted"], counts["messages"], tuple(others))


def _write(folder: Path, wanted: _Wanted, entries: Mapping[str, FileEntry], *, overwrites: bool) -> FolderExport:
    stale = [path for path in entries if path not in wanted.files]
    refuse_links(folder, [*wanted.files, *stale, MANIFEST])
    present = {path: _bytes(folder / path) for path in (*wanted.files, *stale)}
    changing = [path for path, text in wanted.files.items() if present[path] != text.encode()]
    in_the_way = [path for path in changing if path not in entries and present[path] is not None]
    if in_the_way:
        raise InputError(
            f"these files in {folder} are not from an export and in its way: {listed(in_the_way)}. Nothing was "
            "written. Rename them, or export to another folder"
        )
    leaving = [path for path in stale if present[path] is not None]
    edited = [path for path in (*changing, *leaving) if path in entries and _is_edited(present[path], entries[path])]
    others = _others(folder, {*wanted.files, *stale})
    renamed = _renamed(folder, others, entries)
    if (edited or renamed) and not overwrites:
        raise InputError(
            f"these files were edited or removed since they were exported: {listed(sorted((*edited, *renamed)))}. "
            f"Nothing was written. palimpsest import {folder} takes the edits in; export with --yes writes them anew"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in changing:
        write_file(folder, path, wanted.files[path])
    leaving += renamed
    for path in leaving:
        remove_file(folder, path)
    text = manifest_text(wanted.manifest)
    if _bytes(folder / MANIFEST) != text.encode():
        write_file(folder, MANIFEST, text)
    unchanged = len(wanted.files) - len(changing)
    left = tuple(path for path in others if path not in renamed)
    return FolderExport(len(wanted.manifest.memories), tuple(changing), tuple(leaving), unchanged, left)


def _others(folder: Path, ours: AbstractSet[str]) -> dict[str, bytes]:
    """Return the files that say that they are of an export, and are not among those that it wrote or is to write."""
    if not folder.is_dir():
        return {}
    files = read_folder(folder).files
    return {path: data for path, data in files.items() if path not in ours and is_like_ours(data)}


def _renamed(folder: Path, others: Mapping[str, bytes], entries: Mapping[str, FileEntry]) -> list[str]:
    """Return those of the other files that are files of the last export under another name, by their front matter."""
    gone = {entry.front for path, entry in entries.items() if not (folder / path).exists()}
    return [path for path, data in others.items() if _front(path, data) in gone]


def _front(path: str, data: bytes) -> str:
    try:
        return split_file(path, data).front
    except InputError:  # somebody broke it, so it is not known as one of ours
        return ""


def _bytes(file: Path) -> bytes | None:
    """Return what is in a file, or None if there is none."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_edited(present: bytes | None, entry: FileEntry) -> bool:
    return present is None or digest(present) != entry.sha256
