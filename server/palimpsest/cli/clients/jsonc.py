"""Change one value of a JSON file that people edit. Comments, order and everything else stay as they are.

Reads JSON with `//` and `/* */` comments and trailing commas, as VS Code writes it. A path leads through objects by
their keys and through lists by the numbers of their items. All functions are pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Step: TypeAlias = str | int
"""A key of an object, or the number of an item in a list."""

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_LITERAL = re.compile(r"true|false|null|-?\d[\d.eE+-]*")
_TRAILING_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=\r?\n))")
_INDENT = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an object or a list: the offset where it begins, and that of the comma after it, if there is one."""

    key: Step
    start: int
    value: Node
    comma: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """A value, the offsets where it begins and ends, and its members if it is an object or a list."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] | None = None


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
    if path[-1] not in [member.key for member in members]:
        return text
    index = next(number for number, member in enumerate(members) if member.key == path[-1])
    member = members[index]
    start = _line_start(text, member.start)
    if member.comma is not None:
        return text[:start] + text[_after_line(text, member.comma + 1) :]
    comma = members[index - 1].comma if index else None
    head = text[:start] if comma is None else text[:comma] + text[comma + 1 : start]
    return head.rstrip(" \t") + text[_after_line(text, member.value.end) :]


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
            raise ValueError(f"{_line_of(text, members[1].start)}: '{key}' is here a second time")
        node = members[0].value
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
    one_line = "\n" not in text[node.start : last.start]
    inner = outer + unit if one_line else _indent_at(text, last.start)
    end = last.value.end if last.comma is None else last.comma + 1
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
    start = 1 if text.startswith("\ufeff") else 0
    node = _parse_value(text, _skip_blank(text, start))
    end = _skip_blank(text, node.end)
    if end != len(text):
        raise ValueError(f"{_line_of(text, end)}: unexpected text after the end")
    return node


def _parse_value(text: str, at: int) -> Node:
    if text[at : at + 1] == "{":
        return _parse_object(text, at)
    if text[at : at + 1] == "[":
        return _parse_list(text, at)
    match = _STRING.match(text, at) or _LITERAL.match(text, at)
    if match is None:
        raise ValueError(f"{_line_of(text, at)}: a value is missing")
    return Node(at, match.end(), _decoded(text, match))


def _decoded(text: str, match: re.Match[str]) -> Any:
    try:
        return json.loads(match.group())
    except ValueError as error:
        raise ValueError(f"{_line_of(text, match.start())}: {match.group()} is not a value") from error


def _parse_object(text: str, start: int) -> Node:
    members: list[Member] = []
    at = _skip_blank(text, start + 1)
    while text[at : at + 1] != "}":
        key = _STRING.match(text, at)
        if key is None:
            raise ValueError(f"{_line_of(text, at)}: a key in quotation marks is missing")
        colon = _skip_blank(text, key.end())
        if text[colon : colon + 1] != ":":
            raise ValueError(f"{_line_of(text, colon)}: a colon is missing")
        value = _parse_value(text, _skip_blank(text, colon + 1))
        after, comma = _skip_comma(text, value.end, "}")
        members.append(Member(_decoded(text, key), at, value, comma))
        at = after
    return Node(start, at + 1, {member.key: member.value.value for member in members}, tuple(members))


def _parse_list(text: str, start: int) -> Node:
    members: list[Member] = []
    at = _skip_blank(text, start + 1)
    while text[at : at + 1] != "]":
        value = _parse_value(text, at)
        after, comma = _skip_comma(text, value.end, "]")
        members.append(Member(len(members), at, value, comma))
        at = after
    return Node(start, at + 1, [member.value.value for member in members], tuple(members))


def _skip_comma(text: str, at: int, closing: str) -> tuple[int, int | None]:
    """Return the offsets of the next item or the closing bracket, and of the comma before it."""
    at = _skip_blank(text, at)
    if text[at : at + 1] == ",":
        return _skip_blank(text, at + 1), at
    if text[at : at + 1] != closing:
        raise ValueError(f"{_line_of(text, at)}: a comma or '{closing}' is missing")
    return at, None


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _line_of(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"
