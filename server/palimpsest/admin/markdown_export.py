"""Export the current memories of a scope to a folder of Markdown files. Blocking.

The same memory makes the same bytes, so the folder can be kept in git. A file that is not ours is never touched, and
one of ours that was edited since only if the caller says so.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Connection

from palimpsest.admin.markdown_files import (
    INDEX,
    KIND,
    MANIFEST,
    FileEntry,
    Manifest,
    base_entry,
    digest,
    has_manifest,
    is_like_ours,
    listed,
    manifest_text,
    read_folder,
    read_manifest,
    refuse_links,
    remove_file,
    shown_of,
    split_file,
    write_file,
    written,
)
from palimpsest.core.errors import InputError
from palimpsest.core.models import Entity, EntityType, KnownRelation, Memory, Scope, name_key
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import one_line
from palimpsest.store import memories as memory_queries
from palimpsest.store.graph import entities
from palimpsest.store.graph import relations as relation_queries
from palimpsest.store.ledger import Ledger
from palimpsest.text.display import counted, visible

# Names of files that every system accepts: Windows, macOS, Linux, and the links of Obsidian.

MAX_NAME_BYTES = 120
"""A name may have 255 bytes, and 143 in an encrypted folder. What makes it unique and its ending need some of them."""

UNNAMED = "unnamed"

_FORBIDDEN = re.compile(r'[<>:"/\\|?*#^\[\]%`]+')
"""What Windows forbids, and what ends a link of Obsidian."""

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names of devices on Windows, which it also finds before a full stop."""


def safe_name(name: str) -> str:
    """Return a name without an ending that is a file name on every system. Different names may become the same."""
    plain = unicodedata.normalize("NFC", name)
    plain = "".join(" " if char.isspace() else char for char in plain if char.isspace() or _is_written(char))
    plain = " ".join(_FORBIDDEN.sub(" ", plain).split())
    plain = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(" .")
    plain = unicodedata.normalize("NFC", plain) or UNNAMED
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


