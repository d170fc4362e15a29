"""The spool is taken in: each message once, in order, and nothing is lost. Facts are learned from it in batches."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import OpenAIServer
from palimpsest.core.files import files_below
from palimpsest.core.models import Scope
from palimpsest.hooks import intake, spool
from palimpsest.hooks.intake import clean_text
from palimpsest.learn.job_runner import work_on_jobs
from palimpsest.memory import Memory
from tests.support.learning_jobs import TIMEOUT, HastyClock, model, next_news
from tests.support.memory import StoppedClock, llm_settings, memory_in, memory_texts
from tests.support.memory_process import start
from tests.support.sessions import ClaudeSession, kept, spooled, unknown_lines, waiting

pytestmark = pytest.mark.anyio

DIAGNOSIS = "the diagnosis is hypertension"


async def take_in(folder: Path, **settings: Any) -> list[tuple[str, str]]:
    async with memory_in(folder, **settings) as memory:
        await memory.capture.take_in()
        return kept(memory)


async def take_in_transcript(memory: Memory, folder: Path, session: ClaudeSession, name: str = "s1") -> None:
    spooled(folder, "end", session=name, transcript=str(session.path))
    await memory.capture.take_in()


async def test_what_hooks_left_is_kept_once_and_removed_from_the_spool(tmp_path: Path) -> None:
    spooled(tmp_path, "start", detail="startup")
    spooled(tmp_path, "prompt", "My cat is called Minka.", message_id="p1:1")
    spooled(tmp_path, "reply", "Minka is a lovely name.", message_id="p1:2")
    async with memory_in(tmp_path) as memory:
        assert len(waiting(tmp_path)) == 3
        await memory.capture.take_in()
        first = [("user", "My cat is called Minka."), ("assistant", "Minka is a lovely name.")]
        assert kept(memory) == first
        assert waiting(tmp_path) == []
        [hit, *_] = (await memory.search(memory.scope, "What is the cat called?")).hits
        assert hit.sources == ("claude-code:s1:p1:1",)
        for message_id in ("p2:1", "p2:1", "p3:1"):
            spooled(tmp_path, "prompt", "go on with it", message_id=message_id)
        await memory.capture.take_in()
        spooled(tmp_path, "prompt", "go on with it", message_id="p3:1")
        for _ in range(2):
            spooled(tmp_path, "prompt", "no id", session="s2")
        await memory.capture.take_in()
        assert kept(memory) == [*first, *[("user", "go on with it")] * 2, ("user", "no id")]


async def test_secrets_and_private_parts_never_reach_the_ledger(tmp_path: Path) -> None:
    spooled(tmp_path, "prompt", "the password is hunter2-Xk99! and <private>I am ill</private> the rest stays")
    spooled(tmp_path, "prompt", "<palimpsest-memory>\nAna likes tea\n</palimpsest-memory>\nwhat does Ana like?")
    spooled(tmp_path, "prompt", "<ide_opened_file>secret.py</ide_opened_file>why does it fail?")
    spooled(tmp_path, "prompt", "a cut emoji \ud83d", cwd="/a/\udcff")
    [(_, first), *rest] = await take_in(tmp_path)
    assert [text for _, text in rest] == ["what does Ana like?", "why does it fail?", "a cut emoji ?"]
    assert "hunter2" not in first
    assert "ill" not in first
    assert first.endswith("the rest stays")


async def test_whose_records_are_taken_in(tmp_path: Path) -> None:
    spooled(tmp_path, "prompt", "Bob's", user="bob")
    spooled(tmp_path, "prompt", "Alice's", user="alice")
    spooled(tmp_path, "prompt", "a secret project", cwd=str(tmp_path / "secret" / "deep"))
    spooled(tmp_path, "prompt", "another", cwd=str(tmp_path / "secretary"))
    for mode in ("off", "recall"):
        assert await take_in(tmp_path, hooks=mode) == []
        assert len(waiting(tmp_path)) == 4
    excluded = (str(tmp_path / "secret"),)
    assert await take_in(tmp_path, hooks_excluded_folders=excluded) == [("user", "Alice's"), ("user", "another")]
    assert len(waiting(tmp_path)) == 1
    texts = await take_in(tmp_path, user_id="bob")
    assert sorted(text for _, text in texts) == ["Alice's", "Bob's", "another"]
    assert waiting(tmp_path) == []


async def test_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    spooled(tmp_path, "prompt", "a good one")
    folder = Path(spool.spool_dir(str(tmp_path)))
    damaged = {"a.json": "{", "b.json": "[1]", "c.json": '{"v": 1, "client": "claude-code"}', "f.json": "[" * 100_000}
    for name, content in {**damaged, "d.json": '{"v": 2}', "e.part": "half"}.items():
        (folder / f"1-1-{name}").write_text(content)
    assert await take_in(tmp_path) == [("user", "a good one")]
    kept_aside = [f"1-1-{name[0]}.damaged" for name in damaged]
    assert waiting(tmp_path) == sorted(["1-1-d.json", "1-1-e.part", *kept_aside])


STRANGE: tuple[dict[str, Any], ...] = (
    {"cwd": "/home/\0"},
    {"cwd": f"/{'x' * 5_000}"},
    {"transcript": "/home/\0", "event": "reply"},
    {"transcript": f"/{'x' * 5_000}", "event": "reply"},
    {"at": "0001-01-01T00:00:00+14:00"},
    {"at": "9999-12-31T23:59:59-14:00"},
)


async def test_strange_records_do_not_keep_others_from_being_taken_in(tmp_path: Path) -> None:
    """Guards against one record that stops all capture, and every purge with it, and against a pipe as a transcript."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    spooled(tmp_path, "reply", "done", transcript=str(tmp_path / "pipe.jsonl"))
    for number, strange in enumerate(STRANGE):
        file = spooled(tmp_path, "prompt", f"strange {number}", session=f"strange{number}")
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | strange), "utf-8")
    spooled(tmp_path, "prompt", "a good one", session="s2")
    messages = await take_in(tmp_path, project="auto", hooks_excluded_folders=(str(tmp_path / "x"),))
    assert {("user", "a good one"), ("assistant", "done")} <= set(messages)
    assert [name for name in waiting(tmp_path) if not name.endswith(intake.DAMAGED)] == []
    assert len(messages) - 2 + len(intake.damaged_files(tmp_path)) == len(STRANGE)


