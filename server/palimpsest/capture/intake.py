"""Take the spool in: what people and assistants said, each message once.

One process at a time does it, by a lock of the operating system. Records go in order of their names, in batches. What a
batch brings is decided first and then written. A file is removed only when the ledger has what it holds, and how far a
transcript was read is written down before that. So whoever is killed at any point leaves work that the next one finds,
and what is met twice is recognized.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import Timeout
from sqlalchemy import Connection

from palimpsest.capture import spool
from palimpsest.capture.gathering import Gathered, gather
from palimpsest.capture.identity import is_excluded, scope_of
from palimpsest.capture.once import Met, decide
from palimpsest.capture.store_messages import store
from palimpsest.capture.transcripts.offsets import Offsets
from palimpsest.core.errors import LedgerError
from palimpsest.core.files import file_lock
from palimpsest.core.models import Message, Scope
from palimpsest.core.settings import Settings
from palimpsest.hook import paths
from palimpsest.hook.private_files import make_private_folder
from palimpsest.learn.engine import Engine
from palimpsest.store.mapping import content_hash
from palimpsest.store.queries import capture as capture_queries
from palimpsest.store.writes.jobs.queue import HOOKS

logger = logging.getLogger(__name__)

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
        await engine.run(lambda: spool.remove_leftovers(settings.data_dir))
        intake.rest = frozenset(await engine.run(lambda: spool.waiting_files(settings.data_dir)))
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
    spooled = spool.read_records(spool.waiting_files(settings.data_dir), settings.user_id)
    spool.remove_records([item.file for item in spooled if scope_of(engine, settings, item.record.cwd) == scope])


def enter_lock(stack: ExitStack, data_dir: Path, seconds: float = 0) -> bool:
    """Wait at most `seconds` to be the one who takes in, until the stack ends. Return False if another one is.

    Blocking. Raises LedgerError if the folder cannot be used.
    """
    folder = Path(paths.hooks_dir(str(data_dir)))
    try:
        make_private_folder(str(folder))
        stack.enter_context(file_lock(folder / "intake.lock").acquire(timeout=seconds))
    except Timeout:
        return False
    except OSError as error:
        raise LedgerError(f"{folder} cannot be used: {error}. Make it a folder that only you can write") from error
    return True


def _next_files(data_dir: Path, passed: set[Path]) -> list[Path]:
    return [file for file in spool.waiting_files(data_dir) if file not in passed][:BATCH]


async def _take_batch(engine: Engine, settings: Settings, files: Sequence[Path], intake: Intake) -> None:
    spooled = await engine.run(lambda: spool.read_records(files, settings.user_id))
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
    return await engine.write(lambda: engine.ledger.queue_captured(settings.user_id, client, session, minimum))


def known_of(engine: Engine, user_id: str, gathered: Gathered) -> tuple[list[capture_queries.StoredMessage], set[str]]:
    """Return the stored messages with the texts that were met, and which of those that were met were purged."""
    hashes = list(dict.fromkeys(content_hash(met.message.content) for met in gathered.met))
    with engine.ledger.read() as conn:
        stored = capture_queries.with_texts(conn, user_id, hashes)
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
    purged = capture_queries.purged(conn, list({name for names in ids.values() for name in names}))
    return {message_id for message_id, names in ids.items() if not purged.isdisjoint(names)}


def _said_then(message: Message) -> tuple[str, ...]:
    digest = content_hash(message.content)
    return capture_queries.said_then(message.scope.user_id, message.external_id, message.role, digest, message.said_at)


def _finish(offsets: Offsets, gathered: Gathered, spooled: Sequence[spool.Spooled]) -> None:
    """Write down how far the transcripts were read, and remove the records. The ledger has what they hold."""
    try:
        gathered.note(offsets)
        if gathered.transcripts:
            offsets.save()
    except OSError as error:
        logger.warning("%s cannot be written, so transcripts will be read again: %s", offsets.file, error)
    spool.remove_records([item.file for item in spooled])
