"""How exactly a memory knows since when it holds, or when something happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory import ALICE, messages_from
from tests.support.scripted_model import decision, decisions_reply, given, memory_with

pytestmark = pytest.mark.anyio

ROME, OSLO = "User lives in Rome.", "User lives in Oslo."


def learned(text: str, **rest: Any) -> str:
    return json.dumps({"facts": [{"text": text, "sources": [1], **rest}]})


def said(text: str, at: str) -> Any:
    return messages_from({"role": "user", "content": text, "at": f"{at}T10:00:00Z"})


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("valid_from", "since"),
    [
        ("2025", "2025"),
        ("2025-05", "2025-05"),
        ("2025-05-00", "2025-05"),
        ("2025-05-03", "2025-05-03"),
        ("since 2025", "2025"),
        ("May 2025", "2025-05"),
        ("seit Mai 2025", "2025-05"),
        ("last year", None),
        ("before 2025", None),
    ],
)
async def test_a_beginning_is_known_as_exactly_as_it_was_said(
    tmp_path: Path, valid_from: str, since: str | None
) -> None:
    """What it replaced held until then, and the next decision sees the same: a year is not its first of January."""
    replaces, same = decisions_reply(decision(0, "DELETE", 0)), decisions_reply(decision(0, "NONE", 0))
    replies = [learned(OSLO), learned(ROME, valid_from=valid_from), replaces, learned("User's home is in Rome."), same]
    async with memory_with(replies, tmp_path) as (memory, server):
        for text, at in (("Oslo", "2020-03-01"), ("Rome", "2026-01-05"), ("Rome", "2026-02-05")):
            await memory.add_messages(said(text, at))
        (hit,) = (await memory.list(ALICE, deleted=True)).hits
        oslo, _ = await memory.history(ALICE, hit.id)
    assert oslo.until == (since or "2026-01-05")
    first, second = server.chat_requests[2], server.chat_requests[4]
    (new,), (stored,), (rome,) = (
        given(first, "New facts"),
        given(first, "Stored memories"),
        given(second, "Stored memories"),
    )
    assert (new.get("since"), stored.get("since"), rome.get("since")) == (since, None, since)


async def test_a_month_stays_a_month(tmp_path: Path) -> None:
    """`2023-04` is shown and filtered as a month, and never as its first day."""
    reply = learned("User moved to Rome in April 2023.", happened_at="2023-04")
    april = {"gte": "2023-04-01", "lt": "2023-05-01"}
    async with memory_with([reply], tmp_path) as (memory, _):
        await memory.add_messages(said("I moved in April 2023", "2023-06-01"))
        (hit,) = (await memory.list(ALICE)).hits
        for at, count in (("2023-04", 1), (april, 1), ("2023-04-01", 0), ("2023", 1)):
            assert len((await memory.list(ALICE, filters={"at": at})).hits) == count, at
    assert hit.date == "2023-04"
