"""The kinds profile, project and procedures: with a model by their prompts, without one the memories in sections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Scope
from palimpsest.hooks.events import find_brief
from palimpsest.memory import Memory
from tests.support.memory import ALICE, add_text, memory_in
from tests.support.scripted_model import given, memory_with, summary_reply

pytestmark = pytest.mark.anyio

SHOP = Scope("alice", "tea-shop")
PROFILE = "Identity: Alice Vance, 34, of Leeds.\nPeople: Her sister is Clara.\nHow to help: Short answers."
TABLES = json.loads(Path(__file__).with_name("portraits.json").read_text("utf-8"))


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of a portrait by their headings."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("- "):
            found[next(reversed(found))].append(line[2:])
        elif line.endswith(":"):
            found[line[:-1]] = []
    return found


async def portrait(memory: Memory, kind: str, scope: Scope = ALICE) -> str:
    return (await memory.summary(scope, kind)).text


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
async def test_without_a_model_each_memory_stands_where_it_belongs(tmp_path: Path, table: dict[str, Any]) -> None:
    scope, texts = SHOP if table["kind"] == "project" else ALICE, table["texts"]
    async with memory_in(tmp_path) as memory:
        if "pinned" in table:
            await add_text(memory, table["pinned"], metadata={"pinned": True})
        for text in texts:
            await memory.add_text(scope, text, infer=False)
        result = await memory.summary(scope, table["kind"])
        shown = {text: heading for heading, lines in sections(result.text).items() for text in lines}
        overall = await portrait(memory, "overall")
    assert {text: shown.get(text, "") for text in texts} == texts
    assert result.text.startswith(table.get("begins", ""))
    assert any("no language model" in note for note in result.notes) or not any(texts.values())
    if "pinned" in table:  # who the user is comes first, whatever came later
        assert sections(result.text)["Identity"][0] == "User's name is Imogen Hartley"
        lines = [line.partition(" ")[2] for line in overall.split("\n\n")[1].splitlines()]
        first = ("User's name is", "User is allergic to penicillin", "User works as", "User was born on")
        assert all(text in line for text, line in zip(first, lines, strict=False))
        assert overall.count("commit messages") == 1


async def test_a_profile_is_of_one_person(tmp_path: Path) -> None:
    texts = {
        "User's name is Imogen Hartley": "Identity",
        "Ben Ortega is allergic to penicillin.": "People",
        "Ben Ortega prefers short answers.": "People",
        "Ben Ortega works as a nurse in Leeds.": "People",
        "Imogen works as a baker in Bath.": "Work",
    }
    async with memory_in(tmp_path) as memory:
        for text in texts:
            await add_text(memory, text)
        found = sections(await portrait(memory, "profile"))
    assert {text: heading for heading, lines in found.items() for text in lines} == texts
    async with memory_with([summary_reply(PROFILE)], tmp_path) as (memory, server):
        await memory.summary(ALICE, "profile")
    about = {item["text"]: item.get("about", "") for item in given(server.chat_requests[0], "Memories")}
    assert given(server.chat_requests[0], "Portrait of") == "Imogen Hartley"
    assert about["Ben Ortega is allergic to penicillin."] == "Ben Ortega"
    assert about["Imogen works as a baker in Bath."] == about["User's name is Imogen Hartley"] == ""


async def test_a_profile_by_a_model_heads_sessions_after_the_pinned_block_until_it_is_stale(tmp_path: Path) -> None:
    async def begun() -> tuple[str, str]:
        """Return what a session begins with: the brief and the instructions."""
        await memory.briefs.render()
        brief = find_brief(str(memory.settings.data_dir), "alice", "/anywhere")
        return "" if brief is None else brief.text, await memory.briefs.instructions(ALICE)

    async with memory_with([summary_reply(PROFILE)], tmp_path) as (memory, server):
        wrong = await add_text(memory, "User is Alice Vance of Leeds", metadata={"user_name": "Alice Vance"})
        await add_text(memory, "User writes in English", metadata={"pinned": True})
        assert (await portrait(memory, "profile", SHOP)).endswith(f"\n\n{PROFILE}")
        asked = json.dumps(server.chat_requests[0])
        assert "portrait of one person" in asked
        assert "writes in English" not in asked
        assert (await portrait(memory, "profile")).endswith(PROFILE)  # one for all projects
        assert len(server.chat_requests) == 1
        for text in await begun():
            said = ("writes in English", "Identity: Alice Vance", "People: Her sister")
            assert [text.find(words) for words in said] == sorted(text.find(words) for words in said)
            assert text.find(said[0]) > 0
        await memory.update(ALICE, wrong, text="User is Alice Vance of York")
        for text in await begun():
            assert "Leeds" not in text
            assert "York" in text
