"""What answers the model calls of a case: its script, or a real endpoint. Either way the calls are counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import httpx

from cases.data import Rule, Script
from cases.words import has_words
from loopback import Chat, Reply
from palimpsest.text.tokenizer import count_tokens

CUT_CHARS = 25
"""How much of the end of a reply is missing if the script says that it is cut off."""

TIMEOUT = 600.0
"""How many seconds a real model may take for one reply: a small model without a graphics card takes minutes."""

Items: TypeAlias = list[dict[str, Any]]

_NO_RETRY = {"x-should-retry": "false"}


@dataclass(frozen=True)
class ModelCall:
    """One call of the model: its stage, how long its prompt was, and whether the endpoint itself counted the tokens."""

    stage: str
    prompt_tokens: int
    is_endpoints_count: bool


class Endpoint:
    """A chat function for `OpenAIServer` that passes each request to another one and records the call."""

    def __init__(self, chat: Chat) -> None:
        self.calls: list[ModelCall] = []
        self._chat = chat
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> Reply | str:
        """Return the reply to a request."""
        reply = self._chat(request)
        usage = _usage(reply)
        counted = sum(count_tokens(str(message["content"])) for message in request["messages"])
        with self._lock:
            self.calls.append(ModelCall(stage_of(request), usage or counted, usage is not None))
        return reply


def stage_of(request: dict[str, Any]) -> str:
    """Return which stage of the pipeline a request comes from."""
    user = _user_part(request)
    if "New messages: " in user:
        return "extract"
    return "decide" if user.startswith("New facts: ") else "summarize"


def scripted(script: Script) -> Chat:
    """Return a chat function that replies as a script says."""
    extractions, summaries = iter(script.extract), iter(script.summaries)

    def chat(request: dict[str, Any]) -> Reply | str:
        stage = stage_of(request)
        if stage == "decide":
            facts, memories = _shown(request)
            decisions = _decisions(facts, memories, script.decide)
            form = _mem0_items(decisions, facts, memories) if script.as_mem0 else decisions
            return json.dumps({"memory" if script.as_mem0 else "decisions": form})
        replies: Iterator[Any] = extractions if stage == "extract" else summaries
        reply = next(replies, None)
        if reply is None:
            return Reply(f"The script has no reply to this {stage} call.", status=500, headers=_NO_RETRY)
        if stage == "summarize":
            return json.dumps({"summary": reply})
        text = json.dumps(reply, ensure_ascii=False)
        return Reply(text[:-CUT_CHARS], finish_reason="length") if script.cut else text

    return chat


def forwarded(base_url: str, api_key: str) -> Chat:
    """Return a chat function that asks a real endpoint."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    url = f"{base_url.rstrip('/')}/chat/completions"

    def chat(request: dict[str, Any]) -> Reply:
        try:
            response = httpx.post(url, json=request, headers=headers, timeout=TIMEOUT)
        except httpx.HTTPError as error:
            return Reply(f"{url} cannot be reached: {error}", status=502, headers=_NO_RETRY)
        return Reply(status=response.status_code, body=response.content)

    return chat


def _shown(request: dict[str, Any]) -> tuple[Items, Items]:
    """Return the facts and the memories that a decide call shows."""
    facts, memories = _user_part(request).removeprefix("New facts: ").split("\n\nStored memories: ")
    return cast("Items", json.loads(facts)), cast("Items", json.loads(memories))


def _mem0_items(decisions: Items, facts: Items, memories: Items) -> Items:
    """Return decisions in Mem0's form: every memory with its text and event, and the new memories."""
    made = {decision["memory"]: decision for decision in decisions if decision["memory"] is not None}
    stay = {"event": "NONE", "text": None}
    items = [
        {"id": str(memory["id"]), "event": decision["event"], "text": decision["text"] or memory["text"]}
        for memory in memories
        if "new" not in memory and "message" not in memory
        for decision in (made.get(memory["id"], stay),)
    ]
    texts = {fact["fact"]: fact["text"] for fact in facts if "text" in fact}
    new = [texts[decision["fact"]] for decision in decisions if decision["event"] == "ADD"]
    return [
        *items,
        *({"id": str(len(memories) + number), "event": "ADD", "text": text} for number, text in enumerate(new)),
    ]


def _decisions(facts: Items, memories: Items, rules: tuple[Rule, ...]) -> Items:
    decisions: Items = []
    for fact in facts:
        made = [decision for rule in rules for decision in _by_rule(rule, fact, memories)]
        default = {"fact": fact["fact"], "event": "NONE" if "forget" in fact else "ADD", "memory": None, "text": None}
        decisions += made or [default]
    return decisions


def _by_rule(rule: Rule, fact: dict[str, Any], memories: Items) -> Iterator[dict[str, Any]]:
    if not has_words(fact.get("text") or fact["forget"], rule.fact):
        return
    made = {"fact": fact["fact"], "event": rule.event, "text": rule.text}
    if not rule.memory:
        yield made | {"memory": None}
    for memory in memories:
        if rule.memory and memory.get("new") != f"fact {fact['fact']}" and has_words(memory["text"], rule.memory):
            yield made | {"memory": memory["id"]}


def _user_part(request: dict[str, Any]) -> str:
    return str(request["messages"][1]["content"])


def _usage(reply: Reply | str) -> int | None:
    """Return how many prompt tokens a real endpoint counted, or None if the reply does not say."""
    if isinstance(reply, str) or reply.body is None:
        return None
    try:
        tokens = json.loads(reply.body)["usage"]["prompt_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return tokens if isinstance(tokens, int) else None
