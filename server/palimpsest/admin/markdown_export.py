"""Export the current memories of a scope to a folder of Markdown files. Blocking.

The same memory makes the same bytes, so the folder can be kept in git. A file that is not ours is never touched, and
one of ours that was edited since only if the caller says so.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Connection

from palimpsest.admin import markdown_files
from palimpsest.admin.markdown_files import INDEX, KIND, MANIFEST, Manifest, digest, fields_of, listed
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.models import Entity, EntityType, KnownRelation, Memory, Scope, name_key
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import one_line
from palimpsest.store import memories as memory_queries
from palimpsest.store.graph import entities
from palimpsest.store.graph import relations as relation_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import scope_values
from palimpsest.text.display import counted, visible

# Names of files that every system accepts: Windows, macOS, Linux, and the links of Obsidian.

MAX_NAME_BYTES = 120
"""A name may have 255 bytes, and 143 in an encrypted folder. What makes it unique and its ending need some of them."""

UNNAMED = "unnamed"

_FORBIDDEN = re.compile(r'[<>:"/\\|?*#^\[\]%`]+')
"""What Windows forbids, and what ends a link of Obsidian."""

_UNWRITTEN = ("Cc", "Cf", "Cs", "Co", "Cn")

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names of devices on Windows, which it also finds before a full stop."""


def safe_name(name: str) -> str:
    """Return a name without an ending that is a file name on every system. Different names may become the same."""
    plain = unicodedata.normalize("NFC", name)
    written = (char for char in plain if char.isspace() or unicodedata.category(char) not in _UNWRITTEN)
    plain = "".join(" " if char.isspace() else char for char in written)
    plain = " ".join(_FORBIDDEN.sub(" ", plain).split())
    plain = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(" .")
    plain = unicodedata.normalize("NFC", plain) or UNNAMED
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


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

MIN_MEMORIES = 2
"""How many memories an entity or a tag needs for a file of its own: one line is no page."""

_LINK_SYNTAX = re.compile(r"[\[\]|#^]+")


@dataclass(frozen=True, slots=True)
class Page:
    """A file to be written. `kind` is "entity", "topic" or "month", and `entity` the one it is about, if it is.

    `key` is what its memories have in common, for the order of files. `path` is "" until the file has a name.
    """

    kind: str
    title: str
    project: str
    folder: str
    key: str
    entity: Entity | None = None
    memories: list[Memory] = field(default_factory=list[Memory])
    path: str = ""

    def link(self, name: str) -> str:
        """Return a link to the file that shows a name. It finds the file by the last part of its path, as no other."""
        file_name = self.path.rpartition("/")[2].removesuffix(".md")
        shown = " ".join(_LINK_SYNTAX.sub(" ", visible(one_line(name))).split())
        return f"[[{file_name}]]" if shown in (file_name, "") else f"[[{file_name}|{shown}]]"


def pages_of(memories: Sequence[Memory], named: Mapping[str, Sequence[Entity]]) -> list[Page]:
    """Return the files that memories stand in, by path. `named` are the entities of each memory, by its id.

    Of memories of the same time, the one that comes first here stands first.
    """
    oldest_first = sorted(memories, key=lambda memory: memory.at)
    counts = Counter(entity.id for memory in oldest_first for entity in named.get(memory.id, ()))
    entity_of: dict[str, Entity] = {}
    tags: Counter[str] = Counter()
    for memory in oldest_first:
        known = [entity for entity in named.get(memory.id, ()) if counts[entity.id] >= MIN_MEMORIES]
        if known:
            entity_of[memory.id] = min(known, key=lambda entity: list(FOLDERS).index(entity.type))
        else:
            tags.update({name_key(tag) for tag in memory.tags})
    pages: dict[tuple[str, ...], Page] = {}
    for memory in oldest_first:
        page = _page_of(memory, entity_of.get(memory.id), tags)
        pages.setdefault((page.project, page.folder, page.key), page).memories.append(memory)
    return _named_pages(pages.values())


