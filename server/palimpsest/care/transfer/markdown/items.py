"""Memories as items of a Markdown list: how they are written, and how they are read again after an editor had them.

An item is the text, indented as Markdown wants it, and a last line with its labels and its mark:

    - Ana moved to Lyon.
      2026-05-08 · since 2025-03 · #family ^3a090c21

The mark is a block id as Obsidian has them, the first characters of the memory's id. One word at the end of a line
survives cutting, pasting and sorting in any editor, and can be linked to. A comment would be hidden while it is read,
but in the way of everybody who edits. The labels have a line of their own, so no text can be taken for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from palimpsest.core.clock import parse_date, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.models import EXPIRES_AT, PINNED, Memory
from palimpsest.core.validation import one_line
from palimpsest.text.control_characters import visible, visible_json

SEPARATOR = " · "

_SIMPLE_TAG = re.compile(r"[\w/-]*[^\W\d_][\w/-]*")
"""A tag as Obsidian knows it. Others are written as JSON strings."""

_LABEL = re.compile(
    r"(?:since[ ]+(?P<since>\S+)"
    r"|until[ ]+(?P<until>\S+)"
    r"|(?P<pinned>pinned(?:[ ]+-?[0-9]+(?:\.[0-9]+)?)?)"
    r'|\#(?P<quoted>"(?:[^"\\]|\\.)*")'
    r'|\#(?P<tag>[^\s\#"·]+)'
    r"|(?P<date>[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?))"
    r"(?:[ \t]*·)?(?:[ \t]+|$)"
)
_MARK = re.compile(r"(?:^|[ \t])\^(?P<mark>[0-9a-f]{8}(?:-[0-9a-f-]{0,27})?)$")
_MARKED_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ \t]|$)")


@dataclass(frozen=True, slots=True)
class Shown:
    """What an item says of a memory. Every part is text as it stands in the file, and "" if it is not there.

    `date` is the day, month or year that the memory is about, `since` from when it holds, `until` when it expires, and
    `pinned` "pinned", perhaps with a number.
    """

    text: str
    date: str = ""
    since: str = ""
    until: str = ""
    pinned: str = ""
    tags: tuple[str, ...] = ()


PARTS = tuple(part.name for part in fields(Shown))
"""What an item can say and an import can change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stands: the file, by its path in the folder, and the line, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        """Return the place in words."""
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a file. `has_labels` tells whether it had a line of labels, and `mark` is "" for a new one."""

    shown: Shown
    mark: str
    has_labels: bool
    place: Place


def shown_of(memory: Memory) -> Shown:
    """Return what an item says of a memory."""
    return Shown(
        canonical(memory.text),
        memory.date,
        memory.since,
        _until(memory.metadata),
        _pinned(memory.metadata),
        tuple(dict.fromkeys(memory.tags)),
    )


def _until(metadata: Mapping[str, Any]) -> str:
    """Return when a memory expires, or "" if its metadata says nothing that an item can show."""
    value = metadata.get(EXPIRES_AT)
    return value if isinstance(value, str) and value.isprintable() and _is_time(value) else ""


def _is_time(value: str) -> bool:
    try:
        parse_until(value, "until")
    except InputError:
        return False
    return " " not in value


def _pinned(metadata: Mapping[str, Any]) -> str:
    value = metadata.get(PINNED)
    if value is True:
        return "pinned"
    words = f"pinned {value}" if isinstance(value, int | float) and value is not False else ""
    return words if _LABEL.fullmatch(words) else ""


def pinned_value(words: str) -> bool | int | float | None:
    """Return the metadata that `Shown.pinned` stands for."""
    number = words.removeprefix("pinned").strip()
    if not number:
        return True if words else None
    return float(number) if "." in number else int(number)


def canonical(text: str) -> str:
    """Return a text as it is read again from the item it is written as: control characters visible, no loose ends."""
    return "\n".join(line.rstrip() for line in visible(text).split("\n")).strip()


def written(shown: Shown, mark: str) -> str:
    """Return an item as the lines of a file."""
    first, *others = shown.text.split("\n")
    lines = [f"- {first}", *(f"  {line}" if line else "" for line in others)]
    labels = [
        shown.date,
        f"since {shown.since}" if shown.since else "",
        f"until {shown.until}" if shown.until else "",
        shown.pinned,
        " ".join(map(_tag, shown.tags)),
    ]
    return "\n".join((*lines, f"  {SEPARATOR.join(label for label in labels if label)} ^{mark}\n"))


def _tag(tag: str) -> str:
    return f"#{tag}" if _SIMPLE_TAG.fullmatch(tag) else f"#{visible_json(json.dumps(tag, ensure_ascii=False))}"


def full_shown(item: Item, base: Shown) -> Shown:
    """Return all that an item says: without a line of labels what the base said, and without a date its date."""
    if not item.has_labels:
        return replace(base, text=item.shown.text)
    return item.shown if item.shown.date else replace(item.shown, date=base.date)


def read_item(lines: list[str], place: Place) -> Item | None:
    """Return an item from its lines, without the bullet and the indentation; None for one that is empty.

    Raises InputError that names the line that cannot be read.
    """
    while lines and not lines[-1].strip():
        lines.pop()
    marked = next((number for number in reversed(range(len(lines))) if _MARK.search(lines[number].rstrip())), None)
    if marked is None:
        return _new_item(lines, place)
    if marked < len(lines) - 1:
        raise _unreadable(
            replace(place, line=place.line + marked + 1),
            "text after the line with the mark. Put it above that line, or begin a new item with '- '",
        )
    line = lines[marked].rstrip()
    found = _MARK.search(line)
    mark, rest = found["mark"] if found else "", _MARK.sub("", line).strip()
    if marked == 0:  # the labels were removed, and the mark put behind the text
        item = Item(Shown(canonical(rest)), mark, has_labels=False, place=place)
    else:
        text = _joined(lines[:marked])
        item = Item(_labelled(text, rest, replace(place, line=place.line + marked)), mark, has_labels=True, place=place)
    if not item.shown.text:
        raise _unreadable(place, f"^{mark} has no text. Remove the whole item to delete the memory")
    return item


def _new_item(lines: list[str], place: Place) -> Item | None:
    """Return an item without a mark. Its last line may have labels if that begins with a day."""
    text = _joined(lines)
    if not text.strip("*-_ \t"):  # a bullet that waits for its text, or a line across the page
        return None
    last = lines[-1].strip()
    if len(lines) > 1 and _MARKED_DATE.match(last) and (labels := _labels(last)) is not None:
        shown = _checked(replace(labels, text=_joined(lines[:-1])), replace(place, line=place.line + len(lines) - 1))
        return Item(shown, "", has_labels=True, place=place)
    return Item(Shown(text), "", has_labels=False, place=place)


def _joined(lines: list[str]) -> str:
    return canonical("\n".join(lines))


def _labelled(text: str, line: str, place: Place) -> Shown:
    labels = _labels(line)
    if labels is None:
        raise _unreadable(
            place,
            f"'{one_line(line)[:60]}' cannot be read as labels, which look like: 2026-05-08 · since 2025-03 · "
            "until 2026-12-31 · pinned · #tag",
        )
    return _checked(replace(labels, text=text), place)


def _labels(line: str) -> Shown | None:
    """Return a line of labels without a text, or None if something in it is no label or says it twice."""
    found: dict[str, str] = {}
    tags: list[str] = []
    position = 0
    while position < len(line):
        match = _LABEL.match(line, position)
        if match is None:
            return None
        kind, value = str(match.lastgroup), match[str(match.lastgroup)]
        if kind in ("tag", "quoted"):
            tag = value if kind == "tag" else _unquoted(value)
            if tag is None:
                return None
            tags.append(tag)
        elif kind in found:
            return None
        else:
            found[kind] = one_line(value)
        position = match.end()
    return Shown("", tags=tuple(dict.fromkeys(tags)), **found)


def _unquoted(value: str) -> str | None:
    try:
        return str(json.loads(value))
    except ValueError:
        return None


def _checked(shown: Shown, place: Place) -> Shown:
    """Return what was read, if its dates are dates. Raises InputError."""
    for what, value in (("date", shown.date), ("since", shown.since)):
        if value and parse_date(value) is None:
            raise _unreadable(place, f"the {what} '{value[:40]}' is no day, month or year, such as 2026-05-08")
    if shown.until and not _is_time(shown.until):
        raise _unreadable(place, f"'until {shown.until[:40]}' is no ISO 8601 date or time, such as 2026-12-31")
    return shown


def _unreadable(place: Place, fault: str) -> InputError:
    return InputError(f"{place}: {fault}. Nothing was imported")
