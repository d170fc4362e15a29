"""A stand-in for the hub of models, on loopback, and a catalogue of the tiny models that it serves."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.onnx_model import make_model, make_reranker

REVISION = "0123456789abcdef0123456789abcdef01234567"
MODEL = "onnx/model_quantized.onnx"

MODELS = """
[tiny-embedder]
kind = "embedder"
repository = "people/tiny-embedder"
revision = "{revision}"
licence = "Strict"
terms = "https://example.org/terms"
languages = "1"
dimensions = 6
pooling = "cls"
query_prefix = "query: "
passage_prefix = "passage: "

[tiny-reranker]
kind = "reranker"
repository = "people/tiny-reranker"
revision = "{revision}"
licence = "MIT"
languages = "1"
"""


@dataclass
class ModelHub:
    """The hub: its files by their paths in its URL, and what it was asked for.

    With `cuts` it ends the next answer in the middle and then refuses until it is healed.
    """

    folder: Path
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    requests: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    endpoint: str = ""
    cuts: str = ""

    @property
    def catalogue(self) -> Path:
        """Return the file of the catalogue."""
        return self.folder / "hub_models.toml"

    def path_of(self, name: str, file: str = MODEL) -> str:
        """Return the path of a model's file."""
        return f"/people/{name}/resolve/{REVISION}/{file}"

    def got(self) -> list[tuple[str, str]]:
        """Return the files that were downloaded, each with the range that was asked for, and forget them."""
        got = [(path.rsplit("/", 1)[1], asked) for method, path, asked in self.requests if method == "GET"]
        self.requests.clear()
        return got


class QuietServer(ThreadingHTTPServer):
    """A server that prints nothing if a client waits no longer."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it."""


@contextmanager
def model_hub(folder: Path) -> Generator[ModelHub]:
    """Serve a tiny embedder and a tiny reranker until the block ends."""
    hub = ModelHub(folder)
    text = MODELS.format(revision=REVISION)
    for name, make in (("tiny-embedder", make_model), ("tiny-reranker", make_reranker)):
        make(folder / name, model=MODEL)
        lines = f'["{name}".files]\n'
        for file in (MODEL, "tokenizer.json"):
            content = (folder / name / file).read_bytes()
            hub.files[hub.path_of(name, file)] = content
            lines += f'"{file}" = {{ sha256 = "{hashlib.sha256(content).hexdigest()}", size = {len(content)} }}\n'
        text = text.replace(f"[{name}]", f"{lines}[{name}]")
    hub.catalogue.write_text(text, "utf-8")
    server = QuietServer(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: ModelHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            asked = self.headers.get("Range", "")
            hub.requests.append((self.command, self.path, asked))
            content = hub.files.get(self.path)
            if content is None or hub.cuts == "refuses":
                self.send_response(404 if content is None else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.end_headers()
            if self.command == "GET":
                body = content[start:]
                if hub.cuts == "once":
                    hub.cuts, body = "refuses", body[: len(body) // 2]
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of its base class
            pass

    return Handler
