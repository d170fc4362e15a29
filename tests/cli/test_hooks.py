"""Hooks in clients' files and in the plugin: what is installed runs, others' hooks stay, and ours go again."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from palimpsest import __version__
from palimpsest.cli.clients.catalog import CLIENTS, Folders
from palimpsest.cli.clients.installation import PLUGIN
from tests.support.client_files import content_of, run
from tests.support.environment import clean_environment

CLIENTS_WITH_HOOKS = [name for name, client in CLIENTS.items() if client.hooks is not None]

# The event of a prompt as each client sends it.
PAYLOADS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "hook" / "payloads.json").read_text("utf-8"))


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
    prompt = PAYLOADS[client]["prompt"]
    handler = next(handler for event, handler in handlers(content) if event == prompt["hook_event_name"])
    line = [handler["command"], *handler["args"]] if "args" in handler else ["/bin/sh", "-c", handler["command"]]
    env = {key: value for key, value in clean_environment(home).items() if key != "PALIMPSEST_DATA_DIR"}
    done = subprocess.run(
        line, input=json.dumps({**prompt, "cwd": str(home)}), env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    [record] = [json.loads(file.read_text()) for file in (data / "hooks" / "spool").glob("*.json")]
    assert (record["client"], record["text"], record["user"]) == (client, prompt["prompt"], "Jörg O'Neil")


def test_hooks_are_installed_once_and_removed_without_a_trace(tmp_path: Path) -> None:
    """Guards a command that is run twice, a limit of five milliseconds, and an empty file after the removal."""
    for client in CLIENTS_WITH_HOOKS:
        said = run(tmp_path, "install", client, "--hooks")
        assert client != "codex" or "Run /hooks in Codex and trust the hooks of Palimpsest" in said
        file, hooks = hooks_file(tmp_path, client), CLIENTS[client].hooks
        before, installed = file.read_text(), list(handlers(content_of(file)))
        limits = {handler["timeout"] for _, handler in installed}  # in the unit of the client
        assert limits == {"claude-code": {5}, "codex": {5, 3}, "gemini": {5000}, "cursor": {5}}[client]
        assert hooks is not None
        assert [event for event, _ in installed] == list(hooks.events)
        assert "is already up to date" in run(tmp_path, "install", client, "--hooks")
        assert "-" in run(tmp_path, "uninstall", client, "--dry-run")
        assert file.read_text() == before
        run(tmp_path, "uninstall", client)
        assert "hooks" not in content_of(file)
        assert "palimpsest" not in file.read_text()


REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "plugin"
LAUNCHER = FOLDER / "launch.sh"
ROOT = "${CLAUDE_PLUGIN_ROOT}"

# Where pip, uv and pipx put our programs, below the home folder, with the variables that move them there.
PLACES: list[tuple[str, dict[str, str]]] = [
    ("on path/palimpsest", {}),
    (".local/bin/palimpsest", {}),
    (".local/share/uv/tools/palimpsest-mcp/bin/palimpsest", {}),
    (".local/share/pipx/venvs/palimpsest-mcp/bin/palimpsest", {}),
    ("Library/Application Support/pipx/venvs/palimpsest-mcp/bin/palimpsest", {}),
    ("AppData/Roaming/uv/tools/palimpsest-mcp/Scripts/palimpsest.exe", {}),
    ("uv tools/palimpsest-mcp/bin/palimpsest", {"UV_TOOL_DIR": "uv tools"}),
    ("uv bin/palimpsest", {"UV_TOOL_BIN_DIR": "uv bin"}),
    ("pipx home/venvs/palimpsest-mcp/bin/palimpsest", {"PIPX_HOME": "pipx home"}),
    ("pipx bin/palimpsest", {"PIPX_BIN_DIR": "pipx bin"}),
    ("data/uv/tools/palimpsest-mcp/bin/palimpsest", {"XDG_DATA_HOME": "data"}),
]


def json_of(name: str) -> Any:
    return json.loads((REPOSITORY / name).read_text("utf-8"))


def program(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'#!/bin/sh\nprintf "%s|" {shlex.quote(str(file))} "$@"\n/bin/cat\n')
    file.chmod(0o755)
    return file


def launch(home: Path | None, *arguments: str, code: int = 0, moved: Mapping[str, str] | None = None) -> str:
    env = {"PATH": f"{home}/on path:/usr/bin:/bin", **(moved or {})}
    if home is not None:
        env["HOME"] = str(home)
    done = subprocess.run(
        ["sh", str(LAUNCHER), *arguments], env=env, input="stdin", capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_the_repository_is_a_marketplace_with_the_plugin() -> None:
    """Guards `/plugin marketplace add`, the id that the doctor looks for, and the same events as installed hooks."""
    marketplace = json_of(".claude-plugin/marketplace.json")
    [plugin] = marketplace["plugins"]
    assert (REPOSITORY / plugin["source"]).resolve() == FOLDER
    manifest = json_of("plugin/.claude-plugin/plugin.json")
    assert (manifest["version"], manifest["name"]) == (__version__, plugin["name"])
    assert f"{plugin['name']}@{marketplace['name']}".startswith(PLUGIN)
    hooks = CLIENTS["claude-code"].hooks
    assert hooks is not None
    groups = json_of("plugin/hooks/hooks.json")["hooks"]
    limits = {event: handler["timeout"] for event, [group] in groups.items() for handler in group["hooks"]}
    assert limits == dict(hooks.events)


def test_everything_that_the_plugin_starts_is_in_it(tmp_path: Path) -> None:
    """Guards the arguments of the hooks and of the server, as the client fills in the folder of the plugin."""
    server, hook = program(tmp_path / ".local/bin/palimpsest"), program(tmp_path / ".local/bin/palimpsest-hook")
    [entry] = json_of("plugin/.mcp.json")["mcpServers"].values()
    lines = [[entry["command"], *entry["args"]]]
    for groups in json_of("plugin/hooks/hooks.json")["hooks"].values():
        lines += [[handler["command"], *handler["args"]] for group in groups for handler in group["hooks"]]
    printed: set[str] = set()
    for line in lines:
        filled = [word.replace(ROOT, str(FOLDER)) for word in line]
        env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(filled, env=env, input="{}", capture_output=True, text=True, check=True)
        printed.add(done.stdout)
    assert printed == {f"{server}|{{}}", f"{hook}|--client|claude-code|{{}}"}


def test_the_launcher_finds_a_program_where_installers_put_it(tmp_path: Path) -> None:
    """Guards a client that was started from a menu, whose PATH names none of these folders."""
    for number, (place, variables) in enumerate(PLACES):
        home = tmp_path / f"hömë of {number}"
        name = ("palimpsest", "palimpsest-hook")[number % 2]
        file = program((home / place).with_name(Path(place).name.replace("palimpsest", name)))
        (home / ".local/bin").mkdir(parents=True, exist_ok=True)
        absolute = {key: str(home / value) for key, value in variables.items()}
        assert launch(home, name, "--a b", moved=absolute) == f"{file}|--a b|stdin"


def test_a_server_without_its_program_comes_from_uvx_or_pipx_and_a_hook_is_silent(tmp_path: Path) -> None:
    """Guards a plugin that is the first thing somebody installs, and prompts: uvx would download for minutes."""
    uvx, pipx = "--from|palimpsest-mcp|palimpsest|stdin", "run|--spec|palimpsest-mcp|palimpsest|stdin"
    assert launch(None, "palimpsest-hook") == "", "a client without a home folder"
    for number, (runner, line) in enumerate(
        [("on path/uvx", uvx), (".local/bin/uvx", uvx), (".cargo/bin/uvx", uvx), (".local/bin/pipx", pipx)]
    ):
        home = tmp_path / str(number)
        assert "uv tool install palimpsest-mcp" in launch(home, "palimpsest", code=1)
        started = program(home / runner)
        assert launch(home, "palimpsest") == f"{started}|{line}"
        assert launch(home, "palimpsest-hook", "--client", "claude-code") == ""
        program(home / ".local/bin/palimpsest-hook").chmod(0o644)  # a broken installation hides no whole one
        good = program(home / ".local/share/pipx/venvs/palimpsest-mcp/bin/palimpsest-hook")
        assert launch(home, "palimpsest-hook") == f"{good}|stdin"
