"""What the ledger needs of a database, and what its full text has in common."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Scope
from palimpsest.text.tokenizer import most_words_near

# What the ledger needs of a database: connections and locking, full text, backups.
#
# The rest of `store/` is written against these protocols and SQLAlchemy Core. `sqlite/` implements them with a file,
# `postgres/` with a PostgreSQL database.


@dataclass(frozen=True, slots=True)
class FullTextRow:
    """The search tokens of one entry, by column.

    `own` are the tokens of the entry's own text, `context` those of the neighbouring messages or the source messages,
    and `facts` those of the memories that cite a message. `seq` is the entry's number.
    """

    seq: int
    scope: Scope
    own: Sequence[str]
    context: Sequence[str] = ()
    facts: Sequence[str] = ()


# A row as it is stored: scope, own, context and facts, each as tokens separated by spaces.
FullTextColumns: TypeAlias = tuple[str, str, str, str]


# In how many rows each of the words occurs, if that is known.
Counts: TypeAlias = Mapping[str, int] | None


class FoundWords(NamedTuple):
    """Which of the words sought occur in an entry's own text, and which there or in its context.

    `passage` are those in the passage of its own text that has most of them.
    """

    own: frozenset[str] = frozenset()
    anywhere: frozenset[str] = frozenset()
    passage: frozenset[str] = frozenset()


# What one process at a time does in the background: embed and name what waits for it, work on jobs, write to the graph
# database, write to a vector index that several hosts share.
Work: TypeAlias = Literal["embedding", "jobs", "graph", "index"]


class FullText(Protocol):
    """Full text over search tokens, one row for each entry. Every method takes a connection of the same database."""

    created_by: Sequence[str]
    # The statements that create it, and that drop it. It can be rebuilt from the entries.
    dropped_by: Sequence[str]

    def create(self, conn: Connection) -> None:
        """Create the empty full text."""
        for statement in self.created_by:
            conn.exec_driver_sql(statement)

    def clear(self, conn: Connection) -> None:
        """Replace the full text, even a damaged one, by an empty one."""
        for statement in self.dropped_by:
            conn.exec_driver_sql(statement)
        self.create(conn)

    def put(self, conn: Connection, rows: Sequence[FullTextRow]) -> None:
        """Insert or replace the rows of entries."""

    def remove(self, conn: Connection, seqs: Sequence[int]) -> None:
        """Remove the rows of entries. Unknown numbers are ignored."""

    def count(self, conn: Connection) -> int:
        """Return the number of rows."""
        return int(conn.execute(text("SELECT count(*) FROM lexical")).scalar_one())

    def rows(self, conn: Connection) -> dict[int, FullTextColumns]:
        """Return every stored row by entry number."""
        ...

    def columns(self, row: FullTextRow) -> FullTextColumns:
        """Return the columns that `put` stores for a row."""
        return (self.scope_text(row.scope), " ".join(row.own), " ".join(row.context), " ".join(row.facts))

    def scope_text(self, scope: Scope) -> str:
        """Return the first column of the rows of a scope."""
        ...

    def widened(self, conn: Connection, scope: Scope, user_entries: int) -> Scope | None:
        """Return the scope to search first in place of `scope`, because it is faster, or None for no scope.

        The user has `user_entries` living entries. What is found may be outside `scope`; the caller drops it.
        """
        ...

    def search(
        self, conn: Connection, scope: Scope | None, words: Iterable[str], limit: int | None, counts: Counts = None
    ) -> dict[int, float]:
        """Return the BM25 score (higher is better) of the best `limit` rows, by entry number.

        Only rows that `scope` sees are searched. A scope that `widened` returned may be wider than one a user has, and
        None is all rows. Without a limit every match is returned. With the document `counts` of the words only the
        rarer words are searched, because a word that stands in most rows is slow to search and separates nothing.
        Raises FullTextError.
        """
        ...

    def with_all(self, conn: Connection, scope: Scope, words: Iterable[str]) -> list[int]:
        """Return the rows that `scope` sees whose own text has all of the words. Raises FullTextError."""
        ...

    def document_counts(self, conn: Connection, user_id: str, words: Iterable[str]) -> dict[str, int]:
        """Return in about how many rows each word occurs: those of the user, or of all users if that is quicker.

        Words that occur nowhere are left out.

        Raises FullTextError.
        """
        ...

    def words_in(self, conn: Connection, seqs: Sequence[int], words: frozenset[str]) -> dict[int, FoundWords]:
        """Return which of the words occur in each row. Raises FullTextError."""
        ...

    def is_sound(self, conn: Connection, rows: Mapping[int, FullTextColumns]) -> bool:
        """Return whether a search finds the words of every stored row. `rows` are all of them, by entry number."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerCopy:
    """A copy of a ledger, with the counts that were read back from it."""

    path: Path
    revision: str
    memories: int
    messages: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The backup that was restored, and the copy of the previous ledger. `before` is None if there was no ledger."""

    copy: LedgerCopy
    before: Path | None


class Listener(Protocol):
    """Hears of every write to a ledger, whichever process makes it. Blocking."""

    def wait(self, seconds: float) -> None:
        """Return when something was written, at the latest after so many seconds. Raises LedgerError."""

    def close(self) -> None:
        """End the wait of another thread, for good."""


class Database(Protocol):
    """The database that holds a ledger. Blocking; safe to use from several threads and processes.

    Every method raises LedgerError, with what to do, for an error of the database.
    """

    # The full text of this database.
    full_text: FullText

    # Whether an older schema is migrated by whoever opens it, which only the owner of a file does.
    migrates_when_opened: bool

    @property
    def dump_command(self) -> str:
        """Return the command that copies the whole database faster than a backup, without the password, or ""."""
        return ""

    @property
    def location(self) -> str:
        """Name the place of the ledger for messages: a path or an address without credentials."""
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """Return a connection that sees one state of the ledger."""
        ...

    def write(self, user_id: str | None = None) -> AbstractContextManager[Connection]:
        """Return a connection that holds the write lock from its first statement on: a user's, or that of all users.

        It commits at the end of the block and rolls back if the block raises. At most one write for a user is under
        way in the database at any time, and beside one for all users there is no other, whichever process began it.
        """
        ...

    def migrating(self) -> AbstractContextManager[None]:
        """Let one process at a time change the schema."""
        ...

    def without_time_limit(self, conn: Connection) -> AbstractContextManager[None]:
        """Let statements in the transaction of a connection, and the time between them, take as long as they need."""
        del conn
        return nullcontext()

    def alone_at(self, work: Work) -> AbstractContextManager[bool]:
        """Give True and keep other processes from a work in the background, or False if one is doing it."""
        ...

    def listener(self) -> Listener | None:
        """Return what hears of every write to the ledger, or None if this database does not tell."""

    def finish_schema(self, conn: Connection) -> None:
        """Create what this database needs beside the tables, after a migration."""

    def check(self) -> str:
        """Return "ok", or the first fault of a quick check."""
        ...

    def faults(self, conn: Connection) -> list[str]:
        """Return what a full check of the database finds wrong."""
        ...

    def repair(self, conn: Connection) -> None:
        """Rebuild the database's own indexes."""

    def erase_free_space(self) -> bool:
        """Rewrite the database so that deleted rows leave no trace. Return False if part of it is still in use."""
        ...

    def files(self) -> list[Path]:
        """Return the files on this machine that may hold rows, including backups. A remote database has none."""
        return []

    def search_tables(self, pieces: Sequence[bytes]) -> dict[str, list[bytes]]:
        """Return for each table which of these pieces of texts a row of it contains.

        It is empty for a database whose files can be searched.
        """
        del pieces
        return {}

    def size(self) -> int:
        """Return the size in bytes, without backups."""
        ...

    def close(self) -> None:
        """Close all connections."""

    def count_on(self, conn: Connection) -> None:
        """Let the numbers of new rows begin above those in use, after rows with numbers of their own were stored."""


