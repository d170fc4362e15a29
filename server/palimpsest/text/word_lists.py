"""Read lists of words from files, which people extend without touching the code."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files


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
