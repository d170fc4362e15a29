"""Gather, clean and deduplicate captured messages."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from palimpsest.core.errors import InputError
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import Settings
from palimpsest.core.validation import trimmed, well_formed
from palimpsest.hooks import spool
from palimpsest.hooks.events import is_within
from palimpsest.hooks.spool import VERSION, hashed, kept_part, make_private_folder, without_private
from palimpsest.hooks.transcripts import FORMATS, Counts, Offsets, Reading, ReadPosition, read_transcript
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner, sanitize_messages, without_recalled_blocks
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
            value = json.loads(file.read_bytes())
            if _is_newer(value):
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


def _is_newer(value: Any) -> bool:
    version = cast("dict[str, Any]", value).get("v") if isinstance(value, dict) else None
    if not isinstance(version, int) or version < VERSION:
        raise ValueError("the record has no version")
    return version > VERSION


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


@dataclass(slots=True)
class Deduplicated:
    """What is to be stored, in the order in which it was captured, and what is stored but deleted."""

    new: list[Captured]
    deleted: list[StoredMessage]
    known: int = 0


def deduplicate(
    captured: Sequence[Captured], stored: Iterable[StoredMessage], purged: AbstractSet[str]
) -> Deduplicated:
    """Return what is new.

    `stored` are the captured messages of the user with these texts, and `purged` the ids of those that were
    erased: a transcript that is read again does not bring them back.
    """
    by_text: defaultdict[tuple[str, str], list[StoredMessage]] = defaultdict(list)
    for item in stored:
        by_text[item.role, item.content_hash].append(item)
    result = Deduplicated([], [])
    for item in captured:
        message = item.message
        digest = content_hash(message.content)
        equal = by_text[message.role, digest]
        same = next((other for other in equal if other.external_id == message.external_id), None)
        is_counted_as_new = _is_new_line(item, digest, equal) if item.is_line else _is_new_payload(item, digest, same)
        if is_counted_as_new and same is None and message.id not in purged:
            result.new.append(item)
            equal.append(StoredMessage(message.id, message.external_id, message.role, digest, message.said_at))
            continue
        result.known += 1
        if same is not None and same.deleted_at is not None:
            result.deleted.append(same)
    return result


def _count_line(item: Captured, digest: str) -> int:
    """Count a line, and return how many equal ones came before it."""
    key = _count_key(item.session, item.message.role, digest)
    in_lines, records = item.counts.get(key, (0, ()))
    item.counts[key] = (in_lines + 1, records)
    return in_lines


def _is_new_line(item: Captured, digest: str, equal: Sequence[StoredMessage]) -> bool:
    """Return whether a line of a transcript is new, and count it."""
    before = _count_line(item, digest)
    own = (session_prefix(item.client, item.session), session_prefix(item.client, item.origin or item.session))
    kept = sum(other.external_id.startswith(own) for other in equal)
    # A copy of an equal message of another session has its id, or at least its time.
    line_id, said_at = item.message.external_id.rpartition(":")[2], item.message.said_at
    return kept <= before and not any(
        other.external_id.rpartition(":")[2] == line_id or abs(other.said_at - said_at) <= SAME_TIME
        for other in equal
        if other.external_id.startswith(f"{item.client}:") and not other.external_id.startswith(own)
    )


def _is_new_payload(item: Captured, digest: str, same: StoredMessage | None) -> bool:
    """Return whether what a client gave to its hook is new, and note it: a line may have brought it before."""
    key = _count_key(item.session, item.message.role, digest)
    in_lines, records = item.counts.get(key, (0, ()))
    name = hashed(item.message.external_id)[:NAME_CHARS]
    if name in records:
        return False
    item.counts[key] = (in_lines, (*records, name))
    return same is None and in_lines <= len(records)


def _count_key(session: str, role: str, digest: str) -> str:
    return hashed(session, role, digest)[:KEY_CHARS]


# Gather what records and transcripts say, cleaned and without secrets, as messages that may be new. Blocking.

OLDEST = datetime.min.replace(tzinfo=UTC)

READ_AT = ("reply", "compact", "end")
"""The events after which the transcript of a session is read."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was captured, in the order in which it is deduplicated, and the titles of sessions by client and id."""

    captured: list[Captured]
    titles: dict[tuple[str, str], str]