# The errors of all databases as ours.

# What reading a row raises if its content is not what was written.
UNREADABLE_ROW = (ValueError, LookupError, TypeError, SQLAlchemyError)

# Databases quote values, and these may be long.
MAX_CAUSE_CHARS = 200


@contextmanager
def errors_as_ours(
    location: object, driver_error: type[Exception], explained: Callable[[BaseException | None], str], unreadable: str
) -> Generator[None]:
    """Raise the errors of a database and its driver as LedgerError.

    `explained` returns their message with what was written and what to do, and `unreadable` says so of a row that
    cannot be read.
    """
    try:
        yield
    except (DBAPIError, driver_error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise LedgerError(f"the ledger {location} could not be used: {explained(cause)}") from error
    except UNREADABLE_ROW as error:
        cause = f"a row cannot be read ({type(error).__name__}: {str(error)[:MAX_CAUSE_CHARS]})"
        raise LedgerError(f"the ledger {location} could not be used: {cause}. {unreadable}") from error


# What the full texts of all databases have in common: weights, limits, and which words occur in a row.

# The weight of a match in an entry's own text, in its context and in the facts that cite it. Measured with
# benchmarks/locomo.py.
COLUMN_WEIGHTS = (1.0, 0.4, 0.5)

MAX_QUERY_TOKENS = 64

# About how many rows one search scores. A thousand rows take about a millisecond.
MAX_SCORED = 2_000

# How long a passage is, in search tokens: about 400 characters, as much as of other texts is compared.
PASSAGE_TOKENS = 60

# Tokens of a text that take fewer characters than this are one passage. Below 60 tokens with their spaces.
LONG_CHARS = 300

# Two empty columns, joined.
NOTHING_AROUND = " "


def words_found(rows: Iterable[tuple[int, str, str]], words: frozenset[str]) -> dict[int, FoundWords]:
    """Return which of the words occur in each row: its number, its own tokens, and its context and facts, joined."""
    padded = {word: f" {word} " for word in words}
    nothing = frozenset[str]()
    found: dict[int, FoundWords] = {}
    for seq, own, around in rows:
        own_words = words_in(own, padded)
        around_words = words_in(around, padded) if around != NOTHING_AROUND else nothing
        anywhere = own_words | around_words if around_words else own_words
        is_long = len(own_words) > 1 and len(own) > LONG_CHARS
        passage = most_words_near(own.split(), own_words, PASSAGE_TOKENS) if is_long else own_words
        found[seq] = FoundWords(own_words, anywhere, passage)
    return found


def words_in(column: str, padded: Mapping[str, str]) -> frozenset[str]:
    """Return which words, given with spaces around them, stand in a column.

    Looking for a few words takes less time than splitting the column.
    """
    spaced = f" {column} "
    return frozenset([word for word, between_spaces in padded.items() if between_spaces in spaced])


def searched_words(words: Iterable[str], counts: Counts = None) -> list[str]:
    """Return the first `MAX_QUERY_TOKENS` words, each once.

    With the number of rows that each occurs in, they are only the rarest of them, which together occur in about
    `MAX_SCORED` rows, and at least one word that occurs anywhere.
    """
    searched = list(dict.fromkeys(words))[:MAX_QUERY_TOKENS]
    if counts is None:
        return searched
    chosen: list[str] = []
    rows = 0
    for word in sorted(filter(counts.__contains__, searched), key=lambda word: counts[word]):
        rows += counts[word]
        if chosen and rows > MAX_SCORED:
            break
        chosen.append(word)
    return chosen
