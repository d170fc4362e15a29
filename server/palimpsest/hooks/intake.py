"""Take in what hooks captured and the old sessions of clients: gather, clean, deduplicate and store messages."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio
from filelock import Timeout
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from palimpsest.core.errors import InputError, LedgerError, logged
from palimpsest.core.files import delete_older, file_lock
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import CAPTURED, ORIGIN, Decision, Event, Fact, Finding, Message, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings
from palimpsest.core.validation import object_of, trimmed, well_formed
from palimpsest.hooks import spool
from palimpsest.hooks.events import CAPTURING, is_within
from palimpsest.hooks.spool import VERSION, hashed, kept_part, make_private_folder, without_private
from palimpsest.hooks.transcripts import FORMATS, Counts, Offsets, Reading, ReadPosition, read_transcript, write_file
from palimpsest.learn.commit import apply_write, with_named_facts
from palimpsest.learn.engine import Engine, ignore
from palimpsest.learn.sanitize import Cleaner, sanitize_messages, without_blocks, without_recalled_blocks
from palimpsest.store import jobs as job_queries
from palimpsest.store import memories
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.messages import SAME_TIME, StoredMessage
from palimpsest.store.rows import batched, content_hash, grouped, memory_hash
from palimpsest.store.writes import Conversation
from palimpsest.text.display import counted
from palimpsest.text.intents import StandingKind, standing_statements
from palimpsest.text.redaction import redact, says_only_secrets
from palimpsest.text.word_lists import patterns

# Write what hooks must know of the settings: they cannot read settings files. Blocking.

logger = logging.getLogger(__name__)


def write_hook_settings(settings: Settings) -> None:
    """Write the file that hooks read, if it says something else.

    No file says the same as the defaults. If it cannot be written, the log says so: nothing else depends on it.
    """
    excluded = [str(Path(folder).expanduser()) for folder in settings.hooks_excluded_folders]
    content = json.dumps({"mode": settings.hooks, "excluded_folders": excluded})
    file = Path(spool.settings_file(str(settings.data_dir)))
    fault = f"{file} cannot be written, so hooks do not know of hooks = {settings.hooks!r}"
    with logged(logger, fault, OSError, UnicodeDecodeError):
        known = file.read_text("utf-8") if file.exists() else json.dumps({"mode": "on", "excluded_folders": []})
        if known != content:
            write_file(file, content, durable=True)


# Read the spool: the records that hooks left, in the order in which they were written. Blocking.

# The ending of records that cannot be read.
DAMAGED = ".damaged"

# A hook ends itself within a second, so an older draft is that of a killed one.
LEFTOVER_SECONDS = 3600.0


def _without_secrets(client_id: str) -> str:
    return redact(client_id).text


class Record(BaseModel):
    """One record of the spool. `role` and `text` are those of a prompt or a reply; `cwd` is a folder or ""."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    v: Annotated[int, Field(strict=True, ge=VERSION)]
    client: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    event: Literal["prompt", "reply", "compact", "end", "start"]
    session: Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_without_secrets)]
    at: Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
    message_id: Annotated[str, StringConstraints(max_length=1_000), AfterValidator(_without_secrets)] = ""
    role: Literal["user", "assistant", ""] = ""
    text: str = ""
    transcript: str = ""
    cwd: str = ""
    user: str = ""
    file: Path


def waiting_files(data_dir: Path) -> list[Path]:
    """Return the files of the records that wait, the oldest first. Their names begin with the time."""
    return sorted(Path(spool.spool_dir(str(data_dir))).glob(f"*{spool.SPOOL_SUFFIX}"))


def damaged_files(data_dir: Path) -> list[Path]:
    """Return the files that were set aside because they cannot be read."""
    return sorted(Path(spool.spool_dir(str(data_dir))).glob(f"*{DAMAGED}"))


def read_records(files: Sequence[Path], user_id: str) -> list[Record]:
    """Return the records of a user, and those that name no user. What cannot be read is set aside.

    Records of a newer version stay where they are, for a server of that version.
    """
    records: list[Record] = []
    for file in files:
        try:
            value = object_of(json.loads(file.read_bytes()))
            if isinstance(version := value.get("v"), int) and version > VERSION:
                continue
            # Clients may send lone surrogates, which no file accepts.
            texts = {key: well_formed(text) if isinstance(text, str) else text for key, text in value.items()}
            record = Record.model_validate({**texts, "file": file})
            if record.user in ("", user_id):
                records.append(record)
        except OSError as error:  # a purge of another process may have removed it
            logger.warning("%s cannot be read: %s", file, error)
        except (ValueError, RecursionError, OverflowError):  # OverflowError: no such time in UTC
            with logged(logger, f"{file} is no record and cannot be set aside", OSError):  # it is met again then
                file.rename(file.with_suffix(DAMAGED))
    return records


