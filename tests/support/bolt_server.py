"""A real Bolt server to copy the graph to, and what it holds afterwards."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import httpx
from filelock import FileLock
from neo4j import GraphDatabase

from network import free_port
from palimpsest.core.models import Relation, Scope
from palimpsest.index.graph_database import GraphProjection, graph_projection
from palimpsest.memory import Memory
from tests.support import bolt_process
from tests.support.ledger_access import store_memory
from tests.support.memory import ALICE

USER, PASSWORD = "root", "only-for-tests"

JAVA = {"ARCADEDB_JVM_ARGS": "-Xmx300m"}

TIMEOUT = 60


@dataclass(frozen=True)
class BoltServer:
    """A Bolt server on this machine, with a database."""

    folder: Path
    port: int
    http_port: int
    database: str = ""

    @classmethod
    def in_folder(cls, folder: Path) -> BoltServer:
        """Return a server that is not started yet, on free ports."""
        return cls(folder, free_port(), free_port())

    def start(self, owner: int) -> subprocess.Popen[str]:
        """Start it, and wait until it can be used. It ends with the process `owner`."""
        self.folder.mkdir(exist_ok=True)
        arguments = [str(self.folder), PASSWORD, str(self.port), str(self.http_port), str(owner)]
        process = subprocess.Popen(
            [sys.executable, bolt_process.__file__, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **JAVA},
            cwd=self.folder,  # it writes a log there
            start_new_session=True,
        )
        assert process.stdout is not None
        while (line := process.stdout.readline()).strip() != "ready":
            assert line, "the Bolt server did not start"
        process.stdout.close()
        return process

    def with_database(self, name: str) -> BoltServer:
        """Create a database, and return the server with it."""
        command = {"command": f"create database {name}"}
        url = f"http://127.0.0.1:{self.http_port}/api/v1/server"
        httpx.post(url, json=command, auth=(USER, PASSWORD), timeout=TIMEOUT).raise_for_status()
        return BoltServer(self.folder, self.port, self.http_port, name)

    def settings(self, **config: str) -> dict[str, Any]:
        """Return the setting `graph_store` for it."""
        login = {"username": USER, "password": PASSWORD, "database": self.database}
        return {"provider": "neo4j", "config": {"url": f"bolt://127.0.0.1:{self.port}", **login, **config}}

    def variables(self, **config: str) -> dict[str, str]:
        """Return the same as environment variables."""
        store = self.settings(**config)
        names = {f"PALIMPSEST_GRAPH_STORE__CONFIG__{key.upper()}": value for key, value in store["config"].items()}
        return {"PALIMPSEST_GRAPH_STORE__PROVIDER": store["provider"], **names}

    def query(self, text: LiteralString, **parameters: Any) -> list[dict[str, Any]]:
        """Run a statement and return its rows."""
        database: Any = GraphDatabase  # its options have no types
        url = f"bolt://127.0.0.1:{self.port}"
        with database.driver(url, auth=(USER, PASSWORD)) as driver, driver.session(database=self.database) as session:
            return [record.data() for record in session.run(text, parameters)]

    def names(self, memory: Memory) -> list[str]:
        """Return the names of all entities that the database shows of a ledger, sorted."""
        rows = self.query("MATCH (n:Entity {ledger: $ledger}) RETURN n.name AS name", ledger=memory.engine.ledger.id)
        return sorted(row["name"] for row in rows)

    def remove_all(self) -> None:
        """Remove every node, whoever it belongs to."""
        self.query("MATCH (n) DETACH DELETE n")

    def relations(self, memory: Memory) -> list[tuple[str, str, str, bool]]:
        """Return source, name and destination of all relations that it shows of a ledger, and which are current."""
        rows = self.query(
            "MATCH (a:Entity {ledger: $ledger})-[r:RELATES]->(b:Entity) "
            "RETURN a.name AS source, r.name AS name, b.name AS destination, r.is_current AS is_current",
            ledger=memory.engine.ledger.id,
        )
        return sorted((row["source"], row["name"], row["destination"], row["is_current"]) for row in rows)


def shared_bolt_server(folder: Path, owner: int) -> BoltServer:
    """Return the server of a folder that several processes share. The first one starts it."""
    note = folder / "bolt.json"
    with FileLock(folder / "bolt.lock"):
        if not note.exists():
            server = BoltServer.in_folder(folder / "bolt")
            server.start(owner).returncode = 0  # it outlives this process, and ends with its owner
            note.write_text(json.dumps([server.port, server.http_port]))
        return BoltServer(folder / "bolt", *json.loads(note.read_text()))


@contextmanager
def silent_port() -> Generator[int]:
    """Give a port that accepts connections and never says anything."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


def projection_of(memory: Memory) -> GraphProjection:
    projection = graph_projection(memory.settings.graph_store, memory.engine.ledger, memory.engine.threads)
    assert projection is not None
    return projection


async def caught_up(memory: Memory) -> None:
    await projection_of(memory).catch_up()


def state(memory: Memory, source: str, name: str, destination: str, *, scope: Scope = ALICE) -> str:
    stated = (Relation(source, name, destination),)
    return store_memory(memory, f"{source} {name} {destination}", scope=scope, relations=stated)