def _page_of(memory: Memory, entity: Entity | None, tags: Mapping[str, int]) -> Page:
    """Return the page of a memory, without memories. `tags` says how many memories without an entity have each tag."""
    project, month = memory.scope.project, memory.date[:7]
    if entity is not None:
        return Page("entity", visible(one_line(entity.name)), project, FOLDERS[entity.type], entity.id, entity)
    tag = next((tag for tag in memory.tags if name_key(tag) and tags[name_key(tag)] >= MIN_MEMORIES), None)
    if tag is None:
        return Page("month", month, project, "months", month)
    return Page("topic", visible(one_line(tag)), project, "topics", name_key(tag))


def _named_pages(pages: Iterable[Page]) -> list[Page]:
    """Give each file a name that no other file has in any folder, so that links by name find one file."""
    taken = {name_taken(INDEX)}
    named: list[Page] = []
    for page in sorted(pages, key=lambda page: (page.project, page.folder, name_key(page.title), page.key)):
        name = next(name for name in _names(page) if name_taken(name) not in taken)
        taken.add(name_taken(name))
        folders = (f"project {safe_name(page.project)}", page.folder) if page.project else (page.folder,)
        named.append(replace(page, path="/".join((*folders, f"{name}.md"))))
    return sorted(named, key=lambda page: page.path)


def _names(page: Page) -> Iterable[str]:
    name = safe_name(page.title)
    yield name
    if page.project:
        yield f"{name} ({safe_name(page.project)[:40].strip()})"
    if page.entity is not None:
        yield f"{name} ({page.entity.type})"
        yield f"{name} ({page.entity.id[:8]})"
    for number in count(2):
        yield f"{name} ({number})"


# The texts of an export's files: front matter, what an entity is connected with, items, and an index.

SHORTEST_MARK = 8
"""As many characters of an id as everywhere else."""

MAX_RELATIONS = 200
"""How many relations the file of an entity lists, the newest: more are no page that anybody reads."""


class _PageTexts:
    """Writes the texts of files, with links to those of entities. `named` are the entities of each memory by its id."""

    def __init__(
        self, conn: Connection, scope: Scope, pages: Sequence[Page], named: Mapping[str, Sequence[Entity]]
    ) -> None:
        self._conn, self._scope, self._named = conn, scope, named
        self._marks = marks_of([memory.id for page in pages for memory in page.memories])
        self._pages: dict[tuple[str, str], Page] = {}
        for page in pages:
            if page.entity is not None:
                self._pages[page.entity.id, page.project] = page
                self._pages.setdefault((page.entity.id, ""), page)

    def of(self, page: Page) -> str:
        """Return the text of a file. What is made from the memories, and is not read again, stands as a quote."""
        entity, aliases, relations = page.entity, list[str](), list[KnownRelation]()
        others = {other.id: other for memory in page.memories for other in self._named.get(memory.id, ())}
        if entity is not None:
            others.pop(entity.id, None)
            aliases = entities.other_names(self._conn, self._scope, entity)
            relations = relation_queries.relations_of(self._conn, self._scope, [entity.id], limit=MAX_RELATIONS)
        linked = [other for other in others.values() if (other.id, "") in self._pages]
        linked.sort(key=lambda other: (other.name.casefold(), other.name, other.id))
        values: dict[str, Any] = {
            "type": entity.type if entity is not None else "",
            "project": page.project,
            "aliases": [visible(one_line(alias)) for alias in aliases],
            "related": [self._linked(other.id, other.name, page.project) for other in linked],
        }
        front = _yaml({KIND: page.kind, "name": page.title, **{key: value for key, value in values.items() if value}})
        quoted = "".join(f"> {self._relation_line(relation, page.project)}\n" for relation in relations)
        items = (markdown_files.format_item(fields_of(memory), self._marks[memory.id]) for memory in page.memories)
        parts = (f"---\n{front}\n---\n\n# {page.title}\n", quoted, "".join(items))
        return "\n".join(part for part in parts if part)

    def _linked(self, entity_id: str, name: str, project: str) -> str:
        """Return a name as a link, if its entity has a file in that project or another one."""
        page = self._pages.get((entity_id, project)) or self._pages.get((entity_id, ""))
        return visible(one_line(name)) if page is None else page.link(name)

    def _relation_line(self, relation: KnownRelation, project: str) -> str:
        source = self._linked(relation.source_id, relation.source, project)
        destination = self._linked(relation.destination_id, relation.destination, project)
        name = visible(one_line(relation.relationship.replace("_", " ")))
        times = (("since", relation.valid_from), ("until", relation.valid_until))
        held = " ".join(f"{word} {time}" for word, time in times if time)
        return f"{source} — {name} → {destination}" + (f" ({held})" if held else "") + "  "


