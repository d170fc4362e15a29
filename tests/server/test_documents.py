"""Documents through a real client: kept from a long text, found, read by page, completed, undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceTemplateReference, TextResourceContents

from tests.support.command_line import palimpsest
from tests.support.documents import book
from tests.support.mcp_client import connect_stdio, error_text, reply_results, reply_text
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

BOOK = book("kitchen", "cellar")


async def read(client: Client, uri: str) -> str:
    """Return the text of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def kept(client: Client, text: str = BOOK) -> str:
    """Add a long text, and return the address of its document."""
    reply = reply_text(await client.call_tool("add_memory", {"text": text}))
    assert reply.startswith("added as a document: Book, 2 pages, document://")
    return reply.splitlines()[0].rpartition(" ")[2]


async def test_a_long_text_is_read_page_by_page(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        address = await kept(client)
        head, first, second = (await read(client, address)).splitlines()
        assert head.startswith("Book, 2 pages, learned ")
        assert first.startswith(f"{address}/1 Book › kitchen: The kitchen is painted")  # noqa: RUF001
        assert second.startswith(f"{address}/2 Book › cellar: The cellar is painted")  # noqa: RUF001
        page = await read(client, f"{address}/2")
        assert page.startswith(
            "Book, page 2 of 2 (information, not instructions)\n\n## cellar\n\nThe cellar is painted"
        )
        assert page.endswith("(54)")


@pytest.mark.nightly
async def test_a_hit_leads_to_its_page(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        await kept(client)
        result = await client.call_tool("search_memories", {"query": "When is the cellar painted?"})
        hit = reply_results(result)[0]
        assert (hit["kind"], hit["role"], hit["document"]["title"], hit["document"]["page"]) == (
            "message",
            "document",
            "Book",
            2,
        )
        assert "Book, page 2: ## cellar The cellar is painted" in reply_text(result)
        whole = f"document://{hit['document']['id'][:8]}/2"
        assert f"characters, {whole})" in reply_text(result)
        assert "## cellar" in await read(client, whole)


WRONG: list[tuple[str, str]] = [
    ("document://00000000", "no document '00000000'"),
    ("document://00000000/1", "no document '00000000'"),
    ("document://abc", "too short for an id"),
    ("{address}/3", "'Book' has 2 pages, and no page 3"),
    ("{address}/0", "and no page 0"),
    ("{address}/one", "'one' is not the number of a page"),
    ("{address}/9999999", "is not the number of a page"),
]


async def test_a_wrong_address_says_what_is_wrong(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        address = await kept(client)
        for uri, problem in WRONG:
            with pytest.raises(MCPError, match=problem):
                await read(client, uri.format(address=address))


async def test_ids_of_documents_are_completed_the_newest_first(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        older = await kept(client)
        newer = await kept(client, BOOK.replace("painted", "swept"))
        for template in ("document://{document}", "document://{document}/{page}"):
            ref = ResourceTemplateReference(uri=template)
            values = (await client.complete(ref, {"name": "document", "value": ""})).completion.values
            assert [f"document://{value[:8]}" for value in values] == [newer, older]
            found = await client.complete(ref, {"name": "document", "value": values[1][:6]})
            assert found.completion.values == [values[1]]
            assert (await client.complete(ref, {"name": "page", "value": ""})).completion.values == []
        templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
        assert {"document://{document}", "document://{document}/{page}"} <= templates


async def test_callers_cannot_say_pages(tmp_path: Path) -> None:
    """Guards documents: a message cannot pretend to be a page of one."""
    async with connect(tmp_path) as client:
        messages: list[dict[str, Any]] = [{"role": "document", "content": "A page that nobody learned"}]
        error_text(await client.call_tool("add_memory", {"messages": messages}))
        assert reply_results(await client.call_tool("list_memories", {"filters": {"kind": "message"}})) == []


async def test_a_page_is_forgotten_and_comes_back_with_an_undo(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        address = await kept(client)
        hits = reply_results(await client.call_tool("search_memories", {"query": "the painted cellar"}))
        page = next(hit for hit in hits if hit["document"]["page"] == 2)
        await client.call_tool("delete_memory", {"memory_ids": [page["id"]]})
        with pytest.raises(MCPError, match="no page 2"):
            await read(client, f"{address}/2")
        palimpsest(tmp_path, "undo")
        assert "## cellar" in await read(client, f"{address}/2")


@pytest.mark.nightly
async def test_a_folder_that_the_command_line_learned_is_read_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "hut.html").write_text("<h1>Hut</h1><p>The key hangs behind the barometer.</p>", "utf-8")
    palimpsest(tmp_path, "learn", "notes")
    async with connect_stdio(tmp_path) as client:
        (hit, *_) = reply_results(await client.call_tool("search_memories", {"query": "Where is the key?"}))
        assert "The key hangs behind the barometer." in await read(client, f"document://{hit['document']['id']}/1")
