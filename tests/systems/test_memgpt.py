"""MemGPT (Packer et al. 2023, arXiv 2310.08560): core memory, recall storage, and the recursive summary.

Section 2.1: the prompt begins with a block of fixed size that the model edits itself, and with a summary of what no
longer fits, which is written from the last summary and what is put out. Section 2.2: every message is kept in recall
storage, searched by words and by date, page by page. Blocks with a label, a description and a limit, which are edited
by append, by exact replacement and at a line, are those of Letta, as MemGPT is called since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mcp import Client
from mcp.types import TextResourceContents

from loopback import OpenAIServer
from palimpsest.core.models import Decision, Event, Fact, Scope
from palimpsest.hooks.events import find_brief
from palimpsest.hooks.instructions import HEAD, INSTRUCTIONS, REST
from palimpsest.learn.job_runner import work_on_jobs
from tests.support.hook_program import run_hook
from tests.support.ledger_access import write_decisions
from tests.support.mcp_client import connect_stdio, error_text, reply_results, reply_text
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in
from tests.support.scripted_model import add_all, answering, given
from tests.support.server_in_process import connect, connect_rendering
from tests.support.sessions import ClaudeSession

pytestmark = pytest.mark.anyio

MONTHS = ("02", "03", "04")

# Twelve turns: four on a day in each of three months.
TURNS = [
    {
        **({"role": "user", "name": "Maarten"} if number % 2 else {"role": "assistant"}),
        "content": f"Turn {number}: {'the boat leaks' if number in (3, 7, 11) else 'kieli is language'}",
        "at": f"2026-{MONTHS[(number - 1) // 4]}-01T08:{number:02}:00Z",
    }
    for number in range(1, 13)
]


HUMAN = {"label": "human", "description": "who the user is", "limit": 120, "pinned": 2}
PERSONA = {"label": "persona", "description": "how the agent speaks", "pinned": 1}


class TestBlocks:
    async def test_an_agent_edits_its_blocks_in_part_and_each_session_begins_with_them(self, tmp_path: Path) -> None:
        """Append, exact replacement and a line, each with its history; what a session begins with has the result."""
        async with connect_stdio(tmp_path) as agent:
            persona = await block(agent, "A patient tutor.", PERSONA)
            human = await block(agent, "Maarten, 41.\nRows on Thursdays.", HUMAN)
            assert await edited(agent, human, text="Learns Finnish.", line=-1) == 2
            assert await edited(agent, f"{human[:8]}@2", text="Sundays", old="Thursdays") == 3
            assert await edited(agent, f"{human[:8]}@3", text="Has a leaking boat.", line=1) == 4
            assert await edited(agent, human, old=", 41") == 5
            assert await edited(agent, human, text="Learns Finnish.", line=-1) == 5, "a repeated call appends once"
            whole = reply_text(await agent.call_tool("get_summary", {}))
            history = await agent.call_tool("get_history", {"memory_id": human})
            assert [row["event"] for row in history.structured_content["history"]] == ["ADD", *["UPDATE"] * 4]
        blocks = (
            f"- [{persona[:8]}@1] persona (how the agent speaks): A patient tutor.\n",
            f"- [{human[:8]}@5] human (who the user is; 61/120 characters): Maarten.\n  Has a leaking boat.\n"
            "  Rows on Sundays.\n  Learns Finnish.\n",
        )
        assert "".join(blocks) in whole
        async with connect_stdio(tmp_path) as agent:
            assert all(shown in (agent.instructions or "") for shown in blocks)

    @pytest.mark.nightly
    async def test_a_block_of_up_to_the_total_begins_each_session_whole(self, tmp_path: Path) -> None:
        """In any language. Of those of several scopes that do not fit, what is left out is counted."""
        for place, words in enumerate(("Maarten rows each Thursday. ", "马尔滕每周四都去划船。")):
            data, text = tmp_path / str(place), (words * 200)[:1_150].strip()
            async with memory_in(data) as memory:
                await memory.add_text(ALICE, text, metadata=BIG, infer=False)
                boats = Scope("alice", "boats")
                await memory.add_text(boats, "Ships on Mondays", metadata=BIG | {"label": "ships"}, infer=False)
                await memory.add_text(boats, "B" * 1_000, metadata=BIG | {"label": "boats"}, infer=False)
            for begin in await begins(data):
                assert f" human: {text}\n" in begin
            for begin in await begins(data, project="boats"):
                assert "] ships: Ships on Mondays\n" in begin
                assert f"] boats: {'B' * 1_000}\n" in begin
                assert re.search(
                    rf"] human: {text[:160]}.{{0,12}} … \(9\d\d characters more: below, or in get_summary", begin
                )
                assert begin.rindex("human:") > begin.rindex("boats:")

    async def test_other_agents_blocks_never_push_out_those_of_the_user(self, tmp_path: Path) -> None:
        """A client without an agent sees all of them in the summary, with whose they are."""
        async with memory_in(tmp_path) as memory:
            for number in range(6):
                scope = Scope("alice", agent_id=f"agent{number}")
                await memory.add_text(
                    scope, f"Persona {number}. " * 70, metadata=BIG | {"label": "persona"}, infer=False
                )
            await memory.add_text(ALICE, "Human. " * 100, metadata=BIG, infer=False)
            human = "Human. " * 99 + "Human."
            summary = (await memory.summary(ALICE)).text
            assert summary.index(human) < summary.index("Persona")
            assert re.findall(r"- of agent (agent\d): \[", summary) == [f"agent{number}" for number in range(6)]
        for begin in await begins(tmp_path):
            assert f" human: {human}\n" in begin
            assert "Persona" not in begin
        for begin in await begins(tmp_path, agent_id="agent2"):
            assert f" human: {human}\n" in begin
            assert "persona: Persona 2. Persona 2." in begin

    async def test_two_writers_never_overwrite_each_other(self, tmp_path: Path) -> None:
        """All of twelve lines that two clients append at once are there, and no edit is made on what changed since."""
        async with connect(tmp_path) as one, connect(tmp_path) as other:
            human = await block(one, "Maarten.", {**HUMAN, "limit": 400})
            async with anyio.create_task_group() as group:
                for number in range(12):
                    line = {"memory_id": human, "text": f"Line {number}.", "line": -1}
                    group.start_soon((one, other)[number % 2].call_tool, "update_memory", line)
            text = await text_of_block(one, human)
            assert sorted(text.split("\n")) == sorted(["Maarten.", *(f"Line {number}." for number in range(12))])
            assert await edited(one, f"{human[:8]}@13", text="Maarten.\nRows.") == 14
            stale: tuple[dict[str, Any], ...] = (
                {"memory_id": f"{human[:8]}@13", "text": "Maarten.\nSails."},
                {"memory_id": f"[{human[:8]}@13]", "text": "Sails.", "line": 1},
                {"memory_id": f"{human[:8]}@13", "text": "Sails.", "old": "Rows."},
                {"memory_id": human, "text": "Maarten.\nSails."},
            )
            for arguments in stale:
                refused = error_text(await other.call_tool("update_memory", arguments))
                assert f"nothing was changed now. [{human[:8]}@14] says now: Maarten.\nRows." in refused
            for unread in (human, human[:8], f"{human[:8]}@13"):
                replacing = {"text": "Maarten sails.", "replaces": [unread]}
                for tool, arguments in (("delete_memory", {"memory_ids": [unread]}), ("add_memory", replacing)):
                    refused = error_text(await other.call_tool(tool, arguments))
                    assert f"nothing was changed now. [{human[:8]}@14] says now: Maarten.\nRows." in refused
                    assert f"the id {human[:8]}@14 takes the whole of it away" in refused
            assert await text_of_block(one, human) == "Maarten.\nRows."
            replacing = {"text": "Maarten sails.", "replaces": [f"{human[:8]}@14"], "metadata": HUMAN}
            (new,) = reply_results(await other.call_tool("add_memory", replacing))
            await other.call_tool("delete_memory", {"memory_ids": [new["id"]]})
            assert [row["event"] for row in await history_of(one, new["id"])] == ["ADD", "DELETE"]

    async def test_an_edit_that_is_not_exact_or_too_long_is_refused_with_the_text(self, tmp_path: Path) -> None:
        """The error has what the next try needs: the text, its address, the sizes."""
        async with connect(tmp_path) as agent:
            human = await block(agent, "Likes tea.\nLikes rye.", HUMAN)
            for arguments, fault in (
                ({"old": "Likes", "text": "Loves"}, "more than once"),
                ({"old": "likes tea", "text": "Likes milk"}, "does not stand in the text as it is"),
                ({"line": 1, "text": "Rows."}, "name the revision"),
                ({"line": 3, "text": "Rows."}, "0 (first) to 2"),
            ):
                refused = error_text(await agent.call_tool("update_memory", {"memory_id": human, **arguments}))
                assert fault in refused
                assert f"[{human[:8]}@1] says now: Likes tea.\nLikes rye." in refused
            long = {"memory_id": human, "text": "Rows. " * 20, "line": -1}
            assert "the text would have 141 characters, and its limit is 120" in error_text(
                await agent.call_tool("update_memory", long)
            )
            assert await text_of_block(agent, human) == "Likes tea.\nLikes rye."

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        "pinned",
        [
            ["Maarten rows each Thursday. " * 41],
            ["马尔滕每周四都去划船。" * 100],
            [f"Rule {number:02} for the boat house" for number in range(46)],
            ["Rows on Mondays.", "b" * 500, "ש" * 600],
        ],
    )
    async def test_pinned_text_and_the_use_of_the_tools_stand_in_what_every_client_reads(
        self, tmp_path: Path, pinned: Sequence[str]
    ) -> None:
        """Claude Code reads 2,048 characters. What is cut is said there, and stands whole behind them."""
        async with connect_rendering(tmp_path) as agent:
            first = agent.instructions
            await agent.call_tool("add_memory", {"text": "Maarten is allergic to nuts and takes warfarin every day."})
            corrected = {"text": "Reports are sent as PDF files.", "metadata": {"tags": ["correction"]}}
            await agent.call_tool("add_memory", corrected)
            for text in pinned:
                arguments = {"text": text.strip(), "metadata": {"pinned": True}}
                (added,) = reply_results(await agent.call_tool("add_memory", arguments))
                assert added["event"] == "ADD"
        async with connect_rendering(tmp_path) as agent:
            later = agent.instructions or ""
        assert first == INSTRUCTIONS, "the first start of a folder has what the others have, without memories"
        read = later[:2_048]
        assert read.startswith(HEAD)
        places = [read.index(words) for words in ("warfarin", "PDF files", "Pinned (update_memory edits", REST)]
        assert places == sorted(places)
        assert "@1]" in later[: later.index(REST)]
        assert re.search(r"(?:characters|\d) more: below, or in get_summary", read)
        assert all(text.strip() in later for text in pinned)
        assert len(later) < 1_250 + len(pinned) * 20 + 2_048

    async def test_neither_a_model_nor_a_newer_fact_takes_a_block_away(self, tmp_path: Path) -> None:
        """A block holds more than what one fact contradicts: whoever edits it decides what goes."""
        text = "Maarten lives in Ghent.\nRows on Thursdays."
        with OpenAIServer(answering(decide=add_all)) as server:
            async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
                await memory.add_text(ALICE, "Maarten lives in Ghent with Ana", infer=False)
                human = (await memory.add_text(ALICE, text, metadata=HUMAN)).outcomes[0].memory
                assert not server.chat_requests, "a block is stored as it is given"
                await memory.add_text(ALICE, "Maarten moved from Ghent to Bruges")
                shown = [json.dumps(request) for request in server.chat_requests]
                begins = await memory.briefs.instructions(ALICE)
        assert "Ghent with Ana" in shown[0]
        assert not any("Rows on Thursdays" in request for request in shown)
        lines = text.replace("\n", "\n  ")
        assert f"- [{human.id[:8]}@1] human (who the user is; 42/120 characters): {lines}\n" in begins


async def block(agent: Client, text: str, metadata: dict[str, Any]) -> str:
    (added,) = reply_results(await agent.call_tool("add_memory", {"text": text, "metadata": metadata}))
    assert added["revision"] == 1
    return added["id"]


async def edited(agent: Client, memory_id: str, **arguments: Any) -> int:
    (outcome,) = reply_results(await agent.call_tool("update_memory", {"memory_id": memory_id, **arguments}))
    return outcome["revision"]


BIG = {"pinned": True, "label": "human"}


async def begins(data: Path, **settings: Any) -> tuple[str, str]:
    """Return the instructions and the brief that sessions with some settings begin with."""
    async with memory_in(data, **settings) as memory:
        await memory.briefs.render()
        brief = find_brief(str(data), "alice", "/")
        return await memory.briefs.instructions(memory.scope), "" if brief is None else brief.text


async def text_of_block(agent: Client, memory_id: str) -> str:
    return (await history_of(agent, memory_id))[-1]["new_memory"]


async def history_of(agent: Client, memory_id: str) -> list[dict[str, Any]]:
    return (await agent.call_tool("get_history", {"memory_id": memory_id})).structured_content["history"]


class TestRecallStorage:
    async def test_every_turn_is_found_by_words_date_role_and_speaker(self, tmp_path: Path) -> None:
        """The four ways lead to the same turns, whatever was learned from them."""
        async with connect(tmp_path) as agent:
            await fill(agent)
            leaks = [TURNS[number - 1]["content"] for number in (11, 7, 3)]
            assert await turns(agent, words="boat leaks") == leaks
            assert await turns(agent, words="boat leaks", at={"gte": "2026-03", "lt": "2026-04"}) == leaks[1:2]
            assert await turns(agent, words="boat leaks", speaker="maarten") == leaks
            assert await turns(agent, words="boat leaks", role="assistant") == []
            february = [turn["content"] for turn in TURNS if turn["at"] < "2026-03"][::-1]
            assert await turns(agent, at="2026-02") == february

    async def test_it_is_read_page_by_page_and_as_a_whole(self, tmp_path: Path) -> None:
        """No turn is missing on a page or on two, and any turn leads to its conversation."""
        async with connect(tmp_path) as agent:
            await fill(agent)
            pages: list[list[str]] = []
            cursor: str | None = None
            while cursor or not pages:
                page: dict[str, Any] = {"filters": {"kind": "message"}, "limit": 5, "cursor": cursor}
                result = await agent.call_tool("list_memories", page)
                pages.append([hit["text"] for hit in reply_results(result)])
                cursor = result.structured_content.get("cursor")
            every = [turn["content"] for turn in TURNS]
            assert [len(page) for page in pages] == [5, 5, 2]
            assert [text for page in pages for text in page] == every[::-1]
            found = {"query": "Which boat has a leak?", "filters": {"kind": "message"}, "limit": 1}
            (hit,) = reply_results(await agent.call_tool("search_memories", found))
            (whole,) = (await agent.read_resource(f"conversation://{hit['id']}")).contents
            assert isinstance(whole, TextResourceContents)
            of_its_day = [text for text, turn in zip(every, TURNS, strict=True) if turn["at"][:10] == hit["at"][:10]]
            assert [line[line.index("Turn ") :] for line in whole.text.splitlines()[1:]] == of_its_day


async def test_the_recursive_summary_carries_an_early_fact_through_every_window(tmp_path: Path) -> None:
    """What does not fit one prompt is read by several, the oldest first, each with the summary of the one before.

    The first memory is in the first prompt alone. Later ones have it only from the summary, and keep it.
    """
    early, clock = "Maarten must not be given aspirin", StoppedClock()
    chatter = [f"Maarten told story {number} of the sea: {'wind and water ' * 100}" for number in range(80)]
    with OpenAIServer(answering(summarize=keep_aspirin)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in (early, *chatter)))
            first = (await memory.summary(ALICE)).text
            windows = [json.dumps(given(request, "Memories")) for request in server.chat_requests]
            clock.forward(days=1)
            write_decisions(memory, *(Decision(Event.ADD, Fact(f"Later {text}")) for text in chatter[:40]))
            second = (await memory.summary(ALICE, refresh=True)).text
            later = [json.dumps(given(request, "Memories")) for request in server.chat_requests[len(windows) :]]
    assert len(windows) > 2
    assert [early in window for window in windows] == [True, *(False for _ in windows[1:])]
    assert not any(early in window for window in later)
    assert first == f"{early}. Window {len(windows)}."
    assert second == f"{early}. Window {len(windows) + len(later)}."


def keep_aspirin(request: dict[str, Any]) -> dict[str, Any]:
    previous, memories = given(request, "Previous summary"), json.dumps(given(request, "Memories"))
    kept = "Maarten must not be given aspirin" if "aspirin" in previous + memories else "Nothing lasting"
    number = int(previous.rpartition(" ")[2].strip(".")) if previous else 0
    return {"summary": f"{kept}. Window {number + 1}."}


class Session:
    """A session of Claude Code whose hooks are the real program, beside a server that may run."""

    def __init__(self, folder: Path, client: str = "claude-code") -> None:
        self.data_dir, self.client = folder / "data", client
        self.transcript = ClaudeSession(folder / "s1.jsonl")

    async def run(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return what the hook prints at an event, {} for nothing."""
        payload = {"session_id": "s1", "cwd": "", "transcript_path": str(self.transcript.path), **fields}
        call = partial(run_hook, self.data_dir, {"hook_event_name": event, **payload}, "--client", self.client)
        return await anyio.to_thread.run_sync(partial(call, "--user", "alice")) or {}

    async def say(self, prompt: str, **of_stop: Any) -> str:
        """Say something, and return what the agent is asked at the end of its turn; "" for nothing."""
        await self.run("UserPromptSubmit", prompt=prompt)
        self.transcript.assistant("Done.")
        return await self.stop(**of_stop)

    async def stop(self, **fields: Any) -> str:
        """End the agent's turn once more."""
        answer = await self.run("Stop", **{"last_assistant_message": "Done.", "stop_hook_active": False, **fields})
        assert answer == {} or (set(answer), answer["decision"]) == ({"decision", "reason"}, "block")
        return answer.get("reason", "")


