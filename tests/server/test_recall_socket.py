"""The socket over which hooks ask a running server, with servers in processes of their own."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest

from palimpsest.hooks import spool
from palimpsest.text.tokenizer import count_tokens
from tests.support.http_server import connect_http, run_http_server
from tests.support.mcp_client import connect_stdio, reply_results
from tests.support.server_in_process import connect

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")]

PROMPT = "Which tea does the user like best?"
FACT = "User's favourite tea is Darjeeling"


def sockets(folder: Path) -> list[Path]:
    return sorted(Path(spool.sockets_dir(str(folder / "data"))).glob("*.sock"))


async def asked(path: Path, line: bytes | None = None, **fields: Any) -> dict[str, Any]:
    """Send one request and return the answer; an empty one if the server closes the connection."""
    request: dict[str, Any] = {"v": 1, "token": "", "user": "alice", "client": "claude-code", "session": "s1"}
    request |= {"cwd": "/", "shown": [], "prompt": PROMPT, **fields}
    async with await anyio.connect_unix(path) as connection:
        await connection.send(line or json.dumps(request).encode() + b"\n")
        answer = b""
        with anyio.fail_after(30), contextlib.suppress(anyio.EndOfStream):
            while not answer.endswith(b"\n"):
                answer += await connection.receive()
    return json.loads(answer or b"{}")


async def test_a_prompt_is_answered_with_what_answers_it(tmp_path: Path) -> None:
    """The answer is a block with the date and the short id; nothing else, nothing twice, and nothing to strangers."""
    async with connect(tmp_path, PALIMPSEST_LLM__PROVIDER="none") as client:
        (kept,) = reply_results(await client.call_tool("add_memory", {"text": FACT}))
        (path,) = sockets(tmp_path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        answer = await asked(path)
        assert answer["ids"] == [kept["id"]]
        assert answer["text"].startswith("<palimpsest-memory>\n")
        assert answer["text"].endswith("\n</palimpsest-memory>")
        assert f"[{kept['id'][:8]}] " in answer["text"]
        assert FACT in answer["text"]
        assert count_tokens(answer["text"]) <= 300
        nothing: dict[str, Any] = {"ids": [], "text": ""}
        assert await asked(path, shown=[kept["id"]]) == nothing
        assert await asked(path, prompt=f"Note: {FACT}.") == nothing
        assert await asked(path, prompt="How do I sort a list in Haskell?") == nothing
        assert await asked(path, user="bob") == {**nothing, "is_ready": False}
        assert await asked(path, user="") == answer
        async with await anyio.connect_unix(path) as hung:
            await hung.send(b'{"v": 1, ')
            for line in (
                b"\n",
                b"[]\n",
                b"nonsense\n",
                b"[" * 9_000 + b"\n",
                b'{"v": 2}\n',
                b'{"v": 1, "prompt": 7}\n',
            ):
                assert (await asked(path, line)).get("text") == ""
            assert (await asked(path, shown=[1, None], cwd=5, session=[]))["text"] != ""
    assert sockets(tmp_path) == []


@pytest.mark.nightly
async def test_a_killed_servers_socket_is_removed_by_the_next(tmp_path: Path) -> None:
    async with connect_stdio(tmp_path, PALIMPSEST_LLM__PROVIDER="none") as living:
        await living.call_tool("add_memory", {"text": FACT})
        (kept,) = sockets(tmp_path)
        with run_http_server(tmp_path) as server:
            async with connect_http(server, "auto") as client:
                await client.call_tool("list_memories", {})
            (left,) = set(sockets(tmp_path)) - {kept}
            server.process.send_signal(signal.SIGKILL)
        assert left in sockets(tmp_path)
        foreign = left.with_name("a-file.sock")
        foreign.write_text("not a socket")
        async with connect_stdio(tmp_path, PALIMPSEST_LLM__PROVIDER="none") as client:
            await client.call_tool("list_memories", {})
            remaining = sockets(tmp_path)
            assert left not in remaining
            assert {kept, foreign} < set(remaining)
            for path in set(remaining) - {foreign}:
                assert FACT in (await asked(path))["text"]
