"""Store what hooks captured and the old sessions of clients."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
from filelock import Timeout

from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.files import file_lock, replace_file
from palimpsest.core.models import CAPTURED, ORIGIN, Decision, Event, Fact, Finding, Message, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings
from palimpsest.core.threads import in_background
from palimpsest.core.validation import one_line
from palimpsest.hooks import captured, spool
from palimpsest.hooks.captured import OLDEST, Deduplicated, Gathering
from palimpsest.hooks.spool import make_private_folder
from palimpsest.hooks.transcripts import FORMATS, Offsets, ReadPosition, read_transcript
from palimpsest.learn.commit import apply_write, with_named_facts
from palimpsest.learn.engine import Engine
from palimpsest.store import jobs as job_queries
from palimpsest.store import memories
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.jobs import HOOKS
from palimpsest.store.ledger import Ledger
from palimpsest.store.messages import StoredMessage
from palimpsest.store.rows import batched, memory_hash
from palimpsest.store.writes import Conversation
from palimpsest.text.display import counted
from palimpsest.text.intents import StandingKind, standing_statements
from palimpsest.text.redaction import says_only_secrets

# Write what hooks must know of the settings: they cannot read settings files. Blocking.

logger = logging.getLogger(__name__)


def write_hook_settings(settings: Settings) -> None:
    """Write the file that hooks read, if it says something else.

    No file says the same as the defaults. If it cannot be written, the log says so: nothing else depends on it.
    """
    excluded = [str(Path(folder).expanduser()) for folder in settings.hooks_excluded_folders]
    content = json.dumps({"mode": settings.hooks, "excluded_folders": excluded})
    file = Path(spool.settings_file(str(settings.data_dir)))
    try:
        known = file.read_text("utf-8") if file.exists() else json.dumps({"mode": "on", "excluded_folders": []})
        if known == content:
            return
        make_private_folder(str(file.parent))
        with replace_file(file) as stream:
            stream.write(content)
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("%s cannot be written, so hooks do not know of hooks = %r: %s", file, settings.hooks, error)


# Store captured messages: a write for each conversation, one edit for each scope.

STAGE = "capture"
"""The stage in the history of captured messages, and of what was recognized in them."""

_TAGS: Mapping[StandingKind, tuple[str, ...]] = {
    "rule": ("instruction",),
    "decision": ("decision",),
    "fact": (),
    "person": (),
}


@dataclass(frozen=True, slots=True)
class _Storing:
    """Stores what was captured. `edits` has the number of the one edit of each scope. Its methods raise LedgerError."""

    engine: Engine
    provenance: Provenance
    edits: dict[Scope, int]

    async def store(self, found: Deduplicated) -> None:
        """Store messages in the order in which they were said, a few hundred in a transaction."""
        conversations: dict[tuple[Scope, str, str], list[Message]] = {}
        for item in sorted(found.new, key=lambda item: item.message.said_at):
            conversations.setdefault((item.message.scope, item.client, item.session), []).append(item.message)
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
                    tags=_TAGS[statement.kind],
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
            adds = [Decision(Event.ADD, fact) for digest, fact in facts.items() if digest not in known]
            if adds:
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

BATCH = 100
"""Records that are taken in together: some minutes of work, and a transaction of a tenth of a second."""

CAPTURING = ("on", "capture")
"""The settings of `hooks` with which conversations are taken in."""

LEARN_AT = 30
"""So many messages of a session are learned from before it ends: one or two calls of the model."""

PATIENCE = 30.0
"""For how many seconds a purge waits for another process that is taking in."""

ENDS = ("compact", "end")
"""The events after which all messages of a session are learned from, however few they are."""


# What a person should know about what hooks captured. Blocking.

REASONS = {
    "full": "the spool was full; start a server, or run any command",
    "large": "the client gave more than a hook reads",
    "unreadable": "the client gave what a hook does not know",
}
"""Why hooks kept nothing, by their word for it."""


def status(settings: Settings, ledger: Ledger, now: datetime) -> Finding:
    """Return what waits, what could not be read, and whether the model was asked as often as it may be today."""
    data_dir = settings.data_dir
    damaged = captured.damaged_files(data_dir)
    parts = [f"hooks = {settings.hooks}", f"waiting: {counted(len(captured.waiting_files(data_dir)), 'record')}"]
    if damaged:
        folder = damaged[0].parent
        parts.append(f"set aside because they cannot be read: {counted(len(damaged), 'record')} in {folder}")
    try:
        lines = Path(spool.refused_file(str(data_dir))).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    refused = Counter(line.partition(" ")[2] for line in lines)
    parts += [f"not kept: {counted(number, 'time')}, {REASONS.get(why, why)}" for why, number in refused.items()]
    for client, unknown in Offsets.load(data_dir).unknown.items():
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(unknown.items()))
        parts.append(f"unknown in transcripts of {client}, and left out: {listed}")
    limit = settings.learn.captured_calls_per_day
    with ledger.read() as conn:
        calls = job_queries.model_use(conn, now).captured_calls
    if calls >= limit and settings.hooks in CAPTURING and calls:
        parts.append(
            f"the {counted(limit, 'call')} of the model for today were made (learn.captured_calls_per_day); the rest "
            "is learned tomorrow (UTC)"
        )
    return Finding("capture", "; ".join(parts), ok=not damaged)


# Take in what hooks captured, and the old sessions of clients.

LOOK_SECONDS = 2.0
"""How often a server looks into the spool: a look lists one folder, and what was said a moment ago is known to a
session that begins now."""

BUSY_SECONDS = 30.0
"""How long a server waits after an error."""

EXAMPLES = 5
"""How many first texts a dry run shows."""

EXCLUDED = "sessions in excluded folders"
UNREADABLE = "files that cannot be read"
UNKNOWN = "lines of unknown types"

AfterWrite = Callable[[Scope], Awaitable[None]]


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
    examples: list[str] = field(default_factory=list[str])
    left_out: Counter[str] = field(default_factory=Counter[str])
    edits: dict[Scope, int] = field(default_factory=dict[Scope, int])
    queued: int = 0


class Capture:
    """What takes conversations of clients into an open memory. Every method raises PalimpsestError.

    `after_write` is awaited with each scope that has new messages.
    """

    def __init__(self, engine: Engine, settings: Settings, after_write: AfterWrite | None = None) -> None:
        self._engine = engine
        self._settings = settings
        self._after_write = after_write

    async def take_in(self, seconds: float | None = None) -> set[Scope]:
        """Take in what hooks left in the spool, for at most about `seconds`; nothing if the settings say so.

        Return the scopes that have new messages.
        """
        if self._settings.hooks not in CAPTURING:
            return set()
        scopes = await self._take_in_spool(set(), seconds) or set()
        await self._follow(scopes)
        return scopes

    async def run(self) -> None:
        """Take in what hooks leave until cancelled."""
        if self._settings.hooks not in CAPTURING:
            return
        passed: set[Path] = set()
        with in_background():
            while True:
                seconds = LOOK_SECONDS
                try:
                    waiting = set(await self._engine.run(lambda: captured.waiting_files(self._settings.data_dir)))
                    passed &= waiting
                    if waiting - passed:
                        await self._follow(await self._take_in_spool(passed) or ())
                except LedgerError as error:
                    logger.warning("what hooks captured waits in the spool: %s", error)
                    seconds = BUSY_SECONDS
                except Exception:  # one that escaped would close the memory for all its callers
                    logger.exception("what hooks captured waits in the spool")
                    seconds = BUSY_SECONDS
                await anyio.sleep(seconds)

    async def empty_spool(self, erased: Scope | None) -> None:
        """Take in all that waits, because it is about to be erased from the ledger.

        If the settings allow no capture, what belongs to the `erased` scope is removed from the spool.
        """
        engine, settings = self._engine, self._settings
        if settings.hooks in CAPTURING:
            if await self._take_in_spool(set(), patience=PATIENCE) is None:
                raise LedgerError(
                    "another process is taking in what hooks captured, so nothing was erased yet. Try again in a minute"
                )
        elif erased is not None:

            def remove() -> None:
                records = captured.read_records(captured.waiting_files(settings.data_dir), settings.user_id)
                captured.remove_records(
                    record for record in records if captured.scope_of(engine, settings, record.cwd) == erased
                )

            await engine.run(remove)

    async def take_in_sessions(self, request: SessionsRequest, progress: Progress) -> SessionsResult:
        """Take in the old sessions of a client, each into the project of its folder. Each message is kept once.

        All that is new in a scope is one edit. Raises InputError for a folder without transcripts, and LedgerError.
        """
        engine = self._engine
        form = FORMATS[request.client]
        folder = request.folder or Path.home() / form.folder
        files = await engine.run(lambda: form.files_in(folder))
        if not files:
            raise InputError(
                f"there are no sessions of {request.client} in {folder}. Nothing was taken in. Use --folder"
            )
        result = SessionsResult(folder)
        is_busy = not request.is_dry_run and await self._take_in_spool(set(), patience=PATIENCE) is None
        with ExitStack() as stack:
            if is_busy or not await engine.run(lambda: self._enter_lock(stack, PATIENCE)):
                raise LedgerError(
                    "another process is taking in what hooks captured. Nothing was taken in. Try again in a minute"
                )
            offsets = await engine.run(lambda: Offsets.load(self._settings.data_dir))
            for number, file in enumerate(files, 1):
                await self._take_session(request, file, offsets, result)
                progress(number, len(files))
            if not request.is_dry_run:
                await engine.run(offsets.save)
        await self._follow(result.edits)
        return result

    async def _follow(self, scopes: Iterable[Scope]) -> None:
        if self._after_write is not None:
            for scope in scopes:
                await self._after_write(scope)

    async def _take_in_spool(
        self, passed: set[Path], seconds: float | None = None, *, patience: float = 0
    ) -> set[Scope] | None:
        """Take in what waits and was not `passed`, which gets it, for at most about `seconds`.

        Return the scopes of what is new, or None if another process is taking in and was waited for `patience` seconds.
        """
        engine, data_dir = self._engine, self._settings.data_dir
        scopes: set[Scope] = set()
        began = time.monotonic()
        with ExitStack() as stack:
            if not await engine.run(lambda: self._enter_lock(stack, patience)):
                return None
            while True:
                waiting = await engine.run(lambda: captured.waiting_files(data_dir))
                files = [file for file in waiting if file not in passed][:BATCH]
                scopes.update(await self._take_batch(files) if files else ())
                passed.update(files)
                if not files or (seconds is not None and time.monotonic() - began > seconds):
                    break
            await engine.run(lambda: captured.remove_leftovers(data_dir))
        return scopes

    def _enter_lock(self, stack: ExitStack, seconds: float) -> bool:
        """Wait at most `seconds` to be the one who takes in, until the stack ends. Return False if another one is.

        Blocking. Raises LedgerError if the folder cannot be used.
        """
        folder = Path(spool.hooks_dir(str(self._settings.data_dir)))
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
        engine, settings = self._engine, self._settings
        offsets = await engine.run(lambda: Offsets.load(settings.data_dir))
        spooled = await engine.run(lambda: captured.read_records(files, settings.user_id))
        records = [each for each in spooled if not captured.is_excluded(each.cwd, settings.hooks_excluded_folders)]

        def gather() -> Deduplicated:
            gathering = Gathering(engine, settings, offsets)
            gathering.add_records(records)
            return gathering.deduplicated()

        found = await engine.run(gather)
        storing = _Storing(engine, Provenance(STAGE, caller=HOOKS), {})
        await storing.store(found)
        over: dict[tuple[str, str], bool] = {}
        for record in records:
            session = record.client, record.session
            over[session] = record.event in ENDS or over.get(session, False)
        await self._queue_learning(over)

        def finish() -> None:
            """Write down how far the transcripts were read, and remove the records. The ledger has what they hold."""
            offsets.save()
            captured.remove_records(spooled)

        await engine.run(finish)
        return storing.edits

    async def _take_session(
        self, request: SessionsRequest, file: Path, offsets: Offsets, result: SessionsResult
    ) -> None:
        """Take in one transcript from its beginning."""
        found = await self._engine.run(lambda: self._in_session(request, file, offsets, result.left_out))
        result.known += found.known
        for scope, _, _ in {(item.message.scope, item.client, item.session) for item in found.new}:
            result.conversations[scope.project] += 1
        for item in found.new:
            result.messages[item.message.scope.project] += 1
            if len(result.examples) < EXAMPLES and item.message.role == "user":
                result.examples.append(one_line(item.message.content))
        if request.is_dry_run:
            return
        storing = _Storing(self._engine, Provenance(STAGE, caller=request.caller), result.edits)
        await storing.store(found)
        result.restored += await storing.restore_undone(found.deleted)
        over = dict.fromkeys(((item.client, item.session) for item in found.new), True)
        result.queued += await self._queue_learning(over)

    def _in_session(
        self, request: SessionsRequest, file: Path, offsets: Offsets, left_out: Counter[str]
    ) -> Deduplicated:
        """Return what a transcript says; nothing if it is left out. Blocking."""
        since = request.since or OLDEST
        try:
            written_at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            if written_at < since:
                return Deduplicated()
            reading = read_transcript(request.client, file, ReadPosition(), with_before=False)
        except OSError as error:
            logger.info("%s cannot be read: %s", file, error)
            left_out[UNREADABLE] += 1
            return Deduplicated()
        info = reading.info
        if captured.is_excluded(info.cwd, self._settings.hooks_excluded_folders):
            left_out[EXCLUDED] += 1
            return Deduplicated()
        left_out.update(info.left_out)
        if info.unknown:
            left_out[UNKNOWN] += info.unknown.total()
        gathering, session = Gathering(self._engine, self._settings, offsets), info.session or file.stem
        gathering.add_lines(reading, file, session, info.cwd, written_at, offsets.counts(file), since=since)
        return gathering.deduplicated()

    async def _queue_learning(self, sessions: Mapping[tuple[str, str], bool]) -> int:
        """Let facts be learned from sessions that are over (True), or have said much; return from how many messages.

        A session is named by its client and its id. Nothing is queued without a model of the settings.
        """
        engine, user = self._engine, self._settings.user_id
        if engine.own_model is None:
            return 0
        queued = 0
        for (client, session), is_over in sessions.items():
            parts = (user, client, session, 1 if is_over else LEARN_AT, engine.ledger.clock())
            queued += await engine.write(partial(engine.ledger.run_for, user, job_queries.queue_session, *parts))
        return queued