class TestContextPressure:
    """Section 2.1: a warning of memory pressure lets the model save what matters before it is put out."""

    @pytest.mark.parametrize("client", ["claude-code", "codex"])
    async def test_the_agent_is_asked_once_to_store_what_was_said_and_is_not_stored(
        self, tmp_path: Path, client: str
    ) -> None:
        """Not when it goes on because of that, not about what it has stored in other words, and not about a task."""
        async with connect(tmp_path, PALIMPSEST_LLM__PROVIDER="none") as agent:
            await agent.call_tool("list_memories", {})
            session = Session(tmp_path, client)
            rule = "Benchmarks only count with --release and at least 5 runs"
            reason = await session.say(f"You measured with debug logging on. {rule}")
            assert f'- "{rule}"' in reason
            assert "add_memory" in reason
            assert await session.stop(stop_hook_active=True) == ""
            assert await session.stop() == ""
            assert await session.say("draw me a small chart of it") == ""
            await agent.call_tool("add_memory", {"text": "At Acme, Kafka is off the table: they keep NATS for good"})
            assert await session.say("ok then we keep NATS, Kafka is off the table for good") == ""
            await session.run("PreCompact", trigger="auto")
            assert await session.stop() == ""

    @pytest.mark.parametrize(("setting", "is_asked"), [("never", False), ("always", True)])
    async def test_the_user_decides_when_the_agent_is_asked(
        self, tmp_path: Path, setting: str, *, is_asked: bool
    ) -> None:
        """Never, or after every turn in which something was said."""
        settings = {"PALIMPSEST_LLM__PROVIDER": "none", "PALIMPSEST_HOOKS_ASK_AGENT": setting}
        async with connect(tmp_path, **settings) as agent:
            await agent.call_tool("list_memories", {})
            session = Session(tmp_path)
            assert bool(await session.say("rename the parser to reader in src")) == is_asked
            assert await session.stop() == ""
            assert bool(await session.say("Please don't run migrations yourself, I do that by hand")) == is_asked

    async def test_a_full_context_is_told_once(self, tmp_path: Path) -> None:
        """Its size is that of the client, or of the settings."""
        async with connect(tmp_path, PALIMPSEST_LLM__PROVIDER="none") as agent:
            await agent.call_tool("list_memories", {})
            session = Session(tmp_path)
            for tokens, is_told in ((100_000, False), (150_000, True), (160_000, False)):
                usage = {"input_tokens": 5, "cache_read_input_tokens": tokens, "output_tokens": 300}
                message = {"role": "assistant", "content": [{"type": "text", "text": "Done."}], "usage": usage}
                session.transcript.write({"type": "assistant", "message": message})
                assert ("nearly full" in await session.stop()) == is_told, tokens

    async def test_what_was_said_so_far_comes_first_after_a_compaction(self, tmp_path: Path) -> None:
        """Without a model it is the telling lines; what is deleted is not told again."""
        secret, kept = "The launch party is on the roof of the old mill", "We call them tenants, not customers"
        session = Session(tmp_path)
        await session.run("UserPromptSubmit", prompt=secret)
        await session.run("UserPromptSubmit", prompt=kept)
        await session.run("PreCompact", trigger="auto")
        async with memory_in(tmp_path / "data") as memory:
            await memory.capture.take_in()
            await memory.briefs.render()
            begin = await session.run("SessionStart", source="compact")
            text = begin["hookSpecificOutput"]["additionalContext"]
            assert text.index("said in this session so far") < text.index(secret) < text.index(kept)
            assert kept in json.dumps(await session.run("SessionStart", source="resume"))
            said = (await memory.search(ALICE, secret)).hits[0]
            await memory.delete(ALICE, [said.id])
            assert secret not in json.dumps(await session.run("SessionStart", source="resume"))
            await memory.briefs.render()
            resumed = json.dumps(await session.run("SessionStart", source="resume"))
            assert (secret in resumed, kept in resumed) == (False, True)
        assert await session.run("SessionStart", source="resume", session_id="another") == {}

    async def test_a_session_is_folded_into_a_recursive_summary(self, tmp_path: Path) -> None:
        """The second one is written from the first and from what was said since, and keeps what was told first."""
        early = "The release is signed with the key of the notary"
        session = Session(tmp_path)
        clock = StoppedClock()
        asked: list[tuple[str, str]] = []

        def account(request: dict[str, Any]) -> dict[str, Any]:
            previous, said = given(request, "Account of the beginning"), json.dumps(given(request, "Messages"))
            asked.append((previous, said))
            return {"summary": f"{'Notary key. ' if 'notary' in (previous + said).lower() else ''}Part {len(asked)}."}

        async def fold(*texts: str) -> str:
            for text in texts:
                await session.run("UserPromptSubmit", prompt=text)
            await session.run("PreCompact", trigger="auto")
            clock.forward(minutes=1)
            await memory.capture.take_in()
            assert memory.engine.own_model is not None
            clock.forward(minutes=1)
            await work_on_jobs(memory.engine, memory.engine.own_model)
            await memory.briefs.render()
            begin = await session.run("SessionStart", source="compact")
            return begin["hookSpecificOutput"]["additionalContext"]

        stages = answering(extract=lambda _: {"facts": []}, session=account)
        with OpenAIServer(stages) as server:
            async with memory_in(tmp_path / "data", clock, llm=llm_settings(server.base_url)) as memory:
                first = await fold(early, *(f"now look at module number {number}" for number in range(12)))
                second = await fold(*(f"then rename function number {number}" for number in range(3)))
        assert "Notary key. Part 1." in first
        assert "Notary key. Part 2." in second
        assert [(previous, early in said) for previous, said in asked] == [("", True), ("Notary key. Part 1.", False)]


async def fill(agent: Client) -> None:
    await agent.call_tool("add_memory", {"messages": TURNS, "infer": False})


async def turns(agent: Client, **filters: Any) -> list[str]:
    arguments = {"filters": {"kind": "message", **filters}}
    return [hit["text"] for hit in reply_results(await agent.call_tool("list_memories", arguments))]


async def test_an_empty_old_is_no_part_and_the_error_says_what_to_give(tmp_path: Path) -> None:
    """Clients send empty arguments for what they leave out, so the whole text is meant; nobody else's line is lost."""
    async with connect(tmp_path) as agent:
        human = await block(agent, "Likes tea.", HUMAN)
        await edited(agent, human, text="Likes rye.", line=-1)
        refused = await agent.call_tool("update_memory", {"memory_id": human, "old": "", "text": "Likes milk."})
        assert "meanwhile" not in error_text(refused)
        assert "update_memory changes a part of it (old or line)" in error_text(refused)
        assert f"[{human[:8]}@2] says now: Likes tea.\nLikes rye." in error_text(refused)
