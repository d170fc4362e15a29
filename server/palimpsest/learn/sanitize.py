"""What is given to be remembered, before any of it is stored: without secrets, and without what was recalled from here.

A conversation often carries the replies of its own searches. Kept again they would come back as new memories of old
ones (the commonest junk there is), so lines that repeat a hit are taken out, and text that is left is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.errors import InputError
from palimpsest.core.models import Fact, Message, Scope
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import history as history_queries
from palimpsest.store.queries import id_lookup
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.text.redaction import is_marker, redact, redact_json

_HIT = re.compile(r"\s*(?:[-*>]\s*)?\[(?P<id>[0-9a-f]{8}[0-9a-f-]{0,28})\]\s*\d{4}-\d\d-\d\d\s(?P<said>.*)")
"""A line as a search prints it: [id] date text, or [id] date name said: text."""

_MIN_SUMMARY_CHARS = 40


@dataclass(frozen=True, slots=True)
class Screened:
    """Hold the messages and system texts that are left to keep, and what was taken out, one note a kind."""

    messages: tuple[Message, ...]
    context: tuple[str, ...]
    notes: tuple[str, ...]


def screened_messages(engine: Engine, scope: Scope, messages: Sequence[Message], context: Sequence[str]) -> Screened:
    """Return a conversation without secrets and recalled text. Blocking. Raises LedgerError."""
    cleaner = Cleaner(engine)
    with engine.ledger.read() as conn:
        summaries = [
            summary.text
            for kind in ("overall", "recent")
            if (summary := summary_queries.latest_summary(conn, scope, kind)) is not None
        ]
        told = [without_recalled(conn, scope, message.content, summaries) for message in messages]
    recalled = sum(lines for _, lines in told)
    left = [
        replace(message, content=cleaner.text(text)) for message, (text, _) in zip(messages, told, strict=True) if text
    ]
    background = tuple(cleaner.text(text) for text in context)
    notes = cleaner.notes()
    if recalled:
        notes.append(f"{recalled} recalled passages were not kept again")
    return Screened(tuple(left), background, tuple(notes))


def screened_fact(engine: Engine, fact: Fact) -> tuple[Fact, list[str]]:
    """Return a fact in the caller's words without secrets, and what to tell of them. Blocking.

    Raises InputError for a text of which nothing would be left.
    """
    cleaner = Cleaner(engine)
    cleaned = replace(fact, text=cleaner.text(fact.text), metadata=cleaner.value(dict(fact.metadata)))
    if cleaner.kinds and is_marker(cleaned.text):
        raise InputError(
            f"the text is a secret ({cleaner.kinds[0]}) and nothing else; nothing was stored. Secrets are not kept: "
            "tell the user, and store where it is to be found instead."
        )
    return cleaned, cleaner.notes()


def recalled_text(engine: Engine, scope: Scope, text: str) -> str:
    """Return the text of the memory that a line of a search reply repeats; any other text as it is. Blocking."""
    if _HIT.fullmatch(one_line(text)) is None:
        return text
    with engine.ledger.read() as conn:
        return _recalled(conn, scope, one_line(text)) or text


def without_recalled(conn: Connection, scope: Scope, text: str, summaries: Iterable[str]) -> tuple[str, int]:
    """Return a text without lines that repeat a memory or turn by its id, and without a summary; and how many."""
    taken = 0
    for summary in summaries:
        if len(summary) >= _MIN_SUMMARY_CHARS and summary in text:
            text, taken = text.replace(summary, ""), taken + 1
    lines = text.split("\n")
    kept = [line for line in lines if _recalled(conn, scope, line) is None]
    taken += len(lines) - len(kept)
    if not taken:
        return text, 0
    frame = f"scope: {scope}"  # the last line of every reply of ours
    return "\n".join(line for line in kept if line.strip() != frame).strip(), taken


def _recalled(conn: Connection, scope: Scope, line: str) -> str | None:
    """Return what a line of a search reply repeats: a memory's text, as it is or was, or the words of a turn."""
    match = _HIT.fullmatch(line)
    if match is None:
        return None
    try:
        found = id_lookup.find(conn, scope, match["id"])
    except InputError:
        return None  # an id of something else: the line is the speaker's own
    said = one_line(match["said"])
    if isinstance(found, Message):
        return found.content if said == one_line(f"{found.name or found.role} said: {found.content}") else None
    texts = (found.text, *(entry.new_memory or "" for entry in history_queries.versions_of(conn, found.id)))
    return next((text for text in texts if said == one_line(text)), None)


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Take secrets out of texts, unless the settings keep them, and remember what kinds there were."""

    engine: Engine
    kinds: list[str] = field(default_factory=list[str])

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        if self.engine.keep_secrets or not text:
            return text
        found = redact(text)
        self.kinds.extend(found.kinds)
        return found.text

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets in its texts."""
        if self.engine.keep_secrets:
            return value
        cleaned, kinds = redact_json(value)
        self.kinds.extend(kinds)
        return cleaned

    def notes(self) -> list[str]:
        """Return what to tell of the secrets that were found, if any were."""
        if not self.kinds:
            return []
        counted = Counter(self.kinds).items()
        listed = ", ".join(f"{kind} ({number} times)" if number > 1 else kind for kind, number in counted)
        return [f"secrets are not kept: {listed} replaced by a marker before anything was stored"]
