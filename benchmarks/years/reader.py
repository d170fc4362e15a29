"""A scripted language model that reads well and writes little.

It finds each fact in what she said, knows which facts contradict each other, and writes summaries from nothing but the
sentences in its prompt: the newest of each matter, what lasts before what passes, within `WRITTEN_TOKENS`. So what is
missing in its texts was missing in its prompts, or had no room.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from cases.endpoint import stage_of
from palimpsest.text.tokenizer import count_tokens
from years.person import Person, Told

WRITTEN_TOKENS = 600
"""How much the model writes at most. Set by hand: about what a model writes that is asked to be short."""

GIST_WORDS = 30
"""How many words the gist of a page has. Set by hand: the first sentences."""

SECTIONS = ("help", "identity", "people", "work", "home", "preferences")
"""In which order the model keeps what lasts, if not all of it has room."""


class Reader:
    """A chat function for `OpenAIServer`. `calls` and `tokens` count by stage."""

    def __init__(self, person: Person) -> None:
        self.calls: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._person = person
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> str:
        """Return the reply to a request."""
        stage, text = _stage(request), "\n".join(str(message["content"]) for message in request["messages"])
        with self._lock:
            self.calls[stage] += 1
            self.tokens[stage] += count_tokens(text)
        user = str(request["messages"][-1]["content"])
        if stage == "extract":
            return json.dumps({"facts": self._facts(user)})
        if stage == "decide":
            return json.dumps({"decisions": self._decisions(user)})
        if stage == "links":
            return json.dumps({"notes": _notes(user)})
        if stage == "gist":
            return json.dumps({"gist": " ".join(user.split("Page: ", 1)[1].split()[:GIST_WORDS])})
        return json.dumps({"summary": " ".join(told.text for told in self._kept(user))})

    @property
    def background_calls(self) -> int:
        """How many calls made something of what is known already, and are in the budget of a day."""
        return sum(self.calls[stage] for stage in ("summarize", "links", "gist"))

    def _facts(self, text: str) -> list[dict[str, Any]]:
        new = text.split("New messages: ", 1)[1]
        messages = cast("list[dict[str, Any]]", json.loads(new.splitlines()[0]))
        said = {told.said: told for told in self._person.all_told}
        return [
            {"text": said[message["text"]].text, "sources": [message["number"]]}
            for message in messages
            if message["text"] in said
        ]

    def _decisions(self, text: str) -> list[dict[str, Any]]:
        facts, memories = text.removeprefix("New facts: ").split("\n\nStored memories: ")
        decisions: list[dict[str, Any]] = []
        for fact in cast("list[dict[str, Any]]", json.loads(facts)):
            matter = self._person.matter_of(fact["text"])
            old = [
                memory["id"]
                for memory in cast("list[dict[str, Any]]", json.loads(memories))
                if "new" not in memory and matter is not None and memory["text"] in {told.text for told in matter.told}
            ]
            made = [{"fact": fact["fact"], "event": "DELETE", "memory": each, "text": fact["text"]} for each in old]
            decisions += made or [{"fact": fact["fact"], "event": "ADD", "memory": None, "text": None}]
        return decisions

    def _kept(self, text: str) -> Sequence[Told]:
        """Return the sentences of a prompt that a summary keeps."""
        lasting = [
            (matter.section, max((told for told in matter.told if told.text in text), key=lambda told: told.on))
            for matter in self._person.matters
            if any(told.text in text for told in matter.told)
        ]
        passing = sorted((t for t in self._person.passing if t.text in text), key=lambda told: told.on, reverse=True)
        kept: list[Told] = []
        room = WRITTEN_TOKENS
        for told in [*(told for _, told in sorted(lasting, key=lambda item: SECTIONS.index(item[0]))), *passing]:
            room -= count_tokens(told.text)
            if room < 0:
                break
            kept.append(told)
        return kept


def _stage(request: dict[str, Any]) -> str:
    """Return which stage a request comes from, with those of the background."""
    user = str(request["messages"][-1]["content"])
    return {"Memories:": "links", "Document:": "gist"}.get(user.split(maxsplit=1)[0], stage_of(request))


def _notes(text: str) -> list[dict[str, Any]]:
    """Return a note on each new memory, without links."""
    memories = cast("list[dict[str, Any]]", json.loads(text.removeprefix("Memories: ").splitlines()[0]))
    new = [memory for memory in memories if "near" in memory]
    return [{"memory": memory["id"], "context": "Her life this year.", "tags": [], "links": []} for memory in new]