def marks_of(ids: Sequence[str]) -> dict[str, str]:
    """Return the mark of each memory: the beginning of its id, as long as it takes to tell it from the others."""
    ordered = sorted(ids)
    pairs = (zip(one, other, strict=False) for one, other in pairwise(("", *ordered, "")))
    shared = [next((at for at, (a, b) in enumerate(pair) if a != b), 0) for pair in pairs]
    longest = (max(SHORTEST_MARK - 1, before, after) for before, after in pairwise(shared))
    return {memory_id: memory_id[: length + 1] for memory_id, length in zip(ordered, longest, strict=True)}


def index_text(scope: Scope, pages: Sequence[Page], not_here: str) -> str:
    """Return the text of the index: all files, how to edit them, and what is not in them."""
    total = sum(len(page.memories) for page in pages)
    values = {KIND: INDEX, "user": scope.user_id, **({"project": scope.project} if scope.project else {})}
    whose = visible(scope.user_id) + (f", project {visible(scope.project)}" if scope.project else "")
    parts = [f"---\n{_yaml(values)}\n---\n\n# Memory of {whose}\n\n{counted(total, 'memory')} in {len(pages)} files.\n"]
    for folder, of_folder in groupby(pages, key=lambda page: page.path.rpartition("/")[0]):
        parts.append(f"\n## {folder.capitalize() if '/' not in folder else folder}\n\n")
        parts += [f"- {page.link(page.title)} ({len(page.memories):,})\n" for page in of_folder]
    return "".join((*parts, _HOW_TO_EDIT, not_here))


_HOW_TO_EDIT = """
## How to edit

- `palimpsest import FOLDER --dry-run` shows what your edits would change, and without `--dry-run` changes it.
- Each item of a list is one memory. Keep its mark, such as ^3a090c21, at the end of its last line.
- Text, date, since, until, pinned and tags can be changed. A new item needs no mark and no line of labels.
- An item that you remove is deleted only with `--yes`. Items can be sorted, and moved to other files.
- This file, front matter, headings and quotes (>) are written anew by each export and are not imported.
"""


def _not_here(conn: Connection, scope: Scope) -> str:
    """Return the end of the index: what the ledger holds and the files do not."""
    counts = memory_queries.counts(conn, scope)
    lines = [
        f"- {counted(counts['deleted'], 'deleted or replaced memory')}, and earlier texts of the others",
        f"- {counted(counts['messages'], 'message')} of conversations, and summaries",
    ]
    others = [name for name in memory_queries.projects_of(conn, scope.user_id) if name not in ("", scope.project)]
    if others:
        lines.append(f"- the memories of other projects: {', '.join(map(visible, others))}")
    if scope.agent_id or scope.run_id:
        lines.append("- the memories of other agents and runs")
    listed = "\n".join(lines)
    return f"\n## What is not here\n\n{listed}\n\n`palimpsest export FILE` writes all of it, without loss.\n"


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1_000_000).rstrip("\n")


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


