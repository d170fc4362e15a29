"""A memory's page: what it says, how it came to say it, and what it is connected with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import MemoryNotFoundError
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.models import Scope, Version
from palimpsest.facade.page.labels import label_changes
from palimpsest.memory import Memory
from palimpsest.page.asked import memory_of, scope_of, told_to, visitor_of
from palimpsest.page.rendering import rendered

MAX_RECALLS = 20
"""How many recalls are shown, the newest. Set by hand: enough to see what a memory is used for."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text: the same as before, "added" or "removed"."""

    text: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version of a memory, and how its text differs from the one before."""

    version: Version
    pieces: Sequence[Piece]


async def memory(request: Request) -> Response:
    """Show a memory, living or deleted."""
    return await memory_page(request)


async def memory_page(
    request: Request, draft: Mapping[str, str] | None = None, problem: str = "", status: int = 200
) -> Response:
    """Return the page of a memory. `draft` is what somebody wrote that could not be saved, because of a `problem`.

    A problem is a text, or the name of one among the words of the page.
    """
    memory_id, told = request.path_params["id"], told_to(request)
    opened, scope = await memory_of(request), scope_of(request)
    try:
        stored, versions = await opened.history(scope, memory_id)
    except MemoryNotFoundError as error:
        raise HTTPException(404) from error
    values = {
        "scope": scope,
        "memory": stored,
        "versions": [ShownVersion(version, list(_pieces(version))) for version in reversed(versions)],
        "sources": await opened.sources(scope, stored.id),
        "predecessors": await opened.predecessors(scope, stored.id),
        "labels": await label_changes(opened.engine, scope, [version.edit for version in versions]),
        "contradicting": [] if stored.deleted_at else await _contradicting(opened, scope, stored.id),
        "linked": await opened.linked(scope, stored),
        "recalls": await opened.recall_log.recalls(
            scope, stored.id, limit=MAX_RECALLS, in_all_projects=not visitor_of(request).grant.project
        ),
        "recall_log_days": opened.recall_log.days,
        "done": told.get("done", ""),
        "edit": told.get("edit", 0),
        "draft": draft or {},
        "problem": problem,
    }
    return rendered(request, "memory.html", values, status)


async def _contradicting(opened: Memory, scope: Scope, memory_id: str) -> list[StoredMemory]:
    """Return the memories that give a relation another value than a memory does, where it can have one only."""
    found: list[StoredMemory] = []
    for conflict in await opened.corrections.conflicts(scope, memory_id):
        of_value = [value.memories for value in conflict.values]
        if any(each.id == memory_id for memories in of_value for each in memories):
            found += [each for memories in of_value for each in memories if memory_id not in {m.id for m in memories}]
    return found


def _pieces(version: Version) -> Iterator[Piece]:
    """Yield the text of a version word by word, with what it added and removed."""
    before = (version.old_memory or "").split()
    after = ("" if version.is_deleted else version.new_memory or "").split()
    for change, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if change == "equal":
            yield Piece(" ".join(after[new_start:new_end]))
            continue
        if start < end:
            yield Piece(" ".join(before[start:end]), "removed")
        if new_start < new_end:
            yield Piece(" ".join(after[new_start:new_end]), "added")
