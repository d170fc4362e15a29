"""The kinds profile, project and procedures: with a model by their prompts, without one the memories in sections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.hooks.events import find_brief
from palimpsest.memory import Memory
from tests.support.mcp_client import connect_stdio, reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import given

pytestmark = pytest.mark.anyio

SHOP = Scope("alice", "tea-shop")
PROFILE = "Identity: Alice Vance, 34, of Leeds.\nPeople: Her sister is Clara.\nHow to help: Short answers."


def reply(text: str) -> str:
    """Return what a model replies to a request for a summary."""
    return json.dumps({"summary": text})


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of a portrait by their headings."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("- "):
            found[next(reversed(found))].append(line[2:])
        elif line.endswith(":"):
            found[line[:-1]] = []
    return found


async def plain(memory: Memory, kind: str, texts: Mapping[str, str], scope: Scope = ALICE) -> None:
    """Store texts in a scope and check under which heading each is shown."""
    for text in texts:
        await memory.add_text(scope, text, infer=False)
    found = sections((await memory.summary(scope, kind)).text)
    shown = {text: heading for heading, lines in found.items() for text in lines}
    assert {text: shown.get(text, "") for text in texts} == dict(texts)


async def test_a_profile_without_a_model_sorts_what_an_agent_stored(tmp_path: Path) -> None:
    """Memories in an agent's words have no tags: names of people and plain words show where they belong."""
    async with memory_in(tmp_path) as memory:
        await plain(
            memory,
            "profile",
            {
                "User's name is Imogen Hartley": "Identity",
                "Imogen is allergic to penicillin.": "Identity",
                "Imogen lives in Headingley with her sister Clara.": "People",
                "Imogen has a cat called Biscuit.": "People",
                "Imogen works as a staff nurse on ward 7 in Leeds.": "Work",
                "Imogen likes sea swimming and hates treadmills.": "Preferences",
                "User prefers short answers without bullet points.": "How to help",
                "The Rhine is 1,230 km long.": "Also",
            },
        )
        result = await memory.summary(ALICE, "profile")
        assert result.text.startswith("Identity:\n- User's name is Imogen Hartley\n")
        assert "no language model" in result.notes[0]


async def test_a_name_that_is_told_beside_something_else_is_the_users(tmp_path: Path) -> None:
    """What begins with the first name is then about the user, and a relative with an unknown name is one of theirs."""
    async with memory_in(tmp_path) as memory:
        await plain(
            memory,
            "profile",
            {
                "User's name is Ilse Brandt; she is a boat builder in Flensburg": "Identity",
                "Ilse is allergic to epoxy hardener (amines); nitrile gloves are a must in the workshop": "Identity",
                "Hinnerk, Ilse's father, has a pacemaker since 2022": "People",
                "Their daughter Merle plays the piano": "People",
            },
        )


async def test_what_a_newer_memory_contradicts_is_in_no_summary(tmp_path: Path) -> None:
    """Two rate limits side by side mislead, whichever is read first."""
    old, new = "Rate limit is 600 requests a minute", "Rate limit was raised to 900 requests a minute"
    async with memory_in(tmp_path) as memory:
        parted, moved = "Hanne and Pieter broke up", "Hanne moved to Bruges"
        for text in (old, "The API listens on port 8087", parted, "Sentry project is tea-shop-prod", new, moved):
            await memory.add_text(SHOP, text, infer=False)
        for kind in ("project", "overall"):
            shown = (await memory.summary(SHOP, kind)).text
            assert all(text in shown for text in (new, parted, moved)), kind
            assert old not in shown, kind


@pytest.mark.parametrize("text", ["Lunch is at half past twelve", "The half marathon is in October"])
async def test_a_word_that_means_help_in_german_is_no_procedure_in_english(tmp_path: Path, text: str) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, text)
        assert text not in (await memory.summary(ALICE, "procedures")).text


