"""Keep a graph database in step with the graph of the ledger.

It follows the index log and the history of entities. Each step reads what some memories mention and state now, and
brings the database into that state, together with its checkpoint, in one transaction. So a step that is done again
changes nothing, and whoever is killed leaves work that the next one goes on with.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import anyio
from sqlalchemy import Connection

from palimpsest.core.configuration.sections import GraphStore
from palimpsest.core.errors import GraphStoreError
from palimpsest.core.protocols import Progress
from palimpsest.core.threads import Threads
from palimpsest.index.graph.checkpoint import GraphCheckpoint, Standing
from palimpsest.index.graph.connection import GraphServer
from palimpsest.index.graph.copy import BATCH, GraphCopy
from palimpsest.store.graph import projected
from palimpsest.store.ledger import Ledger

TURN_SECONDS = 0.2
"""How often to ask whether another process that writes is done. Set by hand."""

MAX_TURNS = 150
"""How often to ask before giving up: half a minute, in which a process catches up. Set by hand."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Step:
    """The next part of the graph to apply, and the checkpoint after it."""

    part: projected.Part
    checkpoint: GraphCheckpoint


class GraphProjection:
    """A graph database that follows a ledger. One process at a time writes to it.

    Every method raises LedgerError, and GraphStoreError if the database cannot be used.
    """

    def __init__(self, ledger: Ledger, server: GraphServer, threads: Threads) -> None:
        self.server = server
        self._ledger = ledger
        self._threads = threads
        self._applied: projected.LedgerEnd | None = None

    async def read(self, query: Callable[[Connection], _T]) -> _T:
        """Return what a query finds in the ledger."""

        def work() -> _T:
            with self._ledger.read() as conn:
                return query(conn)

        return await self._threads.run(work)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[GraphCopy]:
        """Connect to the database, until the block ends."""
        ledger_id = await self._threads.run(lambda: self._ledger.id)
        async with self.server.connect() as database:
            yield GraphCopy(database, ledger_id)

    async def catch_up(self) -> None:
        """Apply what is new in the ledger. Without something new, the database is not asked.

        While another process is writing to the database, wait for it. A database that shows nothing of this ledger, or
        an earlier state of it, is filled anew. One that another copy of this ledger writes to is left alone, with
        GraphStoreError.
        """
        end = await self.read(projected.ledger_end)
        if end == self._applied:
            return
        async with self._alone(), self.connect() as copy:
            await self._follow(copy, await self._usable_checkpoint(copy), None)
        self._applied = end

    async def rebuild(self, progress: Progress | None = None) -> tuple[int, int]:
        """Replace what the database shows of this ledger, and return the number of its nodes and edges."""
        async with self._alone(), self.connect() as copy:
            await self._follow(copy, await self._begin(copy), progress)
            return await copy.counts()

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """Wait until no other process writes to the database, and keep others from it until the block ends."""
        for _ in range(MAX_TURNS):
            # A turn that is not ours is left at once: on PostgreSQL each holds a session.
            with ExitStack() as turn:
                if await self._threads.run(lambda turn=turn: turn.enter_context(self._ledger.alone_at("graph"))):
                    yield
                    return
            await anyio.sleep(TURN_SECONDS)
        raise GraphStoreError(
            "another process is still writing to the graph database. Nothing was written there. Try again in a minute."
        )

    async def _usable_checkpoint(self, copy: GraphCopy) -> GraphCheckpoint:
        checkpoint = await copy.checkpoint()
        standing: Standing = "outdated" if checkpoint is None else await self.read(checkpoint.standing)
        if standing == "foreign":
            raise GraphStoreError(foreign_text(self.server.address))
        if checkpoint is None or standing == "outdated":
            return await self._begin(copy)
        return checkpoint

    async def _begin(self, copy: GraphCopy) -> GraphCheckpoint:
        """Mark the database as one that is to be filled anew."""
        ledger_id = await self._threads.run(lambda: self._ledger.id)
        checkpoint = await self.read(lambda conn: GraphCheckpoint.at_start(ledger_id, conn))
        await copy.move_to(checkpoint)
        return checkpoint

    async def _follow(self, copy: GraphCopy, checkpoint: GraphCheckpoint, progress: Progress | None) -> None:
        """Bring the database from a checkpoint to the end of the ledger."""
        while True:
            if checkpoint.phase == "clearing":
                await copy.clear()
                await copy.prepare()
                checkpoint = replace(checkpoint, phase="filling")
                await copy.move_to(checkpoint)
            if checkpoint.phase == "filling":
                checkpoint = await self._fill(copy, checkpoint, progress)
            finished = await self._apply_log(copy, checkpoint)
            if finished:
                return
            checkpoint = await self._begin(copy)  # something was purged meanwhile

    async def _fill(self, copy: GraphCopy, checkpoint: GraphCheckpoint, progress: Progress | None) -> GraphCheckpoint:
        total = await self.read(projected.count_memories_that_mention)
        done = 0
        while True:
            step = await self.read(partial(_next_to_fill, checkpoint))
            if step is None:
                break
            await copy.put(step.part, step.checkpoint)
            checkpoint = step.checkpoint
            done += len(step.part.memory_ids)
            if progress is not None:
                progress(done, max(total, done))
        checkpoint = replace(checkpoint, phase="following")
        await copy.move_to(checkpoint)
        return checkpoint

    async def _apply_log(self, copy: GraphCopy, checkpoint: GraphCheckpoint) -> bool:
        """Apply all rows after a checkpoint. Return False if a purge or a restore made the database outdated."""
        while True:
            steps = await self.read(partial(_next_steps, checkpoint))
            if steps is None:
                return False
            for step in steps:
                await copy.put(step.part, step.checkpoint)
                checkpoint = step.checkpoint
            if not steps:
                return True


