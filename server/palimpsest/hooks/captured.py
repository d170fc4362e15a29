"""Gather, clean and deduplicate captured messages."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from palimpsest.core.errors import InputError
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import Settings
from palimpsest.core.validation import object_of, trimmed, well_formed
from palimpsest.hooks import spool
from palimpsest.hooks.events import is_within
from palimpsest.hooks.spool import VERSION, hashed, kept_part, make_private_folder, without_private
from palimpsest.hooks.transcripts import FORMATS, Counts, Offsets, Reading, read_transcript
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner, sanitize_messages, without_recalled_blocks
from palimpsest.store import messages as message_queries
from palimpsest.store.messages import SAME_TIME, StoredMessage
from palimpsest.store.rows import content_hash
from palimpsest.text.redaction import redact
from palimpsest.text.word_lists import patterns

# Read the spool: the records that hooks left, in the order in which they were written. Blocking.

logger = logging.getLogger(__name__)

DAMAGED = "damaged"
"""The folder in the spool of records that cannot be read."""

LEFTOVER_SECONDS = 3600.0
"""A hook ends itself within a second, so an older draft is that of a killed one."""

Event: TypeAlias = Literal["prompt", "reply", "compact", "end", "start"]


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError as error:  # the first and the last day that there is, in another zone
        raise ValueError("the time cannot be told in UTC") from error


def _without_secrets(client_id: str) -> str:
    return redact(client_id).text


class Record(BaseModel):
    """One record of the spool. `role` and `text` are those of a prompt or a reply; `cwd` is a folder or ""."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    v: Annotated[int, Field(strict=True, ge=VERSION)]
    client: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    event: Event
    session: Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_without_secrets)]
    at: Annotated[AwareDatetime, AfterValidator(_in_utc)]
    message_id: Annotated[str, StringConstraints(max_length=1_000), AfterValidator(_without_secrets)] = ""
    role: Literal["user", "assistant", ""] = ""
    text: str = ""
    transcript: str = ""
    cwd: str = ""
    user: str = ""
    file: Path


def waiting_files(data_dir: Path) -> list[Path]:
    """Return the files of the records that wait, the oldest first. Their names begin with the time."""
    return sorted(_files(data_dir, spool.SPOOL_SUFFIX))


def damaged_files(data_dir: Path) -> list[Path]:
    """Return the files that were set aside because they cannot be read."""
    folder = Path(spool.spool_dir(str(data_dir))) / DAMAGED
    return sorted(folder.iterdir()) if folder.is_dir() else []


def read_records(files: Sequence[Path], user_id: str) -> list[Record]:
    """Return the records of a user, and those that name no user. What cannot be read is set aside.

    Records of a newer version stay where they are, for a server of that version.
    """
    records: list[Record] = []
    for file in files:
        try:
            value = object_of(json.loads(file.read_bytes()))
            version = value.get("v")
            if isinstance(version, int) and version > VERSION:
                continue
            # Clients may send lone surrogates, which no file accepts.
            texts = {key: well_formed(text) if isinstance(text, str) else text for key, text in value.items()}
            record = Record.model_validate({**texts, "file": file})
        except FileNotFoundError:  # a purge of another process removed it
            continue
        except OSError as error:
            logger.warning("%s cannot be read and stays where it is: %s", file, error)
            continue
        except (ValueError, RecursionError, ValidationError):
            _set_aside(file)
            continue
        if record.user in ("", user_id):
            records.append(record)
    return records


def remove_records(records: Iterable[Record]) -> None:
    """Remove the files of records."""
    for record in records:
        record.file.unlink(missing_ok=True)


def remove_leftovers(data_dir: Path) -> None:
    """Remove the drafts of hooks that were killed."""
    oldest = time.time() - LEFTOVER_SECONDS
    for file in _files(data_dir, spool.UNFINISHED_SUFFIX):
        with suppress(OSError):  # the next look meets it again
            if file.stat().st_mtime < oldest:
                file.unlink()


