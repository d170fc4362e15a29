"""Summaries of the whole, of days, of conversations, about somebody and of who the user is, and what outdates them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Relation, Scope
from palimpsest.learn.summaries.dossier import MAX_TOKENS
from palimpsest.memory import Memory
from palimpsest.text.tokenizer import count_tokens
from tests.support.ledger_access import write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from
from tests.support.scripted_model import given, memory_with, summary_reply

pytestmark = pytest.mark.anyio


async def read(memory: Memory, kind: str = "overall", *, refresh: bool = False) -> str:
    return (await memory.summary(ALICE, kind, refresh=refresh)).text


async def said(memory: Memory, *messages: Any) -> str:
    """Keep messages and return the id of the first."""
    kept = messages_from(*messages, at=memory.engine.clock())
    await memory.add_messages(kept, infer=False)
    return kept[0].id


async def test_what_is_lasting_stays_in_view_without_a_model(memory: Memory, clock: StoppedClock) -> None:
    """Guards a long life in the default installation: hundreds of later remarks do not push out an allergy."""
    lasting = ("User is allergic to penicillin", "User's daughter is named Ottoline", "User prefers short answers")
    write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in lasting))
    for day in range(20):
        clock.forward(days=7)
        facts = (f"User spent {hour} hours of day {day} on item {hour}, which was pleasant" for hour in range(10))
        write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in facts))
    overall, profile = await read(memory), await read(memory, "profile")
    assert [text for text in lasting if text not in overall or text not in profile] == []
    assert "day 19" in overall, "and what was said last is there, too"


async def test_the_recent_summary_is_about_when_things_were_said_or_happened(
    memory: Memory, clock: StoppedClock
) -> None:
    """Guards imports: what was said years ago is not news on the day it is stored, and an edit does not make it so."""
    now, long_ago = clock.at, clock.at - timedelta(days=90)
    facts = (
        Fact("User had a cat in 2019", said_at=datetime(2019, 3, 1, tzinfo=UTC)),
        Fact("User likes tea", said_at=now - timedelta(days=13)),
        Fact("User flies to Oslo", said_at=long_ago, happened_at=now - timedelta(days=2)),
        Fact("User was ill", said_at=long_ago),
    )
    *_, ill = write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts)).outcomes
    await memory.update(ALICE, ill.memory.id, metadata={"seen": True})
    text = await read(memory, "recent")
    assert [fact.text for fact in facts if fact.text in text] == ["User likes tea", "User flies to Oslo"]


ANA = NamedEntity("Ana", "person")


async def test_it_stays_within_its_tokens_and_says_what_is_left_out(tmp_path: Path) -> None:
    facts = [
        Fact(
            f"Ana met person number {number} and {'they talked for a while, ' * 4}about the weather",
            entities=(ANA, NamedEntity(f"person {number}", "person")),
            relations=(Relation("Ana", "met", f"person {number}"),),
        )
        for number in range(150)
    ]
    facts.insert(30, Fact("Ana is allergic to penicillin", entities=(ANA,)))
    async with memory_in(tmp_path) as memory:
        write_decisions(memory, *(Decision(Event.ADD, fact) for fact in facts))
        result = await memory.summary(ALICE, "about:Ana")
    text = result.text
    assert count_tokens(text) <= MAX_TOKENS + 20  # the counts of what was left out
    assert text.splitlines()[2].endswith("Ana is allergic to penicillin")
    assert "person number 149 " in text
    assert text.count(" more)") == 2
    assert "person number 0 " in text.split("(between these ")[1], "who she is was said first"
    assert result.is_cut


SHOP = Scope("alice", "tea-shop")
PROFILE = "Identity: Alice Vance, 34, of Leeds.\nPeople: Her sister is Clara.\nHow to help: Short answers."
TABLES = json.loads(Path(__file__).with_name("portraits.json").read_text("utf-8"))


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of a portrait by their headings."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("- "):
            found[next(reversed(found))].append(line.partition("] ")[2])
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
    assert re.sub(r"\[\w{8}\] ", "", result.text).startswith(table.get("begins", ""))
    assert any("no language model" in note for note in result.notes) or not any(texts.values())
    if "pinned" in table:  # who the user is comes first, whatever came later
        assert sections(result.text)["Identity"][0] == "User's name is Imogen Hartley"
        lines = [line.partition(" ")[2] for line in overall.split("\n\n")[1].splitlines()]
        first = ("User's name is", "User is allergic to penicillin", "User works as", "User was born on")
        assert all(text in line for text, line in zip(first, lines, strict=False))
        assert overall.count("commit messages") == 1


TOWNS = ("Leeds", "Bremen", "Graz", "Turin")


async def test_close_family_comes_before_others(tmp_path: Path) -> None:
    family = (
        ("Silke Brackmann is a speech therapist.", [Relation("user", "is married to", "Silke Brackmann")]),
        ("Ruth's son Mattis goes to school.", None),
        ("Mattis plays in goal.", None),
    )
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User's name is Ruth Calloway")
        for text, relations in family:
            await add_text(memory, text, relations=relations)
        for name, place in zip(("Anna Tewes", "Daniel Weiss", "Amara Nwosu", "Kemal Polat"), TOWNS, strict=True):
            await add_text(memory, f"{name} gives the module on ventilation of the training plan in {place}.")
            await add_text(memory, f"{name} wants to move to a flat near {place} with friends.")
        people = sections(await portrait(memory, "profile"))["People"]
    assert set(people[:3]) == {text for text, _ in family}


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


async def test_a_scope_without_a_project_is_told_which_there_are(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        assert "about:tea-shop and timeline:tea-shop tell" in await portrait(memory, "project", SHOP)
        for known in ("to a project; about:NAME and timeline:NAME", f"Projects with memories: {SHOP.project}$"):
            with pytest.raises(InputError, match=known):
                await memory.summary(ALICE, "project")
            await memory.add_text(SHOP, "The shop ships on Fridays", infer=False)
