"""Which part of what was said is kept, and what the memory is asked about."""

from __future__ import annotations

import re

MAX_CHARS = 100_000
"""Far more than people write. A pasted log or file is no conversation."""
MAX_INJECTED_CHARS = 8_000
"""Claude Code puts more than 10,000 into a file. A brief has at most 500 tokens, so anything longer is a mistake."""
MAX_QUESTION_CHARS = 4_000
"""A search reads the first words of a question only."""
MIN_QUESTION_CHARS = 20
"""Shorter prompts ("yes", "go on", "fix the tests") ask for nothing that a memory knows."""
BLOCK_BEGIN, BLOCK_END = "<palimpsest-memory>", "</palimpsest-memory>"
NOTIFICATIONS = (
    "<task-notification",
    "<teammate-message",
    "<system-reminder",
    "<local-command-",
    "<command-",
    "<bash-",
    "[Request interrupted",
)
"""What Claude Code puts in place of a prompt when no person wrote one."""

BARE_COMMAND = r"/[A-Za-z][\w:.-]*"


def kept_part(text: str) -> str:
    """Return what may be kept of a text: without private parts and our own blocks, and cut if it is very long.

    It is "" for commands without words of their own and for notifications.
    """
    kept = without_private(text).strip()
    if kept.startswith(("!", *NOTIFICATIONS)) or (kept.startswith("/") and re.fullmatch(BARE_COMMAND, kept)):
        return ""
    return kept if len(kept) <= MAX_CHARS else f"{kept[:MAX_CHARS]}… ({len(kept)} characters)"


def without_private(text: str) -> str:
    """Return a text without `<private>…</private>` and `<palimpsest-memory>…</palimpsest-memory>`, also nested ones.

    A `<private>` that is never closed hides the rest. Our own blocks are always closed, so a lone tag of ours is part
    of what was said.
    """
    if "<" not in text:
        return text
    return _without(_without(text, "palimpsest-memory", hides_rest=False), "private", hides_rest=True)


def question(text: str) -> str:
    """Return what to ask the memory about a prompt, or "" if there is nothing to ask."""
    if len(text) < MIN_QUESTION_CHARS or text.startswith(("/", "!")):
        return ""
    return text[:MAX_QUESTION_CHARS]


def injected(text: str) -> str:
    """Return a text that goes before the model, cut at a line if it is absurdly long, with its block closed."""
    if len(text) <= MAX_INJECTED_CHARS:
        return text
    lines = text[:MAX_INJECTED_CHARS].rpartition("\n")
    short = lines[0] or lines[2]
    return f"{short}\n{BLOCK_END}" if text.startswith(BLOCK_BEGIN) else short


def is_block(text: str) -> bool:
    """Return whether a text is a block of ours, of a length that a model can be given."""
    return text.startswith(BLOCK_BEGIN) and text.endswith(BLOCK_END) and len(text) <= MAX_INJECTED_CHARS


def _without(text: str, tag: str, *, hides_rest: bool) -> str:
    """Return a text without what stands between tags. It is read once, because it can be long and full of tags."""
    kept: list[str] = []
    depth = begin = end = 0
    for match in re.finditer(rf"<(/?){tag}\s*>", text, re.IGNORECASE):
        if match[1]:
            end = match.end() if depth == 1 else end
            depth = max(0, depth - 1)
            continue
        if depth == 0:
            begin = match.start()
            kept.append(text[end:begin])
        depth += 1
    rest = text[end:] if depth == 0 else "" if hides_rest else text[begin:]
    return "".join(kept) + rest