def _files(data_dir: Path, suffix: str) -> list[Path]:
    try:
        with os.scandir(spool.spool_dir(str(data_dir))) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def _set_aside(file: Path) -> None:
    """Move a file that cannot be read out of the way. If that fails, it is met again at the next look."""
    folder = file.parent / DAMAGED
    try:
        make_private_folder(str(folder))
        file.rename(folder / file.name)
    except OSError as error:
        logger.warning("%s is no record and cannot be set aside: %s", file, error)


# By what a captured message and its scope are known.

NAMESPACE = uuid.UUID("0f0c5a0e-3c55-4b57-9d52-1d3f3c1f2a77")
MAX_PART_CHARS = 100
"""Longer ids of clients are hashed, so that the three parts of an external id fit into its 256 characters."""


def external_id(client: str, session: str, message_id: str, role: str, text: str) -> str:
    """Return `<client>:<session>:<message id>`. Without an id of the client, role and text stand for it."""
    name = message_id or hashed(role, text)
    return f"{session_prefix(client, session)}{name if len(name) <= MAX_PART_CHARS else hashed(name)}"


def session_prefix(client: str, session: str) -> str:
    """Return how the external ids of all messages of a session begin."""
    is_plain = len(session) <= MAX_PART_CHARS and ":" not in session
    return f"{client}:{session if is_plain else hashed(session)}:"


def scope_of(engine: Engine, settings: Settings, cwd: str) -> Scope:
    """Return the scope of what was said in a folder. Blocking. Raises LedgerError.

    It is that of the settings; with `project = "auto"`, the project is that of the folder.
    """
    scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
    if settings.repository is None:
        return scope
    try:
        repository = repository_of(Path(cwd)) if Path(cwd).is_absolute() else Repository()
        return replace(scope, project=engine.ledger.project_of(scope.user_id, repository))
    except (InputError, OSError, ValueError):  # its name is not valid in a scope; it cannot be read; it is no path
        return replace(scope, project="")


def is_excluded(folder: str, excluded: Sequence[str]) -> bool:
    """Return whether a folder is one of those that hooks leave out, or below one."""
    if not folder or "\0" in folder:  # no folder has such a path
        return False
    return any(is_within(folder, os.path.expanduser(other)) for other in excluded)  # noqa: PTH111 - as the hook does


# What of a captured text is kept: what a person or the assistant said, without what clients and we put into it.

_RE = patterns("palimpsest.hooks", "clients.txt")


def clean_text(role: str, text: str) -> str:
    """Return what somebody said in a text; "" if nothing is left. The hook leaves out what it can tell."""
    words = without_recalled_blocks(without_clients_blocks(without_private(text)))
    kept = trimmed(kept_part(words) if role == "user" else words)
    return "" if _RE["not said"].fullmatch(kept) else kept


def without_clients_blocks(text: str) -> str:
    """Return a text without the blocks that clients added. Takes linear time."""
    tags = list(_RE["tag"].finditer(text))
    last_end = {tag["name"].lower(): tag.start() for tag in tags if tag["end"]}
    kept: list[str] = []
    kept_to, open_name = 0, ""
    for tag in tags:
        name = tag["name"].lower()
        if not open_name and not tag["end"] and last_end.get(name, -1) > tag.start():
            kept.append(text[kept_to : tag.start()])
            open_name = name
        elif open_name == name and tag["end"]:
            kept_to, open_name = tag.end(), ""
    return "".join([*kept, text[kept_to:]])


# Deduplicate captured messages: each is kept once, whoever brought it.
#
# A message may come from a hook, from a transcript, or from both. A hook's has the id that the client gave it, a
# transcript's that of its line, and the two differ. So equal texts of a session are counted: the third "yes" of a
# transcript is new only if fewer than three are kept. The lines of a session that goes on in a new transcript, or in
# a fork, are copied there, with their ids or at least with their times.

KEY_CHARS = 16
"""How many hexadecimal digits tell the texts of one transcript apart."""

