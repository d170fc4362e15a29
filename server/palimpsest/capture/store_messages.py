"""Store captured messages: a write for each conversation, one edit for each scope."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from palimpsest.capture.once import Met
from palimpsest.core.models import CAPTURED, ORIGIN, Decision, Event, Fact, Message, Provenance, Scope
from palimpsest.learn.apply import apply_write
from palimpsest.learn.engine import Engine
from palimpsest.learn.facts.naming import with_named_facts
from palimpsest.store.mapping import chunks, memory_hash
from palimpsest.store.queries import capture as capture_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries.capture import StoredMessage
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.conversations import Conversation
from palimpsest.text.secrets.redaction import says_only_secrets
from palimpsest.text.standing import StandingKind, standing_statements

STAGE = "capture"
"""The stage in the history of captured messages, and of what was recognized in them."""

_TAGS: Mapping[StandingKind, tuple[str, ...]] = {
    "rule": ("instruction",),
    "decision": ("decision",),
    "fact": (),
    "person": (),
}


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
            if engine.own_model is None:
                await _keep_statements(engine, chunk, caller, edits)


async def _keep_statements(engine: Engine, messages: Sequence[Message], caller: str, edits: dict[Scope, int]) -> None:
    """Keep what users state that holds beyond the conversation, marked as captured: no model will learn it.

    What is about the user holds in all projects. What the user was ever known to have said in these words is not kept
    again, also if it was dropped since.
    """
    stated: dict[Scope, dict[str, Fact]] = {}
    for message in messages:
        for statement in standing_statements(message.content) if message.role == "user" else ():
            scope = message.scope.general if statement.kind == "person" else message.scope
            fact = Fact(
                statement.text,
                (message.id,),
                tags=_TAGS[statement.kind],
                role=message.role,
                metadata={ORIGIN: CAPTURED},
                said_at=message.said_at,
            )
            if not says_only_secrets(fact.text):
                stated.setdefault(scope, {}).setdefault(memory_hash(fact.text), fact)
    for scope, facts in stated.items():
        user, hashes = scope.user_id, list(facts)
        known = await engine.read(
            lambda conn, user=user, hashes=hashes: memory_queries.hashes_known(conn, user, hashes)
        )
        adds = [Decision(Event.ADD, fact) for digest, fact in facts.items() if digest not in known]
        if adds:
            named = await engine.run(lambda scope=scope, adds=adds: with_named_facts(engine, scope, adds))
            write = Write(scope, Provenance(STAGE, caller=caller), decisions=named, edit=edits.get(scope))
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
