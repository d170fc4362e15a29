"""The ledger: read connections, and the one way to write.

Every change goes through a method of `Ledger`. It is one transaction that holds the database's write lock from its
beginning. Any number of threads and processes may write, and the lock lets one of them in at a time. A decision made
on rows that have changed since is refused with StaleDecisionError. Its caller then decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from pydantic import SecretStr
from sqlalchemy import Connection, select, update

from palimpsest.core.clock import UTC_FOR_ALL, Clock, Zones
from palimpsest.core.errors import LedgerError, SettingsError
from palimpsest.core.files import make_private_folder
from palimpsest.core.git_project import Alias, Move, Repository
from palimpsest.core.models import AppliedWrite, NamedEntity, Scope
from palimpsest.core.protocols import Progress, Vector
from palimpsest.store import apply, contextual_keys, entries, projects, purge, transfer, usage, verify
from palimpsest.store import jobs as job_queries
from palimpsest.store.database import Backups, Database, FullText, Listener, Work
from palimpsest.store.graph.entity_edits import UnnamedMemory, give_names, renew_keys
from palimpsest.store.jobs import Job, JobKind
from palimpsest.store.schema import meta
from palimpsest.store.sqlite.ledger_files import SqliteBackups
from palimpsest.store.sqlite.sqlite_database import SqliteDatabase
from palimpsest.store.upgrade import refuse_newer, upgrade
from palimpsest.store.writes import next_edit_number


class Ledger:
    """The memories, messages, history and vectors of all users in one database.

    Blocking: call it in a worker thread. Every method raises LedgerError if the database cannot be used. A user may
    have `max_memories`, or with 0 any number. The days of a user begin as `zones` says.
    """

    def __init__(
        self, database: Database, backups: Backups, clock: Clock, max_memories: int = 0, zones: Zones = UTC_FOR_ALL
    ) -> None:
        self.zones = zones
        self._database = database
        self._backups = backups
        self._clock = clock
        self._max_memories = max_memories

    @property
    def full_text(self) -> FullText:
        """Return the full text, which takes a connection of this ledger."""
        return self._database.full_text

    @property
    def backups(self) -> Backups:
        """Return the copies of this ledger."""
        return self._backups

    def now(self, user_id: str) -> datetime:
        """Return the time of this ledger's clock in the zone of a user."""
        return self.zones.clock(self._clock, user_id)()

    @property
    def location(self) -> str:
        """Name the place of the ledger for messages."""
        return self._database.location

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Return a connection that sees one state of the ledger."""
        with self._database.read() as conn:
            yield conn

    @contextmanager
    def _write(self, user_id: str | None = None) -> Generator[Connection]:
        """Return a connection that holds the write lock of a user, or of all users.

        Raises LedgerTooNewError if a newer version has migrated the ledger meanwhile.
        """
        with self._database.write(user_id) as conn:
            refuse_newer(conn, self.location)
            yield conn

    def apply(self, write: apply.Write) -> AppliedWrite:
        """Carry out a write in one transaction and return what it did.

        Raises StaleDecisionError if rows that the decisions were made on have changed, MemoryNotFoundError for an id
        outside the scope, InputError if the user would have too many memories, and LedgerError if the database cannot
        be written. Nothing is written then.
        """
        with self._write(write.scope.user_id) as conn:
            now = self.now(write.scope.user_id)
            return apply.apply(conn, self.full_text, write, now, self._max_memories)

    def apply_as_one(self, writes: Sequence[apply.Write]) -> Sequence[AppliedWrite]:
        """Carry out writes in several scopes of a user in one transaction, as one edit. Raises as `apply`."""
        applied: list[AppliedWrite] = []
        with self._write(writes[0].scope.user_id if writes else None) as conn:
            for write in writes:
                edit = applied[0].edit if applied else write.edit
                write = replace(write, edit=edit)  # noqa: PLW2901 - the same write, with its number
                now = self.now(write.scope.user_id)
                applied.append(apply.apply(conn, self.full_text, write, now, self._max_memories))
        return applied

    def give_vectors(self, embedder: str, embedded: Sequence[contextual_keys.Embedded]) -> None:
        """Store vectors of entries that had none of this embedder."""
        with self._write() as conn:
            contextual_keys.give_vectors(conn, self.full_text, embedder, embedded, self._clock())

    def give_gist_vectors(self, embedder: str, texts: Mapping[str, str], vectors: Sequence[Vector]) -> None:
        """Store the vectors of gists, each of shape (dims,), that were made of texts by the ids of their pages."""
        with self._write() as conn:
            contextual_keys.give_gist_vectors(conn, self.full_text, embedder, texts, vectors, self._clock())

    def give_names(self, named: Mapping[UnnamedMemory, Sequence[NamedEntity]]) -> None:
        """Store what memories name whose names were not looked for before. It is no edit of these memories."""
        with self._write() as conn:
            give_names(conn, named, self._clock(), next_edit_number(conn))

    def renew_keys(self, outdated: Sequence[tuple[str, str]]) -> None:
        """Give names of entities the keys that they have today. It is no edit: nothing else changes."""
        with self._write() as conn:
            renew_keys(conn, outdated)

    def note_uses(self, used: Mapping[str, usage.Use]) -> None:
        """Note that memories were used, by id. It is no edit of these memories."""
        with self._write() as conn:
            usage.note_uses(conn, used)

    def note_recalls(self, new: Sequence[usage.NewRecall], since: datetime | None, epoch: str | None) -> str:
        """Note recalls, unless rows were erased after an epoch, and erase those of before a time; with None all.

        Return the epoch. The question of a recall may quote what was erased after it.
        """
        with self._write() as conn:
            current = entries.epoch(conn)
            if epoch in (None, current):
                names = [projects.current_name(conn, item.scope.user_id, item.scope.project) for item in new]
                scopes = [replace(item.scope, project=name) for item, name in zip(new, names, strict=True)]
                usage.note_recalls(conn, [replace(item, scope=scope) for item, scope in zip(new, scopes, strict=True)])
            usage.erase_outdated(conn, since)
            return current

    def alone_at(self, work: Work) -> AbstractContextManager[bool]:
        """Give True and keep other processes from a work in the background, or False if one is doing it."""
        return self._database.alone_at(work)

    def listener(self) -> Listener | None:
        """Return what hears of every write, whichever process makes it, or None if the database does not tell."""
        return self._database.listener()

    def queue_job(self, scope: Scope, request: job_queries.JobRequest) -> None:
        """Queue work in the background. In a write of a client, use `Write.later`."""
        with self._write(scope.user_id) as conn:
            scope = replace(scope, project=projects.current_name(conn, scope.user_id, scope.project))
            job_queries.enqueue(conn, request.kind, scope, request.payload, self._clock(), due_at=request.due_at)

    def take_job(self, kinds: Sequence[JobKind]) -> Job | None:
        """Return the job of these kinds that is next, and begin an attempt at it; None if none is due."""
        with self._write() as conn:
            return job_queries.take(conn, kinds, self._clock())

    def progress_job(self, job: Job, learned: int, notes: Sequence[str]) -> None:
        """Record from how many more messages a job has learned, and what its caller should know."""
        with self._write(job.scope.user_id) as conn:
            job_queries.progress(conn, job, learned, notes)

    def finish_job(self, job: Job, error: str = "", again_at: datetime | None = None) -> None:
        """Record how an attempt at a job ended; `error` is "" if it is done. A new job begins at `again_at`."""
        with self._write(job.scope.user_id) as conn:
            job_queries.finish(conn, job, error, again_at, self._clock())

    def interrupt_job(self, job: Job) -> None:
        """Let the rest of a job wait until others had their turn."""
        with self._write(job.scope.user_id) as conn:
            job_queries.interrupt(conn, job, self._clock())

    def postpone_job(self, job: Job, reason: str, due_at: datetime) -> None:
        """Let a job wait until a time, which is no failure."""
        with self._write(job.scope.user_id) as conn:
            job_queries.postpone(conn, job, reason, due_at)

    def queue_captured(self, user_id: str, client: str, session: str, minimum: int) -> int:
        """Queue the captured messages of a client's session to be learned from, if so many wait; return how many."""
        with self._write(user_id) as conn:
            return job_queries.queue_session(conn, user_id, client, session, minimum, self._clock())

    def begin_call(self, call: job_queries.ModelCall, limits: job_queries.Limits) -> job_queries.Refusal:
        """Count one more call of the model for a job, unless a limit of today (UTC) is reached; return which, or ""."""
        with self._write() as conn:
            return job_queries.begin_call(conn, call, limits, self._clock())

    def end_call(self, call: job_queries.ModelCall, tokens: int) -> None:
        """Correct the tokens of a call that has ended."""
        with self._write() as conn:
            job_queries.end_call(conn, call, tokens, self._clock())

    def retry_jobs(self, user_id: str, kinds: Sequence[JobKind]) -> int:
        """Make all jobs of a user of these kinds due that wait or have failed, and return how many there are."""
        with self._write(user_id) as conn:
            return job_queries.retry(conn, user_id, kinds, self._clock())

    def mark_reported(self, jobs: Sequence[Job]) -> None:
        """Record that a reply has told of jobs."""
        with self._write() as conn:
            job_queries.mark_reported(conn, jobs)

    def project_of(self, user_id: str, repository: Repository) -> str:
        """Return the project of a repository, or "" outside of one, and record what the project is known by.

        Raises InputError if the name of a new project is not valid.
        """
        with self.read() as conn:
            claimed = projects.claimed_paths(conn, user_id, repository)
        missing = {path for path in claimed if not Path(path).exists()}
        with self.read() as conn:
            identified = projects.identify(conn, user_id, repository, missing)
        if not identified.new_aliases:
            return identified.project
        with self._write(user_id) as conn:  # another process may have been quicker
            identified = projects.identify(conn, user_id, repository, missing)
            projects.record(conn, user_id, identified.new_aliases, self._clock())
        return identified.project

    def current_project(self, user_id: str, project: str) -> str:
        """Return the name that a project has now, if it was moved, else the name as it is."""
        with self.read() as conn:
            return projects.current_name(conn, user_id, project)

    def mark_aliases_reported(self, user_id: str, aliases: Sequence[Alias]) -> None:
        """Record that a reply has told of aliases."""
        with self._write(user_id) as conn:
            projects.mark_reported(conn, user_id, aliases)

    def move_project(self, user_id: str, old: str, new: str, caller: str) -> Move:
        """Move everything in a project to another in one transaction. An undo does not take it back."""
        with self._write(user_id) as conn:
            return projects.move(conn, self.full_text, user_id, old, new, caller, self._clock())

    def rebuild_full_text(self) -> int:
        """Rebuild the full text from the memories and messages and return the number of its rows."""
        with self._write() as conn:
            return contextual_keys.rebuild_full_text(conn, self.full_text)

    def purge(self, scope: Scope, owner_ids: Sequence[str] | None) -> purge.PurgeSelection:
        """Erase the rows of memories and messages, or of a whole scope, and return what was erased."""
        with self._write() as conn:
            return purge.purge(conn, self.full_text, scope, owner_ids, self._clock())

    def erase_free_space(self) -> bool:
        """Rewrite the database so that erased rows leave no trace. Return False if part of it is still in use."""
        complete = self._database.erase_free_space()
        if complete:
            with self._write() as conn:
                purge.note_free_space_erased(conn)
        return complete

    @property
    def has_erased_rows_on_disk(self) -> bool:
        """Return whether a purge was interrupted before the database was rewritten."""
        with self.read() as conn:
            return purge.has_erased_rows_on_disk(conn)

    def reserve_edits(self, state: transfer.ImportState, edits: int) -> None:
        """Reserve edit numbers for an import."""
        with self._write() as conn:
            transfer.reserve_edits(conn, state, edits)

    def import_items(self, user_id: str, items: Sequence[transfer.Item], state: transfer.ImportState) -> None:
        """Store items of an import in one transaction. `state` then holds how many of them were new."""
        with self._write(user_id) as conn:
            transfer.import_items(conn, self.full_text, user_id, items, state, self._clock())

    def verify(self, progress: Progress) -> verify.Faults:
        """Compare every row with the rows it depends on."""
        with self.read() as conn:
            return verify.verify(conn, self._database, progress)

    def repair(self, faults: verify.Faults) -> None:
        """Rewrite the rows that do not agree."""
        with self._write() as conn:
            verify.repair(conn, self._database, faults, self._clock())

    @property
    def id(self) -> str:
        """Return the id that the ledger was created with."""
        with self.read() as conn:
            return conn.execute(select(meta.c.value).where(meta.c.key == "ledger_id")).scalar_one()

    def check(self) -> str:
        """Return "ok", or the first fault that a quick check of the database finds."""
        return self._database.check()

    def try_to_write(self) -> None:
        """Write what is there already, and so find out whether the database can be written. Raises LedgerError."""
        with self._write() as conn:
            conn.execute(update(meta).values(value=meta.c.value).where(meta.c.key == "ledger_id"))

    def files(self) -> list[Path]:
        """Return the files on this machine that may hold rows, including backups."""
        return self._database.files()

    def search_tables(self, pieces: Sequence[bytes]) -> dict[str, list[bytes]]:
        """Return for each table of a remote database which of these pieces of texts a row of it contains."""
        return self._database.search_tables(pieces)

    def size(self) -> int:
        """Return the size of the database in bytes, without backups."""
        return self._database.size()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()


