"""The state that all connections of one server share."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from palimpsest.server.session.calls import Calls
from palimpsest.server.session.continuations import Continuations
from palimpsest.server.session.lazy_memory import LazyMemory
from palimpsest.server.session.progress import RunningCalls
from palimpsest.server.session.roots import Roots
from palimpsest.server.session.subscriptions import Subscribers
from palimpsest.server.wire.recall_socket import serve_prompts


@dataclass(frozen=True, slots=True)
class ServerState:
    """The open memory and everything else that outlives a single request.

    `client_project` is set only in the copy that a single request sees: the project of the access token, of the
    client's roots or of the settings, under its present name, or "".
    """

    memory: LazyMemory
    calls: Calls
    subscribers: Subscribers
    roots: Roots
    continuations: Continuations = field(default_factory=Continuations)
    running: RunningCalls = field(default_factory=RunningCalls)
    client_project: str = ""

    async def run(self) -> None:
        """Keep the memory open, unfinished calls going, and clients and hooks informed until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.memory.run)
            tasks.start_soon(self.continuations.run)
            tasks.start_soon(self.running.run)
            tasks.start_soon(serve_prompts, self.memory.settings, lambda: self.memory.opened)