def export_folder(
    ledger: Ledger, scope: Scope, folder: Path, progress: Progress, *, overwrites: bool = False
) -> FolderExport:
    """Write the current memories that a scope sees to a folder, which may hold an earlier export and other files.

    With `overwrites` also over files of ours that were edited or removed since. Raises InputError if a file is in the
    way, or if an edited one is; then nothing was written.
    """
    before = markdown_files.read_manifest(folder) if markdown_files.has_manifest(folder) else None
    if before is not None and before.scope != scope:
        raise InputError(
            f"{folder} holds the export of {before.scope}, and not of {scope}. Nothing was written. Name another folder"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. A Markdown export is a folder: name a new one. Nothing was written")
    with ledger.read() as conn:
        files, manifest = _read_files(conn, scope, ledger.zones.of(scope.user_id), progress)
    unfinished = ". What was written so far is whole; export again"
    with raised_as(InputError, f"{folder} cannot be written", unfinished, OSError):
        return _write(folder, files, manifest, {} if before is None else before.files, overwrites=overwrites)


def _read_files(conn: Connection, scope: Scope, zone: tzinfo, progress: Progress) -> tuple[dict[str, str], Manifest]:
    """Return the texts of all files by path, and the manifest that belongs to them."""
    memories = [memory.in_zone(zone) for memory in current_memories(conn, scope)]
    named = entities.entities_named_by(conn, scope, memories)
    pages = pages_of(memories, named)
    texts, files = _PageTexts(conn, scope, pages, named), dict[str, str]()
    for number, page in enumerate(pages, 1):
        files[page.path] = texts.of(page)
        progress(number, len(pages))
    files[f"{INDEX}.md"] = index_text(scope, pages, _not_here(conn, scope))
    entries = {
        memory.id: markdown_files.manifest_entry(page.path, memory.revision, fields_of(memory))
        for page in pages
        for memory in page.memories
    }
    digests = {path: digest(text.encode()) for path, text in files.items()}
    manifest = Manifest.model_validate({**scope_values(scope), "files": digests, "memories": entries})
    return files, manifest


def current_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that a scope sees: the global ones, and those of its project."""
    projects = dict.fromkeys(("", scope.project))
    return [memory for name in projects for memory in memory_queries.memories_of(conn, replace(scope, project=name))]


def _write(
    folder: Path, files: Mapping[str, str], manifest: Manifest, before: Mapping[str, str], *, overwrites: bool
) -> FolderExport:
    """Bring a folder from the files of the last export, by their digests, to these."""
    stale = [path for path in before if path not in files]
    markdown_files.refuse_links(folder, [*files, *stale, MANIFEST])
    present = {path: _bytes(folder / path) for path in (*files, *stale)}
    changing = [path for path, text in files.items() if present[path] != text.encode()]
    in_the_way = [path for path in changing if path not in before and present[path] is not None]
    if in_the_way:
        raise InputError(
            f"these files in {folder} are not from an export and in its way: {listed(in_the_way)}. Nothing was "
            "written. Rename them, or export to another folder"
        )
    leaving = [path for path in stale if present[path] is not None]
    edited = [path for path in (*changing, *leaving) if path in before and digest(present[path] or b"") != before[path]]
    if edited and not overwrites:
        raise InputError(
            f"these files were edited or removed since they were exported: {listed(sorted(edited))}. "
            f"Nothing was written. palimpsest import {folder} takes the edits in; export with --yes writes them anew"
        )
    found = markdown_files.read_folder(folder)[0] if folder.is_dir() else {}
    left = [path for path, data in found.items() if path not in present and markdown_files.is_like_ours(data)]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in changing:
        markdown_files.write_file(folder, path, files[path])
    for path in leaving:
        markdown_files.remove_file(folder, path)
    text = markdown_files.manifest_text(manifest)
    if _bytes(folder / MANIFEST) != text.encode():
        markdown_files.write_file(folder, MANIFEST, text)
    unchanged = len(files) - len(changing)
    return FolderExport(len(manifest.memories), tuple(changing), tuple(leaving), unchanged, tuple(left))


def _bytes(file: Path) -> bytes | None:
    """Return what is in a file, or None if there is none."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
