"""Which file a memory stands in: that of an entity it names, else of one of its tags, else of its month.

Every memory stands in exactly one file, so that it is edited in one place. Other files link to that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from palimpsest.care.transfer.markdown.file_names import name_taken, safe_name
from palimpsest.core.entities import Entity, EntityType, name_key
from palimpsest.core.models import Memory
from palimpsest.core.validation import one_line
from palimpsest.text.control_characters import visible

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
"""How many memories an entity or a tag needs for a file of its own. Set by hand: one line is no page."""

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
