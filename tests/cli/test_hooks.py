"""Hooks in clients' files: what is installed runs, other people's hooks stay, and everything of ours goes again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.cli.clients.catalog import CLIENTS, Folders
from tests.support.client_files import content_of, run, write_json
from tests.support.environment import clean_environment

PROGRAM = str(Path(sys.executable).with_name("palimpsest-hook"))
CLIENTS_WITH_HOOKS = [name for name, client in CLIENTS.items() if client.hooks is not None]
PROMPT = {"session_id": "s", "prompt": "My dog is called Ferdinand"}

# The event of a prompt as each client sends it.
PROMPTS = {
    "claude-code": {"hook_event_name": "UserPromptSubmit", **PROMPT},
    "codex": {"hook_event_name": "UserPromptSubmit", **PROMPT},
    "gemini": {"hook_event_name": "BeforeAgent", **PROMPT},
    "cursor": {
        "hook_event_name": "beforeSubmitPrompt",
        "conversation_id": "s",
        "generation_id": "g",
        "prompt": PROMPT["prompt"],
    },
}

OTHERS = """\
{
  // what our team runs
  "hooks": {
    "Stop": [
      {"matcher": "*", "hooks": [{"type": "command", "command": "say done", "timeout": 3,}]}, // spoken
    ],
    "PreToolUse": [{"hooks": [{"type": "command", "command": "/opt/palimpsest-hook/guard"}]}],
  },
}
"""


def hooks_file(home: Path, client: str) -> Path:
    hooks = CLIENTS[client].hooks
    assert hooks is not None
    return Folders(home, home, home, {}).of_user(hooks.user_file)


def handlers(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for event, groups in content.get("hooks", {}).items():
        for group in groups:
            for handler in group.get("hooks", [group]):
                yield event, handler


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("client", CLIENTS_WITH_HOOKS)
def test_an_installed_hook_keeps_a_prompt(tmp_path: Path, client: str) -> None:
    """Guards the whole line: it is run as the client runs it, with a path and a name that need quoting."""
    data = tmp_path / "Müllers Gedächtnis" / "a 'b'"
    home = tmp_path / "home"
    home.mkdir()
    run(home, "--data-dir", str(data), "--user", "Jörg O'Neil", "install", client, "--hooks")
    content = content_of(hooks_file(home, client))
    prompt = PROMPTS[client]
    handler = next(handler for event, handler in handlers(content) if event == prompt["hook_event_name"])
    line = [handler["command"], *handler["args"]] if "args" in handler else ["/bin/sh", "-c", handler["command"]]
    env = {key: value for key, value in clean_environment(home).items() if key != "PALIMPSEST_DATA_DIR"}
    done = subprocess.run(
        line, input=json.dumps({**prompt, "cwd": str(home)}), env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    [record] = [json.loads(file.read_text()) for file in (data / "hooks" / "spool").glob("*.json")]
    assert (record["client"], record["text"], record["user"]) == (client, prompt["prompt"], "Jörg O'Neil")


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("client", CLIENTS_WITH_HOOKS)
def test_hooks_are_installed_once_and_removed_without_a_trace(tmp_path: Path, client: str) -> None:
    """Guards a command that is run twice, a limit of five milliseconds, and an empty file after the removal."""
    said = run(tmp_path, "install", client, "--hooks")
    assert client != "codex" or "Run /hooks in Codex and trust the hooks of Palimpsest" in said
    file = hooks_file(tmp_path, client)
    before = file.read_text()
    assert client != "cursor" or content_of(file)["version"] == 1
    limits = {handler["timeout"] for _, handler in handlers(content_of(file))}  # in the unit of the client
    assert limits == {"claude-code": {5}, "codex": {5, 3}, "gemini": {5000}, "cursor": {5}}[client]
    events = [event for event, _ in handlers(content_of(file))]
    hooks = CLIENTS[client].hooks
    assert hooks is not None
    assert events == list(hooks.events)
    assert "is already up to date" in run(tmp_path, "install", client, "--hooks")
    assert file.read_text() == before
    assert "-" in run(tmp_path, "uninstall", client, "--dry-run")
    assert file.read_text() == before
    run(tmp_path, "uninstall", client)
    assert "hooks" not in content_of(file)
    assert "palimpsest" not in file.read_text()


def test_the_entry_and_the_hooks_use_the_same_memory(tmp_path: Path) -> None:
    """Guards a hook that keeps what no server ever reads, because a variable of the terminal named the folder."""
    run(tmp_path, "install", "claude-code", "--hooks", settings={"PALIMPSEST_DATA_DIR": "there"})
    env = content_of(tmp_path / ".claude.json")["mcpServers"]["palimpsest"]["env"]
    assert env == {"PALIMPSEST_DATA_DIR": str(tmp_path / "there"), "PALIMPSEST_USER_ID": "alice"}
    _, handler = next(handlers(content_of(tmp_path / ".claude" / "settings.json")))
    assert handler == {
        "type": "command",
        "command": PROGRAM,
        "args": ["--client", "claude-code", "--data-dir", str(tmp_path / "there"), "--user", "alice"],
        "timeout": 5,
    }


def test_hooks_of_others_stay_with_their_comments(tmp_path: Path) -> None:
    """Guards every line that is not ours, also of a program whose folder has our name."""
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(OTHERS)
    run(tmp_path, "install", "claude-code", "--hooks")
    assert set(OTHERS.splitlines()) <= set(file.read_text().splitlines())
    assert file.read_text().count(PROGRAM) == 5
    run(tmp_path, "uninstall", "claude-code")  # a comma behind what is the last item again goes, too
    assert file.read_text().replace(",", "").split() == OTHERS.replace(",", "").split()


def test_a_path_that_changed_is_updated_and_what_a_person_added_stays(tmp_path: Path) -> None:
    """Guards an installation that moved: no hook runs twice, and a longer limit and a matcher stay."""
    file = tmp_path / ".claude" / "settings.json"
    old = {"type": "command", "command": "/old venv/bin/palimpsest-hook", "args": ["--client", "x"], "timeout": 20}
    other = {"type": "command", "command": "other"}
    stop = [{"matcher": "m", "hooks": [other, old]}, {"hooks": [{**old, "timeout": 1}]}]
    write_json(file, {"hooks": {"Stop": stop, "Notification": [{"hooks": [old]}]}})
    run(tmp_path, "install", "claude-code", "--hooks")
    hooks = content_of(file)["hooks"]
    assert "Notification" not in hooks
    [group] = hooks["Stop"]
    assert group["matcher"] == "m"
    assert group["hooks"][0] == other
    assert (group["hooks"][1]["command"], group["hooks"][1]["timeout"]) == (PROGRAM, 20)
    run(tmp_path, "uninstall", "claude-code")
    assert content_of(file) == {"hooks": {"Stop": [{"matcher": "m", "hooks": [other]}]}}


def test_hooks_of_a_project_are_in_the_file_that_is_not_shared(tmp_path: Path) -> None:
    """Guards everybody else who works in a folder: nobody's conversations are kept because a colleague wants it."""
    printed = run(tmp_path, "install", "claude-code", "--hooks", "--project")
    assert not (tmp_path / ".claude" / "settings.json").exists()
    assert PROGRAM in (tmp_path / ".claude" / "settings.local.json").read_text()
    assert "keep it out of version control" in printed
    assert "env" not in content_of(tmp_path / ".mcp.json")["mcpServers"]["palimpsest"]
    run(tmp_path, "uninstall", "claude-code", "--project")
    assert PROGRAM not in (tmp_path / ".claude" / "settings.local.json").read_text()


def test_hooks_of_another_form_and_clients_without_hooks_are_refused(tmp_path: Path) -> None:
    """Guards a file that this version does not understand, and a client that would seem to remember."""
    for client in ("claude-desktop", "vscode"):
        assert "Leave --hooks out" in run(tmp_path, "install", client, "--hooks", code=1)
        assert not (tmp_path / ".config").exists()
    file = tmp_path / ".claude" / "settings.json"
    file.parent.mkdir()
    for content in ('{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"hooks": 3}'):
        file.write_text(content)
        assert "line 1" in run(tmp_path, "install", "claude-code", "--hooks", code=1)
        assert file.read_text() == content
        assert not (tmp_path / ".claude.json").exists()
