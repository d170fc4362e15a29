"""What each client's payloads become, and the form in which each client is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks import spool
from scripted_recall import answering, says
from tests.support.hook_program import hook_environment, run_hook, spooled

PROMPT = "Which database does the billing service use?"
REPLY = "It uses PostgreSQL 16."
BLOCK = "<palimpsest-memory>\n- The billing service uses PostgreSQL.\n</palimpsest-memory>"
BRIEF = "<palimpsest-memory>\nAda lives in Lisbon.\n</palimpsest-memory>"

CLAUDE: dict[str, Any] = {
    "session_id": "5f0c8a1e-2b7d-4c57-9f43-0a3c1d2e4f56",
    "transcript_path": "/home/ada/.claude/projects/-home-ada-app/5f0c8a1e.jsonl",
    "cwd": "/home/ada/app",
    "permission_mode": "default",
}
CODEX: dict[str, Any] = {
    "session_id": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "turn_id": "turn-7",
    "transcript_path": "/home/ada/.codex/sessions/rollout.jsonl",
    "cwd": "/home/ada/app",
    "model": "gpt-5-codex",
    "permission_mode": "default",
}
GEMINI: dict[str, Any] = {
    "session_id": "gemini-1",
    "transcript_path": "/home/ada/.gemini/tmp/chats/session.json",
    "cwd": "/home/ada/app",
    "timestamp": "2026-11-20T09:30:00.000Z",
}
CURSOR: dict[str, Any] = {
    "conversation_id": "668320d2-2fd8-4888-b33c-2a466fec86e7",
    "generation_id": "490b90b7-a2ce-4c2c-bb76-cb77b125df2f",
    "model": "claude-opus-5",
    "session_id": "668320d2-2fd8-4888-b33c-2a466fec86e7",
    "cursor_version": "3.20.1",
    "workspace_roots": ["/home/ada/app"],
    "user_email": "ada@example.com",
    "transcript_path": None,
    "cwd": "",
}
VSCODE: dict[str, Any] = {
    "timestamp": "2026-02-09T10:30:00.000Z",
    "cwd": "/home/ada/app",
    "sessionId": "vs-1",
    "transcript_path": "/home/ada/transcript.json",
}
TURNS = {
    "claude-code": "p-1",
    "codex": "turn-7",
    "gemini": GEMINI["timestamp"],
    "cursor": CURSOR["generation_id"],
    "vscode": VSCODE["timestamp"],
}
SESSIONS = {
    "claude-code": CLAUDE["session_id"],
    "codex": CODEX["session_id"],
    "gemini": "gemini-1",
    "cursor": CURSOR["conversation_id"],
    "vscode": "vs-1",
}

STARTS: dict[str, dict[str, Any]] = {
    "claude-code": {**CLAUDE, "hook_event_name": "SessionStart", "source": "startup", "model": "claude-opus-5"},
    "codex": {**CODEX, "hook_event_name": "SessionStart", "source": "startup"},
    "gemini": {**GEMINI, "hook_event_name": "SessionStart", "source": "startup"},
    "cursor": {**CURSOR, "hook_event_name": "sessionStart", "is_background_agent": False},
    "vscode": {**VSCODE, "hookEventName": "SessionStart", "source": "new"},
}
PROMPTS: dict[str, dict[str, Any]] = {
    "claude-code": {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt_id": "p-1", "prompt": PROMPT},
    "codex": {**CODEX, "hook_event_name": "UserPromptSubmit", "prompt": PROMPT},
    "gemini": {**GEMINI, "hook_event_name": "BeforeAgent", "prompt": PROMPT},
    "cursor": {**CURSOR, "hook_event_name": "beforeSubmitPrompt", "prompt": PROMPT, "attachments": []},
    "vscode": {**VSCODE, "hookEventName": "UserPromptSubmit", "prompt": PROMPT},
}
REPLIES: dict[str, dict[str, Any]] = {
    "claude-code": {
        **CLAUDE,
        "hook_event_name": "Stop",
        "prompt_id": "p-1",
        "stop_hook_active": False,
        "last_assistant_message": REPLY,
    },
    "codex": {**CODEX, "hook_event_name": "Stop", "stop_hook_active": True, "last_assistant_message": REPLY},
    "gemini": {
        **GEMINI,
        "hook_event_name": "AfterAgent",
        "prompt": PROMPT,
        "prompt_response": REPLY,
        "stop_hook_active": False,
    },
    "cursor": {**CURSOR, "hook_event_name": "afterAgentResponse", "text": REPLY},
}
COMPACTIONS: dict[str, dict[str, Any]] = {
    "claude-code": {**CLAUDE, "hook_event_name": "PreCompact", "trigger": "auto", "custom_instructions": ""},
    "codex": {**CODEX, "hook_event_name": "PreCompact", "trigger": "auto"},
    "gemini": {**GEMINI, "hook_event_name": "PreCompress", "trigger": "auto"},
    "cursor": {**CURSOR, "hook_event_name": "preCompact", "trigger": "auto", "context_usage_percent": 85},
    "vscode": {**VSCODE, "hookEventName": "PreCompact", "trigger": "auto"},
}
ENDS: dict[str, dict[str, Any]] = {
    "claude-code": {**CLAUDE, "hook_event_name": "SessionEnd", "reason": "prompt_input_exit"},
    "gemini": {**GEMINI, "hook_event_name": "SessionEnd", "reason": "exit"},
    "cursor": {**CURSOR, "hook_event_name": "sessionEnd", "reason": "completed", "duration_ms": 45000},
}


def write_brief(data_dir: Path, text: str, folder: str = "", user: str = "", key: str = "k1") -> None:
    """Write a brief as a server does."""
    file, folders = Path(spool.brief_file(str(data_dir), key)), Path(spool.folders_file(str(data_dir)))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"v": 1, "text": text, "ids": [f"id-{key}"]}))
    known: dict[str, dict[str, str]] = json.loads(folders.read_text())["users"] if folders.exists() else {}
    known.setdefault(user, {})[folder] = key
    folders.write_text(json.dumps({"v": 1, "users": known}))


@pytest.mark.parametrize("client", PROMPTS)
def test_a_prompt_is_spooled(tmp_path: Path, client: str) -> None:
    assert run_hook(tmp_path / "data", PROMPTS[client], "--client", client, "--user", "ada") is None
    (record,) = spooled(tmp_path / "data")
    assert record.pop("at").endswith("+00:00")
    assert record.pop("message_id").rpartition(":")[0] == TURNS[client]
    assert record == {
        "v": 1,
        "client": client,
        "event": "prompt",
        "session": SESSIONS[client],
        "role": "user",
        "text": PROMPT,
        "transcript": PROMPTS[client]["transcript_path"] or "",
        "cwd": "/home/ada/app",
        "user": "ada",
        "detail": "",
    }


@pytest.mark.parametrize("client", REPLIES)
def test_a_reply_is_spooled_and_nothing_is_printed(tmp_path: Path, client: str) -> None:
    with answering(tmp_path / "data", says(BLOCK, "m1")) as requests:
        assert run_hook(tmp_path / "data", REPLIES[client], "--client", client) is None
    (record,) = spooled(tmp_path / "data")
    assert (record["event"], record["role"], record["text"]) == ("reply", "assistant", REPLY)
    assert (record["client"], record["session"]) == (client, SESSIONS[client])
    assert requests == []


@pytest.mark.parametrize(
    ("events", "kind", "detail"),
    [(COMPACTIONS, "compact", "auto"), (ENDS, "end", None), (STARTS, "start", None)],
    ids=["compact", "end", "start"],
)
def test_other_events_are_spooled_without_text(
    tmp_path: Path, events: dict[str, dict[str, Any]], kind: str, detail: str | None
) -> None:
    for client, payload in events.items():
        data_dir = tmp_path / client / "data"
        assert run_hook(data_dir, payload, "--client", client) is None
        (record,) = spooled(data_dir)
        assert (record["client"], record["event"], record["session"]) == (client, kind, SESSIONS[client])
        assert record["detail"] == (detail or payload.get("source") or payload.get("reason") or "")
        assert "text" not in record


@pytest.mark.parametrize("client", STARTS)
def test_a_session_begins_with_the_brief(tmp_path: Path, client: str) -> None:
    write_brief(tmp_path / "data", BRIEF)
    printed = run_hook(tmp_path / "data", STARTS[client], "--client", client)
    if client == "cursor":
        assert printed == {"additional_context": BRIEF}
    else:
        assert printed == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": BRIEF}}


@pytest.mark.parametrize("client", PROMPTS)
def test_a_prompt_is_answered_in_the_clients_form(tmp_path: Path, client: str) -> None:
    with answering(tmp_path / "data", says(BLOCK, "m1")):
        printed = run_hook(tmp_path / "data", PROMPTS[client], "--client", client)
    name = "BeforeAgent" if client == "gemini" else "UserPromptSubmit"
    forms: dict[str, dict[str, Any] | None] = {
        "cursor": {"continue": True, "additional_context": BLOCK},
        "vscode": None,
    }
    claude_form = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": BLOCK}}
    assert printed == forms.get(client, claude_form)


def test_a_payload_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    run_hook(tmp_path / "data", b"\xef\xbb\xbf" + json.dumps(PROMPTS["cursor"]).encode(), "--client", "cursor")
    assert [record["text"] for record in spooled(tmp_path / "data")] == [PROMPT]


def test_an_identical_prompt_of_another_turn_has_another_id(tmp_path: Path) -> None:
    for turn in ("p-1", "p-1", "p-2"):
        run_hook(tmp_path / "data", {**PROMPTS["claude-code"], "prompt_id": turn})
    first, again, later = (record["message_id"] for record in spooled(tmp_path / "data"))
    assert first == again != later


def test_two_replies_of_one_turn_have_two_ids(tmp_path: Path) -> None:
    """Guards a turn that another hook continues: Stop comes twice, with the same turn."""
    for text in (REPLY, "And Redis for the queue."):
        run_hook(tmp_path / "data", {**REPLIES["codex"], "last_assistant_message": text}, "--client", "codex")
    assert len({record["message_id"] for record in spooled(tmp_path / "data")}) == 2


def test_a_client_without_turns_gives_no_id(tmp_path: Path) -> None:
    run_hook(tmp_path / "data", {key: value for key, value in PROMPTS["claude-code"].items() if key != "prompt_id"})
    assert [record["message_id"] for record in spooled(tmp_path / "data")] == [""]


@pytest.mark.parametrize(
    "payload",
    [
        {**PROMPTS["claude-code"], "agent_id": "a1", "agent_type": "Explore"},
        {**REPLIES["claude-code"], "agent_id": "a1"},
        {**REPLIES["claude-code"], "hook_event_name": "SubagentStop", "agent_transcript_path": "/x"},
        {**CLAUDE, "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}},
        {**CLAUDE, "hook_event_name": "PostCompact", "compact_summary": "…"},
        {**CLAUDE, "hook_event_name": "Notification", "message": "waiting"},
        {**CURSOR, "hook_event_name": "stop", "status": "completed", "loop_count": 0},
        {**REPLIES["codex"], "last_assistant_message": None},
    ],
)
def test_what_is_no_message_of_this_conversation_is_left_out(tmp_path: Path, payload: dict[str, Any]) -> None:
    assert run_hook(tmp_path / "data", payload) is None
    assert spooled(tmp_path / "data") == []


@pytest.mark.parametrize("entrypoint", ["sdk-cli", "sdk-py", "sdk-ts"])
def test_a_session_that_a_program_drives_is_left_out(tmp_path: Path, entrypoint: str) -> None:
    """Guards against recursion: `claude -p` in somebody's hook runs our hooks again."""
    write_brief(tmp_path / "data", BRIEF)
    env = hook_environment(tmp_path / "data", CLAUDE_CODE_ENTRYPOINT=entrypoint)
    for payload in (STARTS["claude-code"], PROMPTS["claude-code"], REPLIES["claude-code"]):
        assert run_hook(tmp_path / "data", payload, env=env) is None
    assert spooled(tmp_path / "data") == []