NAME_CHARS = 8
"""How many hexadecimal digits tell the records with one text apart."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A message that was captured, from a transcript (`is_line`) or from what a client gave to its hook.

    `client` and `session` are where it was said, `origin` the session that this one was forked from, or "". `counts`
    are those of the transcript, which deduplication changes. Until it is cleaned, the external id of the message is the
    one that the client gave.
    """

    message: Message
    client: str
    session: str
    counts: Counts
    is_line: bool = False
    origin: str = ""

    @property
    def digest(self) -> str:
        """Return the hash of the text."""
        return content_hash(self.message.content)

    def count(self) -> int:
        """Count a line, and return how many equal ones came before it."""
        in_lines, records = self.counts.get(self._key, (0, ()))
        self.counts[self._key] = (in_lines + 1, records)
        return in_lines

    def is_new(self, equal: Sequence[StoredMessage], same: StoredMessage | None) -> bool:
        """Return whether it is new by the counts, and count it. `equal` are kept with its text, `same` with its id."""
        return self._is_new_line(equal) if self.is_line else self._is_new_payload(same)

    def _is_new_line(self, equal: Sequence[StoredMessage]) -> bool:
        before = self.count()
        own = (session_prefix(self.client, self.session), session_prefix(self.client, self.origin or self.session))
        kept = sum(other.external_id.startswith(own) for other in equal)
        # A copy of an equal message of another session has its id, or at least its time.
        line_id, said_at = self.message.external_id.rpartition(":")[2], self.message.said_at
        return kept <= before and not any(
            other.external_id.rpartition(":")[2] == line_id or abs(other.said_at - said_at) <= SAME_TIME
            for other in equal
            if other.external_id.startswith(f"{self.client}:") and not other.external_id.startswith(own)
        )

    def _is_new_payload(self, same: StoredMessage | None) -> bool:
        """Note also that it came: a line may have brought it before."""
        in_lines, records = self.counts.get(self._key, (0, ()))
        name = hashed(self.message.external_id)[:NAME_CHARS]
        if name in records:
            return False
        self.counts[self._key] = (in_lines, (*records, name))
        return same is None and in_lines <= len(records)

    @property
    def _key(self) -> str:
        return hashed(self.session, self.message.role, self.digest)[:KEY_CHARS]


@dataclass(slots=True)
class Deduplicated:
    """What is to be stored, in the order in which it was captured, and what is stored but deleted.

    `titles` are those of sessions, by client and session.
    """

    new: list[Captured] = field(default_factory=list[Captured])
    deleted: list[StoredMessage] = field(default_factory=list[StoredMessage])
    known: int = 0
    titles: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])


# Gather what records and transcripts say, cleaned and without secrets, as messages that may be new. Blocking.

OLDEST = datetime.min.replace(tzinfo=UTC)

READ_AT = ("reply", "compact", "end")
"""The events after which the transcript of a session is read."""


