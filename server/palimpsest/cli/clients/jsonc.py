"""Change one entry of a JSON file that people edit: comments, order and everything else stay as they are.

Reads JSON with `//` and `/* */` comments and trailing commas, as VS Code and its like write it. Pure functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"true|false|null|-?\d[\d.eE+-]*")


@dataclass(frozen=True, slots=True)
class Member:
    """Hold an entry of an object: where it begins, and the comma after it, if there is one."""

    key: str
    start: int
    value: Node
    comma: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """Hold a value: where it begins and ends in the text; its members, if it is an object."""

    start: int
    end: int
    members: tuple[Member, ...] | None = None


def with_entry(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value under a path of keys; objects that are missing are made. Raises ValueError."""
    if not text.strip():
        text = "{}\n"
    node, depth = _deepest(text, path)
    rest = path[depth:]
    if not rest:
        return text[: node.start] + _dumped(value, _indent_at(text, node.start)) + text[node.end :]
    for key in reversed(rest[1:]):
        value = {key: value}
    return _inserted(text, node, rest[0], value)


def without_entry(text: str, path: Sequence[str]) -> str:
    """Return the text without the entry under a path of keys; as it is where there is none. Raises ValueError."""
    parent, depth = _deepest(text, path[:-1]) if text.strip() else (None, 0)
    members = parent.members or () if parent is not None and depth == len(path) - 1 else ()
    if path[-1] not in [member.key for member in members]:
        return text
    place = next(number for number, member in enumerate(members) if member.key == path[-1])
    member = members[place]
    start = _line_start(text, member.start)
    if member.comma is not None:
        return text[:start] + text[_after_line(text, member.comma + 1) :]
    comma = members[place - 1].comma if place else None
    head = text[:start] if comma is None else text[:comma] + text[comma + 1 : start]
    return head.rstrip(" \t") + text[_after_line(text, member.value.end) :]


def _deepest(text: str, path: Sequence[str]) -> tuple[Node, int]:
    """Return the last value on the path that is there, and how many keys lead to it.

    Raises ValueError where one before it is no object.
    """
    node = _parsed(text)
    for depth, key in enumerate(path):
        if node.members is None:
            raise ValueError(f"{_place(text, node.start)}: an object should stand where '{key}' is looked for")
        member = next((each for each in node.members if each.key == key), None)
        if member is None:
            return node, depth
        node = member.value
    return node, len(path)


def _inserted(text: str, node: Node, key: str, value: Any) -> str:
    if node.members is None:
        raise ValueError(f"{_place(text, node.start)}: an object should stand where '{key}' is to be added")
    outer = _indent_at(text, node.start)
    if not node.members:
        inner = outer + "  "
        inside = text[node.start + 1 : node.end - 1].rstrip()  # comments, if anything
        entry = f"\n{inner}{json.dumps(key)}: {_dumped(value, inner)}\n{outer}"
        return text[: node.start + 1] + inside + entry + text[node.end - 1 :]
    last = node.members[-1]
    one_line = "\n" not in text[node.start : last.start]
    inner = outer + "  " if one_line else _indent_at(text, last.start)
    end = last.value.end if last.comma is None else last.comma + 1
    comma = "," if last.comma is None else ""
    entry = f"{comma}\n{inner}{json.dumps(key)}: {_dumped(value, inner)}"
    tail = f"\n{outer}{text[end:].lstrip(' ')}" if one_line else text[end:]
    return text[:end] + entry + tail


def _dumped(value: Any, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _line_start(text: str, at: int) -> int:
    """Return where the line begins, if nothing but white space stands before."""
    start = text.rfind("\n", 0, at) + 1
    return start if not text[start:at].strip() else at


def _after_line(text: str, at: int) -> int:
    """Return where the next line begins, if nothing but white space stands in between."""
    end = text.find("\n", at)
    return end + 1 if end >= 0 and not text[at:end].strip() else at


def _parsed(text: str) -> Node:
    """Return the whole text as a tree. Raises ValueError naming the line that cannot be read."""
    start = 1 if text.startswith("\ufeff") else 0
    node = _value(text, _blank(text, start))
    end = _blank(text, node.end)
    if end != len(text):
        raise ValueError(f"{_place(text, end)}: something stands after the end")
    return node


def _value(text: str, at: int) -> Node:
    if text[at : at + 1] == "{":
        return _object(text, at)
    if text[at : at + 1] == "[":
        return _list(text, at)
    match = _STRING.match(text, at) or _PLAIN.match(text, at)
    if match is None:
        raise ValueError(f"{_place(text, at)}: a value is missing")
    return Node(at, match.end())


def _object(text: str, start: int) -> Node:
    members: list[Member] = []
    at = _blank(text, start + 1)
    while text[at : at + 1] != "}":
        key = _STRING.match(text, at)
        if key is None:
            raise ValueError(f"{_place(text, at)}: a name in quotation marks is missing")
        colon = _blank(text, key.end())
        if text[colon : colon + 1] != ":":
            raise ValueError(f"{_place(text, colon)}: a colon is missing")
        value = _value(text, _blank(text, colon + 1))
        after, comma = _separated(text, value.end, "}")
        members.append(Member(json.loads(key.group()), at, value, comma))
        at = after
    return Node(start, at + 1, tuple(members))


def _list(text: str, start: int) -> Node:
    at = _blank(text, start + 1)
    while text[at : at + 1] != "]":
        at, _ = _separated(text, _value(text, at).end, "]")
    return Node(start, at + 1)


def _separated(text: str, at: int, closing: str) -> tuple[int, int | None]:
    """Return where the next item or the closing sign stands, and the comma before it."""
    at = _blank(text, at)
    if text[at : at + 1] == ",":
        return _blank(text, at + 1), at
    if text[at : at + 1] != closing:
        raise ValueError(f"{_place(text, at)}: a comma or '{closing}' is missing")
    return at, None


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"
