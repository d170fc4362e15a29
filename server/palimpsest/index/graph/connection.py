"""The connection to a Bolt server: log in, run statements, and say in plain words what went wrong.

Every step has a limit in seconds, because a server may accept a connection and then say nothing. The driver is the
asynchronous one: a task that is cancelled drops its connection at once, so a close never waits for the server.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from palimpsest.core.configuration.sections import GraphStore
from palimpsest.core.errors import GraphStoreError
from palimpsest.index.graph.cypher import INDEXES, Provider, Statement
from palimpsest.text.control_characters import visible
from palimpsest.text.shorten import shorten

if TYPE_CHECKING:
    from neo4j import AsyncSession

CONNECT_SECONDS = 5.0
"""How long a connection and its handshake may take. Set by hand: a server on another continent answers in one."""

REPLY_SECONDS = 60.0
"""How long a transaction may take. It has some hundred rows, which take a tenth of a second on an idle server. Set by
hand."""

CLOSE_SECONDS = 1.0
"""How long to say goodbye. After that the connection is dropped, which costs the server nothing. Set by hand."""

MAX_REASON_CHARS = 200
"""How much of what a server says about a failure is shown. Set by hand: its first sentence."""

KEPT = "The graph in the ledger is complete, and the copy catches up when the database can be used."


class GraphServer:
    """A Neo4j or Memgraph server, as the settings name it."""

    def __init__(self, store: GraphStore) -> None:
        if store.provider == "ledger" or store.config.url is None:
            raise ValueError("the graph lies in the ledger alone")
        self.provider: Provider = store.provider
        self._config = store.config
        self._url = store.config.url

    @property
    def address(self) -> str:
        """Return where it is, for messages. The settings allow no login in it."""
        return f"{self._url}, database {self._config.database}" if self._config.database else self._url

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[GraphConnection]:
        """Log in and return a connection, which is closed at the end. Raises GraphStoreError."""
        driver = self._driver()
        try:
            async with driver.session(database=self._config.database) as session:
                with _graph_errors(self.address), anyio.fail_after(CONNECT_SECONDS):
                    await (await session.run("RETURN 1")).consume()
                yield GraphConnection(self, session)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await driver.close()

    def _driver(self) -> Any:
        try:
            import neo4j  # noqa: PLC0415 - it is an extra, and takes a sixth of a second
        except ImportError as error:
            raise GraphStoreError(
                f"graph_store.provider = '{self.provider}' needs the neo4j driver, which is not installed. The graph "
                'in the ledger is complete. Run: pip install "palimpsest-mcp[graph]"'
            ) from error
        logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)  # advice on statements, for their author
        name, password = self._config.username, self._config.password
        auth = None if name is None else (name, "" if password is None else password.get_secret_value())
        with _graph_errors(self.address):
            database: Any = neo4j.AsyncGraphDatabase  # its options have no types
            return database.driver(
                self._url,
                auth=auth,
                connection_timeout=CONNECT_SECONDS,
                connection_acquisition_timeout=CONNECT_SECONDS,
                max_connection_pool_size=1,
                telemetry_disabled=True,
                user_agent="palimpsest",
            )


class GraphConnection:
    """A session on a Bolt server. Every method raises GraphStoreError."""

    def __init__(self, server: GraphServer, session: AsyncSession) -> None:
        self._server = server
        self._session = session

    async def run(self, *statements: Statement) -> list[dict[str, Any]]:
        """Run statements in one transaction, all or none, and return the rows of the last one."""
        rows: list[dict[str, Any]] = []
        with _graph_errors(self._server.address), anyio.fail_after(REPLY_SECONDS):
            async with await self._session.begin_transaction() as transaction:
                for text, parameters in statements:
                    result = await transaction.run(text, dict(parameters))
                    rows = [record.data() async for record in result]
                await transaction.commit()
        return rows

    async def create_indexes(self) -> None:
        """Create the indexes by which statements find our nodes and edges, unless the database has them.

        A server that does not know such an index works without it, only slower.
        """
        for text in INDEXES[self._server.provider]:
            try:
                with _graph_errors(self._server.address), anyio.fail_after(REPLY_SECONDS):
                    await (await self._session.run(text)).consume()  # Memgraph refuses it in a transaction
            except GraphStoreError as error:
                if not error.is_refusal:
                    raise


@contextmanager
def _graph_errors(address: str) -> Generator[None]:
    """Raise GraphStoreError for what the driver raises, and for a step that takes too long."""
    from neo4j.exceptions import AuthError, ClientError, DriverError, Neo4jError  # noqa: PLC0415 - as in `_driver`

    try:
        yield
    except TimeoutError as error:
        raise GraphStoreError(f"the graph database at {address} did not answer in time. {KEPT}") from error
    except AuthError as error:
        raise GraphStoreError(f"the graph database at {address} refused the login: {_reason(error)}. {KEPT}") from error
    except Neo4jError as error:
        text = f"the graph database at {address} refused a statement: {_reason(error)}. {KEPT}"
        raise GraphStoreError(text, is_refusal=isinstance(error, ClientError)) from error
    except (DriverError, OSError, ValueError) as error:
        raise GraphStoreError(f"the graph database at {address} cannot be used: {_reason(error)}. {KEPT}") from error


def _reason(error: Exception) -> str:
    """Return what a server or the driver says about a failure, in one line."""
    text = str(getattr(error, "message", None) or error)
    return shorten(visible(" ".join(text.split())), MAX_REASON_CHARS).rstrip(".")
