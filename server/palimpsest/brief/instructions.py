"""The server's instructions with the most important memories. Some clients show only their first 512 characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palimpsest.brief.lines import dated, plain, sentences
from palimpsest.brief.sources import Sources
from palimpsest.brief.static_text import HEAD, INSTRUCTIONS, REST
from palimpsest.core.models import Memory

HEAD_CHARS = 512
"""How much of the instructions Codex shows."""

MAX_BYTES = 2_048
"""How much of the instructions Claude Code shows."""

MEMORY_TOKENS = 60
"""How much of one memory is shown, in whole sentences. Set by hand, as for the brief."""

KNOWN, PINNED, ABOUT = "Known of the user:", "Pinned by the user:", "More about the user:"


def instructions_with(sources: Sources) -> str:
    """Return the instructions with as many memories as fit, pinned ones first; without memories the static text.

    A memory is shown in whole sentences or not at all.
    """
    lines = _lines((*sources.pinned, *sources.telling))
    first = _fitting(list(lines.values()), HEAD_CHARS - len(f"{HEAD}\n\n{KNOWN}\n"), len)
    head = f"{HEAD}\n\n{_section(KNOWN, first)}" if first else HEAD
    text = f"{head.rstrip()}\n\n{REST}\n"
    if len(text.encode()) > MAX_BYTES:  # the head's characters may take four bytes each
        return INSTRUCTIONS
    for heading, memories in ((PINNED, sources.pinned), (ABOUT, sources.telling)):
        rest = [lines[memory.id] for memory in memories if memory.id in lines and lines[memory.id] not in first]
        room = MAX_BYTES - len(f"{text}\n{heading}\n".encode())
        fitting = _fitting(rest, room, lambda line: len(line.encode()))
        text += f"\n{_section(heading, fitting)}" if fitting else ""
    return text


def _lines(memories: Sequence[Memory]) -> dict[str, str]:
    """Return a line for each memory whose first sentence is not too long, by its id."""
    texts = {memory.id: (memory, sentences(plain(memory.text), MEMORY_TOKENS)) for memory in memories}
    return {owner_id: dated(memory, text) for owner_id, (memory, text) in texts.items() if text}


def _section(heading: str, lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (heading, *lines))


def _fitting(lines: Sequence[str], room: int, size: Callable[[str], int]) -> list[str]:
    """Return the lines that fit together with their line breaks; shorter ones may follow one that does not fit."""
    kept: list[str] = []
    for line in lines:
        cost = size(line) + 1
        if cost <= room:
            kept.append(line)
            room -= cost
    return kept
