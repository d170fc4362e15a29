"""A PostgreSQL server of the system's package, for tests and benchmarks. Its data are in a temporary folder.

    python postgresql.py OWNER [FOLDER]

prints the address of a new server as JSON, and removes the server as soon as the process OWNER has ended, however it
ended. PostgreSQL refuses to run as root, so a process of root runs it as the user `postgres`, whom the package creates.

`fsync` is off: what is committed survives a crash of the server, but not of the machine. Everything else that could
lose a commit has its default. With FOLDER the server is as a real one, also in this: it is on a disk, its data stay in
that folder, and the next server there goes on with them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import IO, LiteralString, Self, cast

import psycopg
from psycopg import sql

from network import free_port

PROGRAMS = Path("/usr/lib/postgresql")

# A folder in main memory, if it is large enough. On a disk, a new database may take half a second.
MEMORY = Path("/dev/shm")  # noqa: S108 - the folder that is made there is private

MEMORY_NEEDED = 2 << 30
MISSING = "PostgreSQL is not installed: install it with `apt-get install postgresql`, or run .ci/run"

# The role that the program under test logs in as. It may do nothing but own databases.
OWNER_OF_DATABASES = "palimpsest"

# An order of texts that is not the order of their bytes, as databases of users often have.
HOSTILE_LOCALE = "en-US"

CONFIGURATION = """
listen_addresses = '127.0.0.1'
max_connections = 400
"""

# What makes a new server quick.
HASTE = """
fsync = off
full_page_writes = off
shared_buffers = 32MB
max_wal_size = 128MB
autovacuum = off
"""

# What a server of some size has: the first three are defaults, on which every figure about durability rests.
DURABILITY = """
fsync = on
synchronous_commit = on
full_page_writes = on
shared_buffers = 512MB
max_wal_size = 2GB
"""


@dataclass(frozen=True)
class Cluster:
    """A PostgreSQL server on this machine, with the folder of its data, its sockets and its log."""

    folder: str
    port: int
    password: str

    def url(self, database: str) -> str:
        """Return the address of a database, as the setting `ledger_url` takes it."""
        return f"postgresql+psycopg://{OWNER_OF_DATABASES}:{self.password}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def administrator(self, database: str = "postgres") -> Generator[psycopg.Connection]:
        """Connect to a database as the superuser. Each statement is a transaction."""
        place = {"host": self.folder, "port": self.port, "user": "postgres", "dbname": database}
        with psycopg.connect(autocommit=True, **place) as conn:  # pyright: ignore[reportArgumentType] - no options else
            yield conn

    def create_database(self, name: str, template: str | None = None, locale: str = HOSTILE_LOCALE) -> None:
        """Create a database: a copy of another that nobody is connected to, or an empty one with a locale of ICU."""
        like: LiteralString = "TEMPLATE {template} STRATEGY file_copy"
        empty: LiteralString = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE {locale}"
        statement = "CREATE DATABASE {name} OWNER {owner} " + (like if template else empty)
        with self.administrator() as conn:
            conn.execute(
                sql.SQL(statement).format(
                    name=sql.Identifier(name),
                    owner=sql.Identifier(OWNER_OF_DATABASES),
                    template=sql.Identifier(template or ""),
                    locale=sql.Literal(locale),
                )
            )

    def drop_database(self, name: str) -> None:
        """Drop a database, if it exists. Its connections are severed."""
        with self.administrator() as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def sever(self, database: str) -> int:
        """Sever all connections to a database, and return how many there were."""
        ended = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = %s"
        with self.administrator() as conn:
            row = conn.execute(ended, [database]).fetchone()
        return int(row[0]) if row else 0

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        self._control("start", "--log", f"{self.folder}/log")

    def stop(self) -> None:
        """Stop the server at once, as if it had crashed. It recovers when it is started again."""
        self._control("stop", "--mode", "immediate")

    def restart(self) -> None:
        """Stop the server as if it had crashed, start it again, and wait until it takes connections."""
        self._control("restart", "--mode", "immediate", "--log", f"{self.folder}/log")

    def _control(self, *arguments: str) -> None:
        _run_program(
            "pg_ctl",
            "--pgdata",
            f"{self.folder}/data",
            "--wait",
            "--timeout",
            "300",
            *arguments,
            folder=Path(self.folder),
        )

    @classmethod
    def create(cls, folder: Path, configuration: str = HASTE) -> Self:
        """Create a server in a private folder with a short path, and start it. Raises RuntimeError."""
        _program("initdb")  # without the package there is no user `postgres` either
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        data = folder / "data"
        local = ("--username", "postgres", "--auth-local", "trust", "--auth-host", "scram-sha-256")
        form = ("--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
        _run_program("initdb", "--pgdata", str(data), *local, *form, folder=folder)
        cluster = cls(str(folder), free_port(), secrets.token_hex(16))
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            place = f"port = {cluster.port}\nunix_socket_directories = '{folder}'\n"
            file.write(CONFIGURATION + configuration + place)
        cluster.start()
        with cluster.administrator() as conn:
            role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            conn.execute(role.format(sql.Identifier(OWNER_OF_DATABASES), sql.Literal(cluster.password)))
        return cluster

    @classmethod
    def kept(cls, folder: Path) -> Self:
        """Start the server of a folder, which is as a real one. The first time it is created. Raises RuntimeError."""
        note = folder / "server.json"
        if not note.exists():
            shutil.rmtree(folder / "data", ignore_errors=True)
            cluster = cls.create(folder, DURABILITY)
            note.write_text(json.dumps(asdict(cluster)), encoding="utf-8")
            return cluster
        cluster = cls(**json.loads(note.read_text("utf-8")))
        cluster.start()
        return cluster


def has_memory_for_files() -> bool:
    """Return whether there is a folder in main memory with enough room."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED


