"""What each client's payloads become, and the form in which each client is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks import spool
from scripted_recall import answering, says
from tests.support.hook_program import handle_hook, spooled

PROMPT = "Which database does the billing service use?"
REPLY = "It uses PostgreSQL 16."
BLOCK = "<palimpsest-memory>\n- The billing service uses PostgreSQL.\n</palimpsest-memory>"
BRIEF = "<palimpsest-memory>\nAda lives in Lisbon.\n</palimpsest-memory>"

# What each client sends when a session begins, for a prompt and for a reply; its session and turn.
CLIENTS: dict[str, Any] = json.loads((Path(__file__).parent / "payloads.json").read_text("utf-8"))

STARTS, PROMPTS, REPLIES = (
    {name: of[event] for name, of in CLIENTS.items() if event in of} for event in ("start", "prompt", "reply")
)
CLAUDE = {key: PROMPTS["claude-code"][key] for key in ("session_id", "transcript_path", "cwd", "permission_mode")}


def write_brief(data_dir: Path, text: str) -> None:
    for file, content in (
        (spool.brief_file(str(data_dir), "k1"), {"v": 1, "text": text, "ids": ["m1"]}),
        (spool.folders_file(str(data_dir)), {"v": 1, "users": {"": {"": "k1"}}}),
    ):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(json.dumps(content))


def records_of(folder: Path, *payloads: dict[str, Any], client: str = "", **variables: str) -> list[dict[str, Any]]:
    arguments = ("--client", client) if client else ()
    for payload in payloads:
        assert handle_hook(folder / "data", payload, *arguments, **variables) is None
    return spooled(folder / "data")


@pytest.mark.parametrize("client", PROMPTS)
def test_what_the_events_of_a_client_become(tmp_path: Path, client: str) -> None:
    data_dir = tmp_path / "data"
    assert handle_hook(data_dir, PROMPTS[client], "--client", client, "--user", "ada") is None
    (record,) = spooled(data_dir)
    assert record.pop("at").endswith("+00:00")
    assert record.pop("message_id").rpartition(":")[0] == CLIENTS[client]["turn"]
    assert record == {
        "v": 1,
        "client": client,
        "event": "prompt",
        "session": CLIENTS[client]["session"],
        "role": "user",
        "text": PROMPT,
        "transcript": PROMPTS[client]["transcript_path"] or "",
        "cwd": "/home/ada/app",
        "user": "ada",
    }
    with answering(data_dir, says(BLOCK, "m1")) as requests:
        printed = handle_hook(data_dir, PROMPTS[client], "--client", client)
        assert len(requests) == (client != "vscode")
        if client in REPLIES:
            goes_on = {"decision": "block", "reason": BLOCK} if client in ("claude-code", "codex") else None
            assert handle_hook(data_dir, REPLIES[client], "--client", client) == goes_on
            for held in ({"stop_hook_active": True}, {"permission_mode": "plan"}):
                assert handle_hook(data_dir, {**REPLIES[client], **held}, "--client", client) is None
            reply = spooled(data_dir)[-1]
            assert [reply[key] for key in ("event", "role", "text", "client", "session")] == [
                "reply",
                "assistant",
                REPLY,
                client,
                CLIENTS[client]["session"],
            ]
            assert len(requests) == (client != "vscode") + (goes_on is not None)
    name = "BeforeAgent" if client == "gemini" else "UserPromptSubmit"
    forms: dict[str, dict[str, Any] | None] = {
        "cursor": {"continue": True, "additional_context": BLOCK},
        "vscode": None,
    }
    assert printed == forms.get(client, {"hookSpecificOutput": {"hookEventName": name, "additionalContext": BLOCK}})

    write_brief(data_dir, BRIEF)
    printed = handle_hook(data_dir, STARTS[client], "--client", client)
    claude_form = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": BRIEF}}
    assert printed == ({"additional_context": BRIEF} if client == "cursor" else claude_form)


def test_which_messages_have_one_id(tmp_path: Path) -> None:
    """An identical prompt of another turn has another id, and so has a second reply of a turn, after another hook."""
    claude = PROMPTS["claude-code"]
    first, again, later = records_of(tmp_path / "a", *({**claude, "prompt_id": turn} for turn in ("p-1", "p-1", "p-2")))
    assert first["message_id"] == again["message_id"] != later["message_id"]
    replies = [{**REPLIES["codex"], "last_assistant_message": text} for text in (REPLY, "And Redis for the queue.")]
    assert len({record["message_id"] for record in records_of(tmp_path / "b", *replies, client="codex")}) == 2
    without_turn = {key: value for key, value in claude.items() if key != "prompt_id"}
    assert [record["message_id"] for record in records_of(tmp_path / "c", without_turn)] == [""]
    with_mark = b"\xef\xbb\xbf" + json.dumps(PROMPTS["cursor"]).encode()
    handle_hook(tmp_path / "d", with_mark, "--client", "cursor")
    assert [record["text"] for record in spooled(tmp_path / "d")] == [PROMPT]


def test_what_is_no_message_of_this_conversation_is_left_out(tmp_path: Path) -> None:
    """Subagents, tools, and sessions that a program drives: `claude -p` in somebody's hook runs our hooks again."""
    payloads: tuple[dict[str, Any], ...] = (
        {**PROMPTS["claude-code"], "agent_id": "a1", "agent_type": "Explore"},
        {**REPLIES["claude-code"], "agent_id": "a1"},
        {**REPLIES["claude-code"], "hook_event_name": "SubagentStop", "agent_transcript_path": "/x"},
        {**CLAUDE, "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}},
        {**CLAUDE, "hook_event_name": "PostCompact", "compact_summary": "…"},
        {**CLAUDE, "hook_event_name": "Notification", "message": "waiting"},
        {**STARTS["cursor"], "hook_event_name": "stop", "status": "completed", "loop_count": 0},
        {**REPLIES["codex"], "last_assistant_message": None},
    )
    for payload in payloads:
        assert records_of(tmp_path, payload) == [], payload
    write_brief(tmp_path / "data", BRIEF)
    of_session = (STARTS["claude-code"], PROMPTS["claude-code"], REPLIES["claude-code"])
    for entrypoint in ("sdk-cli", "sdk-py", "sdk-ts"):
        assert records_of(tmp_path, *of_session, CLAUDE_CODE_ENTRYPOINT=entrypoint) == []


def test_the_payload_tells_the_client(tmp_path: Path) -> None:
    inherited = {"CURSOR_TRACE_ID": "x", "CURSOR_VERSION": "3.20", "TERM_PROGRAM": "vscode"}
    snake_case = {"hook_event_name": "UserPromptSubmit", "session_id": "vs-1", "timestamp": "2026-10-01T08:00Z"}
    cases: tuple[tuple[dict[str, Any], dict[str, str], str], ...] = (
        (PROMPTS["claude-code"], inherited, "claude-code"),
        (PROMPTS["vscode"], {}, "vscode"),
        ({**snake_case, "prompt": PROMPT}, {}, "vscode"),
    )
    for number, (payload, variables, client) in enumerate(cases):
        (record,) = records_of(tmp_path / str(number), payload, client="claude-code", **variables)
        assert (record["client"], record["session"]) == (client, CLIENTS[client]["session"])
    for name in ("SessionStart", "sessionStart"):
        write_brief(tmp_path / name, BRIEF)
        printed = handle_hook(tmp_path / name, {**STARTS["cursor"], "hook_event_name": name}, "--client", "claude-code")
        assert printed == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": BRIEF}}
        assert [record["client"] for record in spooled(tmp_path / name)] == ["cursor"]


def test_cursor_with_hooks_of_its_own_runs_ours_once(tmp_path: Path) -> None:
    """Its file may be in the home folder or the project. Other hooks, and a copy of Claude Code's, do not count."""
    commands = ("palimpsest-hook --client cursor", 'palimpsest-hook", "args": ["--client", "cursor"], "x": "')
    for number, (place, command) in enumerate((place, command) for place in (".", "app") for command in commands):
        home = tmp_path / str(number)
        file = home / place / ".cursor" / "hooks.json"
        file.parent.mkdir(parents=True)
        file.write_text(f'{{"hooks": {{"beforeSubmitPrompt": [{{"command": "/opt/{command}"}}]}}}}')
        payload = {**PROMPTS["cursor"], "workspace_roots": [str(home / "app")]}
        with answering(home / "data", says(BLOCK, "m1")) as requests:
            assert handle_hook(home / "data", payload, "--client", "claude-code") is None
            assert handle_hook(home / "data", payload) is None
            assert handle_hook(home / "data", payload, "--client", "cursor") is not None
        assert len(requests) == len(spooled(home / "data")) == 1
    for command in ("notify --client cursor", "palimpsest-hook --client claude-code"):
        home = tmp_path / command.split()[0]
        (home / ".cursor").mkdir(parents=True)
        (home / ".cursor" / "hooks.json").write_text(json.dumps({"hooks": {"stop": [{"command": command}]}}))
        assert len(records_of(home, PROMPTS["cursor"], client="claude-code")) == 1
