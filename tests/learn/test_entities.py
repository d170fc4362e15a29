"""Names that are surely one entity are merged in the background; a merge that is undone is not made again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from loopback import OpenAIServer
from palimpsest.core.models import Edit, Undo
from palimpsest.learn.background.entities import RESOLVE
from palimpsest.learn.background.same_entity import may_be_one, spelling
from palimpsest.memory import Memory
from palimpsest.store.graph.matching.name_vectors import names_without_vector
from palimpsest.store.graph.names import entities_named
from tests.learn.decisions import scripted
from tests.support.ledger_files import repeat_until
from tests.support.memory import ALICE, llm_settings, memory_in, messages_from

Told: TypeAlias = tuple[str, str, str]
"""A text, the entity that it names, and its type."""

KESTREL: Sequence[Told] = (
    ("The launch of Kestrel is in June.", "Kestrel", "project"),
    ("The Kestrel project launches in June.", "Kestrel project", "project"),
)
CAFES: Sequence[Told] = (
    ("User meets Ana at Café Luna.", "Café Luna", "organization"),
    ("The cake at Cafe Luna is good.", "Cafe Luna", "organization"),
)
TOMS: Sequence[Told] = (
    ("Tom Baker plays chess on Monday.", "Tom Baker", "person"),
    ("Tom Smith plays chess on Monday.", "Tom Smith", "person"),
)
PHONES: Sequence[Told] = (
    ("User has an iPhone 14.", "iPhone 14", "product"),
    ("User had an iPhone 15.", "iPhone 15", "product"),
)
OTHER_TYPE: Sequence[Told] = (
    ("User meets Ana at Café Luna.", "Café Luna", "organization"),
    ("User reads Cafe Luna.", "Cafe Luna", "document"),
)


@asynccontextmanager
async def memory_of(folder: Path, told: Sequence[Told], named: Sequence[Told] = ()) -> AsyncGenerator[Memory]:
    """Open a memory that works in the background and has learned these texts; the first one names `named` too."""
    replies = [_learned(*told[0], *named), *(_learned(*item) for item in told[1:])]
    with OpenAIServer(
        scripted(replies, lambda facts, _: [(item["fact"], "ADD", None, None) for item in facts])
    ) as server:
        llm, embedder = llm_settings(server.base_url), {"provider": "static"}
        async with memory_in(folder, background=True, llm=llm, embedder=embedder) as memory:
            for text, *_ in told:
                await memory.add_messages(messages_from(("user", text)))
            await compared(memory)
            yield memory


def _learned(text: str, name: str, kind: str, *named: Told) -> str:
    entities = [{"name": name, "type": kind}, *({"name": item[1], "type": item[2]} for item in named)]
    return json.dumps({"facts": [{"text": text, "sources": [1], "entities": entities}]})


async def compared(memory: Memory) -> None:
    """Wait until the background has compared every name."""

    def is_done() -> bool:
        with memory.engine.ledger.read() as conn:
            fingerprint = memory.engine.embedder.fingerprint
            return not names_without_vector(conn, fingerprint, 1, after=0, only_new=False)

    await repeat_until(is_done, memory.health)


def entities_of(memory: Memory, told: Sequence[Told]) -> set[str]:
    """Return the names of the entities that some texts name, as they are shown."""
    with memory.engine.ledger.read() as conn:
        named = entities_named(conn, ALICE, [name for _, name, _ in told])
    return {entity.name for found in named.values() for entity in found}


async def merges(memory: Memory) -> list[Edit]:
    return [edit for edit in await memory.log(ALICE) if edit.provenance.stage == RESOLVE]


@pytest.mark.anyio
@pytest.mark.parametrize("told", [KESTREL, CAFES], ids=["vector", "spelling"])
async def test_two_names_of_one_are_merged_and_an_undo_parts_them_for_good(
    tmp_path: Path, told: Sequence[Told]
) -> None:
    """The merge is an edit of its own in the log. Another embedder compares all names again, and leaves these apart."""
    async with memory_of(tmp_path, told) as memory:
        await _until_merged(memory)
        assert entities_of(memory, told) == {told[0][1]}
        (merge,) = await merges(memory)
        await memory.undo(ALICE, Undo(merge.number))
        assert entities_of(memory, told) == {name for _, name, _ in told}
    async with memory_in(tmp_path, background=True, embedder={"provider": "e5"}) as memory:
        await memory.add_text(ALICE, "The harbour of Rotterdam is large", infer=False)
        await compared(memory)
        assert entities_of(memory, told) == {name for _, name, _ in told}
        assert await merges(memory) == [merge]


async def _until_merged(memory: Memory) -> None:
    async def look() -> None:
        nonlocal found
        found = await merges(memory)

    found: list[Any] = []
    await repeat_until(lambda: bool(found), look)


@pytest.mark.anyio
@pytest.mark.parametrize("told", [TOMS, PHONES, OTHER_TYPE], ids=["persons", "numbers", "types"])
async def test_what_looks_alike_stays_two(tmp_path: Path, told: Sequence[Told]) -> None:
    async with memory_of(tmp_path, told) as memory:
        assert await merges(memory) == []
        assert entities_of(memory, told) == {name for _, name, _ in told}


@pytest.mark.anyio
async def test_two_that_one_memory_names_stay_two(tmp_path: Path) -> None:
    """Who speaks of both tells them apart."""
    async with memory_of(tmp_path, CAFES, named=CAFES[1:]) as memory:
        assert await merges(memory) == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Zürich", "Zurich", True),
        ("Siemens", "Siemens AG", True),
        ("Москва", "Moscow", True),
        ("Tom", "Tom Baker", True),
        ("Tom Baker", "Tom Smith", False),
        ("Anna", "Hanna", False),
        ("Berlin", "Bern", False),
        ("Postgres 14", "Postgres 16", False),
        ("class 8a", "class 8b", False),
        ("Frankfurt (Oder)", "Frankfurt am Main", False),
        ("王丽", "王莉", False),
    ],
)
def test_words_tell_names_apart(first: str, second: str, expected: bool) -> None:  # noqa: FBT001 - a parameter
    """Guards what vectors do not see: names that differ in a word or a number are two."""
    assert may_be_one(first, second) is may_be_one(second, first) is expected


def test_one_spelling_differs_in_accents_and_punctuation_only() -> None:
    assert spelling("Dr. José Alvarez") == spelling("Dr Jose Alvarez") is not None
    assert spelling("Siemens") != spelling("Siemens AG")
    assert spelling("はは") is spelling("ばば") is spelling("...") is None
