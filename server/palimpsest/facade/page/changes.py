"""Whether something of a user has changed, in this process or another one."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from palimpsest.learn.engine import Engine
from palimpsest.store.queries import index_log as queries


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the index log: its newest number and epoch, and whether something of the user is new since the last."""

    number: int
    epoch: str
    is_new: bool = False


class Changes:
    """What changes in the memory of one user. Every method raises LedgerError."""

    def __init__(self, engine: Engine, user_id: str) -> None:
        self._engine = engine
        self._user_id = user_id

    async def look(self, last: Look | None = None) -> Look:
        """Look at what the index log says now. A ledger that was restored or purged in between is new as a whole."""

        def read(conn: Connection) -> Look:
            number, epoch = queries.newest_log_number(conn), queries.epoch(conn)
            if last is None:
                return Look(number, epoch)
            if epoch != last.epoch or number < last.number:
                return Look(number, epoch, is_new=True)
            is_new = number > last.number and queries.has_changed_since(conn, self._user_id, last.number)
            return Look(number, epoch, is_new)

        return await self._engine.read(read)
