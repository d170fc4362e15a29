"""The page over a new memory, and browsers of those who may look at it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.page import READER, Browser, OpenPage, page_in


@pytest.fixture
async def page(tmp_path: Path) -> AsyncGenerator[OpenPage]:
    async with page_in(tmp_path) as opened:
        yield opened


@pytest.fixture
async def browser(page: OpenPage) -> AsyncGenerator[Browser]:
    """Open the browser of the owner."""
    async with page.browser() as client:
        yield client


@pytest.fixture
async def stranger(page: OpenPage) -> AsyncGenerator[Browser]:
    """Open a browser without a cookie."""
    async with page.browser(None) as client:
        yield client


@pytest.fixture
async def reader(page: OpenPage) -> AsyncGenerator[Browser]:
    """Open the browser of somebody who may only read."""
    async with page.browser(READER) as client:
        yield client


@pytest.fixture
async def gardener(page: OpenPage) -> AsyncGenerator[Browser]:
    """Open the browser of somebody who may see the project "garden" alone."""
    async with page.browser(Visitor(Grant("alice", project="garden"))) as client:
        yield client
