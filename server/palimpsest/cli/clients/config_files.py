"""Edit clients' files (JSONC and TOML), which people edit too: comments and order stay."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, cast

from palimpsest.core.errors import InputError
from palimpsest.core.files import OWNER_ONLY, replace_file
from palimpsest.core.settings_file import edited_toml

# Change one value of a JSON file that people edit. Comments, order and everything else stay as they are.
#
# Reads JSON with `//` and `/* */` comments and trailing commas, as VS Code writes it. A path leads through objects
# by their keys and through lists by the numbers of their items. All functions are pure.

Step: TypeAlias = str | int
"""A key of an object, or the number of an item in a list."""

BYTE_ORDER_MARK = "\ufeff"
"""What some editors on Windows put before a text. It stays."""

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_LITERAL = re.compile(r"true|false|null|-?\d[\d.eE+-]*")
_TRAILING_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=\r?\n))")
_INDENT = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class Node:
    """A value, the offsets where it begins and ends, and its members if it is an object or a list.

    A member has a key, the offset where it begins with this key, and that of the comma after it, if there is one.
    """

    start: int
    end: int
    value: Any
    members: tuple[Node, ...] | None = None
    key: Step = ""
    key_start: int = 0
    comma: int | None = None


def value_at(text: str, path: Sequence[Step] = ()) -> Any:
    """Return the value at a path, or None if there is none.

    Raises ValueError that names the line if the text is not JSON or a value on the path is of another kind.
    """
    if not text.strip("\ufeff \t\r\n"):
        return None
    node, depth = _deepest(text, path)
    return node.value if depth == len(path) else None


def with_entry(text: str, path: Sequence[Step], value: Any) -> str:
    """Return the text with `value` at a path. Missing objects are added; the number of no item adds one to its list.

    Raises ValueError that names the line if the text is not JSON or a value on the path is of another kind.
    """
    if not text.strip():
        text = "{}\n"
    node, depth = _deepest(text, path)
    rest = path[depth:]
    if not rest:
        if node.value == value:
            return text
        return text[: node.start] + _dump(value, _indent_at(text, node.start), text) + text[node.end :]
    for key in reversed(rest[1:]):
        value = {key: value} if isinstance(key, str) else [value]
    return _insert(text, node, rest[0], value)


def without_entry(text: str, path: Sequence[Step]) -> str:
    """Return the text without the entry at a path. If there is none, return the text as it is.

    Raises ValueError that names the line if the text is not JSON or a value on the path is of another kind.
    """
    parent, depth = _deepest(text, path[:-1]) if text.strip() else (None, 0)
    members = parent.members or () if parent is not None and depth == len(path) - 1 else ()
    index = next((number for number, member in enumerate(members) if member.key == path[-1]), None)
    if index is None:
        return text
    member = members[index]
    start = _line_start(text, member.key_start)
    if member.comma is not None:
        return text[:start] + text[_after_line(text, member.comma + 1) :]
    comma = members[index - 1].comma if index else None
    head = text[:start] if comma is None else text[:comma] + text[comma + 1 : start]
    return head.rstrip(" \t") + text[_after_line(text, member.end) :]


def _deepest(text: str, path: Sequence[Step]) -> tuple[Node, int]:
    """Return the last existing value on a path, and the number of steps that lead to it.

    Raises ValueError if a value before it has no such members, or has one of them twice.
    """
    node = _parse(text)
    for depth, key in enumerate(path):
        _expect_members(text, node, key)
        members = [member for member in node.members or () if member.key == key]
        if not members:
            return node, depth
        if len(members) > 1:
            raise ValueError(f"{_line_of(text, members[1].key_start)}: '{key}' is here a second time")
        node = members[0]
    return node, len(path)


def _expect_members(text: str, node: Node, key: Step) -> None:
    """Raise ValueError unless a value can have a member with such a key."""
    kind, name = (dict, "an object") if isinstance(key, str) else (list, "a list")
    if not isinstance(node.value, kind):
        where = _line_of(text, node.start)
        raise ValueError(f"{where}: {name} is expected here, to look for '{key}' in it")  # noqa: TRY004 - of the text


def _insert(text: str, node: Node, key: Step, value: Any) -> str:
    _expect_members(text, node, key)
    newline, unit = _newline(text), _indent_unit(text)
    outer = _indent_at(text, node.start)
    name = f"{json.dumps(key)}: " if isinstance(key, str) else ""
    if not node.members:
        inner = outer + unit
        inside = text[node.start + 1 : node.end - 1].rstrip()  # comments, if there are any
        entry = f"{newline}{inner}{name}{_dump(value, inner, text)}{newline}{outer}"
        return text[: node.start + 1] + inside + entry + text[node.end - 1 :]
    last = node.members[-1]
    one_line = "\n" not in text[node.start : last.key_start]
    inner = outer + unit if one_line else _indent_at(text, last.key_start)
    end = last.end if last.comma is None else last.comma + 1
    comma = "," if last.comma is None else ""
    comment = _TRAILING_COMMENT.match(text, end)
    after = comment.end() if comment else end  # a comment behind the last member stays with it
    entry = f"{newline}{inner}{name}{_dump(value, inner, text)}"
    tail = f"{newline}{outer}{text[after:].lstrip(' ')}" if one_line else text[after:]
    return text[:end] + comma + text[end:after] + entry + tail


def _dump(value: Any, indent: str, text: str) -> str:
    """Return a value as JSON, with the line ends and the indentation of the text it becomes a part of."""
    dumped = json.dumps(value, indent=_indent_unit(text), ensure_ascii=False)
    return dumped.replace("\n", f"{_newline(text)}{indent}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_unit(text: str) -> str:
    """Return what one level is indented by: a tab, or the spaces of the first indented line."""
    match = _INDENT.search(text)
    if match is None:
        return "  "
    return "\t" if match.group(1).startswith("\t") else match.group(1)


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _line_start(text: str, at: int) -> int:
    """Return where the line begins if only white space precedes `at` in it, else `at`."""
    start = text.rfind("\n", 0, at) + 1
    return start if not text[start:at].strip() else at


def _after_line(text: str, at: int) -> int:
    """Return where the next line begins if only white space follows `at` in this line, else `at`."""
    end = text.find("\n", at)
    return end + 1 if end >= 0 and not text[at:end].strip() else at


def _parse(text: str) -> Node:
    """Return the whole text as a tree. Raises ValueError that names the damaged line."""
    node = _parse_value(text, _skip_blank(text, len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0))
    end = _skip_blank(text, node.end)
    if end != len(text):
        raise ValueError(f"{_line_of(text, end)}: unexpected text after the end")
    return node


def _parse_value(text: str, at: int) -> Node:
    if closing := {"{": "}", "[": "]"}.get(text[at : at + 1]):
        return _parse_members(text, at, closing)
    match = _STRING.match(text, at) or _LITERAL.match(text, at)
    if match is None:
        raise ValueError(f"{_line_of(text, at)}: a value is missing")
    return Node(at, match.end(), _decoded(text, match))


def _decoded(text: str, match: re.Match[str]) -> Any:
    try:
        return json.loads(match.group())
    except ValueError as error:
        raise ValueError(f"{_line_of(text, match.start())}: {match.group()} is not a value") from error


def _parse_members(text: str, start: int, closing: str) -> Node:
    """Return an object or a list, which ends with this bracket."""
    members: list[Node] = []
    at = _skip_blank(text, start + 1)
    while text[at : at + 1] != closing:
        key: Step = len(members)
        first = at
        if closing == "}":
            name = _STRING.match(text, at)
            if name is None:
                raise ValueError(f"{_line_of(text, at)}: a key in quotation marks is missing")
            at = _skip_blank(text, name.end())
            if text[at : at + 1] != ":":
                raise ValueError(f"{_line_of(text, at)}: a colon is missing")
            key, at = _decoded(text, name), _skip_blank(text, at + 1)
        value = _parse_value(text, at)
        at, comma = _skip_blank(text, value.end), None
        if text[at : at + 1] == ",":
            at, comma = _skip_blank(text, at + 1), at
        elif text[at : at + 1] != closing:
            raise ValueError(f"{_line_of(text, at)}: a comma or '{closing}' is missing")
        members.append(replace(value, key=key, key_start=first, comma=comma))
    pairs = {member.key: member.value for member in members}
    return Node(start, at + 1, pairs if closing == "}" else list(pairs.values()), tuple(members))


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _line_of(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"


# Change one table of a TOML file that people edit. Comments, order and everything else stay as they are.


def parse(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. Raises ValueError that names the line if it is not TOML."""
    return tomllib.loads(text.removeprefix(BYTE_ORDER_MARK))