class Gathering:
    """Gathers what was captured, and notes in `offsets` how far transcripts were read. Methods raise LedgerError."""

    def __init__(self, engine: Engine, settings: Settings, offsets: Offsets) -> None:
        self._engine, self._settings, self._offsets = engine, settings, offsets
        self._captured: list[Captured] = []
        self._titles: dict[tuple[str, str], str] = {}

    def add_records(self, records: Sequence[Record]) -> None:
        """Add what records say, and then what is new in their transcripts."""
        counts = {
            record.transcript: self._offsets.counts(Path(record.transcript))
            for record in records
            if record.client in FORMATS and Path(record.transcript).is_absolute()
        }
        to_read = {record.transcript: record for record in records if record.event in READ_AT}
        for record in records:
            if record.role and record.text:
                scope, known = scope_of(self._engine, self._settings, record.cwd), counts.get(record.transcript)
                message = _message(scope, record.message_id, record.role, record.text, record.at)
                of_payload = Captured(message, record.client, record.session, Counts() if known is None else known)
                self._captured.append(of_payload)
        for name, known in counts.items():
            path, record = Path(name), to_read.get(name)
            position = self._offsets.position(path)
            if record is None:
                if known is not None:
                    self._offsets.move(path, position, known)
                continue
            try:
                if not path.is_file():  # a pipe would be waited for
                    continue
                reading = read_transcript(record.client, path, position, with_before=known is None)
            except (OSError, ValueError) as error:  # it is met again later; ValueError: no file has such a path
                logger.info("the transcript %s cannot be read: %s", path, error)
                continue
            self.add_lines(reading, path, record.session, record.cwd, record.at, known)
            self._offsets.count_unknown(record.client, reading.info.unknown)

    def add_lines(
        self,
        reading: Reading,
        path: Path,
        session: str,
        cwd: str,
        at: datetime,
        counts: Counts | None,
        *,
        since: datetime = OLDEST,
    ) -> None:
        """Add the new messages of a transcript that were said since a time, and count those before them.

        `at` is the time of those that have none. Without `counts` they begin with this reading.
        """
        counts, info = Counts() if counts is None else counts, reading.info
        if reading.is_anew:
            counts.forget_lines()
        self._offsets.move(path, reading.position, counts)
        if info.title:
            self._titles[reading.client, session] = Cleaner(self._engine).text(info.title)
        if info.is_subagent:
            return
        scope = scope_of(self._engine, self._settings, cwd)
        before: list[Captured] = []
        for line, is_new in [*((line, False) for line in reading.before), *((line, True) for line in reading.new)]:
            said_at = line.at or at
            message = _message(scope, redact(line.message_id).text, line.role, line.text, said_at)
            own_session = redact(line.session or session).text
            item = Captured(message, reading.client, own_session, counts, is_line=True, origin=info.origin)
            (self._captured if is_new and said_at >= since else before).append(item)
        for item in self._cleaned(before):
            item.count()

    def deduplicated(self) -> Deduplicated:
        """Return what of all that is neither stored nor was purged: what is read again does not bring that back.

        A purged message is known by its id and, if it is a line of a transcript, by what it says at its time.
        """
        found, user_id = self._cleaned(self._captured), self._settings.user_id
        names: dict[str, set[str]] = {}
        for item in found:
            message = item.message
            names[message.id] = {message.id}
            if item.is_line:
                known_by = (message.external_id, message.role, item.digest, message.said_at)
                names[message.id].update(message_queries.said_then(message.scope.user_id, *known_by))
        by_text: defaultdict[tuple[str, str], list[StoredMessage]] = defaultdict(list)
        with self._engine.ledger.read() as conn:
            for other in message_queries.with_texts(conn, user_id, list(dict.fromkeys(item.digest for item in found))):
                by_text[other.role, other.content_hash].append(other)
            purged = message_queries.purged(conn, list(set[str]().union(*names.values())))
        result = Deduplicated(titles=self._titles)
        for item in found:
            message = item.message
            equal = by_text[message.role, item.digest]
            same = next((other for other in equal if other.external_id == message.external_id), None)
            if item.is_new(equal, same) and same is None and purged.isdisjoint(names[message.id]):
                result.new.append(item)
                said_at = message.said_at
                equal.append(StoredMessage(message.id, message.external_id, message.role, item.digest, said_at))
                continue
            result.known += 1
            if same is not None and same.deleted_at is not None:
                result.deleted.append(same)
        return result

    def _cleaned(self, captured: Sequence[Captured]) -> list[Captured]:
        """Return what was said, without secrets and without what came from this memory."""
        now = self._engine.clock()
        by_scope: dict[Scope, list[Message]] = {}
        for number, item in enumerate(captured):
            message = item.message
            if text := clean_text(message.role, message.content):
                numbered = replace(message, id=str(number), content=text, created_at=now, external_id="")
                by_scope.setdefault(message.scope, []).append(numbered)
        found: dict[int, Captured] = {}
        for scope, messages in by_scope.items():
            for message in sanitize_messages(self._engine, scope, messages, ())[0]:
                item, text = captured[int(message.id)], message.content
                name = external_id(item.client, item.session, item.message.external_id, message.role, text)
                # Always the same id, so that what was purged is recognized.
                own_id = uuid.uuid5(NAMESPACE, "\0".join((scope.user_id, name, message.role, content_hash(text))))
                own = replace(message, id=str(own_id), external_id=name)
                found[int(message.id)] = replace(item, message=own)
        return [item for _, item in sorted(found.items(), key=lambda numbered: numbered[0])]


def _message(scope: Scope, external_id: str, role: str, text: str, at: datetime) -> Message:
    return Message("", scope, role, text, at, at, external_id=external_id)