async def test_what_is_about_something_else_stands_under_no_head_of_the_user(tmp_path: Path) -> None:
    """Projects move and speak, too, and rent is nobody's relative. Who the user is comes first, whatever came later."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await add_text(memory, "User writes commit messages in English", metadata={"pinned": True})
        texts = {
            "User was born on 3 March 1988": "Identity",
            "User works as a staff nurse at St Mary's": "Work",
            "User is allergic to penicillin": "Identity",
            "User's name is Imogen Hartley": "Identity",
            "Kestrel moved from PostgreSQL 15 to 17": "Also",
            "Kestrel lives on a server in Falkenstein": "Also",
            "User's rent is 900 euros a month, paid to Otto Reiter": "Also",
            "User's sister Clara lives in Bern": "People",
            "Clara has two cats": "People",
            "User writes her commit messages in English": "",
        }
        await plain(memory, "profile", texts)
        profile, overall = [(await memory.summary(ALICE, kind)).text for kind in ("profile", "overall")]
    assert sections(profile)["Identity"][0] == "User's name is Imogen Hartley"
    lines = [line.partition(" ")[2] for line in overall.split("\n\n")[1].splitlines()]
    first = ("User's name is Imogen Hartley", "User is allergic to penicillin", "User works as", "User was born on")
    assert all(text in line for text, line in zip(first, lines, strict=False))
    assert overall.count("commit messages") == 1


async def test_a_profile_is_of_one_person(tmp_path: Path) -> None:
    """Guards against a mixture: what is told of somebody else says nothing of the user."""
    with OpenAIServer([reply(PROFILE)]) as server:
        async with memory_in(tmp_path) as memory:
            await plain(
                memory,
                "profile",
                {
                    "User's name is Imogen Hartley": "Identity",
                    "Ben Ortega is allergic to penicillin.": "People",
                    "Ben Ortega prefers short answers.": "People",
                    "Ben Ortega works as a nurse in Leeds.": "People",
                    "Imogen works as a baker in Bath.": "Work",
                },
            )
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.summary(ALICE, "profile")
    about = {item["text"]: item.get("about", "") for item in given(server.chat_requests[0], "Memories")}
    assert given(server.chat_requests[0], "Portrait of") == "Imogen Hartley"
    assert about["Ben Ortega is allergic to penicillin."] == "Ben Ortega"
    assert about["Imogen works as a baker in Bath."] == about["User's name is Imogen Hartley"] == ""


async def test_a_profile_in_german(tmp_path: Path) -> None:
    """The signs are those of several languages."""
    async with memory_in(tmp_path) as memory:
        await plain(
            memory,
            "profile",
            {
                "Nutzer heißt Jonas Wieland": "Identity",
                "Jonas ist gegen Haselnüsse allergisch.": "Identity",
                "Der Hund heißt Bruno.": "People",
                "Jonas wohnt mit seiner Frau Miriam in Lochau.": "People",
                "Jonas arbeitet als Tischlermeister in Bregenz.": "Work",
                "Jonas mag Eichenholz lieber als Buche.": "Preferences",
                "Jonas möchte geduzt werden und knappe Antworten.": "How to help",
                "Der Bodensee ist 63 km lang.": "Also",
            },
        )


async def test_a_profile_shows_what_lasts_before_the_errands_of_last_spring(tmp_path: Path) -> None:
    """A text that counts from the day it was said mostly tells what has passed."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for thing in ("ladder", "curtains", "kayak", "boiler", "trophy", "wallpaper", "mattress", "greenhouse"):
            for verb in ("fetches", "mends", "orders", "paints", "sells"):
                await add_text(memory, f"Imogen {verb} a {thing} on 3 June")
                await add_text(memory, f"Imogen {verb} every old {thing}")
        clock.forward(days=90)
        shown = sections((await memory.summary(ALICE, "profile")).text)
    passing = ["on 3 June" in text for lines in shown.values() for text in lines]
    assert passing.count(False) > 2 * passing.count(True)


