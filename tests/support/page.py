"""The page in the test's own process, over real HTTP messages, with a real memory behind it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx

from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.models import Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory
from palimpsest.page.page_context import Visitor, Visits
from palimpsest.page.page_server import page_app
from palimpsest.server.access_tokens import AccessTokenVerifier, Grant
from palimpsest.server.session.context import LazyMemory
from tests.support.memory import ALICE, StoppedClock
from tests.support.stores import ledger_settings

Browser: TypeAlias = httpx.AsyncClient

HOST = "http://127.0.0.1:8765"

# What a browser says of a write that the page itself sends.
OWN = {"origin": HOST, "sec-fetch-site": "same-origin"}

OWNER = Visitor(Grant("alice"), is_owner=True)
READER = Visitor(Grant("alice", read_only=True))


@dataclass(frozen=True)
class OpenPage:
    """The page, the memory behind it, and how to come in."""

    app: Any
    memory: Memory
    visits: Visits

    @asynccontextmanager
    async def browser(self, visitor: Visitor | None = OWNER, address: str = "127.0.0.1") -> AsyncGenerator[Browser]:
        """Return a browser at an address, with the cookie of a visitor or without one, whose writes are the page's."""
        transport = httpx.ASGITransport(self.app, client=(address, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url=HOST, headers=OWN) as client:
            if visitor is not None:
                entered = await client.get("/enter", params={"token": self.visits.invite(visitor)})
                assert (entered.status_code, entered.headers["location"]) == (303, "/")
            yield client

    async def stored(self, memory_id: str, scope: Scope = ALICE) -> StoredMemory:
        """Return a memory as it is stored."""
        memory = await self.memory.get(scope, memory_id)
        assert isinstance(memory, StoredMemory)
        return memory

    async def add(self, *texts: str, scope: Scope = ALICE, **rest: Any) -> list[str]:
        """Store memories and return their ids."""
        added = [await self.memory.add_text(scope, text, infer=False, **rest) for text in texts]
        return [result.outcomes[0].memory.id for result in added]


@asynccontextmanager
async def page_in(folder: Path, clock: StoppedClock | None = None, **chosen: Any) -> AsyncGenerator[OpenPage]:
    """Open the page over the memory of a folder, for visitors with single-use tokens and with access tokens."""
    clock = clock or StoppedClock()

    @cache
    def settings() -> Any:
        return load_settings(
            data_dir=folder,
            user_id="alice",
            llm={"provider": "none"},
            embedder={"provider": "static"},
            project="",
            **ledger_settings(folder),
            **chosen,
        )

    lazy = LazyMemory(settings, _tell_nobody, _tell_nobody)
    visits = Visits(clock, AccessTokenVerifier(settings().http, folder, clock))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lazy.run)
        app = page_app(lazy, visits)
        tasks.start_soon(app.state.care.run)
        yield OpenPage(app, await lazy.get(), visits)
        tasks.cancel_scope.cancel()


async def done(browser: Browser, path: str, form: Mapping[str, Any] | None = None, **sent: Any) -> httpx.Response:
    return await browser.post(path, data=form, follow_redirects=True, **sent)


def undo_paths(page: httpx.Response) -> Sequence[str]:
    """Return the paths that undo what a page shows."""
    return re.findall(r'action="(/edits/\d+/undo[^"]*)"', page.text)


async def _tell_nobody(changed: Sequence[object]) -> None:
    """Ignore what was learned, and what others have changed."""
