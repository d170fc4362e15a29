"""What commands and servers take in of sessions: each message once, and what a user states that holds beyond one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.core.files import files_below
from palimpsest.core.models import CAPTURED, ORIGIN, Scope, Undo
from palimpsest.hooks import spool
from palimpsest.hooks.brief import RecallRequest
from palimpsest.hooks.events import find_brief
from palimpsest.hooks.intake import SessionsRequest
from palimpsest.memory import Memory
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.ledger_access import ignore_progress
from tests.support.memory import ALICE, memory_in
from tests.support.sessions import ClaudeSession, kept, spooled, waiting

pytestmark = pytest.mark.anyio


VAULT = "The deploy key is in the vault"


def test_a_command_takes_in_before_it_works(tmp_path: Path) -> None:
    data = tmp_path / "data"
    spooled(data, "prompt", VAULT)
    for option in ("--user", "--project"):
        palimpsest(tmp_path, option, "other", "list")
    assert len(waiting(data)) == 1
    assert "in the vault" in palimpsest(tmp_path, "search", "where is the deploy key?")
    assert waiting(data) == []
    # An undo means the last edit of the person; what hooks captured can be undone by its number.
    palimpsest(tmp_path, "add", "Ana likes tea")
    spooled(data, "prompt", "captured meanwhile")
    assert "Ana likes tea" in palimpsest(tmp_path, "undo")
    [_, captured, *_] = palimpsest_json(tmp_path, "log")["edits"]
    assert "captured meanwhile" in palimpsest(tmp_path, "undo", "--edit", str(captured["edit"]))


def test_doctor_names_what_waits_and_what_could_not_be_read(tmp_path: Path) -> None:
    def finding(code: int) -> tuple[bool, str]:
        findings = json.loads(palimpsest(tmp_path, "doctor", "--json", code=code))["findings"]
        return next((finding["ok"], finding["text"]) for finding in findings if finding["part"] == "capture")

    assert finding(0) == (True, "hooks = on; waiting: 0 records")
    data = tmp_path / "data"
    session = ClaudeSession(tmp_path / "t.jsonl")
    session.other("hologram")
    spooled(data, "end", transcript=str(session.path))
    (Path(spool.spool_dir(str(data))) / "1-1-a.json").write_text("{")
    palimpsest(tmp_path, "list")
    spooled(data, "prompt", "said after")
    ok, text = finding(1)
    assert not ok
    for part in (
        "waiting: 1 record;",
        "cannot be read: 1 record in",
        "unknown in transcripts of claude-code, and left out: hologram (1)",
    ):
        assert part in text


@pytest.mark.anyio
async def test_a_transcript_does_not_bring_back_what_a_purge_erased(tmp_path: Path) -> None:
    """A hook's record and its line in a transcript have two ids; a session that goes on in a new file has copies.

    The same words are kept when they are said again: a purge forbids nobody to say it later.
    """
    data, client, diagnosis = tmp_path / "data", tmp_path / "client", "The diagnosis is hypertension."
    session = ClaudeSession(client / "p" / "s1.jsonl")
    async with memory_in(data) as memory:
        spooled(data, "prompt", diagnosis, transcript=str(session.path), at=session.now)
        spooled(data, "prompt", "go on", session="s0", at=session.now)
        session.user(diagnosis)
        session.assistant("I wish you all the best.")
        spooled(data, "reply", "I wish you all the best.", transcript=str(session.path), at=session.now)
        await memory.capture.take_in()
        assert len(kept(memory)) == 3
        await memory.care.purge(memory.scope, None)
        copy = ClaudeSession(client / "p" / "s2.jsonl", "s2")
        for line in session.lines:
            copy.write({**line, "sessionId": "s2"})
        copy.user("What else is new?")
        for number in range(600):
            copy.other("progress", number=number)
        copy.user("go on")
        result = await memory.capture.take_in_sessions(SessionsRequest("claude-code", client), ignore_progress)
        assert kept(memory) == [("user", "What else is new?"), ("user", "go on")]
        assert result.messages.total() == 2
    assert [file for file in files_below(data) if b"hypertension" in file.read_bytes()] == []


# What a user says in a session, and what of it holds beyond the session.
SAID: dict[str, list[str]] = json.loads(Path(__file__).with_name("statements.json").read_text("utf-8"))
OF_PROJECT, OF_USER = SAID["of the project"], SAID["of the user"]
APP = Scope("alice", "app")


def session(data_dir: Path, repository: Path, name: str) -> None:
    for number, prompt in enumerate(SAID["prompts"]):
        spooled(data_dir, "prompt", prompt, session=name, message_id=f"{name}{number}", cwd=str(repository))
        spooled(data_dir, "reply", f"Done, step {number}.", session=name, cwd=str(repository))
    spooled(data_dir, "end", session=name, cwd=str(repository))


async def captured(memory: Memory, scope: Scope) -> list[str]:
    found = await memory.corrections.captured(scope, 100)
    return sorted(item.text for item in found if item.scope.project == scope.project)


async def test_a_session_without_a_model_leaves_its_rules_behind(tmp_path: Path) -> None:
    """They are kept once, each with the message it stands in; what was dropped does not come back."""
    repository, data = tmp_path / "app", tmp_path / "data"
    (repository / ".git").mkdir(parents=True)
    session(data, repository, "s1")
    async with memory_in(data, project="auto") as memory:
        await memory.capture.take_in()
        assert await captured(memory, APP) == OF_PROJECT
        assert await captured(memory, ALICE) == OF_USER
        found = await memory.corrections.captured(APP, 100)
        for item in found:
            assert item.metadata[ORIGIN] == CAPTURED
            (source,) = await memory.sources(APP, item.id)
            assert item.text.casefold() in source.content.casefold()
        memory.briefs.learn_folder(str(repository), "app")
        await memory.briefs.render()
        brief = find_brief(str(data), "alice", str(repository))
        assert brief is not None
        assert all(text in brief.text for text in (*OF_PROJECT, *OF_USER))
        assert '- user: "run the tests again"' in brief.text
        assert '- assistant: "Done, step 10."' in brief.text
        assert "for today" not in brief.text
        assert "secret removed" not in brief.text

        await memory.documents.embed(ignore_progress)

        async def recalled(prompt: str, *shown: str) -> str:
            request = RecallRequest(prompt, "alice", "claude-code", "s2", str(repository), frozenset(shown))
            return (await memory.briefs.answer(request)).text

        for prompt in (
            "Add a flag --json to the export command",
            "Rename the package from store to ledger",
            "thanks, that's it for today, see you tomorrow",
        ):
            assert await recalled(prompt, *brief.ids) == "", "a task or a farewell that resembles an earlier one"
        asked = "Where do I find the deploy token?"
        assert await recalled(asked, *brief.ids) == "", "the session has seen it"
        assert [line for line in (await recalled(asked)).splitlines() if "1Password" in line and "said:" not in line]

        dropped = next(item for item in found if "briefly" in item.text)
        confirmed = next(item for item in found if "time.Sleep" in item.text)
        await memory.delete(APP, [dropped.id])
        await memory.corrections.confirm(APP, [confirmed.id])
        session(data, repository, "s2")
        await memory.capture.take_in()
        assert await captured(memory, APP) == [OF_PROJECT[1], OF_PROJECT[3]]
        assert len((await memory.scope_contents(APP)).memories) == 3
        kept = await memory.add_text(APP, OF_PROJECT[1], infer=False)  # said again by an agent, which confirms it
        assert ORIGIN not in kept.outcomes[0].memory.metadata
        edits = [edit for edit in await memory.log(ALICE) if any(step.kind == "memory" for step in edit.steps)]
        await memory.undo(ALICE, Undo(edit=edits[-1].number))
        assert await captured(memory, ALICE) == []


QUALIFIED: list[str] = json.loads((Path(__file__).parent.parent / "text" / "standing.json").read_text("utf-8"))[
    "qualified"
]


async def test_what_is_captured_keeps_what_limits_it(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        for number, sentence in enumerate(QUALIFIED):
            spooled(tmp_path, "prompt", f"{sentence}.", message_id=f"m{number}")
        await memory.capture.take_in()
        assert await captured(memory, ALICE) == sorted(QUALIFIED)