def remove_records(records: Iterable[Record]) -> None:
    """Remove the files of records."""
    for record in records:
        record.file.unlink(missing_ok=True)


def remove_leftovers(data_dir: Path) -> None:
    """Remove the drafts of hooks that were killed."""
    delete_older(Path(spool.spool_dir(str(data_dir))).glob(f"*{spool.UNFINISHED_SUFFIX}"), LEFTOVER_SECONDS)


# By what a captured message and its scope are known.

NAMESPACE = uuid.UUID("0f0c5a0e-3c55-4b57-9d52-1d3f3c1f2a77")

# Longer ids of clients are hashed, so that the three parts of an external id fit into its 256 characters.
MAX_PART_CHARS = 100


def external_id(client: str, session: str, message_id: str, role: str, text: str) -> str:
    """Return `<client>:<session>:<message id>`. Without an id of the client, role and text stand for it."""
    name = message_id or hashed(role, text)
    return f"{session_prefix(client, session)}{name if len(name) <= MAX_PART_CHARS else hashed(name)}"


def session_prefix(client: str, session: str) -> str:
    """Return how the external ids of all messages of a session begin."""
    is_plain = len(session) <= MAX_PART_CHARS and ":" not in session
    return f"{client}:{session if is_plain else hashed(session)}:"


def scope_of(engine: Engine, cwd: str) -> Scope:
    """Return the scope of what was said in a folder. Blocking. Raises LedgerError.

    It is that of the settings; with `project = "auto"`, the project is that of the folder.
    """
    settings = engine.settings
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
    own = without_private(text)
    words = without_recalled_blocks(without_blocks(own, list(_RE["tag"].finditer(own)), lambda _, __, closed: closed))
    kept = trimmed(kept_part(words) if role == "user" else words)
    return "" if _RE["not said"].fullmatch(kept) else kept


# Deduplicate captured messages: each is kept once, whoever brought it.
#
# A message may come from a hook, from a transcript, or from both. A hook's has the id that the client gave it, a
# transcript's that of its line, and the two differ. So equal texts of a session are counted: the third "yes" of a
# transcript is new only if fewer than three are kept. The lines of a session that goes on in a new transcript, or in
# a fork, are copied there, with their ids or at least with their times.

# How many hexadecimal digits tell the texts of one transcript apart.
KEY_CHARS = 16

# How many hexadecimal digits tell the records with one text apart.
NAME_CHARS = 8


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

    def is_new_line(self, equal: Sequence[StoredMessage]) -> bool:
        """Return whether a line is new by the counts, and count it. `equal` are kept with its text."""
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

    def is_new_payload(self, same: StoredMessage | None) -> bool:
        """Return whether what a hook was given is new, and note that it came: a line may have brought it before.

        `same` is kept with its id.
        """
        in_lines, records = self.counts.get(self._key, (0, ()))
        if (name := hashed(self.message.external_id)[:NAME_CHARS]) in records:
            return False
        self.counts[self._key] = (in_lines, (*records, name))
        return same is None and in_lines <= len(records)

    @property
    def _key(self) -> str:
        return hashed(self.session, self.message.role, self.digest)[:KEY_CHARS]


# Gather what records and transcripts say, cleaned and without secrets, as messages that may be new. Blocking.

OLDEST = datetime.min.replace(tzinfo=UTC)

# The events after which the transcript of a session is read.
READ_AT = ("reply", "compact", "end")


