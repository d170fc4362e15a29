"""The options that every command takes, help and typos; and `palimpsest setup`, which asks for a language model."""

from __future__ import annotations

import stat
import subprocess
import sys
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main

from loopback import OpenAIServer
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


KEY = "a-key-of-a-vendor"


@pytest.fixture
def endpoint() -> Generator[OpenAIServer]:
    with OpenAIServer(lambda _: "ready") as server:
        yield server


def file_in(folder: Path) -> Path:
    return folder / "data" / "config.toml"


def written(folder: Path) -> dict[str, Any]:
    return tomllib.loads(file_in(folder).read_text("utf-8"))


def test_a_script_chooses_an_endpoint_which_is_tried_and_used(tmp_path: Path, endpoint: OpenAIServer) -> None:
    """Guards options in place of questions, the small call, and that a key is neither shown nor readable by others."""
    printed = palimpsest(
        tmp_path,
        *("setup", "--yes", "--provider", "openai", "--base-url", endpoint.base_url, "--model", "small"),
        *("--api-key-from-env", "MY_KEY", "--user", "bob", "--project", "auto"),
        settings={"MY_KEY": KEY},
    )
    assert "small answers: ready" in printed
    assert KEY not in printed
    (request,) = [request for request in endpoint.requests if request["json"] is not None]
    assert (request["json"]["model"], request["headers"]["authorization"]) == ("small", f"Bearer {KEY}")
    llm = {"model": "small", "openai_base_url": endpoint.base_url, "api_key": KEY}
    assert written(tmp_path) == {
        "user_id": "bob",
        "project": "auto",
        "llm": {"provider": "openai", "config": llm},
    }
    assert stat.S_IMODE(file_in(tmp_path).stat().st_mode) == 0o600
    findings = {finding["part"]: finding["text"] for finding in palimpsest_json(tmp_path, "doctor")["findings"]}
    assert findings["model"] == "small answers"
    assert findings["settings"] == f"read from {file_in(tmp_path)}"


def test_a_person_is_asked_and_sees_what_is_written(tmp_path: Path, endpoint: OpenAIServer) -> None:
    answers = ["openai", endpoint.base_url, "small", "-"]
    palimpsest(tmp_path, "setup", answer="\n".join([*answers, "n"]), code=1)
    assert not file_in(tmp_path).exists()
    printed = palimpsest(tmp_path, "setup", answer="\n".join([*answers, "y"]))
    for line in ("llm.provider = openai", "llm.config.model = small"):
        assert line in printed
    llm = {"provider": "openai", "config": {"model": "small", "openai_base_url": endpoint.base_url}}
    assert written(tmp_path) == {"llm": llm}
    file_in(tmp_path).unlink()
    for given, provider in (("\n", "none"), ("sometimes\nclient\n", "sampling")):  # a slip is asked for again
        printed = palimpsest(tmp_path, "setup", answer=f"{given}y\n")
        assert ("one of none, client, openai" in printed) == (provider == "sampling")
        assert written(tmp_path)["llm"]["provider"] == provider


def test_a_key_goes_with_its_endpoint_and_stays_in_the_usual_variable(tmp_path: Path, endpoint: OpenAIServer) -> None:
    """Guards a key from being sent to the next vendor, and from being copied without need."""
    file_in(tmp_path).parent.mkdir()
    file_in(tmp_path).write_text(f'[llm.config]\napi_key = "{KEY}"\nmodel = "large"\n', "utf-8")
    command = ("setup", "--yes", "--provider", "openai", "--base-url", endpoint.base_url, "--model", "small")
    palimpsest(tmp_path, *command)
    assert written(tmp_path)["llm"]["config"] == {"model": "small", "openai_base_url": endpoint.base_url}
    assert [request for request in endpoint.requests if KEY in str(request)] == []
    palimpsest(tmp_path, *command, "--api-key-from-env", "OPENAI_API_KEY", settings={"OPENAI_API_KEY": KEY})
    assert KEY not in file_in(tmp_path).read_text("utf-8")
    assert endpoint.requests[-1]["headers"]["authorization"] == f"Bearer {KEY}"