def test_claude_code_in_a_terminal_of_another_client_is_claude_code(tmp_path: Path) -> None:
    """Guards that the environment, which is inherited, does not name the host."""
    env = hook_environment(tmp_path / "data", CURSOR_TRACE_ID="x", CURSOR_VERSION="3.20", TERM_PROGRAM="vscode")
    run_hook(tmp_path / "data", PROMPTS["claude-code"], "--client", "claude-code", env=env)
    assert [record["client"] for record in spooled(tmp_path / "data")] == ["claude-code"]


@pytest.mark.parametrize("name", ["SessionStart", "sessionStart"])
def test_cursor_with_claude_codes_hooks_alone_is_remembered_as_cursor(tmp_path: Path, name: str) -> None:
    write_brief(tmp_path / "data", BRIEF)
    payload = {**STARTS["cursor"], "hook_event_name": name}
    printed = run_hook(tmp_path / "data", payload, "--client", "claude-code")
    assert printed == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": BRIEF}}
    assert [record["client"] for record in spooled(tmp_path / "data")] == ["cursor"]


@pytest.mark.parametrize("place", ["home", "project"])
@pytest.mark.parametrize("arguments", [" --client cursor", '", "args": ["--client", "cursor"], "x": "'])
def test_cursor_with_hooks_of_its_own_runs_ours_once(tmp_path: Path, place: str, arguments: str) -> None:
    folder = {"home": tmp_path, "project": tmp_path / "app"}[place]
    file = folder / ".cursor" / "hooks.json"
    file.parent.mkdir(parents=True)
    file.write_text(f'{{"hooks": {{"beforeSubmitPrompt": [{{"command": "/opt/palimpsest-hook{arguments}"}}]}}}}')
    payload = {**PROMPTS["cursor"], "workspace_roots": [str(tmp_path / "app")]}
    with answering(tmp_path / "data", says(BLOCK, "m1")) as requests:
        assert run_hook(tmp_path / "data", payload, "--client", "claude-code") is None
        assert run_hook(tmp_path / "data", payload) is None
        assert run_hook(tmp_path / "data", payload, "--client", "cursor") is not None
    assert len(requests) == len(spooled(tmp_path / "data")) == 1


@pytest.mark.parametrize("command", ["notify --client cursor", "palimpsest-hook --client claude-code"])
def test_other_hooks_in_cursor_do_not_silence_ours(tmp_path: Path, command: str) -> None:
    """Guards a copy of Claude Code's hooks in Cursor's file, which is then the only one."""
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "hooks.json").write_text(json.dumps({"hooks": {"stop": [{"command": command}]}}))
    run_hook(tmp_path / "data", PROMPTS["cursor"], "--client", "claude-code")
    assert len(spooled(tmp_path / "data")) == 1


@pytest.mark.parametrize(
    "payload",
    [
        PROMPTS["vscode"],
        {
            "hook_event_name": "UserPromptSubmit",
            "session_id": "vs-1",
            "timestamp": "2026-10-01T08:00Z",
            "prompt": PROMPT,
        },
    ],
    ids=["camelCase", "snake_case"],
)
def test_vs_code_with_claude_codes_hooks_is_remembered_as_vs_code(tmp_path: Path, payload: dict[str, Any]) -> None:
    run_hook(tmp_path / "data", payload, "--client", "claude-code")
    assert [(record["client"], record["session"]) for record in spooled(tmp_path / "data")] == [("vscode", "vs-1")]
