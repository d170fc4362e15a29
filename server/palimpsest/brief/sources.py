"""Read from the ledger what a session begins with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from palimpsest.brief.lines import plain
from palimpsest.brief.telling import most_telling
from palimpsest.core.models import EXPIRES_AT, Memory, Message, Scope, Summary
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.views.pinned import is_unconfirmed, pinned_memories

KINDS = ("profile", "overall")
"""Which summaries say who the user is: the first that is current is shown."""

MAX_GLOBAL = 500
"""Among how many of the newest global memories the most telling are looked for. Set by hand: a few milliseconds."""

MAX_OF_PROJECT = 50
"""How many memories of a project are read: more than fit."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known at the start of a session.

    `pinned` is the block of the user and of the project, `telling` are memories of the user with the most telling
    first, and `of_project` those of the project with the newest first; no memory is in two of them. `profile` are the
    lines of the written profile of the user, or of the summary; none if there is neither or both say what no longer
    holds. `last_words` are the last messages of the last conversation: of the user, of the assistant, or both in this
    order.
    """

    pinned: tuple[Memory, ...] = ()
    profile: tuple[str, ...] = ()
    telling: tuple[Memory, ...] = ()
    of_project: tuple[Memory, ...] = ()
    last_words: tuple[Message, ...] = ()


def read_sources(conn: Connection, scope: Scope, now: datetime) -> Sources:
    """Return what is known at the start of a session in a scope.

    Memories that expire are left out, because what is rendered may be read at any time later, and those that a page, a
    file or a tool told and nobody confirmed.
    """
    pinned = _lasting(pinned_memories(conn, scope))
    pinned_ids = {memory.id for memory in pinned}
    user_scope = scope.general
    newest = [memory for _, memory in memory_queries.list_memories(conn, user_scope, MAX_GLOBAL)]
    of_user = [memory for memory in _lasting(newest) if memory.id not in pinned_ids]
    name = memory_queries.name_of_user(conn, scope)
    times_said = Counter(owner for owner, _ in memory_queries.messages_of(conn, [memory.id for memory in of_user]))
    of_project = memory_queries.newest_of_project(conn, scope, MAX_OF_PROJECT) if scope.project else []
    return Sources(
        pinned=tuple(pinned),
        profile=_profile(conn, user_scope),
        telling=tuple(most_telling(of_user, times_said, name, now)),
        of_project=tuple(memory for memory in _lasting(of_project) if memory.id not in pinned_ids),
        last_words=tuple(message_queries.last_words(conn, scope)),
    )


def _lasting(memories: list[Memory]) -> list[Memory]:
    return [memory for memory in memories if EXPIRES_AT not in memory.metadata and not is_unconfirmed(memory.metadata)]


def _profile(conn: Connection, scope: Scope) -> tuple[str, ...]:
    written = (summary_queries.current_summary(conn, scope, kind) for kind in KINDS)
    text = next((summary.text for summary in written if summary is not None and _is_confirmed(conn, summary)), "")
    return tuple(line for line in map(plain, text.splitlines()) if line)


def _is_confirmed(conn: Connection, summary: Summary) -> bool:
    """Return whether a summary rests on nothing that only a page, a file or a tool told."""
    read = memory_queries.memories_by_id(conn, list(summary.sources))
    return not any(is_unconfirmed(memory.metadata) for memory in read.values())
