"""The plugin for Claude Code: its files fit together, and its launcher finds the programs or stays out of the way."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from palimpsest import __version__
from palimpsest.cli.clients.catalog import CLIENTS
from palimpsest.cli.clients.installation import PLUGIN

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
    (".local/pipx/venvs/palimpsest-mcp/bin/palimpsest", {}),
    ("Library/Application Support/pipx/venvs/palimpsest-mcp/bin/palimpsest", {}),
    ("AppData/Roaming/uv/tools/palimpsest-mcp/Scripts/palimpsest.exe", {}),
    ("uv tools/palimpsest-mcp/bin/palimpsest", {"UV_TOOL_DIR": "uv tools"}),
    ("uv bin/palimpsest", {"UV_TOOL_BIN_DIR": "uv bin"}),
    ("pipx home/venvs/palimpsest-mcp/bin/palimpsest", {"PIPX_HOME": "pipx home"}),
    ("pipx bin/palimpsest", {"PIPX_BIN_DIR": "pipx bin"}),
    ("data/uv/tools/palimpsest-mcp/bin/palimpsest", {"XDG_DATA_HOME": "data"}),
]


def content(name: str) -> Any:
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
    """Guards `/plugin marketplace add` and the id that the doctor looks for."""
    marketplace = content(".claude-plugin/marketplace.json")
    [plugin] = marketplace["plugins"]
    assert (REPOSITORY / plugin["source"]).resolve() == FOLDER
    manifest = content("plugin/.claude-plugin/plugin.json")
    assert manifest["version"] == __version__
    assert manifest["name"] == plugin["name"]
    assert f"{plugin['name']}@{marketplace['name']}".startswith(PLUGIN)


def test_the_plugin_has_the_same_events_and_limits_as_installed_hooks() -> None:
    """Guards the two ways of installing hooks against going apart."""
    hooks = CLIENTS["claude-code"].hooks
    assert hooks is not None
    groups = content("plugin/hooks/hooks.json")["hooks"]
    limits = {event: handler["timeout"] for event, [group] in groups.items() for handler in group["hooks"]}
    assert limits == dict(hooks.events)


def test_everything_that_the_plugin_starts_is_in_it(tmp_path: Path) -> None:
    """Guards the arguments of the hooks and of the server, as the client fills in the folder of the plugin."""
    server, hook = program(tmp_path / ".local/bin/palimpsest"), program(tmp_path / ".local/bin/palimpsest-hook")
    [entry] = content("plugin/.mcp.json")["mcpServers"].values()
    lines = [[entry["command"], *entry["args"]]]
    for groups in content("plugin/hooks/hooks.json")["hooks"].values():
        lines += [[handler["command"], *handler["args"]] for group in groups for handler in group["hooks"]]
    printed: set[str] = set()
    for line in lines:
        filled = [word.replace(ROOT, str(FOLDER)) for word in line]
        env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(filled, env=env, input="{}", capture_output=True, text=True, check=True)
        printed.add(done.stdout)
    assert printed == {f"{server}|{{}}", f"{hook}|--client|claude-code|{{}}"}


@pytest.mark.parametrize(("place", "variables"), PLACES)
@pytest.mark.parametrize("name", ["palimpsest", "palimpsest-hook"])
def test_the_launcher_finds_a_program_where_installers_put_it(
    tmp_path: Path, place: str, variables: dict[str, str], name: str
) -> None:
    """Guards a client that was started from a menu, whose PATH names none of these folders."""
    home = tmp_path / "hömë of me"
    file = program((home / place).with_name(Path(place).name.replace("palimpsest", name)))
    absolute = {key: str(home / value) for key, value in variables.items()}
    assert launch(home, name, "--a b", moved=absolute) == f"{file}|--a b|stdin"


def test_a_hook_without_its_program_ends_at_once_without_a_word(tmp_path: Path) -> None:
    """Guards prompts: uvx would download for minutes, and an error would be shown at each prompt."""
    program(tmp_path / "on path" / "uvx")
    assert launch(tmp_path, "palimpsest-hook", "--client", "claude-code") == ""
    assert launch(None, "palimpsest-hook") == "", "a client without a home folder"


@pytest.mark.parametrize(
    ("runner", "line"),
    [
        ("on path/uvx", "--from|palimpsest-mcp|palimpsest|stdin"),
        (".local/bin/uvx", "--from|palimpsest-mcp|palimpsest|stdin"),
        (".cargo/bin/uvx", "--from|palimpsest-mcp|palimpsest|stdin"),
        (".local/bin/pipx", "run|--spec|palimpsest-mcp|palimpsest|stdin"),
    ],
)
def test_a_server_without_its_program_comes_from_uvx_or_pipx(tmp_path: Path, runner: str, line: str) -> None:
    """Guards a plugin that is the first thing somebody installs; without either, the client's log says what helps."""
    assert "uv tool install palimpsest-mcp" in launch(tmp_path, "palimpsest", code=1)
    started = program(tmp_path / runner)
    assert launch(tmp_path, "palimpsest") == f"{started}|{line}"


def test_a_file_that_cannot_be_run_is_passed_over(tmp_path: Path) -> None:
    """Guards a broken installation in one folder against hiding a whole one in another."""
    program(tmp_path / ".local/bin/palimpsest-hook").chmod(0o644)
    (tmp_path / ".local/share/uv/tools/palimpsest-mcp/bin/palimpsest-hook").mkdir(parents=True)
    good = program(tmp_path / ".local/share/pipx/venvs/palimpsest-mcp/bin/palimpsest-hook")
    assert launch(tmp_path, "palimpsest-hook") == f"{good}|stdin"
