"""Take in the old sessions of a client: every transcript in its folder, each message once."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from palimpsest.capture.gathering import Gathered, Transcript, note_title, told_by, without_secrets
from palimpsest.capture.identity import is_excluded, scope_of
from palimpsest.capture.intake import PATIENCE, enter_lock, known_of, queue_learning, take_in
from palimpsest.capture.once import Decided, count_before, decide
from palimpsest.capture.store_messages import restore_undone, store
from palimpsest.capture.transcripts.offsets import Counts, Offsets
from palimpsest.capture.transcripts.reading import FORMATS, Place, read_transcript
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import Settings
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine

logger = logging.getLogger(__name__)

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