async def test_a_profile_leaves_out_what_is_of_a_project_ends_or_is_pinned(tmp_path: Path) -> None:
    """It may be read at any time later. What is pinned stands above it, and not twice."""
    async with memory_in(tmp_path) as memory:
        await memory.add_text(SHOP, "The tea shop uses Django", infer=False)
        await add_text(memory, "User is on call", metadata={"expires_at": "2026-05-09"})
        await add_text(memory, "User speaks Welsh")
        pinned = await add_text(memory, "User is called Ali", metadata={"pinned": True})
        block = f"Pinned:\n- [{pinned[:8]}] User is called Ali\n\n"
        assert (await memory.summary(ALICE, "profile")).text == f"{block}Identity:\n- User speaks Welsh"
        assert (await memory.summary(SHOP, "profile")).text == f"{block}Identity:\n- User speaks Welsh"


async def test_the_pinned_block_heads_summaries_but_not_texts_about_somebody(tmp_path: Path) -> None:
    """It stands there in order and word for word, even if nothing else is known."""
    async with memory_in(tmp_path) as memory:
        second = await add_text(memory, "Tone: dry\n- no praise", metadata={"pinned": 2})
        first = await add_text(memory, "Ana leads", metadata={"pinned": 1})
        block = f"Pinned:\n- [{first[:8]}] Ana leads\n- [{second[:8]}] Tone: dry\n  - no praise"
        for kind in ("overall", "recent", "profile", "procedures"):
            assert (await memory.summary(ALICE, kind)).text.startswith(block)
        assert (await memory.summary(ALICE, "profile")).text == block
        assert "Pinned" not in (await memory.summary(ALICE, "about:Ana")).text


async def test_a_profile_by_a_model_heads_sessions_after_the_pinned_block_until_it_is_stale(tmp_path: Path) -> None:
    """Brief and instructions show it only as long as nothing it rests on was changed."""
    with OpenAIServer([reply(PROFILE)]) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            wrong = await add_text(memory, "User is Alice Vance of Leeds", metadata={"user_name": "Alice Vance"})
            await add_text(memory, "User writes in English", metadata={"pinned": True})
            result = await memory.summary(SHOP, "profile")
            assert result.text.endswith(f"\n\n{PROFILE}")
            asked = json.dumps(server.chat_requests[0])
            assert "portrait of one person" in asked
            assert "writes in English" not in asked
            assert (await memory.summary(ALICE, "profile")).text.endswith(PROFILE)  # one for all projects
            assert len(server.chat_requests) == 1
            for text in await _begun(memory):
                said = ("writes in English", "Identity: Alice Vance", "People: Her sister")
                assert [text.find(words) for words in said] == sorted(text.find(words) for words in said)
                assert text.find(said[0]) > 0
            await memory.update(ALICE, wrong, text="User is Alice Vance of York")
            for text in await _begun(memory):
                assert "Leeds" not in text
                assert "York" in text


async def _begun(memory: Memory) -> tuple[str, str]:
    """Return what a session begins with: the brief and the instructions."""
    await memory.briefs.render()
    brief = find_brief(str(memory.settings.data_dir), "alice", "/anywhere")
    return "" if brief is None else brief.text, await memory.briefs.instructions(ALICE)


async def test_a_project_without_a_model(tmp_path: Path) -> None:
    """What it is, stack, decisions, conventions and what is open, of the project alone."""
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User decided to learn Welsh")
        await plain(
            memory,
            "project",
            {
                "Tea-shop is a web shop for loose tea, run by Ana and Rui.": "What it is",
                "It uses Django 5 and PostgreSQL 17.": "Stack",
                "Ana decided to replace Celery, because Redis kept failing.": "Decisions",
                "Branches are named after the ticket, such as TS-12-cart.": "Conventions",
                "Tests must pass before a merge.": "Conventions",
                "Still open: VAT for orders from Switzerland.": "Open",
                "Rui takes care of the drawings.": "Also",
            },
            SHOP,
        )
        assert "Welsh" not in (await memory.summary(SHOP, "project")).text
        with pytest.raises(InputError, match="has no project"):
            await memory.summary(ALICE, "project")


