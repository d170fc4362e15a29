"""Words and regular expressions that are loaded when they are first used, so that a command starts at once."""

import re
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

_T = TypeVar("_T")

_HEADING = re.compile(r"\[(\w[\w &-]*)\]")
_PLACEHOLDER = re.compile(r"\{([a-zA-Z][\w ]*)\}")


def word_lists(package: str, name: str, between: str = "\n") -> Mapping[str, str]:
    """Return the lines of each section of a file, by the heading in brackets above it. "# " begins a comment."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (files(package) / name).read_text("utf-8").splitlines():
        if heading := _HEADING.fullmatch(line):
            lines = sections[heading[1]] = []
        elif line and not line.startswith("# "):
            lines.append(line)
    return {heading: between.join(section) for heading, section in sections.items()}


def word_sets(package: str, name: str) -> Mapping[str, frozenset[str]]:
    """Return the words of each section of a file, folded as those of texts are, where "ß" is "ss", but for names."""
    lists = word_lists(package, name).items()
    return {heading: frozenset(folded(word) for word in text.split()) for heading, text in lists}


def folded(word: str) -> str:
    """Return a word in lower case as `str.casefold` gives it, and one with a capital as it is."""
    return word.casefold() if word.islower() else word


def headed(lists: Mapping[str, _T], beginning: str) -> dict[str, _T]:
    """Return the sections whose heading begins so, by the rest of it."""
    return {heading.removeprefix(beginning): of for heading, of in lists.items() if heading.startswith(beginning)}


def headings(words: Mapping[str, frozenset[str]], beginning: str) -> dict[str, str]:
    """Return by each word of these sections what the heading goes on with."""
    return {word: rest for rest, section in headed(words, beginning).items() for word in section}


def patterns(package: str, name: str, between: str = "") -> Mapping[str, re.Pattern[str]]:
    """Return the regular expressions of a file, each compiled when it is first used.

    Each is the lines of a section, with another section in place of its name in braces.
    """
    sections = word_lists(package, name, between)
    return {heading: LazyPattern(filled(text, sections)) for heading, text in sections.items()}


def filled(text: str, sections: Mapping[str, str]) -> str:
    """Return a text with a section in place of its name in braces."""
    return _PLACEHOLDER.sub(
        lambda match: filled(sections[match[1]], sections) if match[1] in sections else match[0], text
    )


if TYPE_CHECKING:
    LazyPattern = re.compile
else:

    class LazyPattern:
        """A regular expression that is compiled when it is first used.

        Compiling those of all languages takes longer than everything else that a command does.
        """

        def __init__(self, pattern: str, flags: int = 0) -> None:
            self.pattern = pattern
            self._flags = flags

        @cached_property
        def _compiled(self) -> re.Pattern[str]:
            return re.compile(self.pattern, self._flags)

        def __getattr__(self, method: str) -> Any:
            attribute = getattr(self._compiled, method)
            setattr(self, method, attribute)
            return attribute
