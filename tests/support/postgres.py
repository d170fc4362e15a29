"""Databases of one PostgreSQL server, which all processes of a test run share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path

from filelock import FileLock
from psycopg import sql
from pydantic import SecretStr

from palimpsest.store.ledger import open_ledger
from postgresql import Cluster, start_for
from tests.support.stores import Store, creation_time

TEMPLATE = "template_of_ledgers"


def shared_cluster(folder: Path, owner: int) -> Cluster:
    """Return the server of a folder that several processes share. The first one starts it, with an empty ledger.

    It ends with the process `owner`. Raises RuntimeError.
    """
    note = folder / "postgresql.json"
    with FileLock(folder / "postgresql.lock"):
        if not note.exists():
            cluster = start_for(owner)
            cluster.create_database(TEMPLATE)
            open_ledger(SecretStr(cluster.url(TEMPLATE)), creation_time).close()
            note.write_text(json.dumps(asdict(cluster)))
        return Cluster(**json.loads(note.read_text()))


class PostgresStore(Store):
    """A database for each ledger. `name` is that of this process."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__()
        self.cluster = cluster
        self._names: Iterator[str] = (f"{name}_{number}" for number in count())
        self._databases: dict[Path, str] = {}
        self._outdated: list[str] = []

    def database(self, path: Path) -> str:
        """Return the name of the database of a path."""
        if path not in self._databases:
            self.prepare(path)
            with self.cluster.administrator(self._databases[path]) as conn:
                conn.execute("UPDATE meta SET value = %s WHERE key = 'ledger_id'", [str(uuid.uuid4())])
        return self._databases[path]

    def address(self, path: Path) -> SecretStr:
        """Return the URL of the database of a path."""
        return SecretStr(self.cluster.url(self.database(path)))

    def prepare(self, path: Path) -> None:
        """Copy the template, unless the path has a database."""
        if path not in self._databases:
            name = next(self._names)
            self.cluster.create_database(name, TEMPLATE)
            self._databases[path] = name

    def copy(self, path: Path, to: Path) -> None:
        """Copy the database of a path."""
        name = next(self._names)
        self.cluster.create_database(name, self.database(path))
        self._databases[to] = name

    def tables(self, folder: Path) -> dict[Path, bytes]:
        """Return the tables of all databases of a folder as stored, by the path of the ledger and the table."""
        contents: dict[Path, bytes] = {}
        for path, database in self._databases.items():
            if not path.is_relative_to(folder):
                continue
            with self.cluster.administrator(database) as conn:
                for (table,) in conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall():
                    copying = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(table))
                    with conn.cursor() as cursor, cursor.copy(copying) as rows:
                        contents[path / table] = b"".join(rows)
        return contents

    def mark(self) -> int:
        """Return how many databases there are."""
        return len(self._databases)

    def remove_since(self, mark: int) -> None:
        """Drop the databases made after a mark, one test later: PostgreSQL waits until the last backend has ended."""
        for name in self._outdated:
            self.cluster.drop_database(name)
        newer = list(self._databases)[mark:]
        self._outdated = [self._databases.pop(path) for path in newer]


@contextmanager
def empty_database(cluster: Cluster) -> Generator[SecretStr]:
    """Give the URL of a new database without any table, which is dropped when the block ends."""
    name = f"empty_{uuid.uuid4().hex}"
    cluster.create_database(name)
    try:
        yield SecretStr(cluster.url(name))
    finally:
        cluster.drop_database(name)
