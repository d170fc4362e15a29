"""The ledger in an SQLite file: connections, SQL, full text, and errors in plain words."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from errno import EACCES
from pathlib import Path
from typing import Any, cast

from filelock import Timeout
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.compiler import SQLCompiler

from palimpsest.core.errors import FullTextError, LedgerError, PalimpsestError, logged, raised_as
from palimpsest.core.files import file_lock, files_below, make_private, make_private_folder, refuse_without_locks
from palimpsest.core.models import Scope
from palimpsest.store import database
from palimpsest.store.database import Counts
from palimpsest.store.rows import batched, json_elements, next_number
from palimpsest.store.schema import KNOWN_REVISIONS
from palimpsest.store.sqlite import ledger_files

# How SQLite writes the SQL constructs that `store/rows.py` defines.


@compiles(json_elements, "sqlite")
def _json_elements(element: json_elements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(next_number, "sqlite")
def _next_number(element: next_number, compiler: SQLCompiler, **options: Any) -> str:
    return f"max({compiler.process(element.clauses, **options)}) + 1"


# Full text in SQLite: FTS5 over the search tokens of `text/tokenizer.py`.
#
# The tokens of an entry lie in three columns with different weights: its own text, its context (the neighbours of a
# message, the source messages of a memory) and the facts that cite it. A fourth column holds one token for each part
# of the scope, so that FTS5 itself selects the rows of a user.

CREATE = (
    # The ascii tokenizer takes every character beyond ASCII as part of a token, in every build of SQLite.
    "CREATE VIRTUAL TABLE lexical USING fts5(scope, own, context, facts, tokenize='ascii')",
    "CREATE VIRTUAL TABLE lexical_terms USING fts5vocab(lexical, col)",
)
DROP = ("DROP TABLE lexical_terms", "DROP TABLE lexical")

# Merges the full text into one segment, which no longer holds removed rows.
OPTIMIZE = "INSERT INTO lexical(lexical) VALUES ('optimize')"

# The weight of a match in each column. The scope only selects rows.
WEIGHTS = (0.0, *database.COLUMN_WEIGHTS)

# A user with more than this share of all entries is not matched in the full text: most rows are theirs anyway.
MAJORITY_SHARE = 0.5

# Document counts are exact up to this number of rows and estimated above it.
SAMPLE = 1_000

# SQLite's LIMIT for every row.
NO_LIMIT = -1


class SqliteFullText(database.FullText):
    """Implement `FullText` with FTS5."""

    created_by = CREATE
    dropped_by = DROP

    def put(self, conn: Connection, rows: Sequence[database.FullTextRow]) -> None:
        """Insert or replace the rows of entries."""
        self.remove(conn, [row.seq for row in rows])
        if rows:
            names = ("scope", "own", "context", "facts")
            conn.execute(_PUT, [{"seq": row.seq, **dict(zip(names, self.columns(row), strict=True))} for row in rows])

    def remove(self, conn: Connection, seqs: Sequence[int]) -> None:
        """Remove the rows of entries. Unknown numbers are ignored."""
        if seqs:
            conn.execute(_REMOVE, [{"seq": seq} for seq in seqs])

    def rows(self, conn: Connection) -> dict[int, database.FullTextColumns]:
        """Return every stored row by entry number."""
        rows = conn.execute(text("SELECT rowid, scope, own, context, facts FROM lexical"))
        return {int(seq): (scope, own, context, facts) for seq, scope, own, context, facts in rows}

    def scope_text(self, scope: Scope) -> str:
        """Return the tokens of a scope."""
        return " ".join(_scope_tokens(scope))

    def widened(self, conn: Connection, scope: Scope, user_entries: int) -> Scope | None:
        """Return the parts of the scope to search by; None to search without a scope.

        A part that most rows have is the most expensive one to match: the user, if most entries are theirs, and user
        and project if a run is given, or an agent alone.
        """
        if scope.run_id or (scope.agent_id and not scope.with_shared):
            return replace(scope, user_id="", project="")
        newest: int = conn.execute(_NEWEST).scalar() or 0
        return None if user_entries > newest * MAJORITY_SHARE else scope

    def search(
        self, conn: Connection, scope: Scope | None, words: Iterable[str], limit: int | None, counts: Counts = None
    ) -> dict[int, float]:
        """Return the BM25 score of the best rows by entry number, as `FullText.search` says.

        This is the weighted BM25 of FTS5 (Robertson & Zaragoza 2009, with k1 = 1.2 and b = 0.75). With `counts` the
        rarest words are searched, up to about `MAX_SCORED` rows.
        """
        if not (searched := database.searched_words(words, counts)):
            return {}
        match = f"{_TEXTS} : ({' OR '.join(_quoted(word) for word in searched)})"
        if scope is not None:
            match = f"{_scope_match(scope)} AND {match}"
        weights = {f"w{column}": weight for column, weight in enumerate(WEIGHTS)}
        values = {"match": match, "limit": NO_LIMIT if limit is None else limit, **weights}
        with _damage_as_full_text_error():
            return {int(seq): float(score) for seq, score in conn.execute(_SCORED, values).all()}

    def with_all(self, conn: Connection, scope: Scope, words: Iterable[str]) -> list[int]:
        """Return the rows that `scope` sees whose own text has all of the words.

        Only the first `MAX_QUERY_TOKENS` words are looked for.
        """
        searched = database.searched_words(words)
        match = f"{_scope_match(scope)} AND own : ({' AND '.join(map(_quoted, searched))})"
        with _damage_as_full_text_error():
            return [int(seq) for (seq,) in conn.execute(_MATCHING, {"match": match})]

    def document_counts(self, conn: Connection, user_id: str, words: Iterable[str]) -> dict[str, int]:
        """Return in about how many rows of all users each word occurs. Words that occur nowhere are left out.

        The first `SAMPLE` matches are counted. Beyond them the count is estimated from how densely they lie.
        """
        del user_id  # FTS5 counts the rows of a user only one by one
        counts: dict[str, int] = {}
        with _damage_as_full_text_error():
            newest = conn.execute(_NEWEST).scalar() or 0
            for chunk in batched(dict.fromkeys(words) if newest else ()):
                matches = tuple(f"{_TEXTS} : {_quoted(word)}" for word in chunk)
                rows = conn.exec_driver_sql(" UNION ALL ".join([_COUNTED] * len(chunk)), matches).all()
                for word, (number, last) in zip(chunk, rows, strict=True):
                    if number:
                        counts[word] = int(number if number < SAMPLE else number * max(newest / last, 1.0))
        return counts

    def words_in(self, conn: Connection, seqs: Sequence[int], words: frozenset[str]) -> dict[int, database.FoundWords]:
        """Return which of the words occur in each row."""
        with _damage_as_full_text_error():
            rows = conn.execute(_ROWS, {"seqs": json.dumps(sorted(seqs))}).all()
        return database.words_found(((seq, own, around) for seq, own, around in rows), words)

    def is_sound(self, conn: Connection, rows: Mapping[int, database.FullTextColumns]) -> bool:
        """Return whether the index of FTS5 has each word in as many rows as it occurs in."""
        expected = Counter(word for _, own, _, _ in rows.values() for word in set(own.split()))
        with suppress(FullTextError), _damage_as_full_text_error():
            counted = conn.execute(_OWN_COUNTS, {"words": json.dumps([*expected])})
            return {row.term: row.doc for row in counted} == expected
        return False


_PUT = text("INSERT INTO lexical(rowid, scope, own, context, facts) VALUES (:seq, :scope, :own, :context, :facts)")
_REMOVE = text("DELETE FROM lexical WHERE rowid = :seq")
_SCORED = text(
    "SELECT rowid, -bm25(lexical, :w0, :w1, :w2, :w3) AS score FROM lexical "
    "WHERE lexical MATCH :match ORDER BY score DESC LIMIT :limit"
)
_MATCHING = text("SELECT rowid FROM lexical WHERE lexical MATCH :match")
_NEWEST = text("SELECT max(seq) FROM vectors")
_TEXTS = "{own context facts}"
_COUNTED = f"SELECT count(*), max(rowid) FROM (SELECT rowid FROM lexical WHERE lexical MATCH ? LIMIT {SAMPLE})"  # noqa: S608 - SAMPLE is our own number

# FTS5 keeps the columns as they were given in a table of its own (https://www.sqlite.org/fts5.html, appendix B).
# Reading that table takes half the time.
_ROWS = text("SELECT id, c1, c2 || ' ' || c3 FROM lexical_content WHERE id IN (SELECT value FROM json_each(:seqs))")
_OWN_COUNTS = text(
    "SELECT term, doc FROM lexical_terms WHERE col = 'own' AND term IN (SELECT value FROM json_each(:words))"
)


@contextmanager
def _damage_as_full_text_error() -> Generator[None]:
    """Raise FullTextError for a damaged full text. It can be rebuilt, and everything else works without it."""
    try:
        yield
    except DatabaseError as error:
        if isinstance(error, OperationalError):
            raise
        raise FullTextError(f"the full text is damaged ({error.orig}). Rebuild it with palimpsest rebuild") from error


def _scope_match(scope: Scope) -> str:
    """Return the FTS5 condition for the rows that a scope sees.

    They are those that `rows.sees` is true of. A scope with an empty user selects by agent and run alone.
    """
    user, project, agent, run = _scope_tokens(scope)
    _, beside, shared, _ = _scope_tokens(Scope("", scope.beside, scope.shared))
    global_or_project = f"({beside} OR {project})" if beside != project else project
    parts = [user, global_or_project] if scope.user_id else []
    parts += [f"({shared} OR {agent})"] if scope.agent_id else []
    parts += [run] if scope.run_id else []
    return f"scope : ({' AND '.join(parts)})"


def _scope_tokens(scope: Scope) -> list[str]:
    """Return one token for each part of a scope. It is a hash, so that no character of a name is FTS5 syntax."""
    parts = (("u", scope.user_id), ("p", scope.project), ("a", scope.agent_id), ("r", scope.run_id))
    return [letter + hashlib.blake2b(value.encode(), digest_size=8).hexdigest() for letter, value in parts]


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


# SQLite's errors as ours, with what to do.

DAMAGED = (
    "The file is damaged. See how badly with palimpsest doctor --deep, and restore a backup with palimpsest restore"
)

# What to do, by a part of SQLite's message.
ADVICE = {
    "locked": "Another process is writing. Try again in a moment",
    "full": "Free some disk space, then try again",
    "disk I/O error": "Check the disk: it may be full, failing or gone. Then try again",
    "readonly": "Make the file and its folder writable for this user",
    "unable to open": "Check its folder: it has to exist and be writable for this user",
    **dict.fromkeys(("vtable constructor", "fts5"), "The full text is damaged. Rebuild it with palimpsest rebuild"),
    **dict.fromkeys(("malformed", "decode to UTF-8"), DAMAGED),
    "not a database": "The file is damaged. Restore a backup with palimpsest restore",
}


def as_ledger_errors(path: Path) -> AbstractContextManager[None]:
    """Raise SQLite's errors as LedgerError."""
    return database.errors_as_ours(path, sqlite3.Error, _with_advice, f"Nothing was written. {DAMAGED}.")


