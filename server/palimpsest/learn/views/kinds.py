"""What a kind of summary is: what it is made from, by which prompt, when it is due, and its form without a model.

The kinds themselves stand in modules of their own, and `registry.py` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.models import Memory, Message, Scope
from palimpsest.text.tokenizer import count_tokens

MAX_SOURCE_TOKENS = 12_000
"""How many tokens of memories go into one prompt. Set by hand, to fit the context of small models."""

MAX_SOURCE_MEMORIES = 500
"""How many memories are read for a summary: 24 tokens each fill `MAX_SOURCE_TOKENS`."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Of which scope a summary is wanted, and when.

    `argument` is what follows the colon of the kind, such as a date. `embedder` is the fingerprint of the embedder
    whose vectors the ledger has.
    """

    scope: Scope
    argument: str
    now: datetime
    embedder: str


@dataclass(frozen=True, slots=True)
class Material:
    """What a model writes a summary from.

    `memories` is what the prompt calls memories: objects with at least `text` and `date`. `previous` is the last
    summary if it still holds. `sources` and `message_ids` are what the text will rest on, as in `Summary`; they include
    those of `messages`.
    """

    memories: tuple[Mapping[str, Any], ...] = ()
    messages: tuple[Message, ...] = ()
    previous: str = ""
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    message_ids: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to summarize."""
        return not self.memories and not self.messages


@dataclass(frozen=True, slots=True)
class PlainText:
    """The form of a summary that no model wrote. `of` says what it consists of, such as "memories"; "" if of nothing.

    `sources` are the memories that it shows, by id, with their revision.
    """

    text: str
    of: str
    sources: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class SummaryKind:
    """A kind of summary.

    `prompt` is the name of its prompt file, whose inputs are in `llm/views/summarize.py`. `argument` says what follows
    the colon, such as "DATE"; nothing if it is empty. The functions read the ledger and block: `material` returns what
    a model gets, and `plain` the form without a model. `is_due` says, by how many changes were made since the last one
    and the setting `summary.every`, whether the background writes it anew. With `ages` the text becomes outdated by
    time alone, so that a refresh always writes it again.
    """

    name: str
    prompt: str
    material: Callable[[Connection, SummaryRequest], Material]
    plain: Callable[[Connection, SummaryRequest], PlainText]
    is_due: Callable[[int, int], bool]
    argument: str = ""
    ages: bool = False


def after_changes(missed: int, every: int) -> bool:
    """Return whether a summary is due that is rewritten after every so many changes."""
    return missed >= every


def never(missed: int, every: int) -> bool:
    """Return False: a summary of this kind is written when it is asked for."""
    del missed, every
    return False


def memory_item(memory: Memory) -> Mapping[str, Any]:
    """Return a memory as prompts of summaries have it."""
    return {"text": memory.text, "date": memory.date}


def revisions(memories: Sequence[Memory]) -> dict[str, int]:
    """Return memories by id with their revision, as a summary stores what it rests on."""
    return {memory.id: memory.revision for memory in memories}


def fitting(memories: Sequence[Memory], budget: int = MAX_SOURCE_TOKENS) -> Sequence[Memory]:
    """Return the memories, from the first on, that fit a token budget; at least one."""
    for number, memory in enumerate(memories):
        budget -= count_tokens(memory.text)
        if budget < 0:
            return memories[: max(number, 1)]
    return memories
