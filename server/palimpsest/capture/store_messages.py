"""Store captured messages: a write for each conversation, one edit for each scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from palimpsest.capture.once import Met
from palimpsest.core.models import Decision, Event, Message, Provenance, Scope
from palimpsest.learn.apply import apply_write
from palimpsest.learn.engine import Engine
from palimpsest.store.mapping import chunks
from palimpsest.store.queries import capture as capture_queries
from palimpsest.store.queries.capture import StoredMessage
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.conversations import Conversation

STAGE = "capture"
"""The stage in the history of captured messages."""


async def store(
    engine: Engine, new: Sequence[Met], titles: Mapping[tuple[str, str], str], caller: str, edits: dict[Scope, int]
) -> None:
    """Store messages in the order in which they were said, a few hundred in a transaction. Raises LedgerError.

    `titles` are those of sessions, by client and session. `edits` has the number of the edit of each scope that has
    one, and gets those of the others.
    """
    for scope, (client, session), messages in _conversations(new):
        conversation = Conversation(client, session, titles.get((client, session), ""))
        for chunk in chunks(messages):
            provenance = Provenance(STAGE, caller=caller)
            write = Write(scope, provenance, tuple(chunk), conversation, edit=edits.get(scope))
            edits[scope] = (await apply_write(engine, write)).edit


async def restore_undone(engine: Engine, deleted: Sequence[StoredMessage], caller: str, edits: dict[Scope, int]) -> int:
    """Bring back the messages that an undo took away; return how many. What somebody deleted stays deleted."""

    def undone() -> dict[Scope, list[str]]:
        with engine.ledger.read() as conn:
            return capture_queries.undone(conn, [message.id for message in deleted])

    by_scope = await engine.run(undone) if deleted else {}
    for scope, ids in by_scope.items():
        for chunk in chunks(ids):
            back = tuple(Decision(Event.ADD, memory_id=message_id, kind="message") for message_id in chunk)
            write = Write(scope, Provenance(STAGE, caller=caller), decisions=back, edit=edits.get(scope))
            edits[scope] = (await apply_write(engine, write)).edit
    return sum(map(len, by_scope.values()))


def _conversations(new: Sequence[Met]) -> Iterator[tuple[Scope, tuple[str, str], list[Message]]]:
    """Yield the messages of each conversation in each scope, in the order in which they were said."""
    grouped: dict[tuple[Scope, str, str], list[Message]] = {}
    for met in sorted(new, key=lambda met: met.message.said_at):
        grouped.setdefault((met.message.scope, met.client, met.session), []).append(met.message)
    for (scope, client, session), messages in grouped.items():
        yield scope, (client, session), messages
