"""A reranker orders the first candidates anew; if it fails, the order stays and a note says so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import load_settings
from palimpsest.recall.search import RERANKED, SearchResult
from tests.support.memory import ALICE, memory_in
from tests.support.model_hub import QuietServer

pytestmark = pytest.mark.anyio

QUESTION = "what does Anna think of coffee"
FAVOURITE = "Anna says number 7 of coffee is the best"


@contextmanager
def endpoint(answer: Callable[[dict[str, Any]], Any]) -> Generator[tuple[str, list[dict[str, Any]]]]:
    """Serve `/rerank` on loopback; an answer that is a number is a status. Give the URL and the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
            reply = answer(body)
            content = b"" if isinstance(reply, int) else json.dumps(reply).encode()
            self.send_response(reply if isinstance(reply, int) else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base class
            pass

    server = QuietServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def judged(body: dict[str, Any]) -> dict[str, Any]:
    """Prefer one text to all others, which are judged alike; the reply is ordered by score, as those of vendors are."""
    scores = [(float(text == FAVOURITE), index) for index, text in enumerate(body["documents"])]
    return {"results": [{"index": index, "relevance_score": score} for score, index in sorted(scores, reverse=True)]}


async def found(folder: Path, count: int, **config: Any) -> SearchResult:
    """Return what a search of a memory of so many texts finds with a reranker, or without one."""
    reranker = {"provider": "endpoint", "config": config} if config else {}
    async with memory_in(folder, embedder={"provider": "static"}, reranker=reranker) as memory:
        if not (await memory.search(ALICE, QUESTION, is_use=False)).hits:
            for number in range(count):
                text = FAVOURITE if number == 7 else f"Anna thinks of coffee as number {number} of her drinks"
                await memory.add_text(ALICE, text)
        return await memory.search(ALICE, QUESTION, limit=30, max_tokens=4_000, explain=True)


async def test_the_first_twenty_are_asked_about_and_ordered_anew(tmp_path: Path) -> None:
    """Texts that it does not tell apart keep our order."""
    before = [hit.text for hit in (await found(tmp_path, 25)).hits]
    assert 0 < before.index(FAVOURITE) < RERANKED
    with endpoint(judged) as (url, requests):
        result = await found(tmp_path, 25, base_url=url, model="judge", api_key="a-key")
    texts, scores = [hit.text for hit in result.hits], [hit.score for hit in result.hits]
    assert texts == [FAVOURITE, *(text for text in before if text != FAVOURITE)]
    assert result.hits[0].score_parts["reranker"] > 0
    assert scores == sorted(scores, reverse=True)
    assert not result.notes
    _, request = requests  # one for each search
    assert (request["path"], request["key"], request["model"]) == ("/v1/rerank", "Bearer a-key", "judge")
    assert (request["query"], request["top_n"]) == (QUESTION, RERANKED)
    assert request["documents"] == before[:RERANKED]


FAILURES: tuple[tuple[Callable[[dict[str, Any]], Any], str], ...] = (
    (lambda _: 503, "503"),
    (lambda _: {"results": []}, "not in Cohere's format"),
    (lambda body: {"results": [{"index": n, "relevance_score": "NaN"} for n in range(body["top_n"])]}, "no numbers"),
    (lambda _: time.sleep(0.3), "timed out"),
)


async def test_a_reranker_that_fails_leaves_the_order_and_says_so(tmp_path: Path) -> None:
    """A search must not fail because something optional does."""
    before = await found(tmp_path, 8)
    for answer, reason in FAILURES:
        with endpoint(answer) as (url, _):
            result = await found(tmp_path, 8, base_url=url, api_key="a-key", timeout=0.1)
        (note,) = result.notes
        assert note.startswith("not reranked: ")
        assert reason in note
        assert "a-key" not in note
        assert [hit.text for hit in result.hits] == [hit.text for hit in before.hits]
        assert [hit.score for hit in result.hits] == [hit.score for hit in before.hits]


async def test_a_reranker_needs_a_place(tmp_path: Path) -> None:
    """A memory opens without its reranker, because all else works; the search says what is missing."""
    for provider, setting in (("onnx", "folder"), ("endpoint", "base_url")):
        with pytest.raises(SettingsError, match=f"needs reranker.config.{setting}"):
            load_settings(data_dir=tmp_path, reranker={"provider": provider})
    chosen = {"provider": "onnx", "config": {"folder": str(tmp_path / "nothing")}}
    async with memory_in(tmp_path / "data", reranker=chosen) as memory:
        await memory.add_text(ALICE, "Anna drinks coffee")
        await memory.add_text(ALICE, "Anna drinks tea")
        (note,) = (await memory.search(ALICE, QUESTION)).notes
    assert "reranker.config.folder" in note