def _is_written(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def name_taken(name: str) -> str:
    """Return what is equal for two names that are one file where case or composition do not count."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


# Which file a memory stands in: that of an entity it names, else of one of its tags, else of its month.
#
# Every memory stands in exactly one file, so that it is edited in one place. Other files link to that one.

FOLDERS: dict[EntityType, str] = {
    "person": "people",
    "organization": "organizations",
    "project": "projects",
    "product": "products",
    "event": "events",
    "document": "documents",
    "place": "places",
    "other": "things",
}
"""The folder of each type. A memory that names several entities stands with the one whose type comes first here."""

TOPICS, MONTHS = "topics", "months"

MIN_MEMORIES = 2
"""How many memories an entity or a tag needs for a file of its own. One line is no page."""

INDEX_NAME = "index"


@dataclass(frozen=True, slots=True)
class Page:
    """A file to be written. `kind` is "entity", "topic" or "month", and `entity` the one it is about, if it is."""

    path: str
    kind: str
    title: str
    project: str
    memories: tuple[Memory, ...]
    entity: Entity | None = None

    @property
    def link_name(self) -> str:
        """Return the name by which a link finds the file: the last part of its path, which no other file has."""
        return self.path.rpartition("/")[2].removesuffix(".md")

    @property
    def folder(self) -> str:
        """Return the folder of the file, such as "people"."""
        return self.path.rpartition("/")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _Group:
    """The memories of one file before it has a name. `key` is what they have in common, for the order of files."""

    project: str
    folder: str
    kind: str
    title: str
    key: str
    entity: Entity | None = None
    memories: list[Memory] = field(default_factory=list[Memory])


def pages_of(memories: Sequence[Memory], named: Mapping[str, Sequence[Entity]]) -> list[Page]:
    """Return the files that memories stand in, by path. `named` are the entities of each memory, by its id.

    Of memories of the same time, the one that comes first here stands first.
    """
    oldest_first = sorted(memories, key=lambda memory: memory.at)
    counts = Counter(entity.id for memory in oldest_first for entity in named.get(memory.id, ()))
    groups: dict[tuple[str, ...], _Group] = {}
    unnamed: list[Memory] = []
    for memory in oldest_first:
        known = [entity for entity in named.get(memory.id, ()) if counts[entity.id] >= MIN_MEMORIES]
        if known:
            _put(groups, memory, _entity_group(memory, min(known, key=_rank)))
        else:
            unnamed.append(memory)
    tags = Counter(name_key(tag) for memory in unnamed for tag in dict.fromkeys(memory.tags))
    for memory in unnamed:
        tag = next((tag for tag in memory.tags if name_key(tag) and tags[name_key(tag)] >= MIN_MEMORIES), None)
        _put(groups, memory, _month_group(memory) if tag is None else _topic_group(memory, tag))
    return _named_pages(groups.values())


def _put(groups: dict[tuple[str, ...], _Group], memory: Memory, group: _Group) -> None:
    key = (group.project, group.folder, group.key)
    groups.setdefault(key, group).memories.append(memory)


def _rank(entity: Entity) -> int:
    return list(FOLDERS).index(entity.type)


def _entity_group(memory: Memory, entity: Entity) -> _Group:
    return _Group(memory.scope.project, FOLDERS[entity.type], "entity", _title(entity.name), entity.id, entity)


def _topic_group(memory: Memory, tag: str) -> _Group:
    return _Group(memory.scope.project, TOPICS, "topic", _title(tag), name_key(tag))


def _month_group(memory: Memory) -> _Group:
    month = memory.date[:7]
    return _Group(memory.scope.project, MONTHS, "month", month, month)


def _title(name: str) -> str:
    return visible(one_line(name))


def _named_pages(groups: Iterable[_Group]) -> list[Page]:
    """Give each file a name that no other file has in any folder, so that links by name find one file."""
    taken = {name_taken(INDEX_NAME)}
    pages: list[Page] = []
    for group in sorted(groups, key=lambda group: (group.project, group.folder, name_key(group.title), group.key)):
        name = next(name for name in _names(group) if name_taken(name) not in taken)
        taken.add(name_taken(name))
        folders = (f"project {safe_name(group.project)}", group.folder) if group.project else (group.folder,)
        path = "/".join((*folders, f"{name}.md"))
        pages.append(Page(path, group.kind, group.title, group.project, tuple(group.memories), group.entity))
    return sorted(pages, key=lambda page: page.path)


def _names(group: _Group) -> Iterable[str]:
    name = safe_name(group.title)
    yield name
    if group.project:
        yield f"{name} ({safe_name(group.project)[:40].strip()})"
    if group.entity is not None:
        yield f"{name} ({group.entity.type})"
        yield f"{name} ({group.entity.id[:8]})"
    number = 2
    while True:
        yield f"{name} ({number})"
        number += 1


# The texts of an export's files: front matter, what an entity is connected with, items, and an index.

SHORTEST_MARK = 8
"""As many characters of an id as everywhere else."""

_LINK_SYNTAX = re.compile(r"[\[\]|#^]+")


@dataclass(frozen=True, slots=True)
class Connected:
    """What is known around an entity: its other names, its relations, and the entities that its memories also name."""

    aliases: tuple[str, ...] = ()
    relations: tuple[KnownRelation, ...] = ()
    beside: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class NotHere:
    """What the ledger holds and the files do not: deleted memories, messages, and memories of other projects."""

    deleted: int
    messages: int
    projects: tuple[str, ...]


class Links:
    """Writes names as links to the files of entities, and those of entities without a file as they are."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages: dict[tuple[str, str], Page] = {}
        for page in pages:
            if page.entity is not None:
                self._pages[page.entity.id, page.project] = page
                self._pages.setdefault((page.entity.id, ""), page)

    def of(self, entity_id: str, name: str, project: str) -> str:
        """Return a name as a link, if its entity has a file in that project or another one."""
        page = self._pages.get((entity_id, project)) or self._pages.get((entity_id, ""))
        return visible(one_line(name)) if page is None else link(page, name)

    def has_page(self, entity_id: str) -> bool:
        """Return whether an entity has a file."""
        return (entity_id, "") in self._pages


def link(page: Page, name: str) -> str:
    """Return a link to a file that shows a name."""
    shown = " ".join(_LINK_SYNTAX.sub(" ", visible(one_line(name))).split())
    return f"[[{page.link_name}]]" if shown in (page.link_name, "") else f"[[{page.link_name}|{shown}]]"


def marks_of(ids: Sequence[str]) -> dict[str, str]:
    """Return the mark of each memory: the beginning of its id, as long as it takes to tell it from the others."""
    marks: dict[str, str] = {}
    ordered = sorted(ids)
    for number, memory_id in enumerate(ordered):
        length = SHORTEST_MARK
        for neighbour in (*ordered[max(0, number - 1) : number], *ordered[number + 1 : number + 2]):
            shared = next((at for at, (a, b) in enumerate(zip(memory_id, neighbour, strict=False)) if a != b), 36)
            length = max(length, shared + 1)
        marks[memory_id] = memory_id[:length]
    return marks


def front_of(page: Page, links: Links, connected: Connected) -> str:
    """Return the front matter of a file, without its fences."""
    values: dict[str, Any] = {KIND: page.kind, "name": page.title}
    if page.entity is not None:
        values["type"] = page.entity.type
    if page.project:
        values["project"] = page.project
    if connected.aliases:
        values["aliases"] = [visible(one_line(alias)) for alias in connected.aliases]
    linked = [entity for entity in connected.beside if links.has_page(entity.id)]
    if linked:
        values["related"] = [links.of(entity.id, entity.name, page.project) for entity in linked]
    return _yaml(values)


def page_text(page: Page, links: Links, connected: Connected, marks: Mapping[str, str]) -> str:
    """Return the text of a file. What is made from the memories, and is not read again, stands as a quote."""
    head = f"---\n{front_of(page, links, connected)}\n---\n\n# {page.title}\n"
    quoted = "".join(f"> {_relation_line(relation, links, page.project)}\n" for relation in connected.relations)
    items = "".join(written(shown_of(memory), marks[memory.id]) for memory in page.memories)
    return "\n".join(part for part in (head, quoted, items) if part)


def _relation_line(relation: KnownRelation, links: Links, project: str) -> str:
    source = links.of(relation.source_id, relation.source, project)
    destination = links.of(relation.destination_id, relation.destination, project)
    name = visible(one_line(relation.relationship.replace("_", " ")))
    times = (("since", relation.valid_from), ("until", relation.valid_until))
    held = " ".join(f"{word} {time}" for word, time in times if time)
    return f"{source} — {name} → {destination}" + (f" ({held})" if held else "") + "  "


def index_text(scope: Scope, pages: Sequence[Page], not_here: NotHere) -> str:
    """Return the text of the index: all files, how to edit them, and what is not in them."""
    total = sum(len(page.memories) for page in pages)
    values = {KIND: INDEX, "user": scope.user_id, **({"project": scope.project} if scope.project else {})}
    whose = visible(scope.user_id) + (f", project {visible(scope.project)}" if scope.project else "")
    parts = [f"---\n{_yaml(values)}\n---\n\n# Memory of {whose}\n\n{counted(total, 'memory')} in {len(pages)} files.\n"]
    for folder, of_folder in groupby(pages, key=lambda page: page.path.rpartition("/")[0]):
        parts.append(f"\n## {folder.capitalize() if '/' not in folder else folder}\n\n")
        parts += [f"- {link(page, page.title)} ({len(page.memories):,})\n" for page in of_folder]
    parts.append(_HOW_TO_EDIT)
    parts.append(_not_here_text(scope, not_here))
    return "".join(parts)


_HOW_TO_EDIT = """
## How to edit

- `palimpsest import FOLDER --dry-run` shows what your edits would change, and without `--dry-run` changes it.
- Each item of a list is one memory. Keep its mark, such as ^3a090c21, at the end of its last line.
- Text, date, since, until, pinned and tags can be changed. A new item needs no mark and no line of labels.
- An item that you remove is deleted only with `--yes`. Items can be sorted, and moved to other files.
- This file, front matter, headings and quotes (>) are written anew by each export and are not imported.
"""


def _not_here_text(scope: Scope, not_here: NotHere) -> str:
    lines = [
        f"- {counted(not_here.deleted, 'deleted or replaced memory')}, and earlier texts of the others",
        f"- {counted(not_here.messages, 'message')} of conversations, and summaries",
    ]
    if not_here.projects:
        names = ", ".join(visible(name) for name in not_here.projects)
        lines.append(f"- the memories of other projects: {names}")
    if scope.agent_id or scope.run_id:
        lines.append("- the memories of other agents and runs")
    listed = "\n".join(lines)
    return f"\n## What is not here\n\n{listed}\n\n`palimpsest export FILE` writes all of it, without loss.\n"


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1_000_000).rstrip("\n")


INDEX_FILE = "index.md"

MAX_RELATIONS = 200
"""How many relations the file of an entity lists, the newest. More are no page that anybody reads."""


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
    named = entities.entities_named_by(conn, scope, memories)
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
    aliases = entities.other_names(conn, scope, page.entity)
    relations = relation_queries.relations_of(conn, scope, [page.entity.id], limit=MAX_RELATIONS)
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
