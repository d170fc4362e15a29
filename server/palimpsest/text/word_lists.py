"""Words and regular expressions that are loaded when they are first used, so that a command starts at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any


def word_lists(package: str, name: str) -> Mapping[str, str]:
    """Return the text of each section of a file, by the heading in brackets above it. # begins a comment."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (files(package) / name).read_text("utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            lines = sections[line[1:-1]] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return {heading: "\n".join(section) for heading, section in sections.items()}


class LazyPattern:
    """A regular expression that is compiled when it is first used. Its methods are those of `re.Pattern`.

    Compiling those of all languages takes longer than everything else that a command does.
    """

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self._flags = flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)

    def search(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        """Return the first match anywhere."""
        return self._compiled.search(text, pos, endpos)

    def match(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        """Return the match at the beginning."""
        return self._compiled.match(text, pos, endpos)

    def fullmatch(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        """Return the match of the whole text."""
        return self._compiled.fullmatch(text, pos, endpos)

    def finditer(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> Iterator[re.Match[str]]:
        """Yield all matches."""
        return self._compiled.finditer(text, pos, endpos)

    def findall(self, text: str) -> list[Any]:
        """Return what all matches, or their groups, matched."""
        return self._compiled.findall(text)

    def split(self, text: str, maxsplit: int = 0) -> list[Any]:
        """Return the text between the matches, and what their groups matched."""
        return self._compiled.split(text, maxsplit)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        """Return the text with its matches replaced."""
        return self._compiled.sub(replacement, text, count)

    def subn(self, replacement: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> tuple[str, int]:
        """Return the text with its matches replaced, and how many there were."""
        return self._compiled.subn(replacement, text, count)
