"""A key in the environment alone is not used any more: who may have relied on it is told, once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.mcp_client import reply_text
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

KEY = {"OPENAI_API_KEY": "key-of-another-program"}
NOTICE = "OPENAI_API_KEY is set in the environment, and by that alone no language model is asked"


def memory_of_an_earlier_version(folder: Path) -> None:
    """Leave a ledger in folder/data as an earlier version made it: without any notice in it."""
    palimpsest(folder, "add", "User likes tea")
    with closing(sqlite3.connect(folder / "data" / "ledger.db")) as conn, conn:
        conn.execute("DELETE FROM meta WHERE key LIKE 'told_%'")


async def test_the_first_reply_after_an_upgrade_says_it_and_no_other(tmp_path: Path) -> None:
    """Guards people whose key was used before, and their patience: two servers tell it once."""
    memory_of_an_earlier_version(tmp_path)
    async with connect(tmp_path, **KEY) as first, connect(tmp_path, **KEY) as second:
        replies = [
            reply_text(await client.call_tool("search_memories", {"query": "tea"}))
            for client in (first, second, first, second)
        ]
    assert [NOTICE in reply for reply in replies] == [True, False, False, False]
    assert "palimpsest setup" in replies[0]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    "settings", [{}, {**KEY, "PALIMPSEST_LLM__PROVIDER": "none"}, {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}], ids=str
)
async def test_who_lost_nothing_is_told_nothing(tmp_path: Path, settings: dict[str, str]) -> None:
    """Guards people without a key, and those whose settings already decide."""
    memory_of_an_earlier_version(tmp_path)
    async with connect(tmp_path, **settings) as client:
        assert "OPENAI" not in reply_text(await client.call_tool("search_memories", {"query": "tea"}))


async def test_a_new_memory_has_no_earlier_version_to_tell_of(tmp_path: Path) -> None:
    """Guards new people from news about what they never had."""
    async with connect(tmp_path, **KEY) as client:
        assert "OPENAI" not in reply_text(await client.call_tool("add_memory", {"text": "User likes tea"}))


def test_the_doctor_and_install_say_it(tmp_path: Path) -> None:
    """Guards people who look: the key in the environment, what it does not do, and how to turn it on."""
    findings = {finding["part"]: finding for finding in palimpsest_json(tmp_path, "doctor", settings=KEY)["findings"]}
    assert findings["model"]["ok"]
    installed = palimpsest(tmp_path, "install", "cursor", settings=KEY)
    for text in (findings["model"]["text"], installed):
        assert NOTICE in text
        assert KEY["OPENAI_API_KEY"] not in text
    assert "OPENAI" not in palimpsest(tmp_path, "install", "vscode")