async def test_procedures_without_a_model_are_the_corrections_and_instructions(tmp_path: Path) -> None:
    """What worked and what failed are told apart; a person's life is none of it."""
    async with memory_in(tmp_path) as memory:
        await plain(
            memory,
            "procedures",
            {
                "Never deploy by hand, because nobody can repeat it.": "Instructions and corrections",
                "Always run ruff before a commit.": "Instructions and corrections",
                "User corrected: commit messages are in English.": "Instructions and corrections",
                "make deploy needs VERSION set; without it the deploy failed.": "What failed",
                "Running the migration first fixed the missing column.": "What worked",
                "User never eats meat and works at night.": "",
                "Clara works for the council.": "",
            },
        )


@pytest.mark.parametrize(
    ("kind", "heading", "tag"),
    [
        ("procedures", "Instructions and corrections", "instruction"),
        ("procedures", "What failed", ["failure", "linux"]),
        ("profile", "Preferences", ["preference"]),
        ("profile", "Work", "work"),
        ("project", "Decisions", ["decision"]),
    ],
)
async def test_tags_in_the_metadata_count_without_a_model(tmp_path: Path, kind: str, heading: str, tag: Any) -> None:
    """An agent has no other way to say what a memory is."""
    scope = SHOP if kind == "project" else ALICE
    async with memory_in(tmp_path) as memory:
        await memory.add_text(scope, "Barley and oats on the third shelf", metadata={"tags": tag})
        assert (await memory.summary(scope, kind)).text == f"{heading}:\n- Barley and oats on the third shelf"


async def test_procedures_from_tags_and_by_a_model(tmp_path: Path) -> None:
    """The agent's facts have tags; the model gets them by what they are, and nothing of a person's life."""
    extracted: list[dict[str, Any]] = [
        _fact("Otto deploys with make deploy, which needs VERSION set.", "procedure", 2),
        _fact("Otto must never deploy on a Friday.", "instruction", 1),
        _fact("The upload by FTP timed out.", "failure", 2),
        _fact("User has a dog.", "possession", 1),
    ]
    replies = [json.dumps({"user_name": None, "forget": [], "facts": extracted}), reply("- Set VERSION first.")]

    def chat(request: dict[str, Any]) -> str:
        is_about_work = "standing instructions" in json.dumps(request)
        return replies[1] if is_about_work else replies[0] if "Extract" in json.dumps(request) else _keep_all(request)

    agent = Scope("alice", agent_id="otto")
    with OpenAIServer(chat) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            said = messages_from(
                ("user", "Never deploy on a Friday."), ("assistant", "I ran make deploy."), scope=agent
            )
            await memory.add_messages(said)
            assert (await memory.summary(agent, "procedures")).text == "- Set VERSION first."
            asked = json.dumps(server.chat_requests[-1])
            for words in ("make deploy", "never deploy on a Friday", "timed out", "What failed"):
                assert words in asked
            assert "dog" not in asked


def _fact(text: str, tag: str, source: int) -> dict[str, Any]:
    keys: dict[str, Any] = {"happened_at": None, "valid_from": None, "keywords": []}
    return {"text": text, "sources": [source], "tags": [tag], **keys}


def _keep_all(request: dict[str, Any]) -> str:
    del request
    return json.dumps({"facts": []})


@pytest.mark.nightly
async def test_over_mcp(tmp_path: Path) -> None:
    """An agent asks for a profile by name, and learns of the kinds by a wrong one."""
    async with connect_stdio(tmp_path) as client:
        await client.call_tool("add_memory", {"text": "User prefers short answers", "infer": False})
        text = reply_text(await client.call_tool("get_summary", {"kind": "Profile"}))
        assert text.startswith("How to help:\n- User prefers short answers\n")
        unknown = await client.call_tool("get_summary", {"kind": "portrait"})
        assert "profile, project, procedures" in str(unknown.content)
