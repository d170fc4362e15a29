"""A language model that waits, so that a call is under way for as long as a test needs it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loopback import OpenAIServer

FACTS = json.dumps({"facts": [{"text": "Alice likes Darjeeling", "sources": [1]}]})
ADD = json.dumps({"decisions": [{"fact": 0, "event": "ADD"}]})


@dataclass
class SlowModel:
    """A model that signals when it is asked, and answers when `may_answer` is set."""

    url: str = ""
    was_asked: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings with which a server uses this model."""
        return {
            "PALIMPSEST_LLM__PROVIDER": "openai",
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": self.url,
            "PALIMPSEST_LEARN__IN_BACKGROUND": "false",
        }


@contextmanager
def slow_model(reply: str = "") -> Generator[SlowModel]:
    """Run a model that gives a reply, or extracts one fact and decides to add it."""
    model = SlowModel()

    def answer(request: dict[str, Any]) -> str:
        model.was_asked.set()
        model.may_answer.wait()
        return reply or (ADD if "decisions" in json.dumps(request["messages"][0]) else FACTS)

    with OpenAIServer(answer) as server:
        model.url = server.base_url
        try:
            yield model
        finally:
            model.may_answer.set()
