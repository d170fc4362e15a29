"""Where the ledgers of a test are: in SQLite files, or in databases of a PostgreSQL server.

A test names a ledger by a folder or by a path, whichever store it runs on. On PostgreSQL each path stands for a
database of its own, which is made when the path is first named. `tests/conftest.py` says which tests run on which
store.
"""

from __future__ import annotations

import shutil
import sqlite3
import stat
import tempfile
import uuid
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import SecretStr

from palimpsest.core.clock import Clock
from palimpsest.store.ledger import Ledger, open_ledger

# A path or a URL, as `open_ledger` takes it.
Address: TypeAlias = Path | SecretStr

URL_VARIABLE = "PALIMPSEST_LEDGER_URL"


class Store:
    """A kind of database that ledgers are in: a file for each ledger. A store of databases overrides all of it."""

    def __init__(self) -> None:
        self._named: set[Path] = set()

    def address(self, path: Path) -> Address:
        """Return what `open_ledger` takes for the ledger that a test calls by a path. It has an id of its own.

        It is there when it is first named, if its folder exists and is private: migrating an empty file in every test
        would take a quarter of the time.
        """
        if path not in self._named and _is_private(path.parent) and not path.exists():
            self.prepare(path)
            with closing(sqlite3.connect(path)) as conn, conn:
                conn.execute("UPDATE meta SET value = ? WHERE key = 'ledger_id'", [str(uuid.uuid4())])
        self._named.add(path)
        return path

    def prepare(self, path: Path) -> None:
        """Create the empty ledger of a path unless there is one. All ledgers made by it have the same id."""
        if not path.exists():
            path.write_bytes(_empty_sqlite_ledger())
            path.chmod(0o600)

    def copy(self, path: Path, to: Path) -> None:
        """Copy the ledger of a path, which nobody has open, to another, unless its file was copied with its folder."""

    def tables(self, folder: Path) -> dict[Path, bytes]:
        """Return what is in the ledgers of a folder beside its files, by a path that names ledger and table."""
        del folder
        return {}

    def mark(self) -> int:
        """Return a mark of the ledgers that exist now, for `remove_since`."""
        return 0

    def remove_since(self, mark: int) -> None:
        """Remove the ledgers that were made after a mark, unless they are files in a test's folder."""


class _Chosen:
    """The store of the test that runs now. A process that a test starts has the one that its environment names."""

    store = Store()


@contextmanager
def on_store(store: Store) -> Generator[None]:
    """Have the ledgers that tests name be in a store until the block ends. Then those made meanwhile are removed."""
    before, _Chosen.store = _Chosen.store, store
    mark = store.mark()
    try:
        yield
    finally:
        _Chosen.store = before
        store.remove_since(mark)


@contextmanager
def ledgers_removed() -> Generator[None]:
    """Remove the ledgers that are made in the block, at its end. Those in files go with their folder."""
    with on_store(_Chosen.store):
        yield


@contextmanager
def ledger_folder() -> Generator[Path]:
    """Give a folder for ledgers, which are removed when the block ends."""
    with tempfile.TemporaryDirectory() as folder, ledgers_removed():
        yield Path(folder)


def ledger_address(path: Path) -> Address:
    """Return what `open_ledger` takes for the ledger that a test calls by a path."""
    return _Chosen.store.address(path)


def ledger_settings(folder: Path) -> dict[str, Any]:
    """Return the settings that lead to the ledger of a data directory, besides the directory."""
    address = ledger_address(folder / "ledger.db")
    return {} if isinstance(address, Path) else {"ledger_url": address}


def ledger_variables(folder: Path) -> dict[str, str]:
    """Return the same as environment variables."""
    address = ledger_address(folder / "ledger.db")
    return {} if isinstance(address, Path) else {URL_VARIABLE: address.get_secret_value()}


def ledger_argument(path: Path) -> str:
    """Return the same as an argument of a process, which reads it with `ledger_place`."""
    address = ledger_address(path)
    return str(address) if isinstance(address, Path) else address.get_secret_value()


def ledger_place(argument: str) -> Address:
    """Return what `open_ledger` takes for an argument that `ledger_argument` returned."""
    return SecretStr(argument) if "://" in argument else Path(argument)


def ledger_tables(folder: Path) -> dict[Path, bytes]:
    """Return what is in the ledgers of a folder beside its files, by a path that names ledger and table."""
    return _Chosen.store.tables(folder)


def open_empty_ledger(folder: Path, clock: Clock) -> Ledger:
    """Open the ledger of a folder, and create it the first time. All ledgers created by it have the same id."""
    path = folder / "ledger.db"
    _Chosen.store.prepare(path)
    return open_ledger(ledger_address(path), clock, data_dir=folder)


def copy_memory(folder: Path, to: Path) -> None:
    """Copy a data directory and its ledger, which nobody has open."""
    if folder.exists():
        shutil.copytree(folder, to)
    _Chosen.store.copy(folder / "ledger.db", to / "ledger.db")


def creation_time() -> datetime:
    """Return the time at which empty ledgers are made."""
    return datetime(2026, 5, 8, 12, tzinfo=UTC)


def _is_private(folder: Path) -> bool:
    return folder.is_dir() and not stat.S_IMODE(folder.stat().st_mode) & 0o077


@cache
def _empty_sqlite_ledger() -> bytes:
    """Return the file of an empty ledger. Running the migrations for every test would take long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_ledger(path, creation_time).close()
        return path.read_bytes()
