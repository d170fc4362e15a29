"""Leave out what memory tools put into a conversation: blocks between tags that frame recalled text.

It was said in an earlier session, or by nobody, and would be learned again from session to session. What a person
writes about such a tag stays: a block begins on a line of its own, or its tag ends a line.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"<\s{0,3}(?P<end>/?)\s{0,3}(?P<name>[A-Za-z][\w:.-]{2,60})(?P<rest>[^<>]{0,500})>")
_FRAMES = re.compile(
    r"(?=[\w:.-]*[-_:.])(?:.*[-_:.])?(?:[a-z]{0,12}memor(?:y|ies)|mem0?|zep|letta|cognee|recall(?:ed|s)?|remembered|recollections?"
    r"|supermemory)(?:[-_:.].*)?"
    r"|(?:(?:user|relevant|recalled|retrieved|auto|past|long_?term|saved|stored|core|project|session|agent|open|super)_?)"
    r"memor(?:y|ies)(?:[-_:.]?(?:context|block|bank|store|results?))?"
    r"|memories|memorycontext|recollections"
    r"|(?:past|previous|earlier|prior|last)[-_:.](?:conversations?|sessions?|chats?|context|interactions?|observations?)"
    r"|(?:retrieved|recalled|injected)[-_:.](?:context|facts?|knowledge|notes?|conversations?|sessions?|history)",
    re.IGNORECASE,
)
"""The names of such tags: those of tools, and whatever has memory or recall as a part of its name."""

_PARTS = re.compile(r"[-_:.]")
_OF_MACHINES = frozenset(
    (
        *(
            "in",
            "max",
            "min",
            "shared",
            "heap",
            "free",
            "total",
            "used",
            "video",
            "gpu",
            "virtual",
            "physical",
            "limit",
        ),
        *(
            "limits",
            "cache",
            "size",
            "usage",
            "mb",
            "gb",
            "leak",
            "unit",
            "pool",
            "swap",
            "request",
            "requests",
            "address",
        ),
    )
)
"""Parts of names of the memory that computers have."""

_MAX_INDENT = 40
_LONE = re.compile(r"memory|recall", re.IGNORECASE)
"""Names that other documents have as well. They are a block only if both tags stand alone on their lines."""


def without_recalled_blocks(text: str) -> str:
    """Return a text without such blocks, nested ones included. One that is not closed goes to the end of the text."""
    if "<" not in text or ">" not in text:
        return text
    kept: list[str] = []
    kept_to = depth = 0
    name = ""
    tags = [tag for tag in _TAG.finditer(text) if not tag["rest"].rstrip().endswith("/")]
    last_end = {tag["name"].lower(): tag.start() for tag in tags if tag["end"]}
    for tag in tags:
        tag_name = tag["name"].lower()
        if depth:
            if tag_name == name:
                depth += -1 if tag["end"] else 1
                kept_to = tag.end() if not depth else kept_to
        elif not tag["end"] and _begins_block(text, tag, is_closed=last_end.get(tag_name, -1) > tag.start()):
            kept.append(text[kept_to : tag.start()])
            depth, name = 1, tag_name
    return "".join([*kept, "" if depth else text[kept_to:]])


def _begins_block(text: str, tag: re.Match[str], *, is_closed: bool) -> bool:
    before = text[max(0, tag.start() - _MAX_INDENT) : tag.start()]  # not all of a long line, for each of its tags
    begins_line = not before.rpartition("\n")[2].strip(" \t\r>") and ("\n" in before or len(before) < _MAX_INDENT)
    ends_line = text[tag.end() : tag.end() + 2].strip(" \t\r")[:1] in ("", "\n")
    if _LONE.fullmatch(tag["name"]):
        return begins_line and ends_line and is_closed
    if not _FRAMES.fullmatch(tag["name"]) or not _OF_MACHINES.isdisjoint(_PARTS.split(tag["name"].lower())):
        return False
    return (begins_line or ends_line) if is_closed else (begins_line and ends_line)
