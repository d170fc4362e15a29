"""Keep a graph database (Neo4j, Memgraph) in step with the graph of the ledger."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, LiteralString, TypeAlias, TypeVar

import anyio
from sqlalchemy import Connection

from palimpsest.core.errors import GraphStoreError, LedgerError
from palimpsest.core.models import Finding
from palimpsest.core.protocols import Progress, unseen
from palimpsest.core.settings import GraphStore
from palimpsest.core.threads import Threads
from palimpsest.store import entries
from palimpsest.store.graph import projection as projected
from palimpsest.store.graph.projection import Part
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import batched
from palimpsest.text.display import counted, reason_of

if TYPE_CHECKING:
    from neo4j import AsyncSession


# The checkpoint of a graph database: how much of the ledger it shows. It is kept in the database itself.
#
# So a database that was restored, emptied or exchanged for another one says itself where the ledger goes on.

# The kind of nodes and edges. A database with another one is filled anew.
LAYOUT = "2"

Standing: TypeAlias = Literal["ours", "outdated", "foreign"]


@dataclass(frozen=True, slots=True)
class GraphCheckpoint:
    """What a graph database shows of the ledger with the id `ledger`.

    `log_number` and `edit_number` are the last rows of the index log and of the history of entities that were applied,
    and `log_signature` describes the first of them. While the database is filled there is no checkpoint.
    """

    ledger: str
    layout: str
    log_number: int
    log_signature: str
    edit_number: int

    @classmethod
    def at_start(cls, ledger: str, conn: Connection) -> GraphCheckpoint:
        """Return the checkpoint of a database that shows what the ledger is now."""
        log_number, signature = entries.newest_position(conn)
        return cls(ledger, LAYOUT, log_number, signature, projected.newest_edit(conn))

    def standing(self, conn: Connection) -> Standing:
        """Return whether the database can go on following the ledger.

        It is outdated after a purge or a restore, which begin a new epoch of the ledger, and is filled anew. It is
        foreign if it shows what this ledger never said: another copy of the ledger, which was used since, wrote it.
        """
        epoch, known_epoch = int(entries.epoch(conn)), int(self.log_signature.split(" ")[0])
        if known_epoch != epoch:
            return "foreign" if known_epoch > epoch else "outdated"
        is_same = self.log_signature == entries.log_signature(conn, self.log_number)
        return "ours" if is_same and self.edit_number <= projected.newest_edit(conn) else "foreign"

    def behind(self, conn: Connection) -> int:
        """Return how many rows of the ledger are still to be applied."""
        log_number, edit_number = ledger_end(conn)
        return log_number - self.log_number + edit_number - self.edit_number


def ledger_end(conn: Connection) -> tuple[int, int]:
    """Return the newest numbers of the index log and of the history of entities."""
    return entries.newest_log_number(conn), projected.newest_edit(conn)


# The statements that a graph database is sent. Names and texts are parameters and never part of a statement.
#
# Our nodes are known by their label and the id of the ledger together: the database may have other nodes with the
# label, and those of other ledgers. What all of this needs is in both Neo4j and Memgraph, except how an index is
# created.

Provider: TypeAlias = Literal["neo4j", "memgraph"]
Text: TypeAlias = LiteralString


# A statement and its parameters besides the id of the ledger.
Statement: TypeAlias = tuple[Text, Mapping[str, Any]]

# Each is a transaction of its own. They are no constraints, because others may use the same label.
INDEXES: dict[Provider, tuple[Text, ...]] = {
    "neo4j": (
        "CREATE INDEX palimpsest_entity IF NOT EXISTS FOR (n:Entity) ON (n.id)",
        "CREATE INDEX palimpsest_relation IF NOT EXISTS FOR ()-[r:RELATES]-() ON (r.memory_id)",
    ),
    "memgraph": ("CREATE INDEX ON :Entity(id)", "CREATE EDGE INDEX ON :RELATES(memory_id)"),
}

READ_CHECKPOINT: Text = "MATCH (c:PalimpsestCheckpoint {ledger: $ledger}) RETURN properties(c) AS checkpoint"

WRITE_CHECKPOINT: Text = "MERGE (c:PalimpsestCheckpoint {ledger: $ledger}) SET c += $values"

REMOVE_CHECKPOINT: Text = "MATCH (c:PalimpsestCheckpoint {ledger: $ledger}) DELETE c"

REMOVE_SOME: Text = "MATCH (n:Entity {ledger: $ledger}) WITH n LIMIT 1000 DETACH DELETE n RETURN count(*) AS removed"

REMOVE_EDGES: Text = "MATCH (a:Entity)-[r:RELATES]->() WHERE r.memory_id IN $memory_ids AND a.ledger = $ledger DELETE r"

PUT_NODES: Text = "UNWIND $rows AS row MERGE (n:Entity {id: row.id, ledger: $ledger}) SET n += row"

PUT_EDGES: Text = (
    "UNWIND $rows AS row "
    "MATCH (a:Entity {id: row.source_id, ledger: $ledger}) "
    "MATCH (b:Entity {id: row.destination_id, ledger: $ledger}) "
    "MERGE (a)-[r:RELATES {id: row.id}]->(b) SET r += row"
)

REMOVE_NODES: Text = "UNWIND $rows AS id MATCH (n:Entity {id: id, ledger: $ledger}) DETACH DELETE n"

COUNT_NODES: Text = "MATCH (n:Entity {ledger: $ledger}) RETURN count(n) AS count"

COUNT_EDGES: Text = "MATCH (:Entity {ledger: $ledger})-[r:RELATES]->() RETURN count(r) AS count"

# The connection to a Bolt server: log in, run statements, and say in plain words what went wrong.
#
# Every step has a limit in seconds, because a server may accept a connection and then say nothing. The driver is the
# asynchronous one: a task that is cancelled drops its connection at once, so a close never waits for the server.

# How long a connection and its handshake may take: a server on another continent answers in one.
CONNECT_SECONDS = 5.0

# How long a transaction may take. It has some hundred rows, which take a tenth of a second on an idle server. Set by
# hand.
REPLY_SECONDS = 60.0

# How long to say goodbye. After that the connection is dropped, which costs the server nothing.
CLOSE_SECONDS = 1.0

KEPT = "The graph in the ledger is complete, and the copy catches up when the database can be used."


def _driver(store: GraphStore, address: str) -> Any:
    try:
        import neo4j  # noqa: PLC0415 - it is an extra, and takes a sixth of a second
    except ImportError as error:
        raise GraphStoreError(f"{store.provider} needs: pip install 'palimpsest-mcp[graph]'. {KEPT}") from error
    logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)  # advice on statements, for their author
    name, password = store.config.username, store.config.password
    auth = None if name is None else (name, "" if password is None else password.get_secret_value())
    with _graph_errors(address):
        database: Any = neo4j.AsyncGraphDatabase  # its options have no types
        return database.driver(
            store.config.url,
            auth=auth,
            connection_timeout=CONNECT_SECONDS,
            connection_acquisition_timeout=CONNECT_SECONDS,
            max_connection_pool_size=1,
            telemetry_disabled=True,
            user_agent="palimpsest",
        )


@contextmanager
def _graph_errors(address: str) -> Generator[None]:
    """Raise GraphStoreError for what the driver raises, and for a step that takes too long."""
    from neo4j.exceptions import ClientError, DriverError, Neo4jError  # noqa: PLC0415 - as in `_driver`

    try:
        yield
    except TimeoutError as error:
        raise GraphStoreError(f"the graph database at {address} did not answer in time. {KEPT}") from error
    except Neo4jError as error:
        text = f"the graph database at {address} refuses: {_reason(error)}. {KEPT}"
        raise GraphStoreError(text, is_refusal=isinstance(error, ClientError)) from error
    except (DriverError, OSError, ValueError) as error:
        raise GraphStoreError(f"the graph database at {address} cannot be used: {_reason(error)}. {KEPT}") from error


def _reason(error: Exception) -> str:
    return reason_of(getattr(error, "message", None) or error).rstrip(".")


# The copy of a ledger's graph in a graph database: what is read from it and written to it.

# Rows in one statement: it takes some ten milliseconds, and one server deadlocked at 500 rows.
BATCH = 100

_T = TypeVar("_T")


class GraphCopy:
    """The nodes and edges of one ledger on a server at an address. Every method raises GraphStoreError."""

    def __init__(self, session: AsyncSession, ledger: str, address: str) -> None:
        self._session = session
        self._address = address
        self.ledger = ledger

    async def _run(self, *statements: Statement) -> list[dict[str, Any]]:
        """Run statements in one transaction, all or none, and return the rows of the last one."""
        rows: list[dict[str, Any]] = []
        with _graph_errors(self._address), anyio.fail_after(REPLY_SECONDS):
            async with await self._session.begin_transaction() as transaction:
                for text, parameters in statements:
                    result = await transaction.run(text, {"ledger": self.ledger, **parameters})
                    rows = [record.data() async for record in result]
                await transaction.commit()
        return rows

    async def _ask(self, text: Text, **parameters: Any) -> list[dict[str, Any]]:
        """Run one statement, and return its rows."""
        return await self._run((text, parameters))

    async def checkpoint(self) -> GraphCheckpoint | None:
        """Return how much of the ledger it shows, or None if that is nothing, or written by another version."""
        rows = await self._ask(READ_CHECKPOINT)
        with suppress(TypeError):
            if rows and rows[0]["checkpoint"].get("layout") == LAYOUT:
                return GraphCheckpoint(**rows[0]["checkpoint"])
        return None

    async def prepare(self, indexes: Iterable[Text]) -> None:
        """Create the indexes by which statements find our nodes and edges, unless the database has them.

        A server that does not know such an index works without it, only slower.
        """
        for text in indexes:
            try:
                with _graph_errors(self._address), anyio.fail_after(REPLY_SECONDS):
                    await (await self._session.run(text)).consume()  # Memgraph refuses it in a transaction
            except GraphStoreError as error:
                if not error.is_refusal:
                    raise

    async def clear(self) -> None:
        """Remove the checkpoint, and then all nodes of the ledger with their edges, a thousand at a time."""
        await self._ask(REMOVE_CHECKPOINT)
        while (await self._ask(REMOVE_SOME))[0]["removed"]:
            pass

    async def put(self, part: Part, checkpoint: GraphCheckpoint | None) -> None:
        """Bring the copy into the state of a part of the graph, and write the checkpoint, in one transaction."""
        changes: list[Statement] = [(REMOVE_EDGES, {"memory_ids": part.memory_ids})]
        changes.extend((PUT_NODES, {"rows": batch}) for batch in batched(part.nodes, BATCH))
        changes.extend((PUT_EDGES, {"rows": batch}) for batch in batched(part.edges, BATCH))
        changes.extend((REMOVE_NODES, {"rows": batch}) for batch in batched(part.hidden, BATCH))
        if checkpoint is not None:
            changes.append((WRITE_CHECKPOINT, {"values": asdict(checkpoint)}))
        await self._run(*changes)

    async def counts(self) -> tuple[int, int]:
        """Return the number of nodes and of edges."""
        [nodes] = await self._ask(COUNT_NODES)
        [edges] = await self._ask(COUNT_EDGES)
        return nodes["count"], edges["count"]


# Keep a graph database in step with the graph of the ledger.
#
# It follows the index log and the history of entities. Each step reads what some memories mention and state now, and
# brings the database into that state, together with its checkpoint, in one transaction. So a step that is done again
# changes nothing, and whoever is killed leaves work that the next one goes on with. A filling that broke off begins
# again.

logger = logging.getLogger(__name__)

# How often to look for what other processes wrote: a look that finds nothing asks the ledger alone, and takes less than
# a millisecond.
LOOK_SECONDS = 30.0

# The rest after each time the database has caught up, so that writes in quick succession are applied together.
REST_SECONDS = 1.0

# The rest after a failure, so that a server which comes back is up to date half a minute later.
RETRY_SECONDS = 30.0

# How often to ask whether another process that writes is done.
TURN_SECONDS = 0.2

# How often to ask before giving up: half a minute, in which a process catches up.
MAX_TURNS = 150


class GraphProjection:
    """A Neo4j or Memgraph database that follows a ledger. One process at a time writes to it.

    Every method raises LedgerError, and GraphStoreError if the database cannot be used. `state` is "waiting" until an
    attempt to `follow` has ended.
    """

    def __init__(self, ledger: Ledger, store: GraphStore, threads: Threads) -> None:
        if store.provider == "ledger" or store.config.url is None:
            raise ValueError("the graph lies in the ledger alone")
        self.provider: Provider = store.provider
        # Where it is, for messages. The settings allow no login in it.
        self.address = store.config.url + (f", database {store.config.database}" if store.config.database else "")
        self._store = store
        self._ledger = ledger
        self._threads = threads
        self._applied: tuple[int, int] | None = None
        self.state: Literal["waiting", "ready", "failing"] = "waiting"
        self._woken = anyio.Event()
        self._last_failure = ""

    async def read(self, query: Callable[[Connection], _T]) -> _T:
        """Return what a query finds in the ledger."""
        return await self._threads.run(lambda: self._ledger.read_with(query))

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[GraphCopy]:
        """Log in and return the copy of the ledger. The connection is closed at the end."""
        ledger_id = await self._threads.run(lambda: self._ledger.id)
        driver = _driver(self._store, self.address)
        try:
            async with driver.session(database=self._store.config.database) as session:
                with _graph_errors(self.address), anyio.fail_after(CONNECT_SECONDS):
                    await (await session.run("RETURN 1")).consume()
                yield GraphCopy(session, ledger_id, self.address)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await driver.close()

    async def catch_up(self) -> None:
        """Apply what is new in the ledger. Without something new, the database is not asked.

        While another process is writing to the database, wait for it. A database that shows nothing of this ledger, or
        an earlier state of it, is filled anew. One that another copy of this ledger writes to is left alone, with
        GraphStoreError.
        """
        end = await self.read(ledger_end)
        if end == self._applied:
            return
        async with self._alone(), self.connect() as copy:
            await self._follow(copy, await self.reached(copy) or await self._fill(copy, unseen))
        self._applied = end

    async def reached(self, copy: GraphCopy) -> GraphCheckpoint | None:
        """Return how much of the ledger a database shows; None if that is nothing, or an earlier state of it.

        Raises GraphStoreError for a database that another copy of this ledger writes to.
        """
        checkpoint = await copy.checkpoint()
        standing: Standing = "outdated" if checkpoint is None else await self.read(checkpoint.standing)
        if standing == "foreign":
            raise GraphStoreError(
                f"another copy of this ledger writes to the graph database at {self.address}. Nothing was changed "
                "there. Give each copy a database of its own, or run palimpsest rebuild --graph to replace what is "
                "there."
            )
        return checkpoint if standing == "ours" else None

    async def rebuild(self, progress: Progress = unseen) -> tuple[int, int]:
        """Replace what the database shows of this ledger, and return the number of its nodes and edges."""
        async with self._alone(), self.connect() as copy:
            await self._follow(copy, await self._fill(copy, progress))
            return await copy.counts()

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Wait until no other process writes to the database, and keep others from it until the block ends."""
        for _ in range(MAX_TURNS):
            # A turn that is not ours is left at once: on PostgreSQL each holds a session.
            with ExitStack() as turn:
                if await self._threads.run(partial(turn.enter_context, self._ledger.database.alone_at("graph"))):
                    yield
                    return
            await anyio.sleep(TURN_SECONDS)
        raise GraphStoreError("another process is still writing to the graph database. Try again in a minute.")

    async def _fill(self, copy: GraphCopy, progress: Progress) -> GraphCheckpoint:
        """Fill the database anew, and return its checkpoint: the end of the ledger when the filling began."""
        checkpoint = await self.read(partial(GraphCheckpoint.at_start, copy.ledger))
        await copy.clear()
        await copy.prepare(INDEXES[self.provider])
        total, done, last = await self.read(projected.count_memories_that_mention), 0, 0
        while rows := await self.read(partial(projected.memories_that_mention, after=last, limit=BATCH)):
            ids = [memory_id for _, memory_id in rows]
            await copy.put(await self.read(partial(projected.part_of, memory_ids=ids)), None)
            last, done = rows[-1][0], done + len(rows)
            progress(done, max(total, done))
        await copy.put(Part(), checkpoint)
        return checkpoint

    async def _follow(self, copy: GraphCopy, checkpoint: GraphCheckpoint) -> None:
        """Bring the database from a checkpoint to the end of the ledger."""
        while (steps := await self.read(partial(_next_steps, checkpoint))) != []:
            if steps is None:  # something was purged meanwhile
                checkpoint = await self._fill(copy, unseen)
                continue
            for part, reached in steps:
                await copy.put(part, reached)
                checkpoint = reached

    def wake(self) -> None:
        """Look for what is new, unless the last attempt failed and it rests."""
        self._woken.set()

    async def follow(self) -> None:
        """Follow the ledger until cancelled. A failure is logged, and tried again after a rest."""
        while True:
            self._woken = anyio.Event()
            if await self._try():
                await anyio.sleep(REST_SECONDS)
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._woken.wait()
            else:
                await anyio.sleep(RETRY_SECONDS)

    async def _try(self) -> bool:
        """Catch up once, and return whether that went well. The same failure is logged once."""
        try:
            await self.catch_up()
        except Exception as error:  # one that escaped would close the memory for all its callers
            if not isinstance(error, GraphStoreError | LedgerError):
                logger.exception("the graph database is not up to date")
            if str(error) != self._last_failure:
                logger.warning("%s", error)
            self.state, self._last_failure = "failing", str(error)
            return False
        self.state, self._last_failure = "ready", ""
        return True