async def test_a_transcript_brings_what_hooks_did_not(tmp_path: Path) -> None:
    session = ClaudeSession(tmp_path / "t.jsonl")
    spooled(tmp_path, "prompt", "Fix the login page", message_id="p1:1", at=session.now)
    session.user("Fix the login page")
    session.assistant("I read the code first.")
    session.assistant([{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}])
    session.user([{"type": "tool_result", "tool_use_id": "t1", "content": "code"}])
    session.other("hologram", content="?")
    session.assistant([{"type": "gesture"}, {"type": "text", "text": "The login page is fixed."}])
    with session.path.open("a") as file:
        file.write("no json\n")
    fixed: dict[str, Any] = {"message_id": "p1:2", "at": session.now, "transcript": str(session.path)}
    spooled(tmp_path, "reply", "The login page is fixed.", **fixed)
    async with memory_in(tmp_path) as memory:
        await memory.capture.take_in()
        said = ["Fix the login page", "I read the code first.", "The login page is fixed."]
        assert [text for _, text in kept(memory)] == said
        await take_in_transcript(memory, tmp_path, session)
        assert len(kept(memory)) == 3
    assert unknown_lines(tmp_path) == {"claude-code": {"hologram": 1, "no JSON": 1}}


@pytest.mark.parametrize(("ids", "count"), [(("p0", "p1"), 2), (("p1", "p1", "p1"), 1)], ids=["late", "again"])
async def test_a_hook_that_is_late_brings_nothing_again(tmp_path: Path, ids: tuple[str, ...], count: int) -> None:
    """The transcript may be read before the record of a prompt is; a record comes again if its reader was killed."""
    session = ClaudeSession(tmp_path / "t.jsonl")
    session.user("yes")
    async with memory_in(tmp_path) as memory:
        await take_in_transcript(memory, tmp_path, session)
        for message_id in ids:
            spooled(tmp_path, "prompt", "yes", message_id=message_id, transcript=str(session.path))
            await memory.capture.take_in()
        assert kept(memory) == [("user", "yes")] * count


async def test_a_transcript_that_is_written_truncated_or_replaced(tmp_path: Path) -> None:
    session = ClaudeSession(tmp_path / "t.jsonl")
    session.user("one")
    whole = session.path.read_bytes()
    session.user("two, in Grüßen und 日本語")
    both = session.path.read_bytes()
    async with memory_in(tmp_path) as memory:
        for content in (whole + both[len(whole) : -20], both):
            session.path.write_bytes(content)
            await take_in_transcript(memory, tmp_path, session)
        assert [text for _, text in kept(memory)] == ["one", "two, in Grüßen und 日本語"]
        session.user("three")
        lines = session.path.read_text("utf-8").splitlines(keepends=True)
        await take_in_transcript(memory, tmp_path, session)
        for content, new in ((lines[1], "four"), (lines[2] + lines[0], "five")):
            session.path.write_text(content, "utf-8")
            session.user(new)
            await take_in_transcript(memory, tmp_path, session)
        texts = sorted(text for _, text in kept(memory))
        assert texts == ["five", "four", "one", "three", "two, in Grüßen und 日本語"]


