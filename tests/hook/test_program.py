"""The hook as a program, and for each client: it ends by itself, says nothing it should not, and loses nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks import spool
from scripted_recall import answering, says
from tests.support.hook_program import (
    CODE,
    PATIENT_CODE,
    TIMEOUT,
    handle_hook,
    hook_command,
    hook_environment,
    run_hook,
    spooled,
)

PROMPT = {
    "session_id": "s1",
    "cwd": "",
    "hook_event_name": "UserPromptSubmit",
    "prompt": "Which database does the billing service use?",
}
BLOCK = "<palimpsest-memory>\n- The billing service uses PostgreSQL.\n</palimpsest-memory>"

# Kills the hook with signal 9 at a certain place, which no test could hit from outside.
KILLED_IN = """
import os, signal
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def write_half(descriptor, content, write=os.write):
    write(descriptor, content[: len(content) // 2])
    die()
os.{function} = {replacement}
"""
TIME_IS_UP_BEFORE_RENAME = """
import os, time, _thread
from palimpsest.hooks import program
program.GRACE = 50
time_is_up = _thread.allocate_lock()
time_is_up.acquire()
time.sleep = lambda _: time_is_up.acquire()
def rename(old, new, real=os.rename):
    time_is_up.release()
    for _ in range(3_000_000):  # so that the other thread runs
        pass
    real(old, new)
os.rename = rename
"""


def run(
    data_dir: Path, *command: str, payload: Mapping[str, Any] = PROMPT, **rest: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as the hook with a payload, and return the process that has ended."""
    options: dict[str, Any] = {"timeout": TIMEOUT, "env": hook_environment(data_dir), **rest}
    if "stdin" not in rest:
        options["input"] = json.dumps(payload).encode()
    if "stderr" not in rest:
        options["capture_output"] = True
    start: Any = subprocess.run
    return start(command, check=False, **options)


BROKEN = (
    b"not JSON",
    b"[" * 200_000,
    b"",
    b'{"session_id": "s1", "hook_event_name": "UserPromptSubmit", "prompt": "cut off',
    b"\xff\xfe\x00garbage\x80",
    b"[]",
    b"{}",
    b'{"hook_event_name": 5, "session_id": [], "prompt": {}}',
    b'{"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": null, "workspace_roots": [5]}',
    b'{"hook_event_name": "NobodyKnows", "session_id": "s1"}',
)


def test_broken_stdin_is_silence(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with answering(data_dir, says(BLOCK, "m1")) as requests:
        assert run_hook(data_dir, BROKEN[0]) is None
        assert run_hook(data_dir, BROKEN[1]) is None
        for stdin in BROKEN:
            assert handle_hook(data_dir, stdin) is None, stdin[:60]
    assert requests == spooled(data_dir) == []
    run_hook(data_dir, {"hook_event_name": "UserPromptSubmit", "prompt": "no session"})
    run_hook(data_dir, json.dumps({**PROMPT, "prompt": "x" * 9_000_000}).encode())
    assert spooled(data_dir) == []
    run_hook(data_dir, {**PROMPT, "prompt": "Ünïcode 😀 " * 200_000})
    (record,) = spooled(data_dir)
    assert record["text"].startswith("Ünïcode 😀 Ünïcode")
    assert record["text"].endswith("… (1999999 characters)")


def hangs(connection: socket.socket, _request: dict[str, Any]) -> None:
    """Answer nothing until the hook has gone."""
    connection.recv(1)


def stops_halfway(connection: socket.socket, _request: dict[str, Any]) -> None:
    connection.sendall(json.dumps({"ids": ["m1"], "text": BLOCK}).encode()[:40])
    connection.recv(1)


def test_it_ends_although_stdin_or_a_server_does_not(tmp_path: Path) -> None:
    """Guards the prompt: the hook ends by itself and says nothing."""
    read_end, write_end = os.pipe()
    with Path("/dev/zero").open("rb") as zeros:
        for stdin in (read_end, zeros.fileno()):
            process = run(tmp_path / "data", *hook_command(patient=False), stdin=stdin)
            assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    for end in (read_end, write_end):
        os.close(end)
    for answer in (hangs, stops_halfway):
        with answering(tmp_path / "data", answer):
            assert run_hook(tmp_path / "data", PROMPT, patient=False) is None


def test_closed_streams_do_not_matter(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with answering(data_dir, says(BLOCK, "m1")):
        for redirection in ("<&-", ">&-", "<&- >&- 2>&-", ">/dev/full", "2>&-", "</dev/null"):
            shell = ("sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, PATIENT_CODE)
            process = run(data_dir, *shell)
            assert (process.returncode, process.stderr) == (0, b""), redirection
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = run(data_dir, *hook_command(), stdout=write_end, stderr=subprocess.PIPE)
        os.close(write_end)
        assert (process.returncode, process.stderr) == (0, b"")
    kept = len(spooled(data_dir))
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); {PATIENT_CODE}"
    process = run(data_dir, sys.executable, "-c", limited)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    assert len(list(Path(spool.spool_dir(str(data_dir))).iterdir())) == kept


def test_kill_9_leaves_a_whole_record_or_none(tmp_path: Path) -> None:
    cases = (("open", "die", False), ("write", "write_half", False), ("rename", "die", False), ("_exit", "die", True))
    for function, replacement, is_kept in cases:
        data_dir = tmp_path / function / "data"
        code = KILLED_IN.format(function=function, replacement=replacement) + PATIENT_CODE
        process = run(data_dir, sys.executable, "-c", code)
        assert (process.returncode, process.stdout) == (-signal.SIGKILL, b"")
        assert len(spooled(data_dir)) == is_kept, function
        handle_hook(data_dir, {**PROMPT, "prompt": "the next one"})
        assert spooled(data_dir)[-1]["text"] == "the next one"


def test_what_was_said_is_spooled_before_a_server_is_asked(tmp_path: Path) -> None:
    """It is safe before anything can hang or be killed, and finished although the time is up."""
    seen: list[int] = []

    def look(_connection: socket.socket, _request: dict[str, Any]) -> None:
        seen.append(len(spooled(tmp_path / "data")))

    with answering(tmp_path / "data", look):
        run_hook(tmp_path / "data", PROMPT)
    assert seen == [1]
    # On busy machines even the imports can take longer than the limit.
    process = run(tmp_path / "late", sys.executable, "-c", TIME_IS_UP_BEFORE_RENAME + CODE)
    assert (process.returncode, process.stderr) == (0, b"")
    assert len(spooled(tmp_path / "late")) == 1


REPORT_MODULES = f"""
import os, sys
before, end = set(sys.modules), os._exit
def report(code):
    os.write(2, " ".join(sorted(set(sys.modules) - before)).encode())
    end(code)
os._exit = report
{PATIENT_CODE}
"""


def test_few_modules_are_imported(tmp_path: Path) -> None:
    """Guards the time before every prompt, which is mostly that of imports. Sockets are for a question only."""
    for name in ("UserPromptSubmit", "Stop", "SessionStart"):
        event = {**PROMPT, "hook_event_name": name, "prompt": "yes", "last_assistant_message": "Done."}
        process = run(tmp_path / "data", sys.executable, "-I", "-c", REPORT_MODULES, payload=event)
        modules = set(process.stderr.decode().split())
        assert {module.partition(".")[0] for module in modules} - {"palimpsest"} <= sys.stdlib_module_names, name
        assert {module for module in modules if module.startswith("palimpsest.") and ".hook" not in module} == set()
        assert "socket" not in modules
        assert len(modules) <= 45, "json alone brings 23"


ASKED = "Which database does the billing service use?"
REPLY = "It uses PostgreSQL 16."
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
        "text": ASKED,
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
    assert [record["text"] for record in spooled(tmp_path / "d")] == [ASKED]


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
        ({**snake_case, "prompt": ASKED}, {}, "vscode"),
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
