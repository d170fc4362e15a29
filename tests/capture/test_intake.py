"""The spool is taken in: each message once, in order, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.core.models import Scope
from palimpsest.hooks import spool
from tests.support.memory import memory_in, messages_from
from tests.support.sessions import BEGAN, ClaudeSession, kept, spooled, unknown_lines, waiting

pytestmark = pytest.mark.anyio


class TestRecords:
    async def test_what_hooks_left_is_kept_and_removed_from_the_spool(self, tmp_path: Path) -> None:
        """Prompts and replies become messages of one conversation, in the order in which they were said."""
        spooled(tmp_path, "start", detail="startup")
        spooled(tmp_path, "prompt", "My cat is called Minka.", message_id="p1:1")
        spooled(tmp_path, "reply", "Minka is a lovely name.", message_id="p1:2")
        async with memory_in(tmp_path) as memory:
            intake = await memory.capture.take_in()
            assert (intake.records, intake.kept) == (3, 2)
            assert kept(memory) == [("user", "My cat is called Minka."), ("assistant", "Minka is a lovely name.")]
            assert waiting(tmp_path) == []
            [hit, *_] = (await memory.search(memory.scope, "What is the cat called?")).hits
            assert hit.sources == ("claude-code:s1:p1:1",)

    async def test_a_message_is_kept_once(self, tmp_path: Path) -> None:
        """Two hooks of one event, and a record that comes again, bring one message; another id brings another."""
        for message_id in ("p1:1", "p1:1", "p2:1"):
            spooled(tmp_path, "prompt", "go on with it", message_id=message_id)
        async with memory_in(tmp_path) as memory:
            await memory.capture.take_in()
            spooled(tmp_path, "prompt", "go on with it", message_id="p2:1")
            spooled(tmp_path, "prompt", "no id", session="s2")
            spooled(tmp_path, "prompt", "no id", session="s2")
            await memory.capture.take_in()
            assert kept(memory) == [("user", "go on with it")] * 2 + [("user", "no id")]

    async def test_secrets_and_private_parts_never_reach_the_ledger(self, tmp_path: Path) -> None:
        """A password is replaced; what is private, injected or added by a client is left out."""
        spooled(tmp_path, "prompt", "the password is hunter2-Xk99! and <private>I am ill</private> the rest stays")
        spooled(tmp_path, "prompt", "<palimpsest-memory>\nAna likes tea\n</palimpsest-memory>\nwhat does Ana like?")
        spooled(tmp_path, "prompt", "<ide_opened_file>secret.py</ide_opened_file>why does it fail?")
        async with memory_in(tmp_path) as memory:
            await memory.capture.take_in()
            texts = [text for _, text in kept(memory)]
            assert texts[1:] == ["what does Ana like?", "why does it fail?"]
            assert "hunter2" not in texts[0]
            assert "ill" not in texts[0]
            assert texts[0].endswith("the rest stays")

    async def test_records_of_another_user_stay(self, tmp_path: Path) -> None:
        """A server takes in what belongs to its user, or to nobody by name."""
        spooled(tmp_path, "prompt", "Bob's", user="bob")
        spooled(tmp_path, "prompt", "Alice's", user="alice")
        async with memory_in(tmp_path) as memory:
            assert (await memory.capture.take_in()).records == 1
            assert kept(memory) == [("user", "Alice's")]
        async with memory_in(tmp_path, user_id="bob") as memory:
            await memory.capture.take_in()
            assert sorted(text for _, text in kept(memory)) == ["Alice's", "Bob's"]
            assert waiting(tmp_path) == []

    async def test_what_cannot_be_read_is_set_aside(self, tmp_path: Path) -> None:
        """Damaged records are kept for a person, those of a newer version for a newer server, drafts for their hook."""
        spooled(tmp_path, "prompt", "a good one")
        folder = Path(spool.spool_dir(str(tmp_path)))
        for name, content in (
            ("1-1-a.json", "{"),
            ("1-1-b.json", "[1]"),
            ("1-1-c.json", '{"v": 1, "client": "claude-code"}'),
            ("1-1-d.json", '{"v": 2}'),
            ("1-1-e.part", "half"),
            ("1-1-f.json", "[" * 100_000),
        ):
            (folder / name).write_text(content)
        async with memory_in(tmp_path) as memory:
            assert (await memory.capture.take_in()).kept == 1
        assert waiting(tmp_path) == ["1-1-d.json", "1-1-e.part", "damaged"]
        assert sorted(path.name for path in (folder / "damaged").iterdir()) == [
            f"1-1-{letter}.json" for letter in "abcf"
        ]

    async def test_half_characters_do_no_harm(self, tmp_path: Path) -> None:
        """A client that cuts a text in the middle of an emoji sends half of it."""
        spooled(tmp_path, "prompt", "a cut emoji \ud83d", cwd="/a/\udcff")
        async with memory_in(tmp_path) as memory:
            await memory.capture.take_in()
            assert kept(memory) == [("user", "a cut emoji ?")]

    async def test_excluded_folders_are_left_out(self, tmp_path: Path) -> None:
        """Also what was spooled before the folder was excluded, and what is below it."""
        spooled(tmp_path, "prompt", "a secret project", cwd=str(tmp_path / "secret" / "deep"))
        spooled(tmp_path, "prompt", "another", cwd=str(tmp_path / "secretary"))
        async with memory_in(tmp_path, hooks_excluded_folders=(str(tmp_path / "secret"),)) as memory:
            await memory.capture.take_in()
            assert kept(memory) == [("user", "another")]
            assert waiting(tmp_path) == []

    @pytest.mark.parametrize("mode", ["off", "recall"])
    async def test_a_memory_that_must_not_capture_takes_nothing_in(self, tmp_path: Path, mode: str) -> None:
        """What another mode left in the spool waits there."""
        spooled(tmp_path, "prompt", "said before")
        async with memory_in(tmp_path, hooks=mode) as memory:
            assert (await memory.capture.take_in()).records == 0
            assert len(waiting(tmp_path)) == 1


class TestScope:
    async def test_the_project_is_that_of_the_folder_only_if_it_is_automatic(self, tmp_path: Path) -> None:
        """A fixed project, and no project, hold for every folder."""
        repository = tmp_path / "app"
        (repository / ".git").mkdir(parents=True)
        for project, expected in (("", ""), ("fixed", "fixed"), ("auto", "app")):
            data = tmp_path / f"data-{project}"
            spooled(data, "prompt", "we use Postgres here", cwd=str(repository))
            spooled(data, "prompt", "no folder at all", session="s2")
            async with memory_in(data, project=project) as memory:
                intake = await memory.capture.take_in()
                others = {"auto": ""}.get(project, project)
                assert intake.scopes == {Scope("alice", expected), Scope("alice", others)}

    async def test_messages_of_an_agent_do_not_join_a_captured_conversation(self, tmp_path: Path) -> None:
        """What an agent adds in between is a conversation of its own."""
        async with memory_in(tmp_path) as memory:
            spooled(tmp_path, "prompt", "first", at=BEGAN)
            await memory.capture.take_in()
            await memory.add_messages(messages_from(("user", "added by an agent"), at=BEGAN))
            spooled(tmp_path, "reply", "second", at=BEGAN + timedelta(minutes=40))
            await memory.capture.take_in()
            first, added, second = [
                (await memory.get(memory.scope, step.owner_id))
                for edit in reversed(await memory.log(memory.scope))
                for step in edit.steps
            ]
            assert first.session_id == second.session_id != added.session_id  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


class TestTranscripts:
    async def test_a_transcript_brings_what_hooks_did_not(self, tmp_path: Path) -> None:
        """What the assistant said between its tools comes from the transcript; nothing is kept twice."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        spooled(tmp_path, "prompt", "Fix the login page", message_id="p1:1", at=session.now)
        session.user("Fix the login page")
        session.assistant("I read the code first.")
        session.assistant([{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}])
        session.user([{"type": "tool_result", "tool_use_id": "t1", "content": "code"}])
        session.assistant("The login page is fixed.")
        spooled(
            tmp_path,
            "reply",
            "The login page is fixed.",
            message_id="p1:2",
            at=session.now,
            transcript=str(session.path),
        )
        async with memory_in(tmp_path) as memory:
            await memory.capture.take_in()
            expected = [
                ("user", "Fix the login page"),
                ("assistant", "I read the code first."),
                ("assistant", "The login page is fixed."),
            ]
            assert kept(memory) == expected
            spooled(tmp_path, "end", transcript=str(session.path))
            assert (await memory.capture.take_in()).kept == 0

    async def test_equal_texts_are_counted(self, tmp_path: Path) -> None:
        """The third "yes" of a transcript is new if hooks brought two, whichever of them came first."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        async with memory_in(tmp_path) as memory:
            for number in range(3):
                session.user("yes")
                if number != 1:
                    spooled(tmp_path, "prompt", "yes", message_id=f"p{number}", transcript=str(session.path))
                spooled(tmp_path, "reply", f"done {number}", transcript=str(session.path))
                session.assistant(f"done {number}")
                await memory.capture.take_in()
            spooled(tmp_path, "end", transcript=str(session.path))
            await memory.capture.take_in()
            assert [text for _, text in kept(memory)].count("yes") == 3
            assert len(kept(memory)) == 6

    async def test_a_hook_that_is_late_brings_nothing_again(self, tmp_path: Path) -> None:
        """The transcript may be read before the record of a prompt is."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        session.user("yes")
        async with memory_in(tmp_path) as memory:
            spooled(tmp_path, "end", transcript=str(session.path))
            await memory.capture.take_in()
            for number in range(2):
                spooled(tmp_path, "prompt", "yes", message_id=f"p{number}", transcript=str(session.path))
                await memory.capture.take_in()
            assert kept(memory) == [("user", "yes")] * 2

    async def test_a_record_that_was_left_out_may_come_again(self, tmp_path: Path) -> None:
        """Its reader was killed, or two hooks of one event wrote it: the transcript's line stays the only one."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        session.user("yes")
        async with memory_in(tmp_path) as memory:
            spooled(tmp_path, "end", transcript=str(session.path))
            await memory.capture.take_in()
            for _ in range(3):
                spooled(tmp_path, "prompt", "yes", message_id="p1", transcript=str(session.path))
                await memory.capture.take_in()
            assert kept(memory) == [("user", "yes")]

    async def test_half_a_line_waits(self, tmp_path: Path) -> None:
        """A client may be writing while the transcript is read."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        session.user("one")
        whole = session.path.read_bytes()
        session.user("two, in Grüßen und 日本語")
        both = session.path.read_bytes()
        async with memory_in(tmp_path) as memory:
            for content in (whole + both[len(whole) : -20], both):
                session.path.write_bytes(content)
                spooled(tmp_path, "reply", transcript=str(session.path))
                await memory.capture.take_in()
            assert [text for _, text in kept(memory)] == ["one", "two, in Grüßen und 日本語"]

    async def test_a_file_that_was_truncated_or_replaced_is_read_anew(self, tmp_path: Path) -> None:
        """What is known by its id comes only once."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        for text in ("one", "two", "three"):
            session.user(text)
        lines = session.path.read_text("utf-8").splitlines(keepends=True)
        async with memory_in(tmp_path) as memory:
            spooled(tmp_path, "end", transcript=str(session.path))
            await memory.capture.take_in()
            session.path.write_text(lines[1], "utf-8")
            session.user("four")
            spooled(tmp_path, "end", transcript=str(session.path))
            await memory.capture.take_in()
            session.path.write_text("".join([lines[2], lines[0]]), "utf-8")
            session.user("five")
            spooled(tmp_path, "end", transcript=str(session.path))
            await memory.capture.take_in()
            assert sorted(text for _, text in kept(memory)) == ["five", "four", "one", "three", "two"]

    async def test_a_resumed_or_forked_session_brings_nothing_twice(self, tmp_path: Path) -> None:
        """Lines are copied into the new transcript with their ids and times; the session may be named anew."""
        first = ClaudeSession(tmp_path / "first.jsonl")
        async with memory_in(tmp_path) as memory:
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
                spooled(tmp_path, "end", session="s2", transcript=str(fork.path))
                await memory.capture.take_in()
            assert sorted(text for _, text in kept(memory)) == ["It is 8080.", "new 0", "new 1", "new 2", "which port?"]

    async def test_unknown_lines_are_counted(self, tmp_path: Path) -> None:
        """A newer client may write what this version does not know; the rest is read."""
        session = ClaudeSession(tmp_path / "t.jsonl")
        session.other("hologram", content="?")
        session.user("hello there")
        session.assistant([{"type": "gesture"}, {"type": "text", "text": "hi"}])
        with session.path.open("a") as file:
            file.write("no json\n")
        spooled(tmp_path, "end", transcript=str(session.path))
        async with memory_in(tmp_path) as memory:
            await memory.capture.take_in()
            assert kept(memory) == [("user", "hello there"), ("assistant", "hi")]
        assert unknown_lines(tmp_path) == {"claude-code": {"hologram": 1, "assistant: gesture": 1, "no JSON": 1}}
