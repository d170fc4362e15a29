"""Read the files of a folder: their front matter, and the items in them with the lines where they stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import yaml

from palimpsest.care.transfer.markdown.items import Item, Place, read_item
from palimpsest.care.transfer.markdown.manifest import digest
from palimpsest.core.errors import InputError
from palimpsest.core.validation import one_line

KIND = "palimpsest"
"""The key of the front matter by which a file is ours: "entity", "topic", "month" or "index"."""

INDEX = "index"

MAX_FRONT_CHARS = 64_000
"""More than the names of an entity and what it is connected with. Set by hand: YAML is read slowly."""

_FENCE = "---"
_BULLET = re.compile(r"[-*+](?:[ \t]+(?P<text>.*))?$")
_RULE = re.compile(r"(?:-{3,}|\*{3,}|_{3,})\s*$")


@dataclass(frozen=True, slots=True)
class FileText:
    """A file as it was read. `kind` and `project` are those of its front matter, and `front` the digest of that.

    `kind` is "" if the file is none of ours. `body` are its lines, without the front matter, and `first` is the number
    of the first of them.
    """

    path: str
    kind: str
    project: str
    front: str
    body: tuple[str, ...]
    first: int


def split_file(path: str, data: bytes) -> FileText:
    """Return the parts of a file. Raises InputError if it is no text or its front matter cannot be read."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 ({error.reason}). Nothing was imported") from error
    if "\0" in text:
        raise InputError(f"{path} is no text: it has NUL characters. Nothing was imported")
    lines = text.split("\n")
    end = _end_of_front(lines)
    front = "\n".join(lines[1:end]) if end else ""
    values = _front_values(path, front)
    kind, project = (_text_value(path, values, key) for key in (KIND, "project"))
    start = end + 1 if end else 0
    return FileText(path, kind, project, front_digest(front), tuple(lines[start:]), start + 1)


def is_like_ours(data: bytes) -> bool:
    """Return whether a file says in its front matter that it is of an export, whether that can be read or not."""
    return f"\n{KIND}: ".encode() in data[:MAX_FRONT_CHARS]


def front_digest(front: str) -> str:
    """Return the digest of a front matter, without its fences."""
    return digest(front.encode("utf-8", "surrogatepass"))


def _end_of_front(lines: list[str]) -> int:
    """Return the index of the line that ends the front matter; 0 if there is none."""
    if lines[0].rstrip() != _FENCE:
        return 0
    return next((number for number in range(1, len(lines)) if lines[number].rstrip() == _FENCE), 0)


def _front_values(path: str, front: str) -> Mapping[str, Any]:
    if len(front) > MAX_FRONT_CHARS:
        raise InputError(f"the front matter of {path} is longer than {MAX_FRONT_CHARS:,} characters")
    try:
        values: Any = yaml.safe_load(front) if front else {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark is not None else 1
        problem = one_line(str(error.problem))
        raise InputError(
            f"{path}, line {line}: the front matter is no YAML: {problem}. Nothing was imported"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none, or brackets without end
        raise InputError(f"{path}: the front matter cannot be read as YAML. Nothing was imported") from error
    return cast("Mapping[str, Any]", values) if isinstance(values, dict) else {}


def _text_value(path: str, values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"{path}: '{key}' in the front matter is no text. Nothing was imported")
    return value


def items_of(file: FileText, *, is_ours: Callable[[str], bool]) -> list[Item]:
    """Return the items of a file that an export wrote, or that says it is one. Raises InputError that names the line.

    Of any other file these are the marked items for whose mark `is_ours`: somebody has moved them there. Headings,
    quotes and lines across the page are no items.
    """
    items: list[Item] = []
    lines: list[str] = []
    place = Place(file.path, file.first)

    def close() -> None:
        if not lines:
            return
        if file.kind:
            found = read_item(lines.copy(), place)
            items.extend([found] if found is not None else [])
        elif (found := _moved_item(lines.copy(), place, is_ours)) is not None:
            items.append(found)
        lines.clear()

    for number, line in enumerate(file.body, file.first):
        bullet = _BULLET.match(line)
        if bullet is not None:
            close()
            place = Place(file.path, number)
            lines.append(bullet["text"] or "")
        elif lines and (not line.strip() or line.startswith(("  ", "\t"))):
            lines.append(line[1:] if line.startswith("\t") else line[2:])
        else:
            close()
            _refuse_stray(file, line, number)
    close()
    return items


def _moved_item(lines: list[str], place: Place, is_ours: Callable[[str], bool]) -> Item | None:
    """Return an item in a file that is none of ours, if it is one of ours; nothing else there can be at fault."""
    try:
        found = read_item(lines, place)
    except InputError:
        return None
    return found if found is not None and found.mark and is_ours(found.mark) else None


def _refuse_stray(file: FileText, line: str, number: int) -> None:
    """Raise InputError for a line of one of our files that is neither an item nor anything that is left alone."""
    if not file.kind or not line.strip() or line.startswith(("#", ">")) or _RULE.match(line):
        return
    raise InputError(
        f"{Place(file.path, number)}: '{one_line(line)[:60]}' belongs to no item. Begin it with '- ' to make it a "
        "memory, indent it by two spaces to add it to the item above, or begin it with '> ' to keep it as a note. "
        "Nothing was imported"
    )