def open_ledger(
    place: Path | SecretStr,
    clock: Clock,
    max_memories: int = 0,
    *,
    data_dir: Path | None = None,
    zones: Zones = UTC_FOR_ALL,
) -> Ledger:
    """Open the ledger in an SQLite file, or in the database of a URL. It is created or migrated if needed.

    A user may have `max_memories`, or with 0 any number. Backups of a database are in the data directory.
    Raises SettingsError for a URL that is none, LedgerTooNewError for the schema of a newer version, and LedgerError if
    the file or the database cannot be used.
    """
    if data_dir is not None and not isinstance(place, Path):
        _make_data_dir(data_dir)
    database = open_database(place)
    backups = _backups(place, lambda: nullcontext(database), data_dir)
    try:
        upgrade(database, backups, clock())
    except BaseException:
        database.close()
        raise
    return Ledger(database, backups, clock, max_memories, zones)


def _make_data_dir(data_dir: Path) -> None:
    """Create a private data directory, for backups and an index. A ledger in a file makes its folder by itself."""
    try:
        make_private_folder(data_dir)
    except OSError as error:
        raise LedgerError(f"the folder {data_dir} cannot be used: {error.strerror}. Nothing was written.") from error


def open_database(place: Path | SecretStr) -> Database:
    """Open the database that a ledger is in, or is to be in. Raises SettingsError and LedgerError."""
    if isinstance(place, Path):
        return SqliteDatabase.open(place)
    if find_spec("psycopg") is None:
        raise SettingsError(
            "ledger_url needs the driver of PostgreSQL, which is not installed. Nothing was opened. Install "
            "palimpsest-mcp[postgres]."
        )
    from palimpsest.store.postgres.postgres_database import PostgresDatabase  # noqa: PLC0415 - the driver is an extra

    return PostgresDatabase.open(place.get_secret_value())


def backups_of(place: Path | SecretStr, data_dir: Path) -> Backups:
    """Return the copies of the ledger at a place, which may be missing or damaged."""
    return _backups(place, lambda: closing(open_database(place)), data_dir)


def _backups(
    place: Path | SecretStr, opened: Callable[[], AbstractContextManager[Database]], data_dir: Path | None
) -> Backups:
    if isinstance(place, Path):
        return SqliteBackups(place)
    from palimpsest.store.copying import DatabaseBackups  # noqa: PLC0415 - as above

    return DatabaseBackups(opened, data_dir)
