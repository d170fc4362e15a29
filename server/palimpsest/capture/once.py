"""Decide which of the things that were met are new: each message is kept once, whoever brought it.

A message may come from a hook, from a transcript, or from both. A hook's has the id that the client gave it, a
transcript's that of its line, and the two differ. So equal texts of a session are counted: the third "yes" of a
transcript is new only if fewer than three are kept. The lines of a session that goes on in a new transcript, or in a
fork, are copied there, with their ids or at least with their times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from palimpsest.capture.identity import session_prefix
from palimpsest.capture.transcripts.offsets import Counts
from palimpsest.core.models import Message
from palimpsest.hook.paths import hashed
from palimpsest.store.mapping import content_hash
from palimpsest.store.queries.capture import SAME_TIME, StoredMessage

KEY_CHARS = 16
"""How many hexadecimal digits tell the texts of one transcript apart."""

NAME_CHARS = 8
"""How many hexadecimal digits tell the records with one text apart."""


@dataclass(frozen=True, slots=True)
class Met:
    """A message that was met, in a transcript (`is_line`) or in what a client gave to its hook.

    `client` and `session` are where it was said, `origin` the session that this one was forked from, or "". `counts`
    are those of the transcript, which deciding changes.
    """

    message: Message
    client: str
    session: str
    counts: Counts
    is_line: bool
    origin: str = ""


@dataclass(slots=True)
class Decided:
    """What is to be stored, in the order in which it was met, and what is stored but deleted."""

    new: list[Met]
    deleted: list[StoredMessage]
    known: int = 0


def decide(met: Sequence[Met], stored: Iterable[StoredMessage], purged: AbstractSet[str]) -> Decided:
    """Return what is new.

    `stored` are the captured messages of the user with the texts that were met, and `purged` the ids of those that were
    erased: a transcript that is read again does not bring them back.
    """
    by_text: defaultdict[str, list[StoredMessage]] = defaultdict(list)
    for item in stored:
        by_text[_text_key(item.role, item.content_hash)].append(item)
    decided = Decided([], [])
    for item in met:
        message = item.message
        digest = content_hash(message.content)
        equal = by_text[_text_key(message.role, digest)]
        same = next((other for other in equal if other.external_id == message.external_id), None)
        is_counted_as_new = _is_new_line(item, digest, equal) if item.is_line else _is_new_payload(item, digest, same)
        if is_counted_as_new and same is None and message.id not in purged:
            decided.new.append(item)
            equal.append(StoredMessage(message.id, message.external_id, message.role, digest, message.said_at))
            continue
        decided.known += 1
        if same is not None and same.deleted_at is not None:
            decided.deleted.append(same)
    return decided


def count_before(met: Iterable[Met]) -> None:
    """Count lines that were read before."""
    for item in met:
        _count_line(item, content_hash(item.message.content))


def _count_line(item: Met, digest: str) -> int:
    """Count a line, and return how many equal ones came before it."""
    key = _count_key(item.session, item.message.role, digest)
    in_lines, records = item.counts.get(key, (0, ()))
    item.counts[key] = (in_lines + 1, records)
    return in_lines


def _is_new_line(item: Met, digest: str, equal: Sequence[StoredMessage]) -> bool:
    """Return whether a line of a transcript is new, and count it."""
    before = _count_line(item, digest)
    own = (session_prefix(item.client, item.session), session_prefix(item.client, item.origin or item.session))
    kept = sum(other.external_id.startswith(own) for other in equal)
    elsewhere = (
        other
        for other in equal
        if other.external_id.startswith(f"{item.client}:") and not other.external_id.startswith(own)
    )
    return kept <= before and not any(_is_copy(item.message, other) for other in elsewhere)


def _is_copy(message: Message, other: StoredMessage) -> bool:
    """Return whether a line is a copy of an equal message of another session."""
    is_same_line = other.external_id.rpartition(":")[2] == message.external_id.rpartition(":")[2]
    return is_same_line or abs(other.said_at - message.said_at) <= SAME_TIME


def _is_new_payload(item: Met, digest: str, same: StoredMessage | None) -> bool:
    """Return whether what a client gave to its hook is new, and note it: a line may have brought it before."""
    key = _count_key(item.session, item.message.role, digest)
    in_lines, records = item.counts.get(key, (0, ()))
    name = hashed(item.message.external_id)[:NAME_CHARS]
    if name in records:
        return False
    item.counts[key] = (in_lines, (*records, name))
    return same is None and in_lines <= len(records)


def _text_key(role: str, digest: str) -> str:
    return f"{role} {digest}"


def _count_key(session: str, role: str, digest: str) -> str:
    return hashed(session, role, digest)[:KEY_CHARS]