def with_table(text: str, name: str, key: str, values: Mapping[str, Any] | None) -> str:
    """Return the text with a table in another one, or with None without it.

    Raises ValueError if that would change anything else.
    """
    tables: Any = parse(text).get(name, {})
    if not isinstance(tables, Mapping):
        raise ValueError(f"a table is expected where '{name}' is {tables!r:.40}")  # noqa: TRY004 - of the text
    if cast("Mapping[str, Any]", tables).get(key) == values:
        return text
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""

    def change(document: Any) -> None:
        if values is None:
            del document[name][key]
        else:
            document.setdefault(name, {})[key] = dict(values)

    return mark + edited_toml(text.removeprefix(mark), change)


# Edits of clients' files: read with care, written only if nothing else has changed, with a copy that stays.

COPY_SUFFIX = ".before-palimpsest"
"""Suffix of the copy that is made of a client's file before it is changed; the second copy ends in "-2"."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change of a file that is not written yet: its text before and after. `before` is None if there is no file."""

    file: Path
    before: str | None
    after: str

    @property
    def has_changes(self) -> bool:
        """Return whether there is anything to write."""
        return (self.before or "") != self.after


def read_text(file: Path, *, inside: Path | None = None) -> str | None:
    """Return the text of a file, or None if there is no file.

    Raises InputError if it is no file in UTF-8, or a symbolic link to nowhere or, with `inside`, to another folder.
    """
    try:
        if file.is_symlink() and not file.exists():
            raise InputError(f"{file} is a symbolic link to a file that does not exist. Nothing was changed. Remove it")
        if inside is not None and not file.resolve().is_relative_to(inside.resolve()):
            raise InputError(
                f"{file} is a symbolic link that leads out of this folder, to {file.resolve()}. Nothing was changed. "
                "Edit that file by hand, or use the command without --project"
            )
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not in UTF-8: {error}. Nothing was changed. Save it as UTF-8") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle, before Python 3.13
        raise InputError(f"{file} cannot be read: {error}. Nothing was changed") from error


