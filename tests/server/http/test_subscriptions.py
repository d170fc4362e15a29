"""Which changes a client with an access token hears of."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ResourceUpdatedNotification

from tests.support.http_server import TIMEOUT, HttpServer, connect_http, new_access_token
from tests.support.mcp_client import reply_results, subscribe

pytestmark = pytest.mark.anyio

LISTS = ["memory://recent", "memory://summary"]


async def added(client: Client, text: str, project: str) -> str:
    """Add a memory to a project, or for all projects with "", and return its id."""
    result = await client.call_tool("add_memory", {"text": text, "scope": {"project": project}})
    return reply_results(result)[0]["id"]


@asynccontextmanager
async def subscribed(
    server: HttpServer, how: str, bearer: str, uris: list[str], until: str
) -> AsyncGenerator[tuple[list[str], anyio.Event]]:
    """Subscribe to resources. Give the list of URIs heard of so far, and the event of hearing of `until`."""
    heard: list[str] = []
    is_done = anyio.Event()

    def hear(uri: str) -> None:
        heard.append(uri)
        if uri == until:
            is_done.set()

    async def record(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            hear(str(message.params.uri))

    if how == "legacy":
        async with connect_http(server, how, bearer, message_handler=record) as client:
            for uri in uris:
                await subscribe(client, uri)
            yield heard, is_done
        return

    async def listen(events: Any) -> None:
        async for event in events:
            hear(str(event.uri))

    async with (
        connect_http(server, how, bearer) as client,
        client.listen(resource_subscriptions=uris) as events,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listen, events)
        yield heard, is_done
        tasks.cancel_scope.cancel()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("how", ["legacy", "auto"])
async def test_changes_of_another_user_or_project_are_not_announced(protected_server: HttpServer, how: str) -> None:
    """Guards even the fact that something was stored elsewhere, from who follows the lists or knows an id."""
    user = f"bob by {how}"
    tokens = [(user, "atlas"), (user, ""), (f"erik by {how}", "")]
    atlas, all_projects, erik = (new_access_token(protected_server.data, *token) for token in tokens)
    async with (
        connect_http(protected_server, how, all_projects) as writer,
        connect_http(protected_server, how, erik) as other,
    ):
        await added(writer, "It is there from the start", "atlas")
        foreign = await added(other, "They live in a house", "")
        uris = [*LISTS, f"memory://{foreign}"]
        async with subscribed(protected_server, how, atlas, uris, "memory://summary") as (heard, has_heard):
            await added(writer, "Bob builds another boat", "other")
            await other.call_tool("update_memory", {"memory_id": foreign, "text": "They moved"})
            async with connect_http(protected_server, how, atlas) as reader:  # answered after what was announced
                await reader.list_tools()
            assert heard == []
            with anyio.fail_after(TIMEOUT):
                await added(writer, "Atlas is written in Rust", "atlas")
                await has_heard.wait()
    assert set(heard) == set(LISTS)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("how", ["legacy", "auto"])
async def test_a_shared_memory_that_a_project_replaces_is_announced_to_all_projects(
    protected_server: HttpServer, how: str
) -> None:
    """Guards subscribers from believing a memory that was replaced where they do not look."""
    user = f"carol by {how}"
    atlas, other = (
        new_access_token(protected_server.data, user, project, with_general=True) for project in ("atlas", "other")
    )
    async with connect_http(protected_server, how, new_access_token(protected_server.data, user)) as writer:
        shared = f"memory://{await added(writer, 'Carol lives in Rome', '')}"
        async with (
            subscribed(protected_server, how, other, [shared, *LISTS], shared) as (heard, has_heard),
            connect_http(protected_server, how, atlas) as project_writer,
        ):
            with anyio.fail_after(TIMEOUT):
                new = {"text": "Carol lives in Oslo", "replaces": [shared.removeprefix("memory://")]}
                reply_results(await project_writer.call_tool("add_memory", new))
                await has_heard.wait()
    assert set(heard) == {shared, *LISTS}