def gather(engine: Engine, settings: Settings, records: Sequence[Record], offsets: Offsets) -> Gathered:
    """Return what records say, and then what is new in their transcripts, which is noted as read.

    Raises LedgerError.
    """
    counts = {
        record.transcript: offsets.counts(Path(record.transcript))
        for record in records
        if record.client in FORMATS and Path(record.transcript).is_absolute()
    }
    to_read = {record.transcript: record for record in records if record.event in READ_AT}
    captured: list[Captured] = []
    titles: dict[tuple[str, str], str] = {}
    for record in records:
        if record.role and record.text:
            scope, known = scope_of(engine, settings, record.cwd), counts.get(record.transcript)
            message = _message(scope, record.message_id, record.role, record.text, record.at)
            captured.append(Captured(message, record.client, record.session, Counts() if known is None else known))
    for name, known in counts.items():
        path, record = Path(name), to_read.get(name)
        reading = None if record is None else _reading(record, path, offsets.position(path), with_before=known is None)
        if record is not None and reading is not None:
            scope, read_so_far = scope_of(engine, settings, record.cwd), Counts() if known is None else known
            if reading.is_anew:
                read_so_far.forget_lines()
            captured += new_lines(engine, reading, record.session, scope, record.at, read_so_far)
            titles |= title_of(engine, reading, record.session)
            offsets.move(path, reading.position, read_so_far)
            offsets.count_unknown(record.client, reading.info.unknown)
        elif record is None and known is not None:
            offsets.move(path, offsets.position(path), known)
    return Gathered(cleaned(engine, captured), titles)


def _reading(record: Record, path: Path, position: ReadPosition, *, with_before: bool) -> Reading | None:
    """Return what is new in the transcript of a record's session. One that cannot be read is met again later."""
    try:
        if path.is_file():  # a pipe would be waited for
            return read_transcript(record.client, path, position, with_before=with_before)
    except (OSError, ValueError) as error:  # ValueError: no file has such a path
        logger.info("the transcript %s cannot be read: %s", path, error)
    return None


def title_of(engine: Engine, reading: Reading, session: str) -> dict[tuple[str, str], str]:
    """Return the title of a session by client and id, without secrets; nothing if it has none."""
    title = reading.info.title
    return {(reading.client, session): Cleaner(engine).text(title)} if title else {}


def new_lines(
    engine: Engine,
    reading: Reading,
    session: str,
    scope: Scope,
    at: datetime,
    counts: Counts,
    since: datetime = OLDEST,
) -> list[Captured]:
    """Return the new messages of a transcript that were said since a time, and count those before them.

    `at` is the time of those that have none. Raises LedgerError.
    """
    if reading.info.is_subagent:
        return []
    before: list[Captured] = []
    new: list[Captured] = []
    for line, is_new in [*((line, False) for line in reading.before), *((line, True) for line in reading.new)]:
        said_at = line.at or at
        message = _message(scope, redact(line.message_id).text, line.role, line.text, said_at)
        own_session, origin = redact(line.session or session).text, reading.info.origin
        item = Captured(message, reading.client, own_session, counts, is_line=True, origin=origin)
        (new if is_new and said_at >= since else before).append(item)
    for item in cleaned(engine, before):
        _count_line(item, content_hash(item.message.content))
    return new


def _message(scope: Scope, external_id: str, role: str, text: str, at: datetime) -> Message:
    return Message("", scope, role, text, at, at, external_id=external_id)


def cleaned(engine: Engine, captured: Sequence[Captured]) -> list[Captured]:
    """Return what was said, without secrets and without what came from this memory. Raises LedgerError."""
    now = engine.clock()
    by_scope: dict[Scope, list[Message]] = {}
    for number, item in enumerate(captured):
        message = item.message
        if text := clean_text(message.role, message.content):
            numbered = replace(message, id=str(number), content=text, created_at=now, external_id="")
            by_scope.setdefault(message.scope, []).append(numbered)
    texts = {
        int(message.id): message.content
        for scope, messages in by_scope.items()
        for message in sanitize_messages(engine, scope, messages, ()).messages
    }
    found: list[Captured] = []
    for number, text in sorted(texts.items()):
        item = captured[number]
        message = item.message
        name = external_id(item.client, item.session, message.external_id, message.role, text)
        # Always the same id, so that what was purged is recognized.
        parts = (message.scope.user_id, name, message.role, content_hash(text))
        own_id = str(uuid.uuid5(NAMESPACE, "\0".join(parts)))
        message = replace(message, id=own_id, content=text, created_at=now, external_id=name)
        found.append(replace(item, message=message))
    return found
