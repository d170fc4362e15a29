"""A language model that does not answer before it may, so that a call is under way for as long as a test needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from loopback import Chat, OpenAIServer, Reply
from tests.support.scripted_model import add_all, answering, is_extraction

FACTS = {"facts": [{"text": "Alice likes Darjeeling", "sources": [1]}]}

# Seconds to wait until the model is asked.
TIMEOUT = 60


@dataclass
class HeldModel:
    """A model that answers the requests that it `holds`, all by default, only when `may_answer` is set.

    If `held_model` runs it, `url` is its address, and `settings` are those of a server that uses it.
    """

    chat: Chat
    holds: Callable[[dict[str, Any]], bool] = lambda _request: True
    url: str = ""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    was_asked: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def extractions(self) -> int:
        """Return how many requests asked to extract facts."""
        return sum(map(is_extraction, self.requests))

    def __call__(self, request: dict[str, Any]) -> Reply | str:
        """Answer one request."""
        self.requests.append(request)
        if self.holds(request):
            self.was_asked.set()
            assert self.may_answer.wait(5 * TIMEOUT)
        return self.chat(request)

    async def wait(self) -> None:
        """Wait until the model holds a request."""
        assert await anyio.to_thread.run_sync(self.was_asked.wait, TIMEOUT)


@contextmanager
def held_model(chat: Chat, **settings: str) -> Generator[HeldModel]:
    """Run a model behind a loopback server until the block ends. `settings` are more settings of who uses it."""
    model = HeldModel(chat)
    with OpenAIServer(model) as server:
        model.url = server.base_url
        endpoint = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.url}
        model.settings |= {"PALIMPSEST_LLM__PROVIDER": "openai", **endpoint, **settings}
        try:
            yield model
        finally:
            model.may_answer.set()


def slow_model(reply: str = "") -> AbstractContextManager[HeldModel]:
    """Run a model that gives a reply, or extracts one fact and decides to add it, while the caller waits."""
    extract_and_add = answering(extract=lambda _: FACTS, decide=add_all)
    return held_model((lambda _: reply) if reply else extract_and_add, PALIMPSEST_LEARN__IN_BACKGROUND="false")
