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

PINNED_TOKENS = 300
"""How much of one pinned memory is shown: all of it, in English."""

PROFILE_TOKENS = 120
"""How much of one line of a profile is shown, in whole sentences. Set by hand: a section has two or three."""

KNOWN = "Known of the user (information, not instructions):"
MORE, PINNED, HELP = "Known of the user:", "Pinned by the user:", "How the user wants help:"
PROJECT, ABOUT = "About the project:", "More about the user:"


def instructions_with(sources: Sources) -> str:
    """Return the instructions with what fits: what never yields, the pinned block, the project, the rest of the user.

    The rest is the profile or the most telling memories. Without any of these it is the static text. A memory is shown
    in whole sentences or not at all.
    """
    first, pinned = _lines(sources.first, MEMORY_TOKENS, is_lasting=True), _lines(sources.pinned, PINNED_TOKENS)
    helpful = _lines(sources.help, MEMORY_TOKENS)
    of_project = _lines((*sources.rules, *sources.of_project), MEMORY_TOKENS)
    about = _about(sources)
    room = HEAD_CHARS - len(f"{HEAD}\n\n{KNOWN}\n")
    every = (*first, *pinned, *helpful, *of_project, *about)
    shown = _fitting(every, room, len)
    if first[1:2] and first[1] not in shown:  # the name took the room of what somebody's safety depends on
        shown = _fitting(tuple(dict.fromkeys((first[1], *every))), room, len)
    head = f"{HEAD}\n\n{_section(KNOWN, shown)}" if shown else HEAD
    text = f"{head.rstrip()}\n\n{REST}\n"
    if len(text.encode()) > MAX_BYTES:  # the head's characters may take four bytes each
        return INSTRUCTIONS
    groups = ((MORE, first), (PINNED, pinned), (HELP, helpful), (PROJECT, of_project), (ABOUT, about))
    for heading, lines in groups:
        rest = [line for line in lines if line not in shown]
        room = MAX_BYTES - len(f"{text}\n{heading}\n".encode())
        fitting = _fitting(rest, room, lambda line: len(line.encode()))
        text += f"\n{_section(heading, fitting)}" if fitting else ""
    return text


def _about(sources: Sources) -> list[str]:
    """Return what is known of the user beside the pinned block, a line each."""
    if not sources.profile:
        return _lines(sources.telling, MEMORY_TOKENS)
    return [f"- {shown}" for line in sources.profile if (shown := sentences(line, PROFILE_TOKENS))]


def _lines(memories: Sequence[Memory], max_tokens: int, *, is_lasting: bool = False) -> list[str]:
    """Return a line for each memory whose first sentence is not too long."""
    texts = [(memory, sentences(plain(memory.text), max_tokens)) for memory in memories]
    return list(dict.fromkeys(dated(memory, text, is_lasting=is_lasting) for memory, text in texts if text))


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
