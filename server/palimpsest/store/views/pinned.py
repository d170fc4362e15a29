"""The pinned block of a scope: memories that head every summary and brief (the core memory of MemGPT), and its limit.

The limit is that of the scope itself. What a scope sees may be two blocks: that of the user and that of the project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select, text

from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.models import CAPTURED, ORIGIN, PINNED, Memory, Scope
from palimpsest.core.validation import json_object, one_line
from palimpsest.store.mapping import is_scope, sees, to_memory
from palimpsest.store.schema import IS_MARKED, memories
from palimpsest.text.shorten import shorten

MAX_CHARS = 1_200
"""How long the pinned texts of a scope may be together: some 300 tokens, which every session pays for. Set by hand."""

MAX_PLACE = 1e9
"""The largest number that orders. Set by hand: one beyond the floats could not be compared with others."""

LISTED = 5
LISTED_CHARS = 40
"""How many of them a refusal names, the longest first, and how much it quotes of each. Set by hand."""

GrownBlocks = Counter[Scope]
"""By how many characters the block of a scope grew in a write. One that changed without growing has 0 or less."""


def is_pinned(metadata: Mapping[str, Any]) -> bool:
    """Return whether a memory with this metadata is pinned: `pinned` is true, or a number that orders."""
    value = metadata.get(PINNED)
    return value is True or _is_number(value)


def is_unconfirmed(metadata: Mapping[str, Any]) -> bool:
    """Return whether a memory with this metadata is from a page, a file or a tool, and nobody has confirmed it."""
    return metadata.get(ORIGIN, CAPTURED) not in (None, "", CAPTURED) and not is_pinned(metadata)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_PLACE


def in_order(pinned: Iterable[Memory]) -> list[Memory]:
    """Return pinned memories in the order of the block: by number, then the others as they came."""

    def place(memory: Memory) -> tuple[bool, float]:
        value = memory.metadata[PINNED]
        return value is True, 0.0 if value is True else float(value)

    return sorted(pinned, key=place)


def pinned_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that are pinned and that the scope sees, in the order of the block."""
    query = select(memories).where(sees(memories, scope), text(IS_MARKED)).order_by(memories.c.seq)
    return in_order(memory for memory in map(to_memory, conn.execute(query)) if is_pinned(memory.metadata))


def note_change(blocks: GrownBlocks, old: Memory | None, new: Memory, *, is_undo: bool = False) -> None:
    """Note what the change of a memory does to the block of its scope.

    Raises InputError if a write, which is no undo, brings a `pinned` that is no order, or metadata that is not JSON,
    which no search could read. What a memory of an earlier version has stays.
    """
    if not is_undo and (old is None or old.metadata != new.metadata):
        _check_metadata(new.metadata, None if old is None else old.metadata.get(PINNED))
    value = new.metadata.get(PINNED)
    if old is None or (old.text, old.metadata.get(PINNED), old.deleted_at) != (new.text, value, new.deleted_at):
        before, after = 0 if old is None else _size(old), _size(new)
        if before or after:
            blocks[new.scope] += after - before


def _check_metadata(metadata: Mapping[str, Any], old_value: object) -> None:
    try:
        json_object(dict(metadata))
    except ValueError as error:
        raise InputError(f"metadata is not valid JSON: {error}. Nothing was changed") from error
    value = metadata.get(PINNED)
    if not (value is None or isinstance(value, bool) or _is_number(value) or value == old_value):
        raise InputError(f"metadata.{PINNED} is true, or a number that orders (1 comes first). Nothing was changed")


def notes_on_long_blocks(conn: Connection, user_id: str) -> list[str]:
    """Return a note on each block of a user that is beyond the limit, as one may be after an import."""
    blocks: Counter[Scope] = Counter()
    query = select(memories).where(memories.c.user_id == user_id, text(IS_MARKED))
    for memory in map(to_memory, conn.execute(query)):
        blocks[memory.scope] += _size(memory)
    return [f"{scope}: {_use(chars)}" for scope, chars in blocks.items() if chars > MAX_CHARS]


def check(conn: Connection, blocks: GrownBlocks, *, may_exceed: bool) -> list[str]:
    """Return a note on the use of each block that a write changed.

    Raises InputError if one grew beyond the limit, unless it `may_exceed`: an undo is not refused.
    """
    notes: list[str] = []
    for scope, grown in blocks.items():
        query = select(memories).where(is_scope(memories, scope), text(IS_MARKED))
        block = [memory for memory in map(to_memory, conn.execute(query)) if is_pinned(memory.metadata)]
        chars = sum(map(_size, block))
        if chars > MAX_CHARS and grown > 0 and not may_exceed:
            raise InputError(_refusal(block, chars), Remedy.UNPIN)
        notes.append(_use(chars))
    return notes


def _use(chars: int) -> str:
    beyond = ", which is too much: shorten or unpin some" if chars > MAX_CHARS else ""
    return f"pinned: {chars:,} of {MAX_CHARS:,} characters{beyond}"


def _size(memory: Memory) -> int:
    """Return how many characters a memory takes in the block; 0 if it is not in it."""
    return len(memory.text) if memory.deleted_at is None and is_pinned(memory.metadata) else 0


def _refusal(block: list[Memory], chars: int) -> str:
    longest = sorted(block, key=_size, reverse=True)
    lines = [
        f"[{memory.id[:8]}] {_size(memory):,} ({shorten(one_line(memory.text), LISTED_CHARS)})"
        for memory in longest[:LISTED]
    ]
    rest = sum(map(_size, longest[LISTED:]))
    lines += [f"{len(longest) - LISTED} others {rest:,}"] if rest else []
    return (
        f"what is pinned would have {chars:,} characters, and at most {MAX_CHARS:,} are shown in every session, so "
        f"nothing was changed. They would be: {'; '.join(lines)}"
    )
