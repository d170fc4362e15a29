"""Store what hooks captured and the old sessions of clients."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
from filelock import Timeout
from sqlalchemy import Connection

from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.files import file_lock, replace_file
from palimpsest.core.models import CAPTURED, ORIGIN, Decision, Event, Fact, Message, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings
from palimpsest.core.threads import in_background
from palimpsest.core.validation import one_line
from palimpsest.hooks import captured, spool
from palimpsest.hooks.captured import (
    Decided,
    Gathered,
    Met,
    Transcript,
    count_before,
    decide,
    gather,
    is_excluded,
    note_title,
    scope_of,
    told_by,
    without_secrets,
)
from palimpsest.hooks.spool import make_private_folder
from palimpsest.hooks.transcripts import FORMATS, Counts, Offsets, Place, read_transcript
from palimpsest.learn.commit import apply_write
from palimpsest.learn.engine import Engine
from palimpsest.learn.entity_resolution import with_named_facts
from palimpsest.store import jobs as job_queries
from palimpsest.store import memories
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.jobs import HOOKS
from palimpsest.store.ledger import Ledger
from palimpsest.store.messages import StoredMessage
from palimpsest.store.rows import chunks, content_hash, memory_hash
from palimpsest.store.writes import Conversation
from palimpsest.text.display import counted
from palimpsest.text.intents import StandingKind, standing_statements
from palimpsest.text.redaction import says_only_secrets

# Tell hooks what they must know of the settings: they cannot read settings files. Blocking.

logger = logging.getLogger(__name__)


def write_hook_settings(settings: Settings) -> None:
    """Write the file that hooks read, if it says something else.

    No file says the same as the defaults. If it cannot be written, the log says so: nothing else depends on it.
    """
    excluded = [str(Path(folder).expanduser()) for folder in settings.hooks_excluded_folders]
    content = json.dumps({"mode": settings.hooks, "excluded_folders": excluded})
    file = Path(spool.settings_file(str(settings.data_dir)))
    try:
        if (file.read_text("utf-8") if file.exists() else _DEFAULTS) == content:
            return
        make_private_folder(str(file.parent))
        with replace_file(file) as stream:
            stream.write(content)
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("%s cannot be written, so hooks do not know of hooks = %r: %s", file, settings.hooks, error)


_DEFAULTS = json.dumps({"mode": "on", "excluded_folders": []})


# Store captured messages: a write for each conversation, one edit for each scope.

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
        known = await engine.read(lambda conn, user=user, hashes=hashes: memories.hashes_known(conn, user, hashes))
        adds = [Decision(Event.ADD, fact) for digest, fact in facts.items() if digest not in known]
        if adds:
            named = await engine.run(lambda scope=scope, adds=adds: with_named_facts(engine, scope, adds))
            write = Write(scope, Provenance(STAGE, caller=caller), decisions=named, edit=edits.get(scope))
            edits[scope] = (await apply_write(engine, write)).edit


async def restore_undone(engine: Engine, deleted: Sequence[StoredMessage], caller: str, edits: dict[Scope, int]) -> int:
    """Bring back the messages that an undo took away; return how many. What somebody deleted stays deleted."""

    def undone() -> dict[Scope, list[str]]:
        with engine.ledger.read() as conn:
            return message_queries.undone(conn, [message.id for message in deleted])

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


# Take the spool in: what people and assistants said, each message once.
#
# One process at a time does it, by a lock of the operating system. Records go in order of their names, in batches.
# What a batch brings is decided first and then written. A file is removed only when the ledger has what it holds,
# and how far a transcript was read is written down before that. So whoever is killed at any point leaves work that
# the next one finds, and what is met twice is recognized.

BATCH = 100
"""Records that are taken in together. Set by hand: some minutes of work, and a transaction of a tenth of a second."""

CAPTURING = ("on", "capture")
"""The settings of `hooks` with which conversations are taken in."""

LEARN_AT = 30
"""So many messages of a session are learned from before it ends. Set by hand: one or two calls of the model."""

PATIENCE = 30.0
"""For how many seconds a purge waits for another process that is taking in. Set by hand."""

ENDS = ("compact", "end")
"""The events after which all messages of a session are learned from, however few they are."""


@dataclass(slots=True)
class Intake:
    """What was taken in: the number of records and of messages that were new, and the scopes of these.

    `is_busy` says that another process is taking in, `rest` are files of records that were left where they are.
    """

    records: int = 0
    kept: int = 0
    scopes: set[Scope] = field(default_factory=set[Scope])
    is_busy: bool = False
    rest: frozenset[Path] = frozenset()


async def take_in(engine: Engine, settings: Settings, seconds: float | None = None, *, patience: float = 0) -> Intake:
    """Take in what waits, for at most about `seconds`.

    `patience` is for how many seconds to wait for another process that is doing it. Raises LedgerError.
    """
    intake = Intake()
    began = time.monotonic()
    with ExitStack() as stack:
        if not await engine.run(lambda: enter_lock(stack, settings.data_dir, patience)):
            return replace(intake, is_busy=True)
        passed: set[Path] = set()
        while files := await engine.run(lambda: _next_files(settings.data_dir, passed)):
            await _take_batch(engine, settings, files, intake)
            passed.update(files)
            if seconds is not None and time.monotonic() - began > seconds:
                break
        await engine.run(lambda: captured.remove_leftovers(settings.data_dir))
        intake.rest = frozenset(await engine.run(lambda: captured.waiting_files(settings.data_dir)))
    return intake


async def empty_spool(engine: Engine, settings: Settings, erased: Scope | None) -> None:
    """Take in all that waits, because it is about to be erased from the ledger.

    If the settings allow no capture, what belongs to the `erased` scope is removed from the spool. Raises LedgerError.
    """
    if settings.hooks in CAPTURING:
        if (await take_in(engine, settings, patience=PATIENCE)).is_busy:
            raise LedgerError(
                "another process is taking in what hooks captured, so nothing was erased yet. Try again in a minute"
            )
    elif erased is not None:
        await engine.run(lambda: _remove_spooled(engine, settings, erased))


def _remove_spooled(engine: Engine, settings: Settings, scope: Scope) -> None:
    """Remove what was said in a scope from the spool."""
    spooled = captured.read_records(captured.waiting_files(settings.data_dir), settings.user_id)
    captured.remove_records([item.file for item in spooled if scope_of(engine, settings, item.record.cwd) == scope])


def enter_lock(stack: ExitStack, data_dir: Path, seconds: float = 0) -> bool:
    """Wait at most `seconds` to be the one who takes in, until the stack ends. Return False if another one is.

    Blocking. Raises LedgerError if the folder cannot be used.
    """
    folder = Path(spool.hooks_dir(str(data_dir)))
    try:
        make_private_folder(str(folder))
        stack.enter_context(file_lock(folder / "intake.lock").acquire(timeout=seconds))
    except Timeout:
        return False
    except OSError as error:
        raise LedgerError(f"{folder} cannot be used: {error}. Make it a folder that only you can write") from error
    return True


def _next_files(data_dir: Path, passed: set[Path]) -> list[Path]:
    return [file for file in captured.waiting_files(data_dir) if file not in passed][:BATCH]


async def _take_batch(engine: Engine, settings: Settings, files: Sequence[Path], intake: Intake) -> None:
    spooled = await engine.run(lambda: captured.read_records(files, settings.user_id))
    excluded = settings.hooks_excluded_folders
    records = [item.record for item in spooled if not is_excluded(item.record.cwd, excluded)]
    offsets = await engine.run(lambda: Offsets.load(settings.data_dir))
    gathered = await engine.run(lambda: gather(engine, settings, records, offsets))
    decided = await engine.run(lambda: decide(gathered.met, *known_of(engine, settings.user_id, gathered)))
    edits: dict[Scope, int] = {}
    await store(engine, decided.new, gathered.titles, HOOKS, edits)
    if engine.model is not None and not engine.is_model_borrowed:
        ended = {(record.client, record.session) for record in records if record.event in ENDS}
        for client, session in dict.fromkeys((record.client, record.session) for record in records):
            await queue_learning(engine, settings, client, session, is_over=(client, session) in ended)
    await engine.run(lambda: _finish(offsets, gathered, spooled))
    intake.records += len(spooled)
    intake.kept += len(decided.new)
    intake.scopes.update(edits)


async def queue_learning(engine: Engine, settings: Settings, client: str, session: str, *, is_over: bool) -> int:
    """Let facts be learned from a session that is over, or that has said much; return from how many messages."""
    minimum = 1 if is_over else LEARN_AT
    return await engine.write(
        lambda: engine.ledger.run_for(
            settings.user_id,
            job_queries.queue_session,
            settings.user_id,
            client,
            session,
            minimum,
            engine.ledger.clock(),
        )
    )


def known_of(engine: Engine, user_id: str, gathered: Gathered) -> tuple[list[message_queries.StoredMessage], set[str]]:
    """Return the stored messages with the texts that were met, and which of those that were met were purged."""
    hashes = list(dict.fromkeys(content_hash(met.message.content) for met in gathered.met))
    with engine.ledger.read() as conn:
        stored = message_queries.with_texts(conn, user_id, hashes)
        return stored, _purged(conn, gathered.met)


def _purged(conn: Connection, met: Sequence[Met]) -> set[str]:
    """Return the ids of what was met and was purged: by its id and, for lines of transcripts, by what they say then."""
    ids = {
        item.message.id: (
            item.message.id,
            *(_said_then(item.message) if item.is_line else ()),
        )
        for item in met
    }
    purged = message_queries.purged(conn, list({name for names in ids.values() for name in names}))
    return {message_id for message_id, names in ids.items() if not purged.isdisjoint(names)}


def _said_then(message: Message) -> tuple[str, ...]:
    digest = content_hash(message.content)
    return message_queries.said_then(message.scope.user_id, message.external_id, message.role, digest, message.said_at)


def _finish(offsets: Offsets, gathered: Gathered, spooled: Sequence[captured.Spooled]) -> None:
    """Write down how far the transcripts were read, and remove the records. The ledger has what they hold."""
    try:
        gathered.note(offsets)
        if gathered.transcripts:
            offsets.save()
    except OSError as error:
        logger.warning("%s cannot be written, so transcripts will be read again: %s", offsets.file, error)
    captured.remove_records([item.file for item in spooled])


# What a person should know about what hooks captured. Blocking.

REASONS = {
    "full": "the spool was full; start a server, or run any command",
    "large": "the client gave more than a hook reads",
    "unreadable": "the client gave what a hook does not know",
}
"""Why hooks kept nothing, by their word for it."""


@dataclass(frozen=True, slots=True)
class Status:
    """What was found, in one line, and whether nothing needs a person."""

    text: str
    ok: bool


def status(settings: Settings, ledger: Ledger, now: datetime) -> Status:
    """Return what waits, what could not be read, and whether the model was asked as often as it may be today."""
    data_dir = settings.data_dir
    damaged = captured.damaged_files(data_dir)
    said = [f"hooks = {settings.hooks}", f"waiting: {counted(len(captured.waiting_files(data_dir)), 'record')}"]
    if damaged:
        folder = damaged[0].parent
        said.append(f"set aside because they cannot be read: {counted(len(damaged), 'record')} in {folder}")
    refused = _refused(data_dir)
    said += [f"not kept: {counted(number, 'time')}, {REASONS.get(why, why)}" for why, number in refused.items()]
    for client, unknown in Offsets.load(data_dir).unknown.items():
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(unknown.items()))
        said.append(f"unknown in transcripts of {client}, and left out: {listed}")
    limit = settings.learn.captured_calls_per_day
    with ledger.read() as conn:
        calls = message_queries.calls_on(conn, now)
    if calls >= limit and settings.hooks in CAPTURING and calls:
        said.append(
            f"the {counted(limit, 'call')} of the model for today were made (learn.captured_calls_per_day); the rest "
            "is learned tomorrow (UTC)"
        )
    return Status("; ".join(said), ok=not damaged)


def _refused(data_dir: Path) -> Counter[str]:
    """Return how often hooks kept nothing, by reason."""
    try:
        lines = Path(spool.refused_file(str(data_dir))).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return Counter()
    return Counter(line.partition(" ")[2] for line in lines)


# Take the spool in while a server runs.

LOOK_SECONDS = 2.0
"""How often a server looks into the spool. Set by hand: a look lists one folder, and what was said a moment ago is
known to a session that begins now."""

BUSY_SECONDS = 30.0
"""How long a server waits after an error. Set by hand."""

AfterWrite = Callable[[Scope], Awaitable[None]]


async def follow_spool(engine: Engine, settings: Settings, after_write: AfterWrite) -> None:
    """Take in what hooks leave until cancelled. `after_write` is awaited with each scope that has new messages."""
    if settings.hooks not in CAPTURING:
        return
    rest: frozenset[Path] = frozenset()
    with in_background():
        while True:
            seconds = LOOK_SECONDS
            try:
                files = await engine.run(lambda: captured.waiting_files(settings.data_dir))
                if set(files) - rest:
                    intake = await take_in(engine, settings)
                    rest = intake.rest if not intake.is_busy else rest
                    for scope in intake.scopes:
                        await after_write(scope)
            except LedgerError as error:
                logger.warning("what hooks captured waits in the spool: %s", error)
                seconds = BUSY_SECONDS
            except Exception:  # one that escaped would close the memory for all its callers
                logger.exception("what hooks captured waits in the spool")
                seconds = BUSY_SECONDS
            await anyio.sleep(seconds)


# Take in the old sessions of a client: every transcript in its folder, each message once.

OLDEST = datetime.min.replace(tzinfo=UTC)

EXAMPLES = 5
"""How many first texts a dry run shows."""

EXCLUDED = "sessions in excluded folders"
UNREADABLE = "files that cannot be read"
UNKNOWN = "lines of unknown types"


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


async def take_in_sessions(
    engine: Engine, settings: Settings, request: SessionsRequest, progress: Progress
) -> SessionsResult:
    """Take in the sessions of a client's transcripts, each into the project of its folder.

    All that is new in a scope is one edit. Raises InputError for a folder without transcripts, and LedgerError.
    """
    form = FORMATS[request.client]
    folder = request.folder or Path.home() / form.folder
    files = await engine.run(lambda: form.files_in(folder))
    if not files:
        raise InputError(f"there are no sessions of {request.client} in {folder}. Nothing was taken in. Use --folder")
    result = SessionsResult(folder)
    if not request.is_dry_run and (await take_in(engine, settings, patience=PATIENCE)).is_busy:
        raise _busy()
    with ExitStack() as stack:
        if not await engine.run(lambda: enter_lock(stack, settings.data_dir, PATIENCE)):
            raise _busy()
        offsets = await engine.run(lambda: Offsets.load(settings.data_dir))
        for number, file in enumerate(files, 1):
            await _take_session(engine, settings, request, file, offsets, result)
            progress(number, len(files))
        if not request.is_dry_run:
            await engine.run(lambda: _save(offsets))
    return result


def _busy() -> LedgerError:
    return LedgerError("another process is taking in what hooks captured. Nothing was taken in. Try again in a minute")


async def _take_session(
    engine: Engine, settings: Settings, request: SessionsRequest, file: Path, offsets: Offsets, result: SessionsResult
) -> None:
    """Take in one transcript."""
    gathered = await engine.run(lambda: _gathered(engine, settings, request, file, offsets, result))
    if gathered is None:
        return
    decided = await engine.run(lambda: decide(gathered.met, *known_of(engine, settings.user_id, gathered)))
    _count(decided, result)
    if request.is_dry_run:
        return
    await store(engine, decided.new, gathered.titles, request.caller, result.edits)
    result.restored += await restore_undone(engine, decided.deleted, request.caller, result.edits)
    if engine.model is not None and not engine.is_model_borrowed:
        for client, session in dict.fromkeys((met.client, met.session) for met in decided.new):
            result.queued += await queue_learning(engine, settings, client, session, is_over=True)
    gathered.note(offsets)


def _gathered(
    engine: Engine, settings: Settings, request: SessionsRequest, file: Path, offsets: Offsets, result: SessionsResult
) -> Gathered | None:
    """Return what a transcript says from its beginning, or None if it is left out. Blocking."""
    try:
        written_at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        if request.since is not None and written_at < request.since:
            return None
        reading = read_transcript(request.client, file, Place(), with_before=False)
    except OSError as error:
        logger.info("%s cannot be read: %s", file, error)
        result.left_out[UNREADABLE] += 1
        return None
    notes = reading.notes
    if is_excluded(notes.cwd, settings.hooks_excluded_folders):
        result.left_out[EXCLUDED] += 1
        return None
    result.left_out.update(notes.left_out)
    if notes.unknown:
        result.left_out[UNKNOWN] += notes.unknown.total()
    session, counts = notes.session or file.stem, offsets.counts(file) or Counts()
    counts.forget_lines()
    told = told_by(
        reading.new, reading, request.client, session, scope_of(engine, settings, notes.cwd), written_at, counts
    )
    since = request.since or OLDEST
    count_before(without_secrets(engine, [item for item in told if item.at < since]))
    gathered = Gathered(without_secrets(engine, [item for item in told if item.at >= since]))
    note_title(engine, gathered, request.client, session, reading)
    gathered.transcripts.append(Transcript(request.client, file, counts, reading.place))
    return gathered


def _count(decided: Decided, result: SessionsResult) -> None:
    """Count what is new, by project."""
    result.known += decided.known
    for scope, _, _ in {(met.message.scope, met.client, met.session) for met in decided.new}:
        result.conversations[scope.project] += 1
    for met in decided.new:
        result.messages[met.message.scope.project] += 1
        if len(result.examples) < EXAMPLES and met.message.role == "user":
            result.examples.append(one_line(met.message.content))


def _save(offsets: Offsets) -> None:
    try:
        offsets.save()
    except OSError as error:
        logger.warning("%s cannot be written, so transcripts will be read again: %s", offsets.file, error)


# What hooks captured, and the old sessions of clients, as `memory.capture`.


class Capture:
    """What takes conversations of clients into an open memory. Every method raises PalimpsestError."""

    def __init__(
        self, engine: Engine, settings: Settings, after_write: Callable[[Scope], Awaitable[None]] | None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._after_write = after_write

    async def take_in(self, seconds: float | None = None) -> Intake:
        """Take in what hooks left in the spool, for at most about `seconds`; nothing if the settings say so."""
        if self._settings.hooks not in CAPTURING:
            return Intake()
        return await self._and_follow(await take_in(self._engine, self._settings, seconds))

    async def take_in_sessions(self, request: SessionsRequest, progress: Progress) -> SessionsResult:
        """Take in the old sessions of a client, each into the project of its folder. Each message is kept once."""
        result = await take_in_sessions(self._engine, self._settings, request, progress)
        if self._after_write is not None:
            for scope in result.edits:
                await self._after_write(scope)
        return result

    async def _and_follow(self, intake: Intake) -> Intake:
        if self._after_write is not None:
            for scope in intake.scopes:
                await self._after_write(scope)
        return intake