class Gathering:
    """Gathers what was captured, and notes in `offsets` how far transcripts were read. Methods raise LedgerError.

    After `deduplicate`, `new` is what is to be stored, in the order in which it was captured, `deleted` what is stored
    but deleted, and `known` how much is stored. `titles` are those of sessions, by client and session.
    """

    def __init__(self, engine: Engine, offsets: Offsets) -> None:
        self._engine, self._offsets = engine, offsets
        self._captured: list[Captured] = []
        self.new: list[Captured] = []
        self.deleted: list[StoredMessage] = []
        self.known = 0
        self.titles: dict[tuple[str, str], str] = {}

    def add_records(self, records: Sequence[Record]) -> Gathering:
        """Add what records say, and then what is new in their transcripts."""
        counts = {
            record.transcript: self._offsets.position(Path(record.transcript)).counts
            for record in records
            if record.client in FORMATS and Path(record.transcript).is_absolute()
        }
        to_read = {record.transcript: record for record in records if record.event in READ_AT}
        for record in records:
            if record.role and record.text:
                scope, known = scope_of(self._engine, record.cwd), counts.get(record.transcript)
                message = _message(scope, record.message_id, record.role, record.text, record.at)
                self._captured.append(Captured(message, record.client, record.session, {} if known is None else known))
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
            self._offsets.count_unknown(record.client, reading.unknown)
        return self

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
        counts = {} if counts is None else counts
        if reading.is_anew:
            counts.update({key: (0, records) for key, (_, records) in counts.items()})
        self._offsets.move(path, reading.position, counts)
        if reading.title:
            self.titles[reading.client, session] = Cleaner(self._engine).text(reading.title)
        if reading.is_subagent:
            return
        scope = scope_of(self._engine, cwd)
        before: list[Captured] = []
        for line, is_new in [*((line, False) for line in reading.before), *((line, True) for line in reading.new)]:
            said_at = line.at or at
            message = _message(scope, redact(line.message_id).text, line.role, line.text, said_at)
            own_session = redact(line.session or session).text
            item = Captured(message, reading.client, own_session, counts, is_line=True, origin=reading.origin)
            (self._captured if is_new and said_at >= since else before).append(item)
        for item in self._cleaned(before):
            item.count()

    def deduplicate(self) -> Gathering:
        """Find what of all that is neither stored nor was purged: what is read again does not bring that back.

        A purged message is known by its id and, if it is a line of a transcript, by what it says at its time.
        """
        found, user_id = self._cleaned(self._captured), self._engine.settings.user_id
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
        for item in found:
            message = item.message
            equal = by_text[message.role, item.digest]
            same = next((other for other in equal if other.external_id == message.external_id), None)
            is_new = item.is_new_line(equal) if item.is_line else item.is_new_payload(same)
            if is_new and same is None and purged.isdisjoint(names[message.id]):
                self.new.append(item)
                equal.append(StoredMessage(message.id, message.external_id, message.role, item.digest, message.said_at))
            elif same is not None and same.deleted_at is not None:
                self.deleted.append(same)
        self.known = len(found) - len(self.new)
        return self

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
                found[int(message.id)] = replace(item, message=replace(message, id=str(own_id), external_id=name))
        return [found[number] for number in sorted(found)]


def _message(scope: Scope, external_id: str, role: str, text: str, at: datetime) -> Message:
    return Message("", scope, role, text, at, at, external_id=external_id)


# Store captured messages: a write for each conversation, one edit for each scope.

# The stage in the history of captured messages, and of what was recognized in them.
STAGE = "capture"

_TAGS: Mapping[StandingKind, tuple[str, ...]] = {"rule": ("instruction",), "decision": ("decision",)}