def unwritable_as_ledger_error(path: Path) -> AbstractContextManager[None]:
    """Raise the operating system's errors about a place that cannot be written as LedgerError."""
    advice = ". Nothing was written. Make the file and its folder writable, or set data_dir to another place."
    return raised_as(LedgerError, f"the ledger {path} cannot be opened for writing", advice, OSError)


def _with_advice(error: BaseException | None) -> str:
    """Return SQLite's message, that nothing was written, and what to do."""
    advice = next((f" {text}." for part, text in ADVICE.items() if part in str(error)), "")
    return f"{str(error)[: database.MAX_CAUSE_CHARS]}. Nothing was written.{advice}"


# The SQLite file of a ledger: how it is created, connected to and locked.
#
# The file is in WAL mode with `synchronous=FULL`: what is committed survives a crash. Any number of processes may
# have it open. A write takes SQLite's only write lock at its beginning (`BEGIN IMMEDIATE`).

# How long a connection waits for the write lock.
BUSY_TIMEOUT_SECONDS = 30

logger = logging.getLogger(__name__)


class SqliteDatabase(database.Database):
    """Implement `Database` with one SQLite file.

    Each connection is compared with the files at the path before it is used and afterwards. If they were replaced or
    deleted, the call fails, and what the connection still sees is saved.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ledger_file = ledger_files.LedgerFiles.at(path).ledger
        self._connections: set[ledger_files.LedgerConnection] = set()
        # The connection returned last is reused first, because its pages are in memory.
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=QueuePool, pool_use_lifo=True)
        event.listen(self._engine, "begin", _begin)
        self._writing = threading.Lock()
        self._settling = threading.Lock()
        self._settled: dict[ledger_files.LedgerFiles, str] = {}
        self.full_text = SqliteFullText()
        self.backups = ledger_files.Backups(path)
        self.migrates_when_opened = True

    @classmethod
    def open(cls, path: Path) -> SqliteDatabase:
        """Open the file, and create it if needed. Raises LedgerError."""
        with unwritable_as_ledger_error(path):
            make_private_folder(path.parent)
        refuse_without_locks(path.parent)
        with as_ledger_errors(path), unwritable_as_ledger_error(path):
            _refuse_emptied(path)
            _make_private_file(path)
            database = cls(path)
            with database.read() as conn:
                mode = conn.exec_driver_sql("PRAGMA journal_mode").scalar_one()
            if mode != "wal":
                database.close()
                _use_wal(path)
        return database

    @property
    def location(self) -> str:
        """Return the path of the file."""
        return str(self._path)

    @contextmanager
    def read(self) -> Generator[Connection]:
        """Return a connection that sees one state of the ledger. Raises LedgerError."""
        # The transaction is never committed: SQLite refuses a commit after it has met a damaged page.
        with as_ledger_errors(self._path), self._engine.connect() as conn, _dropped_after_failure(conn):
            self._refuse_replaced(conn)
            yield conn
            self._refuse_replaced(conn)

    @contextmanager
    def write(self, user_id: str | None = None) -> Generator[Connection]:
        """Return a connection that holds the write lock from its first statement on. Raises LedgerError."""
        del user_id  # SQLite has one lock for all
        with self._turn() as conn, _dropped_after_failure(conn):
            ledger_files.note_writer(self._path, _driver(conn).files)
            with conn.execution_options(begin="BEGIN IMMEDIATE").begin() as transaction:
                yield transaction.connection
            if self._is_replaced(conn):
                self._refuse(conn, "What this call wrote is in the copy.")

    @contextmanager
    def _turn(self) -> Generator[Connection]:
        """Wait for the turn to write, and give a connection whose files were not replaced."""
        with (
            as_ledger_errors(self._path),
            self._writing,
            self._engine.connect() as conn,
            ledger_files.turn_to_write(self._path, BUSY_TIMEOUT_SECONDS),
        ):
            if self._is_replaced(conn):
                self._refuse(conn)
            yield conn

    def _is_replaced(self, conn: Connection) -> bool:
        """Return whether the files at the path are no longer those that a connection has open."""
        driver = _driver(conn)
        if not driver.is_current:
            return True
        self._settled.pop(driver.files, None)  # they were put back
        return False

    def _refuse_replaced(self, conn: Connection) -> None:
        """Wait for the turn to write and raise LedgerError, if the files of a connection were replaced."""
        if not self._is_replaced(conn):
            return
        conn.rollback()
        with ledger_files.turn_to_write(self._path, BUSY_TIMEOUT_SECONDS):
            self._refuse(conn)

    def _refuse(self, conn: Connection, done: str = "This call did nothing.") -> None:
        """Save what a connection to replaced files sees, once, and raise LedgerError."""
        conn.rollback()
        driver = _driver(conn)
        with self._settling:
            if driver.files not in self._settled:
                self._settled[driver.files] = ledger_files.settle(driver, self.backups)
            raise LedgerError(f"{self._settled[driver.files]} {done}")

    def _connect(self) -> ledger_files.LedgerConnection:
        is_ours = ledger_files.LedgerFiles.at(self._path).ledger == self._ledger_file
        if not is_ours or any(not conn.is_current for conn in self._connections.copy()):
            raise LedgerError(
                f"the files of the ledger {self._path} were replaced or deleted while this process was using them. "
                "This call did nothing. Call again; if that does not help, start the client again."
            )
        return ledger_files.LedgerConnection.open(self._path, BUSY_TIMEOUT_SECONDS, self._connections)

    @contextmanager
    def migrating(self) -> Generator[None]:
        """Let one process at a time change the schema."""
        with unwritable_as_ledger_error(self._path), file_lock(_migration_lock(self._path)):
            yield

    @contextmanager
    def alone_at(self, work: database.Work) -> Generator[bool]:
        """Give True and keep other processes from a work in the background, or False if one is doing it."""
        lock = file_lock(self._path.with_suffix(f".{work}.lock"))
        with unwritable_as_ledger_error(self._path), suppress(Timeout):
            lock.acquire(timeout=0)
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def check(self) -> str:
        """Return "ok", or the first fault of SQLite's quick check. Raises LedgerError."""
        with self.read() as conn:
            return str(conn.exec_driver_sql("PRAGMA quick_check(5)").scalars().first())

    def faults(self, conn: Connection) -> list[str]:
        """Return what SQLite finds wrong with the file, its references and its full text."""
        lines = [str(line) for line in conn.exec_driver_sql("PRAGMA integrity_check(20)").scalars() if line != "ok"]
        dangling = len(conn.exec_driver_sql("PRAGMA foreign_key_check").all())
        return lines + ([f"{dangling} rows refer to missing rows"] if dangling else [])

    def repair(self, conn: Connection) -> None:
        """Rebuild the indexes of the file."""
        conn.exec_driver_sql("REINDEX")

    def erase_free_space(self) -> bool:
        """Rewrite the file without deleted rows and empty its log. Return False if another process reads the log."""
        with self._turn() as checked:
            conn = _driver(checked)
            conn.execute(OPTIMIZE)
            conn.execute("VACUUM")
            (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def files(self) -> list[Path]:
        """Return every file in the folder of the ledger, and in the folders below it."""
        return files_below(self._path.parent)

    def size(self) -> int:
        """Return the size in bytes of the file and its log."""
        return sum(file.stat().st_size for file in self._path.parent.glob(f"{self._path.name}*"))

    def close(self) -> None:
        """Close all connections. What is in files that were replaced or deleted is saved."""
        with logged(logger, "a ledger is closed"), as_ledger_errors(self._path):
            if any(not conn.is_current for conn in self._connections.copy()):
                with self._engine.connect() as conn:
                    self._refuse_replaced(conn)
        self._engine.dispose()


def _begin(conn: Connection) -> None:
    conn.exec_driver_sql(conn.get_execution_options().get("begin", "BEGIN"))  # no BEGIN of Python's


@contextmanager
def _dropped_after_failure(conn: Connection) -> Generator[None]:
    """Close a connection for good if reading broke off: an unfinished result set holds on to an old state."""
    try:
        yield
    except PalimpsestError:
        raise
    except BaseException:
        conn.invalidate()
        raise


def _driver(conn: Connection) -> ledger_files.LedgerConnection:
    return cast("ledger_files.LedgerConnection", conn.connection.driver_connection)


def _migration_lock(path: Path) -> Path:
    return path.with_suffix(".migrating")


def _refuse_emptied(path: Path) -> None:
    """Raise LedgerError if a file of 0 bytes was a ledger before. SQLite would take it for a new one.

    A ledger that is just being made is as empty, but nobody has written to it, and it has no log.
    """
    if not path.exists() or path.stat().st_size:
        return
    log = path.with_name(f"{path.name}-wal")
    if not ledger_files.was_written(path) and not (log.exists() and log.stat().st_size):
        return
    newest = max(ledger_files.Backups(path).files(), key=lambda file: file.stat().st_mtime, default=None)
    advice = "There is no backup beside it" if newest is None else f"The newest backup: palimpsest restore {newest}"
    raise LedgerError(
        f"the ledger {path} was in use before, and now it has 0 bytes: something has emptied it. Nothing was changed. "
        f"{advice}. To begin with an empty memory, delete the file."
    )


def _make_private_file(path: Path) -> None:
    """Create the file with mode 0600, before SQLite creates it with the mode of the umask.

    An existing file is not opened: closing it would release the locks of this process's other connections to it
    (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(path, os.W_OK):
        raise PermissionError(EACCES, os.strerror(EACCES))
    make_private(path)


def _use_wal(path: Path) -> None:
    """Put the file in WAL mode, one process at a time: SQLite refuses at once if two processes try."""
    with file_lock(_migration_lock(path)), closing(sqlite3.connect(path, BUSY_TIMEOUT_SECONDS)) as conn:
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_master")}
        revision = "alembic_version" in tables and conn.execute("SELECT version_num FROM alembic_version").fetchone()
        if not tables or (revision and revision[0] in KNOWN_REVISIONS):
            conn.execute("PRAGMA journal_mode=WAL")  # a file of another program is left as it is, and refused later
