"""What Claude's export has beside the conversations: what Claude remembers (memories.json), and projects.

The formats are undocumented. A file of memories has `conversations_memory`, a text in Markdown, and `project_memories`,
such a text for the id of each project. A project has `name`, `description`, `prompt_template` and `docs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from palimpsest.care.importers.records import ImportedMemory, Memories, Skipped, keep_memory
from palimpsest.care.importers.values import instant_of, list_of, object_of, plausible_instant, tags_of, text_of
from palimpsest.core.validation import one_line

_HEADING = re.compile(r"#{1,6}\s+(?P<marked>.+?)\s*#*|\*\*(?P<bold>[^*]+)\*\*:?")
"""A line that heads the paragraphs below it."""

_BULLET = re.compile(r"(?m)^\s*[-*•]\s+")


def is_of_claude(value: Any) -> bool:
    """Return whether a JSON value is Claude's memory of an account, or a project."""
    return _is_memory(object_of(value)) or _is_project(object_of(value))


def memories_of(values: Sequence[Any], now: datetime, skipped: Skipped) -> tuple[ImportedMemory, ...]:
    """Return one memory per paragraph that Claude remembers, and one per description of a project."""
    objects = [object_of(value) for value in values]
    projects = [value for value in objects if _is_project(value) and not value.get("is_starter_project")]
    names = {text_of(project.get("uuid")): one_line(text_of(project.get("name"))) for project in projects}
    memories: Memories = {}
    for value in objects:
        if not _is_memory(value):
            continue
        at = plausible_instant(instant_of(value.get("updated_at")), now)
        for tags, text in _paragraphs(text_of(value.get("conversations_memory"))):
            keep_memory(memories, skipped, "claude", text, at, tags)
        for project_id, memory in object_of(value.get("project_memories")).items():
            prefix = f"{names[project_id]}: " if names.get(project_id) else ""
            for tags, text in _paragraphs(text_of(memory)):
                keep_memory(memories, skipped, "claude", f"{prefix}{text}", at, tags)
    for project in projects:
        _take_project(project, now, skipped, memories)
    return tuple(memories.values())


def _is_memory(value: dict[str, Any]) -> bool:
    return isinstance(value.get("conversations_memory"), str) or isinstance(value.get("project_memories"), dict)


def _is_project(value: dict[str, Any]) -> bool:
    return (
        "chat_messages" not in value and isinstance(value.get("name"), str) and {"prompt_template", "docs"} <= {*value}
    )


def _take_project(project: dict[str, Any], now: datetime, skipped: Skipped, memories: Memories) -> None:
    """Take in the description of a project. Its instructions are orders and no facts, and its documents are books."""
    name, description = one_line(text_of(project.get("name"))), text_of(project.get("description"))
    if description:
        at = plausible_instant(instant_of(project.get("updated_at")), now)
        keep_memory(memories, skipped, "claude", f"{name}: {description}" if name else description, at)
    skipped["instructions of projects"] += bool(text_of(project.get("prompt_template")))
    skipped["documents of projects"] += len(list_of(project.get("docs")))


def _paragraphs(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the paragraphs and list items of a text in Markdown, each with its heading as a tag."""
    tags: tuple[str, ...] = ()
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().split("\n")
        heading = _HEADING.fullmatch(lines[0].strip())
        if heading is not None:
            tags, lines = tags_of(heading["marked"] or heading["bold"]), lines[1:]
        items = _BULLET.split("\n".join(lines))
        yield from ((tags, kept) for item in items if (kept := one_line(item)))