async def test_a_resumed_or_forked_session_brings_nothing_twice(tmp_path: Path, memory: Memory) -> None:
    """Lines are copied into the new transcript with their ids and times; the session may be named anew."""
    first = ClaudeSession(tmp_path / "first.jsonl")
    spooled(tmp_path, "prompt", "which port?", message_id="p1:1", at=first.now)
    first.user("which port?")
    first.assistant("It is 8080.")
    spooled(tmp_path, "reply", "It is 8080.", at=first.now, transcript=str(first.path))
    await memory.capture.take_in()
    for number, renamed in enumerate(({"sessionId": "s2"}, {}, {"forkedFrom": {"sessionId": "s1"}})):
        fork = ClaudeSession(tmp_path / f"fork{number}.jsonl", "s2")
        for line in first.lines:
            fork.write({**line, **renamed})
        fork.user(f"new {number}")
        await take_in_transcript(memory, tmp_path, fork, "s2")
    assert sorted(text for _, text in kept(memory)) == ["It is 8080.", "new 0", "new 1", "new 2", "which port?"]


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_purge_leaves_nothing_in_the_spool(tmp_path: Path, mode: str) -> None:
    """With capture it is taken in first, so that the purge knows what to search for. A damaged record is named."""
    async with memory_in(tmp_path, hooks=mode) as memory:
        spooled(tmp_path, "prompt", DIAGNOSIS)
        assert (await memory.care.purge(memory.scope, None)).clean
        assert waiting(tmp_path) == []
        assert kept(memory) == []
        assert [file for file in files_below(tmp_path) if b"hypertension" in file.read_bytes()] == []
        if mode == "on":
            file = spooled(tmp_path, "prompt", f"again {DIAGNOSIS}")
            file.with_name("1-1-a.json").write_text(f'{{"text": "again {DIAGNOSIS}')
            result = await memory.care.purge(memory.scope, None)
            assert [trace.file.suffix for trace in result.traces] == [intake.DAMAGED]
            assert not result.clean


async def jobs_of(memory: Memory) -> list[tuple[str, str, int]]:
    return [(item.job.kind, item.job.state, len(item.job.message_ids)) for item in await memory.care.jobs()]


async def test_a_session_is_learned_from_when_it_ends_or_is_long(tmp_path: Path) -> None:
    with OpenAIServer(model) as server:
        for event in ("end", "compact"):
            folder = tmp_path / event
            async with memory_in(folder, llm=llm_settings(server.base_url)) as memory:
                spooled(folder, "prompt", "I like tea")
                await memory.capture.take_in()
                assert await jobs_of(memory) == []
                spooled(folder, "reply", "Noted")
                spooled(folder, "prompt", "another session", session="s2")
                for _ in range(2):
                    spooled(folder, event)
                    await memory.capture.take_in()
                assert await jobs_of(memory) == [("capture", "waiting", 2)]
        async with memory_in(tmp_path / "long", llm=llm_settings(server.base_url)) as memory:
            thirty = [("capture", "waiting", 30)]
            for number in range(59):
                spooled(tmp_path / "long", "prompt", f"thought {number}")
                if number in (28, 29, 58):
                    await memory.capture.take_in()
                    assert await jobs_of(memory) == ([] if number == 28 else thirty)
        assert server.requests == []
    async with memory_in(tmp_path / "lent", llm={"provider": "sampling"}) as memory:
        spooled(tmp_path / "lent", "prompt", "I like tea")
        spooled(tmp_path / "lent", "end")
        await memory.capture.take_in()
        assert await jobs_of(memory) == []


# What a user sent, and what of it is kept.
KEPT_OF_USERS: dict[str, str] = json.loads((Path(__file__).parent / "kept_of_users.json").read_text("utf-8"))
# Texts with blocks that memory tools put into them, and texts that only look so: what goes and what stays.
BLOCKS: list[dict[str, str]] = json.loads((Path(__file__).parent / "recalled_blocks.json").read_text("utf-8"))

RECALLED_TAGS = ("recalled-memories", "auto-memory", "userMemories", "past-conversations", "mem0-context")
CLIENT_TAGS = ("permissions instructions", "plugins_instructions", "local-command-caveat", "ide_opened_file")


def test_what_a_person_said_is_kept() -> None:
    for text, left in KEPT_OF_USERS.items():
        assert clean_text("user", text) == left, text
    for text in ("/etc", "!important is a CSS keyword."):
        assert clean_text("assistant", text) == text
    for tag in CLIENT_TAGS:
        assert clean_text("user", f"<{tag}>\nx\n</{tag}>\nHello") == "Hello", tag


