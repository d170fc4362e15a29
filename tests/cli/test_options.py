"""The options that every command takes: before its name, after it, and with the same effect; help, version, typos."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import typer.main

from palimpsest import __version__
from palimpsest.cli.console import COMMANDS, SETTINGS, app
from tests.support.command_line import palimpsest, palimpsest_json

SHARED = {"--config", *(f"--{name.replace('_', '-')}" for name in SETTINGS)}


def leaves(command: Any, name: str = "palimpsest") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for child, inner in command.commands.items():
        yield from leaves(inner, f"{name} {child}")


def all_commands() -> Any:
    root = cast("Any", typer.main.get_command(app))
    for name in root.commands:
        root.load(name)
    return root


def test_every_command_takes_the_shared_options() -> None:
    """Guards against a command that can only be told which memory it works on before its name."""
    for name, command in leaves(all_commands()):
        options = {option for param in command.params for option in param.opts}
        assert options >= SHARED, name


def test_the_list_of_commands_says_what_each_says_itself() -> None:
    """Guards the list, from which the help is written without importing a command."""
    root = all_commands()
    for row in COMMANDS.values():
        own = root
        for word in row.name.split():
            own = own.commands[word]
        assert own.help.split("\n\n")[0] == row.help, row.name
        assert {param.name for param in own.params} >= row.parameters.keys(), row.name


def test_what_only_prints_imports_no_memory() -> None:
    """Guards how long the version and the help take."""
    printed = (
        "import sys; print([name for name in sys.modules if name.startswith(('palimpsest.', 'sqlalchemy', 'numpy'))])"
    )
    run = f"from palimpsest.cli.console import app; app(sys.argv[1:], standalone_mode=False); {printed}"
    for words in (["--version"], ["--help"], ["search", "--help"], ["doctor", "--help"], ["export", "--help"]):
        output = subprocess.run(
            [sys.executable, "-c", f"import sys; {run}", *words], capture_output=True, text=True, check=True
        ).stdout
        loaded = output.splitlines()[-1]
        assert "palimpsest.cli.console" in loaded
        assert not any(name in loaded for name in ("palimpsest.memory", "palimpsest.store", "sqlalchemy", "numpy"))


def test_the_help_names_no_python_types(tmp_path: Path) -> None:
    """Guards against `<bool>` beside every flag, and `<list[str]>` beside an option that may be repeated."""
    for words in ([], ["learn"], ["purge"], ["token", "create"]):
        lines = palimpsest(tmp_path, *words, "--help").splitlines()
        options = [line for line in lines if line.lstrip("│ ").startswith("--")]
        assert options
        assert not [line for line in options if "<bool>" in line or "<str>" in line or "[str]" in line]


def test_the_shared_options_mean_the_same_before_and_after_the_command(tmp_path: Path) -> None:
    """Guards the scope of a command, and that the option nearest to the command's words wins."""
    palimpsest(tmp_path, "add", "The site is blue", "--user", "bob", "--project", "web")
    assert palimpsest_json(tmp_path, "search", "blue")["results"] == []
    assert len(palimpsest_json(tmp_path, "--user", "bob", "search", "blue", "--project", "web")["results"]) == 1
    assert len(palimpsest_json(tmp_path, "--user", "ann", "--project", "web", "list", "--user", "bob")["results"]) == 1
    palimpsest(tmp_path, "add", "The lint step is slow", "--run", "r1", "--agent", "a1")
    assert len(palimpsest_json(tmp_path, "list", "--run", "r1")["results"]) == 1
    assert palimpsest_json(tmp_path, "list", "--run", "r2")["results"] == []
    assert len(palimpsest_json(tmp_path, "list", "--agent", "a1")["results"]) == 1


def test_the_folder_of_the_memory_is_taken_after_every_kind_of_command(tmp_path: Path) -> None:
    """Guards memories, care, tokens and prompts against working on another folder than the one that is named."""
    other = tmp_path / "other"
    palimpsest(tmp_path, "add", "User likes tea", "--data-dir", "other")
    assert palimpsest_json(tmp_path, "list")["results"] == []
    assert len(palimpsest_json(tmp_path, "list", "--data-dir", "other")["results"]) == 1
    token = palimpsest_json(tmp_path, "token", "create", "--data-dir", "other")
    assert palimpsest_json(tmp_path, "token", "list")["tokens"] == []
    (listed,) = palimpsest_json(tmp_path, "token", "list", "--data-dir", str(other))["tokens"]
    assert listed["id"] == token["id"]
    findings = palimpsest_json(tmp_path, "doctor", "--data-dir", "other")["findings"]
    assert any(str(other) in finding["text"] for finding in findings)
    (other / "config.toml").write_text(f"prompts_dir = {json.dumps(str(tmp_path / 'nowhere'))}\n", "utf-8")
    assert "is not a folder" in palimpsest(tmp_path, "prompts", "check", "--data-dir", "other", code=1)
    config = str(other / "config.toml")
    assert "is not a folder" in palimpsest(tmp_path, "prompts", "check", "--config", config, code=1)
    palimpsest(tmp_path, "prompts", "check")


def test_install_writes_a_folder_that_means_the_same_everywhere(tmp_path: Path) -> None:
    """Guards a client's entry, which runs in another folder, against a relative path."""
    before = palimpsest(tmp_path, "--data-dir", "other", "install", "cursor", "--dry-run")
    after = palimpsest(tmp_path, "install", "cursor", "--dry-run", "--data-dir", "other")
    assert before == after
    assert json.dumps(str(tmp_path / "other")) in after


def test_the_version_is_an_option(tmp_path: Path) -> None:
    assert palimpsest(tmp_path, "--version") == f"{__version__}\n"


def test_a_misspelt_command_or_option_names_the_nearest(tmp_path: Path) -> None:
    """Guards a person who mistypes, also within a group."""
    assert "'search'" in palimpsest(tmp_path, "serach", "tea", code=2)
    assert "'revoke'" in palimpsest(tmp_path, "token", "revok", "x", code=2)
    assert "--limit" in palimpsest(tmp_path, "list", "--limti", "3", code=2)
    assert "--data-dir" in palimpsest(tmp_path, "list", "--datadir", "x", code=2)


def test_the_help_says_what_an_agent_sees(tmp_path: Path) -> None:
    """Guards against "Only what this agent stored": it sees what its user knows, too."""
    help_text = " ".join(palimpsest(tmp_path, "--help").split())
    assert "its own and what belongs to no agent" in help_text
    palimpsest(tmp_path, "add", "The hall is booked for May")
    assert "The hall is booked" in palimpsest(tmp_path, "--agent", "scribe", "list")
