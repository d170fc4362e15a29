"""The texts of an export's files: front matter, what an entity is connected with, items, and an index."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml

from palimpsest.care.transfer.markdown.grouping import Page
from palimpsest.care.transfer.markdown.items import shown_of, written
from palimpsest.care.transfer.markdown.reading import INDEX, KIND
from palimpsest.core.entities import Entity, KnownRelation
from palimpsest.core.models import Scope
from palimpsest.core.validation import one_line
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

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