def start_for(owner: int) -> Cluster:
    """Start a server that ends with a process, and wait until it takes connections. Raises RuntimeError."""
    cluster, process = _start_for(owner)
    process.returncode = 0  # it may outlive this process
    return cluster


@contextmanager
def own_cluster(folder: Path | None = None) -> Generator[Cluster]:
    """Run a server until the block ends, or this process. With a folder it is as a real one, and its data stay."""
    cluster, process = _start_for(os.getpid(), folder)
    try:
        yield cluster
    finally:
        process.terminate()
        process.wait()


def _start_for(owner: int, folder: Path | None = None) -> tuple[Cluster, subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, __file__, str(owner), *([] if folder is None else [str(folder)])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for its owner
    )
    stdout, stderr = cast("IO[str]", process.stdout), cast("IO[str]", process.stderr)
    with stdout, stderr:
        line = stdout.readline()
        if not line:
            raise RuntimeError(stderr.read().strip())
    return Cluster(**json.loads(line)), process


def _program(name: str) -> str:
    """Return the path of a program of the newest PostgreSQL. Raises RuntimeError if there is none."""
    versions = (folder for folder in PROGRAMS.glob("*") if re.fullmatch(r"\d+", folder.name))
    for folder in sorted(versions, key=lambda folder: int(folder.name), reverse=True):
        if (folder / "bin" / name).exists():
            return str(folder / "bin" / name)
    elsewhere = shutil.which(name)
    if elsewhere is None:
        raise RuntimeError(MISSING)
    return elsewhere


def _run_program(name: str, *arguments: str, folder: Path) -> None:
    """Run a program of PostgreSQL as a user it accepts. Raises RuntimeError with what it printed if it fails."""
    drop_root = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups") if os.geteuid() == 0 else ()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    output = folder / "output"  # no pipe: the server inherits it, and would keep it open
    with output.open("w+", encoding="utf-8") as printed:
        done = subprocess.run(
            [*drop_root, _program(name), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            check=False,
        )
        log = folder / "log"
        if done.returncode:
            printed.seek(0)
            raise RuntimeError(printed.read() + (log.read_text("utf-8") if log.exists() else ""))


def _stop_waiting(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    """Run a server until a process has ended, and remove it, unless it is to be kept."""
    signal.signal(signal.SIGTERM, _stop_waiting)
    owner = os.pidfd_open(int(sys.argv[1]))
    kept = Path(sys.argv[2]).absolute() if len(sys.argv) > 2 else None
    folder = kept or Path(tempfile.mkdtemp(prefix="palimpsest-pg-", dir=MEMORY if has_memory_for_files() else None))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        cluster = Cluster.kept(folder) if kept else Cluster.create(folder)
        try:
            print(json.dumps(asdict(cluster)), flush=True)
            sys.stdout.close()
            select.select([owner], [], [])
        finally:
            cluster.stop()
    except RuntimeError as error:
        sys.exit(str(error))
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)  # a backend may be about to remove its last file itself


if __name__ == "__main__":
    main()
