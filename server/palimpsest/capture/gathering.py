"""Gather what records and transcripts say, cleaned and without secrets, as messages that may be new. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from palimpsest.capture.cleaning import said
from palimpsest.capture.identity import external_id, message_id, scope_of
from palimpsest.capture.once import Met, count_before
from palimpsest.capture.spool import Record
from palimpsest.capture.transcripts.offsets import Counts, Offsets
from palimpsest.capture.transcripts.reading import FORMATS, Place, Reading, read_transcript
from palimpsest.capture.transcripts.said import SaidLine
from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import Settings
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner, sanitize_messages
from palimpsest.text.secrets.redaction import redact

logger = logging.getLogger(__name__)

READ_AT = ("reply", "compact", "end")
"""The events after which the transcript of a session is read."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript that was met: how far it was read, and how often each text was met in it."""

    client: str
    path: Path
    counts: Counts
    place: Place
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A text as it was met, before secrets are replaced. The fields are those of `Met` and of a message."""

    scope: Scope
    client: str
    session: str
    message_id: str
    role: str
    text: str
    at: datetime
    counts: Counts
    is_line: bool = False
    origin: str = ""


@dataclass(slots=True)
class Gathered:
    """What was met, in the order in which it is to be decided about; the transcripts, and the titles of sessions."""

    met: list[Met] = field(default_factory=list[Met])
    transcripts: list[Transcript] = field(default_factory=list[Transcript])
    titles: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def note(self, offsets: Offsets) -> None:
        """Write down how far the transcripts were read."""
        for item in self.transcripts:
            offsets.move(item.path, item.place, item.counts)
            if item.reading is not None:
                offsets.count_unknown(item.client, item.reading.notes.unknown)


def gather(engine: Engine, settings: Settings, records: Sequence[Record], offsets: Offsets) -> Gathered:
    """Return what records say, and then what is new in their transcripts. Raises LedgerError."""
    gathered = Gathered()
    told: list[Told] = []
    counts = {
        record.transcript: offsets.counts(Path(record.transcript))
        for record in records
        if record.client in FORMATS and Path(record.transcript).is_absolute()
    }
    to_read = {record.transcript: record for record in records if record.event in READ_AT}
    for record in records:
        if record.role and record.text:
            scope, known = scope_of(engine, settings, record.cwd), counts.get(record.transcript)
            met = Counts() if known is None else known
            told.append(
                Told(scope, record.client, record.session, record.message_id, record.role, record.text, record.at, met)
            )
    lines: list[Told] = []
    for name, known in counts.items():
        path, record = Path(name), to_read.get(name)
        if record is not None:
            lines += _read(engine, settings, record, offsets, known, gathered)
        elif known is not None:
            gathered.transcripts.append(Transcript("", path, known, offsets.place(path)))
    gathered.met = without_secrets(engine, [*told, *lines])
    return gathered


def _read(
    engine: Engine, settings: Settings, record: Record, offsets: Offsets, counts: Counts | None, gathered: Gathered
) -> list[Told]:
    """Return what is new in the transcript of a record's session. One that cannot be read is met again later."""
    path = Path(record.transcript)
    try:
        if not path.is_file():  # a pipe would be waited for
            return []
        reading = read_transcript(record.client, path, offsets.place(path), with_before=counts is None)
    except (OSError, ValueError) as error:  # ValueError: no file has such a path
        logger.info("the transcript %s cannot be read: %s", path, error)
        return []
    known = Counts() if counts is None else counts
    if reading.is_anew:
        known.forget_lines()
    scope = scope_of(engine, settings, record.cwd)
    before = told_by(reading.before, reading, record.client, record.session, scope, record.at, known)
    count_before(without_secrets(engine, before))
    gathered.transcripts.append(Transcript(record.client, path, known, reading.place, reading))
    note_title(engine, gathered, record.client, record.session, reading)
    return told_by(reading.new, reading, record.client, record.session, scope, record.at, known)


def note_title(engine: Engine, gathered: Gathered, client: str, session: str, reading: Reading) -> None:
    """Note the title of a session, without secrets."""
    if reading.notes.title:
        gathered.titles[client, session] = Cleaner(engine).text(reading.notes.title)


def told_by(
    lines: Iterable[SaidLine],
    reading: Reading,
    client: str,
    session: str,
    scope: Scope,
    at: datetime,
    counts: Counts,
) -> list[Told]:
    """Return what the lines of a transcript tell. `at` is the time of those that have none."""
    if reading.notes.is_subagent:
        return []
    return [
        Told(
            scope,
            client,
            redact(line.session or session).text,
            redact(line.message_id).text,
            line.role,
            line.text,
            line.at or at,
            counts,
            is_line=True,
            origin=reading.notes.origin,
        )
        for line in lines
    ]


def without_secrets(engine: Engine, told: Sequence[Told]) -> list[Met]:
    """Return what was said in texts, without secrets and without what came from this memory. Raises LedgerError."""
    now = engine.clock()
    by_scope: dict[Scope, list[Message]] = {}
    for number, item in enumerate(told):
        text = said(item.role, item.text)
        if text:
            message = Message(str(number), item.scope, item.role, text, item.at, now)
            by_scope.setdefault(item.scope, []).append(message)
    texts = {
        int(message.id): message.content
        for scope, messages in by_scope.items()
        for message in sanitize_messages(engine, scope, messages, ()).messages
    }
    return [_met(told[number], texts[number], now) for number in sorted(texts)]


def _met(told: Told, text: str, now: datetime) -> Met:
    name = external_id(told.client, told.session, told.message_id, told.role, text)
    message = Message(
        message_id(told.scope.user_id, name, told.role, text),
        told.scope,
        told.role,
        text,
        told.at,
        now,
        external_id=name,
    )
    return Met(message, told.client, told.session, told.counts, told.is_line, told.origin)