def graph_projection(store: GraphStore, ledger: Ledger, threads: Threads) -> GraphProjection | None:
    """Return the graph database that the settings name, or None if the graph lies in the ledger alone."""
    return None if store.provider == "ledger" else GraphProjection(ledger, GraphServer(store), threads)


def foreign_text(address: str) -> str:
    """Return what to do about a database that another copy of the ledger writes to."""
    return (
        f"the graph database at {address} shows changes that this ledger does not have: another copy of the ledger "
        "writes to it. Nothing was changed there. Give each copy a database of its own, or run palimpsest rebuild "
        "--graph to replace what is there with what this ledger holds."
    )


def _next_to_fill(checkpoint: GraphCheckpoint, conn: Connection) -> _Step | None:
    rows = projected.memories_that_mention(conn, checkpoint.filled_to, BATCH)
    if not rows:
        return None
    part = projected.part_of(conn, [memory_id for _, memory_id in rows])
    return _Step(part, replace(checkpoint, filled_to=rows[-1][0]))


def _next_steps(checkpoint: GraphCheckpoint, conn: Connection) -> list[_Step] | None:
    """Return what brings the next rows of the ledger into the database; none if it shows all of them.

    Return None if the database cannot go on from there.
    """
    if checkpoint.standing(conn) != "ours":
        return None
    end = projected.ledger_end(conn)
    if checkpoint.log_number < end.log_number or checkpoint.mention_number < end.mention_number:
        changed, log_number = projected.changed_memories(conn, checkpoint.log_number, BATCH)
        naming, mention_number = projected.newly_naming_memories(conn, checkpoint.mention_number, BATCH)
        part = projected.part_of(conn, list(dict.fromkeys((*changed, *naming))))
        return [_Step(part, replace(checkpoint.moved_to(log_number, conn), mention_number=mention_number))]
    if checkpoint.edit_number < end.edit_number:
        edited = projected.edited_entities(conn, checkpoint.edit_number)
        memory_ids = projected.memories_of(conn, edited)
        batches = [memory_ids[start : start + BATCH] for start in range(0, len(memory_ids), BATCH)]
        steps = [_Step(projected.part_of(conn, batch), checkpoint) for batch in batches]
        return [*steps, _Step(projected.part_of(conn, [], edited), replace(checkpoint, edit_number=end.edit_number))]
    return []