def test_what_memory_tools_recalled_was_not_said() -> None:
    """Guards the memory from learning again what it, or another one, put into the session."""
    for block in BLOCKS:
        left = clean_text("user", block["text"])
        assert not block["gone"] or block["gone"] not in left, block
        assert block["kept"] in left, block
    for tag in (*RECALLED_TAGS, "letta_memory", "memory"):
        assert clean_text("assistant", f"<{tag}>\n- User likes tea\n</{tag}>\nHello") == "Hello", tag
    # This takes minutes if every tag is searched an end for.
    assert clean_text("user", "<memory_context> " * 50_000).startswith("<memory_context>")
    for tag in ("in-memory-cache", "memory-limit", "MemoryList", "context"):
        assert "tea" in clean_text("user", f"<{tag}>\n- tea\n</{tag}>\nHello"), tag


def until_at_most(folder: Path, records: int) -> None:
    deadline = time.monotonic() + 90
    while len(waiting(folder)) > records:
        assert time.monotonic() < deadline, "the spool was not taken in"


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes, as a crash does."""
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.nightly
async def test_whoever_is_killed_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """Servers are killed at any point while they take in records and a transcript; the next one goes on."""
    session = ClaudeSession(tmp_path / "t.jsonl")
    for number in range(150):
        spooled(tmp_path, "prompt", f"prompt {number}", message_id=str(number), transcript=str(session.path))
        session.user(f"prompt {number}")
        session.assistant(f"between {number}")
        session.assistant(f"reply {number}")
        spooled(tmp_path, "reply", f"reply {number}", transcript=str(session.path))
    for left in (300, 299, 200, 199, 101, 50):
        server = start(tmp_path, "take-in")
        assert server.stdout is not None
        await anyio.to_thread.run_sync(server.stdout.readline)
        await anyio.to_thread.run_sync(until_at_most, tmp_path, left)
        end([server])
    async with memory_in(tmp_path) as memory:
        await memory.capture.take_in()
        texts = sorted(text for _, text in kept(memory))
    expected = [f"{what} {number}" for number in range(150) for what in ("prompt", "between", "reply")]
    assert texts == sorted(expected)
    assert waiting(tmp_path) == []


async def test_what_is_over_the_daily_limit_waits_until_the_next_day(tmp_path: Path) -> None:
    """The calls of all jobs and processes of a UTC day count; waiting is no failure."""
    clock = StoppedClock()
    with OpenAIServer(model) as server:
        endpoint = llm_settings(server.base_url, timeout=TIMEOUT)
        async with memory_in(tmp_path, clock, llm=endpoint, learn={"captured_calls_per_day": 2}) as memory:
            engine = memory.engine
            assert engine.model is not None
            for session, text in (("s1", "I like tea"), ("s2", "I like cake")):
                spooled(tmp_path, "prompt", text, session=session)
                spooled(tmp_path, "end", session=session)
                await memory.capture.take_in()
                clock.forward(minutes=1)
                assert await work_on_jobs(engine, engine.model)
            assert (len(server.requests), await memory_texts(memory)) == (2, ["Alice likes tea"])
            [report, _] = await memory.care.jobs()
            assert (report.job.state, report.job.attempts) == ("waiting", 0)
            assert "learn.captured_calls_per_day" in report.job.error
            assert await memory.news(Scope("alice")) == ()
            clock.at = clock.at.replace(hour=0, minute=1) + timedelta(days=1)
            assert await work_on_jobs(engine, engine.model)
            assert await memory_texts(memory) == ["Alice likes cake", "Alice likes tea"]
            assert len(server.requests) == 4
            assert len(kept(memory)) == 2


async def test_a_server_takes_in_and_learns_by_itself(tmp_path: Path) -> None:
    """From a record in the spool to a memory, also of what comes while it runs."""
    with OpenAIServer(model) as server:
        spooled(tmp_path, "prompt", "I like tea")
        spooled(tmp_path, "end")
        endpoint = llm_settings(server.base_url, timeout=TIMEOUT)
        async with memory_in(tmp_path, HastyClock(), llm=endpoint, background=True) as memory:
            assert await next_news(memory) == ("learned from 1 message:\n- Alice likes tea",)
            assert await memory_texts(memory) == ["Alice likes tea"]
            assert waiting(tmp_path) == []
            spooled(tmp_path, "prompt", "said later")
            with anyio.fail_after(TIMEOUT):
                while waiting(tmp_path):
                    await anyio.lowlevel.checkpoint()
            assert kept(memory)[-1] == ("user", "said later")