@dataclass(frozen=True, slots=True)
class _Storing:
    """Stores what was captured. `edits` has the number of the one edit of each scope. Its methods raise LedgerError."""

    engine: Engine
    provenance: Provenance
    edits: dict[Scope, int]

    async def store(self, found: Gathering) -> None:
        """Store messages in the order in which they were said, a few hundred in a transaction."""
        said = sorted(found.new, key=lambda item: item.message.said_at)
        conversations = grouped(((item.message.scope, item.client, item.session), item.message) for item in said)
        for (scope, client, session), messages in conversations.items():
            conversation = Conversation(client, session, found.titles.get((client, session), ""))
            for chunk in batched(messages):
                await self._write(Write(scope, self.provenance, tuple(chunk), conversation))
                if self.engine.own_model is None:
                    await self._keep_statements(chunk)

    async def restore_undone(self, deleted: Sequence[StoredMessage]) -> int:
        """Bring back the messages that an undo took away; return how many. What somebody deleted stays deleted."""
        ids = [message.id for message in deleted]
        by_scope = await self.engine.read(lambda conn: message_queries.undone(conn, ids)) if ids else {}
        for scope, undone in by_scope.items():
            for chunk in batched(undone):
                back = [Decision(Event.ADD, memory_id=message_id, kind="message") for message_id in chunk]
                await self._write(Write(scope, self.provenance, decisions=tuple(back)))
        return sum(map(len, by_scope.values()))

    async def _keep_statements(self, messages: Sequence[Message]) -> None:
        """Keep what users state that holds beyond the conversation, marked as captured: no model will learn it.

        What is about the user holds in all projects. What the user was ever known to have said in these words is not
        kept again, also if it was dropped since.
        """
        stated: dict[Scope, dict[str, Fact]] = {}
        for message in messages:
            for statement in standing_statements(message.content) if message.role == "user" else ():
                scope = message.scope.general if statement.kind == "person" else message.scope
                fact = Fact(
                    statement.text,
                    (message.id,),
                    tags=_TAGS.get(statement.kind, ()),
                    role=message.role,
                    metadata={ORIGIN: CAPTURED},
                    said_at=message.said_at,
                )
                if not says_only_secrets(fact.text):
                    stated.setdefault(scope, {}).setdefault(memory_hash(fact.text), fact)
        engine = self.engine
        for scope, facts in stated.items():
            user, hashes = scope.user_id, list(facts)
            known = await engine.read(lambda conn, user=user, hashes=hashes: memories.hashes_known(conn, user, hashes))
            if adds := [Decision(Event.ADD, fact) for digest, fact in facts.items() if digest not in known]:
                named = await engine.read(lambda conn, scope=scope, adds=adds: with_named_facts(conn, scope, adds))
                await self._write(Write(scope, self.provenance, decisions=named))

    async def _write(self, write: Write) -> None:
        write = replace(write, edit=self.edits.get(write.scope))
        self.edits[write.scope] = (await apply_write(self.engine, write)).edit


# Take the spool in: what people and assistants said, each message once.
#
# One process at a time does it, by a lock of the operating system. Records go in order of their names, in batches.
# A batch is deduplicated first and then written. A file is removed only when the ledger has what it holds, and how far
# a transcript was read is written down before that. So a process that is killed at any point leaves work that the next
# one finds, and what is captured twice is recognized.

# Records that are taken in together: some minutes of work, and a transaction of a tenth of a second.
BATCH = 100

# So many messages of a session are learned from before it ends: one or two calls of the model.
LEARN_AT = 30

# From so many messages on a session is summarized. Fewer are shown as they are.
SUMMARIZED_FROM = 12

# For how many seconds a purge waits for another process that is taking in.
PATIENCE = 30.0

# The events after which all messages of a session are learned from, however few they are.
ENDS = ("compact", "end")


# What a person should know about what hooks captured. Blocking.


def status(settings: Settings) -> Finding:
    """Return what waits, and what could not be read."""
    data_dir = settings.data_dir
    damaged, waiting = damaged_files(data_dir), len(waiting_files(data_dir))
    is_full = waiting >= spool.MAX_FILES
    full = ", and no more is kept; start a server, or run any command" if is_full else ""
    parts = [f"hooks = {settings.hooks}", f"waiting: {counted(waiting, 'record')}{full}"]
    if damaged:
        parts.append(f"set aside because they cannot be read: {counted(len(damaged), 'record')} in {damaged[0].parent}")
    for client, unknown in Offsets.load(data_dir).unknown.items():
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(unknown.items()))
        parts.append(f"unknown in transcripts of {client}, and left out: {listed}")
    return Finding("capture", "; ".join(parts), ok=not damaged and not is_full)


# Take in what hooks captured, and the old sessions of clients.

# How often a server looks into the spool: a look lists one folder, and what was said a moment ago is known to a session
# that begins now.
LOOK_SECONDS = 2.0

# How long a server waits after an error.
BUSY_SECONDS = 30.0

BUSY = "another process is taking in what hooks captured, so nothing was done. Try again in a minute"

EXCLUDED = "sessions in excluded folders"
UNREADABLE = "files that cannot be read"


@dataclass(frozen=True, slots=True)
class SessionsRequest:
    """Which sessions to take in: of a client, in a folder (by default the client's own), said since a time."""

    client: str
    folder: Path | None = None
    since: datetime | None = None
    is_dry_run: bool = False
    caller: str = ""


@dataclass(slots=True)
class SessionsResult:
    """What taking in old sessions did or would do.

    `conversations` and `messages` count what is new, by project. `known` messages are in the ledger already, and
    `restored` are those that an undo had taken away. `edits` are the numbers to undo it by. `left_out` counts what was
    not said by anybody, by reason. `queued` messages wait to be learned from.
    """

    folder: Path
    conversations: Counter[str] = field(default_factory=Counter[str])
    messages: Counter[str] = field(default_factory=Counter[str])
    known: int = 0
    restored: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    edits: dict[Scope, int] = field(default_factory=dict[Scope, int])
    queued: int = 0