def edit_of(file: Path, changes: list[Callable[[str], str]], *, inside: Path | None = None) -> FileEdit:
    """Return the edit that makes all changes of one file. Raises InputError if it cannot be read or parsed."""
    before = text = read_text(file, inside=inside)
    try:
        for change in changes:
            text = change(text or "")
        return FileEdit(file, before, text or "")
    except (ValueError, RecursionError) as error:
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise InputError(
            f"{file} is not valid {kind} for this client: {error}. The file is unchanged. Correct it and try again."
        ) from error


def write(edit: FileEdit) -> Path | None:
    """Replace the file with its new text. Return the copy of the old file, or None if there was none.

    Raises InputError if that fails, if the file is read-only or if it has changed since it was read. It is unchanged
    then.
    """
    target = edit.file.resolve()  # a symbolic link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = _mode_to_keep(edit)
        copy = None if edit.before is None else _copied(target, edit.before, mode)
        with replace_file(target, mode) as file:
            file.write(edit.after)
            if read_text(edit.file) != edit.before:
                raise InputError(f"{target} was changed by another program just now. It stays as it is. Try again")
    except OSError as error:
        raise InputError(f"{target} could not be written: {error.strerror}. The file is unchanged.") from error
    return copy


def _mode_to_keep(edit: FileEdit) -> int:
    """Return the permissions of the file. Raises InputError if it is read-only."""
    if edit.before is None:
        return OWNER_ONLY
    mode = stat.S_IMODE(edit.file.stat().st_mode)
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(edit.file, os.W_OK):
        raise InputError(f"{edit.file} is read-only. It is unchanged. Make it writable, or edit it by hand")
    return mode


def _copied(target: Path, text: str, mode: int) -> Path:
    """Return a copy of a file beside it. An earlier copy is never overwritten; one with the same text is used again."""
    names = (target.with_name(f"{target.name}{COPY_SUFFIX}{'' if n == 1 else f'-{n}'}") for n in count(1))
    copy = next(name for name in names if not name.exists() or (name.is_file() and name.read_bytes() == text.encode()))
    if not copy.exists():
        with replace_file(copy, mode) as file:
            file.write(text)
    return copy