def graph_projection(store: GraphStore, ledger: Ledger, threads: Threads) -> GraphProjection | None:
    """Return the graph database that the settings name, or None if the graph lies in the ledger alone."""
    return None if store.provider == "ledger" else GraphProjection(ledger, store, threads)


def _next_steps(checkpoint: GraphCheckpoint, conn: Connection) -> list[tuple[Part, GraphCheckpoint]] | None:
    """Return the parts that bring the next rows of the ledger into the database, each with the checkpoint after it.

    There are none if it shows all of them. Return None if a purge or a restore made the database outdated.
    """
    if checkpoint.standing(conn) != "ours":
        return None
    log_number, signature = entries.newest_position(conn)
    if checkpoint.log_number < log_number:
        if changed := entries.changed_memories(conn, checkpoint.log_number, BATCH):
            log_number = changed[-1].log_number
            signature = entries.log_signature(conn, log_number)
        memory_ids = list(dict.fromkeys(row.id for row in changed))
        reached = replace(checkpoint, log_number=log_number, log_signature=signature)
        return [(projected.part_of(conn, memory_ids), reached)]
    edit_number = projected.newest_edit(conn)
    if checkpoint.edit_number < edit_number:
        edited = projected.edited_entities(conn, checkpoint.edit_number)
        memory_ids = projected.memories_of(conn, edited)
        steps = [(projected.part_of(conn, batch), checkpoint) for batch in batched(memory_ids, BATCH)]
        return [*steps, (projected.part_of(conn, [], edited), replace(checkpoint, edit_number=edit_number))]
    return []


# Say in what state a graph database is.


async def condition(projection: GraphProjection) -> Finding:
    """Return in what state the database is. Raises GraphStoreError if it cannot be used, and LedgerError."""
    name = f"{projection.provider} at {projection.address}"
    async with projection.connect() as copy:
        if (checkpoint := await projection.reached(copy)) is None:
            return Finding("graph", f"{name}: nothing of this ledger yet; a server fills it in the background")
        behind = await projection.read(checkpoint.behind)
        nodes, edges = await copy.counts()
    text = f"{name}: {counted(nodes, 'entity')}, {counted(edges, 'relation')}, {counted(behind, 'change')} behind"
    return Finding("graph", text)