@dataclass(frozen=True, slots=True)
class Capture:
    """What takes conversations of clients into an open memory. Every method raises PalimpsestError.

    `_after_write` is awaited with each scope that has new messages, and `_on_pause` called with the client and the id
    of each session that was compacted or has ended, and `_on_said` with the user and what was said.
    """

    _engine: Engine
    _after_write: Callable[[Scope], Awaitable[None]] = ignore
    _on_pause: Callable[[Iterable[tuple[str, str]]], None] = lambda _: None
    _on_said: Callable[..., None] = lambda *_: None

    async def take_in(self, seconds: float | None = None) -> None:
        """Take in what hooks left in the spool, for at most about `seconds`; nothing if the settings say so."""
        if self._engine.settings.hooks in CAPTURING:
            await self._take_in_spool(set(), seconds)

    async def run(self) -> None:
        """Take in what hooks leave until cancelled."""
        if self._engine.settings.hooks not in CAPTURING:
            return
        passed: set[Path] = set()
        while True:
            seconds = LOOK_SECONDS
            try:
                waiting = set(await self._engine.run(lambda: waiting_files(self._engine.settings.data_dir)))
                passed &= waiting
                if waiting - passed:
                    await self._take_in_spool(passed)
            except Exception as error:  # one that escaped would close the memory for all its callers
                is_ours = isinstance(error, LedgerError)
                logger.warning("what hooks captured waits in the spool: %s", error, exc_info=not is_ours)
                seconds = BUSY_SECONDS
            await anyio.sleep(seconds)

    async def empty_spool(self, erased: Scope | None) -> None:
        """Take in all that waits, because it is about to be erased from the ledger.

        If the settings allow no capture, what belongs to the `erased` scope is removed from the spool.
        """
        engine, settings = self._engine, self._engine.settings
        if settings.hooks in CAPTURING:
            if not await self._take_in_spool(set(), patience=PATIENCE):
                raise LedgerError(BUSY)
        elif erased is not None:
            records = await engine.run(lambda: read_records(waiting_files(settings.data_dir), settings.user_id))
            await engine.run(lambda: remove_records(each for each in records if scope_of(engine, each.cwd) == erased))

    async def take_in_sessions(self, request: SessionsRequest, progress: Progress) -> SessionsResult:
        """Take in the old sessions of a client, each into the project of its folder. Each message is kept once.

        All that is new in a scope is one edit. Raises InputError for a folder without transcripts, and LedgerError.
        """
        engine = self._engine
        form = FORMATS[request.client]
        folder = request.folder or Path.home() / form.folder
        if not (files := await engine.run(lambda: form.files_in(folder))):
            raise InputError(f"there are no sessions of {request.client} in {folder}. --folder names another folder")
        result = SessionsResult(folder)
        is_busy = not request.is_dry_run and not await self._take_in_spool(set(), patience=PATIENCE)
        with ExitStack() as stack:
            if is_busy or not await engine.run(lambda: self._enter_lock(stack, PATIENCE)):
                raise LedgerError(BUSY)
            offsets = await engine.run(lambda: Offsets.load(self._engine.settings.data_dir))
            for number, file in enumerate(files, 1):
                await self._take_session(request, file, offsets, result)
                progress(number, len(files))
            if not request.is_dry_run:
                await engine.run(offsets.save)
        await self._follow(result.edits)
        return result

    async def _follow(self, scopes: Iterable[Scope]) -> None:
        for scope in scopes:
            await self._after_write(scope)

    async def _take_in_spool(self, passed: set[Path], seconds: float | None = None, *, patience: float = 0) -> bool:
        """Take in what waits and was not `passed`, which gets it, for at most about `seconds`.

        Return False if another process is taking in and was waited for `patience` seconds.
        """
        engine, data_dir = self._engine, self._engine.settings.data_dir
        scopes: set[Scope] = set()
        began = time.monotonic()
        with ExitStack() as stack:
            if not await engine.run(lambda: self._enter_lock(stack, patience)):
                return False
            while True:
                waiting = await engine.run(lambda: waiting_files(data_dir))
                files = [file for file in waiting if file not in passed][:BATCH]
                scopes.update(await self._take_batch(files) if files else ())
                passed.update(files)
                if not files or (seconds is not None and time.monotonic() - began > seconds):
                    break
            await engine.run(lambda: remove_leftovers(data_dir))
        await self._follow(scopes)
        return True

    def _enter_lock(self, stack: ExitStack, seconds: float) -> bool:
        """Wait at most `seconds` to be the one who takes in, until the stack ends. Return False if another one is.

        Blocking. Raises LedgerError if the folder cannot be used.
        """
        folder = Path(spool.hooks_dir(str(self._engine.settings.data_dir)))
        try:
            make_private_folder(str(folder))
            stack.enter_context(file_lock(folder / "intake.lock").acquire(timeout=seconds))
        except Timeout:
            return False
        except OSError as error:
            raise LedgerError(f"{folder} cannot be used: {error}. Make it a folder that only you can write") from error
        return True

    async def _take_batch(self, files: Sequence[Path]) -> Iterable[Scope]:
        """Take in the records of files, and return the scopes of what is new."""
        engine, settings = self._engine, self._engine.settings
        offsets = await engine.run(lambda: Offsets.load(settings.data_dir))
        spooled = await engine.run(lambda: read_records(files, settings.user_id))
        records = [each for each in spooled if not is_excluded(each.cwd, settings.hooks_excluded_folders)]
        found = await engine.run(lambda: Gathering(engine, offsets).add_records(records).deduplicate())
        storing = _Storing(engine, Provenance(STAGE, caller=job_queries.HOOKS), {})
        await storing.store(found)
        self._on_said(settings.user_id, *(item.message.content for item in found.new))
        over: dict[tuple[str, str], bool] = {}
        for record in records:
            session = record.client, record.session
            over[session] = record.event in ENDS or over.get(session, False)
        await self._queue_learning(over, summarized_from=SUMMARIZED_FROM)
        self._on_pause(session for session, is_over in over.items() if is_over)

        def finish() -> None:
            """Write down how far the transcripts were read, and remove the records. The ledger has what they hold."""
            offsets.save()
            remove_records(spooled)

        await engine.run(finish)
        return storing.edits

    async def _take_session(
        self, request: SessionsRequest, file: Path, offsets: Offsets, result: SessionsResult
    ) -> None:
        """Take in one transcript from its beginning."""
        found = await self._engine.run(lambda: self._in_session(request, file, offsets, result.left_out))
        result.known += found.known
        conversations = {(item.message.scope, item.client, item.session) for item in found.new}
        result.conversations.update(scope.project for scope, _, _ in conversations)
        result.messages.update(item.message.scope.project for item in found.new)
        if request.is_dry_run:
            return
        storing = _Storing(self._engine, Provenance(STAGE, caller=request.caller), result.edits)
        await storing.store(found)
        result.restored += await storing.restore_undone(found.deleted)
        over = dict.fromkeys(((item.client, item.session) for item in found.new), True)
        result.queued += await self._queue_learning(over)

    def _in_session(self, request: SessionsRequest, file: Path, offsets: Offsets, left_out: Counter[str]) -> Gathering:
        """Return what a transcript says; nothing if it is left out. Blocking."""
        since, gathering = request.since or OLDEST, Gathering(self._engine, offsets)
        try:
            if (written_at := datetime.fromtimestamp(file.stat().st_mtime, UTC)) < since:
                return gathering
            reading = read_transcript(request.client, file, ReadPosition(), with_before=False)
        except OSError as error:
            logger.info("%s cannot be read: %s", file, error)
            left_out[UNREADABLE] += 1
            return gathering
        if is_excluded(reading.cwd, self._engine.settings.hooks_excluded_folders):
            left_out[EXCLUDED] += 1
            return gathering
        session = reading.session or file.stem
        gathering.add_lines(reading, file, session, reading.cwd, written_at, offsets.position(file).counts, since=since)
        return gathering.deduplicate()

    async def _queue_learning(self, sessions: Mapping[tuple[str, str], bool], summarized_from: int = 0) -> int:
        """Let facts be learned from sessions that are over (True), or have said much; return from how many messages.

        A session is named by its client and its id. One that is over is also summarized if it has so many messages.
        Nothing is queued without a model of the settings.
        """
        engine, user = self._engine, self._engine.settings.user_id
        if engine.own_model is None:
            return 0
        queued = 0
        for (client, session), is_over in sessions.items():
            counts = (1, summarized_from) if is_over else (LEARN_AT, 0)
            parts = (user, client, session, engine.ledger.clock(), *counts)
            queued += await engine.write(partial(engine.ledger.run_for, user, job_queries.queue_session, *parts))
        return queued
