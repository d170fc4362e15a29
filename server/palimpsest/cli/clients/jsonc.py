"""Change one entry of a JSON file that people edit. Comments, order and everything else stay as they are.

Reads JSON with `//` and `/* */` comments and trailing commas, as VS Code writes it. All functions are pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_LITERAL = re.compile(r"true|false|null|-?\d[\d.eE+-]*")


@dataclass(frozen=True, slots=True)
class Member:
    """An entry of an object: the offset where it begins, and that of the comma after it, if there is one."""

    key: str
    start: int
    value: Node
    comma: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """A value: the offsets where it begins and ends, and its members if it is an object."""

    start: int
    end: int
    members: tuple[Member, ...] | None = None


def with_entry(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with `value` at a path of keys. Missing objects are added.

    Raises ValueError that names the line if the text is not JSON or a value on the path is not an object.
    """
    if not text.strip():
        text = "{}\n"
    node, depth = _deepest(text, path)
    rest = path[depth:]
    if not rest:
        return text[: node.start] + _dump(value, _indent_at(text, node.start)) + text[node.end :]
    for key in reversed(rest[1:]):
        value = {key: value}
    return _insert(text, node, rest[0], value)


def without_entry(text: str, path: Sequence[str]) -> str:
    """Return the text without the entry at a path of keys. If there is none, return the text as it is.

    Raises ValueError that names the line if the text is not JSON or a value on the path is not an object.
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


def _deepest(text: str, path: Sequence[str]) -> tuple[Node, int]:
    """Return the last existing value on a path, and the number of keys that lead to it.

    Raises ValueError if a value before it is not an object.
    """
    node = _parse(text)
    for depth, key in enumerate(path):
        if node.members is None:
            raise ValueError(f"{_line_of(text, node.start)}: an object is expected here, to look for '{key}' in it")
        member = next((candidate for candidate in node.members if candidate.key == key), None)
        if member is None:
            return node, depth
        node = member.value
    return node, len(path)


def _insert(text: str, node: Node, key: str, value: Any) -> str:
    if node.members is None:
        raise ValueError(f"{_line_of(text, node.start)}: an object is expected here, to add '{key}' to it")
    outer = _indent_at(text, node.start)
    if not node.members:
        inner = outer + "  "
        inside = text[node.start + 1 : node.end - 1].rstrip()  # comments, if there are any
        entry = f"\n{inner}{json.dumps(key)}: {_dump(value, inner)}\n{outer}"
        return text[: node.start + 1] + inside + entry + text[node.end - 1 :]
    last = node.members[-1]
    one_line = "\n" not in text[node.start : last.start]
    inner = outer + "  " if one_line else _indent_at(text, last.start)
    end = last.value.end if last.comma is None else last.comma + 1
    comma = "," if last.comma is None else ""
    entry = f"{comma}\n{inner}{json.dumps(key)}: {_dump(value, inner)}"
    tail = f"\n{outer}{text[end:].lstrip(' ')}" if one_line else text[end:]
    return text[:end] + entry + tail


def _dump(value: Any, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")


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
    return Node(at, match.end())


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
        members.append(Member(json.loads(key.group()), at, value, comma))
        at = after
    return Node(start, at + 1, tuple(members))


def _parse_list(text: str, start: int) -> Node:
    at = _skip_blank(text, start + 1)
    while text[at : at + 1] != "]":
        at, _ = _skip_comma(text, _parse_value(text, at).end, "]")
    return Node(start, at + 1)


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
