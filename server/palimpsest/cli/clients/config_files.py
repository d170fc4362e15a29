"""Edit clients' files (JSONC and TOML), which people edit too: comments and order stay."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.files import OWNER_ONLY, replace_file
from palimpsest.core.settings_file import edited_toml, keep_copy

# Change one value of a JSON file that people edit. Comments, order and everything else stay as they are.
#
# Reads JSON with `//` and `/* */` comments and trailing commas, as VS Code writes it. A path leads through objects
# by their keys and through lists by the numbers of their items. All functions are pure.

# A key of an object, or the number of an item in a list.
Step: TypeAlias = str | int

# What some editors on Windows put before a text. It stays.
BYTE_ORDER_MARK = "\ufeff"

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf'(?:{_STRING}|[^\s"{{\[,:])\s*,(?=\s*[}}\]])|{_STRING}', re.DOTALL)
_TRAILING_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=\r?\n))")
_DECODER = json.JSONDecoder()
_INDENT = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class Node:
    """A value, the offsets where it begins and ends, and, once they are looked for, its members.

    A member has a key, the offset where it begins with this key, and that of the comma after it, if there is one.
    """

    start: int
    end: int
    value: Any
    members: tuple[Node, ...] = ()
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
    text = text if text.strip() else "{}\n"
    node, depth = _deepest(text, path)
    if not (rest := path[depth:]):
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
    members = parent.members if parent is not None and depth == len(path) - 1 else ()
    if (index := next((number for number, member in enumerate(members) if member.key == path[-1]), None)) is None:
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

    Raises ValueError that names the line if the text is not JSON, or a value on the path has no such members, or has
    one of them twice.
    """
    plain, depth = _as_json(text), 0
    node = Node(len(plain) - len(plain.lstrip()), len(plain.rstrip()), json.loads(plain))
    while True:
        node = replace(node, members=tuple(_members(text, plain, node)))
        if depth == len(path):
            return node, depth
        _expect_members(text, node, path[depth])
        if not (found := [member for member in node.members if member.key == path[depth]]):
            return node, depth
        if len(found) > 1:
            raise ValueError(f"{_line_of(text, found[1].key_start)}: '{path[depth]}' is here a second time")
        node, depth = found[0], depth + 1


def _as_json(text: str) -> str:
    """Return a text as JSON of the same length: with spaces for comments, commas after the last, and a mark before."""
    plain = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else re.sub(".", " ", found[0]), text)
    plain = _LAST_COMMA.sub(lambda found: f"{found[0][:-1]} " if found[0].endswith(",") else found[0], plain)
    return f" {plain[1:]}" if plain.startswith(BYTE_ORDER_MARK) else plain


def _members(text: str, plain: str, node: Node) -> Iterator[Node]:
    """Yield the members of a value, which stand in the text where they stand in it as plain JSON."""
    opening, number, at = plain[node.start], 0, _skip_blank(text, node.start + 1)
    while opening in "{[" and at < node.end - 1:
        key, first = number, at
        if opening == "{":
            key, at = _DECODER.raw_decode(plain, at)
            at = _skip_blank(text, _skip_blank(text, at) + 1)
        value, end = _DECODER.raw_decode(plain, at)
        comma = _skip_blank(text, end)
        yield Node(at, end, value, key=key, key_start=first, comma=comma if text[comma] == "," else None)
        number, at = number + 1, _skip_blank(text, comma + 1)


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
    comma, end = (",", last.end) if last.comma is None else ("", last.comma + 1)
    comment = _TRAILING_COMMENT.match(text, end)
    after = comment.end() if comment else end  # a comment behind the last member stays with it
    entry = f"{newline}{inner}{name}{_dump(value, inner, text)}"
    tail = f"{newline}{outer}{text[after:].lstrip(' ')}" if one_line else text[after:]
    return text[:end] + comma + text[end:after] + entry + tail


def _dump(value: Any, indent: str, text: str) -> str:
    """Return a value as JSON, with the line ends and the indentation of the text it becomes a part of."""
    return json.dumps(value, indent=_indent_unit(text), ensure_ascii=False).replace("\n", f"{_newline(text)}{indent}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_unit(text: str) -> str:
    """Return what one level is indented by: a tab, or the spaces of the first indented line."""
    match = _INDENT.search(text)
    indent = "  " if match is None else match[1]
    return "\t" if indent.startswith("\t") else indent


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

# Suffix of the copy that is made of a client's file before it is changed; the second copy ends in "1".
COPY_SUFFIX = ".before-palimpsest"


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
    faults = (OSError, RuntimeError, UnicodeDecodeError)  # RuntimeError: a circle of links, before Python 3.13
    with raised_as(InputError, f"{file} cannot be read", ". Nothing was changed", *faults):
        if file.is_symlink() and not file.exists():
            raise InputError(f"{file} is a symbolic link to a file that does not exist. Nothing was changed. Remove it")
        if inside is not None and not file.resolve().is_relative_to(inside.resolve()):
            place = file.resolve()
            raise InputError(f"{file} leads out of this folder, to {place}. Nothing was changed. Edit that by hand")
        return file.read_bytes().decode("utf-8") if file.exists() else None


def edit_of(file: Path, changes: list[Callable[[str], str]], *, inside: Path | None = None) -> FileEdit:
    """Return the edit that makes all changes of one file. Raises InputError if it cannot be read or parsed."""
    before = text = read_text(file, inside=inside)
    advice = ". The file is unchanged. Correct it and try again"
    with raised_as(InputError, f"{file} is not valid", advice, ValueError, RecursionError):
        for change in changes:
            text = change(text or "")
        return FileEdit(file, before, text or "")


def write(edit: FileEdit) -> Path | None:
    """Replace the file with its new text. Return the copy of the old file, or None if there was none.

    Raises InputError if that fails, if the file is read-only or if it has changed since it was read. It is unchanged
    then.
    """
    target = edit.file.resolve()  # a symbolic link stays a link
    with raised_as(InputError, f"{target} could not be written", ". The file is unchanged.", OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = OWNER_ONLY if edit.before is None else stat.S_IMODE(target.stat().st_mode)
        if not mode & stat.S_IWUSR:
            raise InputError(f"{edit.file} is read-only. It is unchanged. Make it writable, or edit it by hand")
        copy = keep_copy(target, COPY_SUFFIX, mode)
        with replace_file(target, mode) as file:
            file.write(edit.after)
            if read_text(edit.file) != edit.before:
                raise InputError(f"{target} was changed by another program just now. It stays as it is. Try again")
    return copy
