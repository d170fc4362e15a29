"""The command line as a person and a program use it: files, the doctor, options, help, and `palimpsest setup`."""

from __future__ import annotations

import json
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
from palimpsest.server import access_tokens
from palimpsest.text.display import counted
from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.message_forms import FORMS


def test_an_added_memory_is_found_and_listed_and_has_a_history(tmp_path: Path) -> None:
    assert "added: [" in palimpsest_process(tmp_path, "add", "User's dog [Rex] is old")
    (hit,) = palimpsest_json(tmp_path, "search", "pet")["results"]
    assert hit["text"] == "User's dog [Rex] is old"
    assert "dog [Rex]" in palimpsest(tmp_path, "search", "pet")
    assert "dog [Rex]" in palimpsest(tmp_path, "list")
    replaced = palimpsest(tmp_path, "add", "User's dog Rex is young", "--replaces", hit["id"])
    assert "replaced: [" in replaced
    assert [entry["event"] for entry in palimpsest_json(tmp_path, "history", hit["id"])["history"]] == ["ADD", "DELETE"]
    assert "young" in palimpsest(tmp_path, "summary")
    assert palimpsest_json(tmp_path, "list", "--deleted")["results"][0]["id"] == hit["id"]


@pytest.mark.few_by_day(5)
@pytest.mark.parametrize("case", FORMS, ids=[case["form"] for case in FORMS])
def test_conversations_of_other_programs_are_learnt(tmp_path: Path, case: dict[str, Any]) -> None:
    """Guards files as other programs write them: JSON, and JSON lines where they are a list."""
    is_list = isinstance(case["given"], list)
    name = f"chat.json{'l' * is_list}"
    text = "\n".join(json.dumps(item) for item in case["given"]) if is_list else json.dumps(case["given"])
    (tmp_path / name).write_text(text, "utf-8")
    printed = palimpsest(tmp_path, "learn", name)
    assert f"learned {counted(len(case['said']), 'message')} and 0 facts" in printed
    assert all(reason.partition(" ")[2] in printed for reason in case["left_out"])


def test_a_file_that_is_no_conversation_is_refused(tmp_path: Path) -> None:
    """Guards against guesses at encodings that nobody could read."""
    user = b'[{"role": "user", "content": "%s"}]'
    for name, data, problem in (
        ("koi8.json", user % "Зоя живёт в Туле и любит рано вставать".encode("koi8-r"), "Save it as UTF-8"),
        ("zero.json", user % b"\x00\x00\x00\x00", "cannot be read"),
        ("missing.json", None, "cannot be read"),
        ("broken.json", b"{", "is not JSON"),
        ("king.json", b'[{"role": "king", "content": "x"}]', "0.role"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        assert problem in palimpsest(tmp_path, "learn", name, code=1), name


@pytest.mark.nightly
def test_an_emptied_ledger_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """Guards against a memory that is silently empty, and whose index is then deleted."""
    palimpsest(tmp_path, "add", "User likes coffee")
    palimpsest(tmp_path, "backup")
    palimpsest(tmp_path, "add", "User likes tea")
    palimpsest(tmp_path, "rebuild")
    ledger = tmp_path / "data" / "ledger.db"
    ledger.write_bytes(b"")
    for command in (["add", "User likes milk"], ["search", "tea"], ["list"]):
        said = palimpsest(tmp_path, *command, code=1)
        assert "something has emptied it. Nothing was changed. The newest backup: palimpsest restore " in said
    assert ledger.stat().st_size == 0
    report = json.loads(palimpsest(tmp_path, "doctor", "--json", code=1))
    (found,) = [finding for finding in report["findings"] if not finding["ok"]]
    backup = found["text"].split("palimpsest restore ")[1].split(". Nothing")[0]
    assert found["part"] == "ledger"
    assert ledger.stat().st_size == 0, "the doctor makes no new ledger"
    palimpsest(tmp_path, "restore", backup, "--yes")
    assert "User likes coffee" in palimpsest(tmp_path, "list")
    palimpsest(tmp_path, "doctor")


def test_the_doctor_examines_every_part_and_names_the_degraded_one(tmp_path: Path) -> None:
    """Guards against alarms about what does not exist yet. One degraded part does not keep others from examination."""
    report = palimpsest_json(tmp_path, "doctor")
    known = "scope settings prompts embedder ledger disk capture jobs vectors index model clients"
    assert (report["ok"], {finding["part"] for finding in report["findings"]}) == (True, set(known.split()))
    palimpsest(tmp_path, "add", "User likes tea")
    assert "1 full-text row, 1 vector in" in palimpsest(tmp_path, "rebuild")
    assert "folder 0 is 0 changes behind" in palimpsest(tmp_path, "doctor")
    (tmp_path / "data" / "index" / "0" / "checkpoint.json").write_text("{}", "utf-8")
    assert "folder 0 cannot follow the ledger; the next server" in palimpsest(tmp_path, "doctor")
    nowhere, embedder = "http://127.0.0.1:9/v1", "PALIMPSEST_EMBEDDER__"
    of_openai = {f"{embedder}PROVIDER": "openai", f"{embedder}CONFIG__MODEL": "e"}
    for settings, part, error in (
        ({"OPENAI_BASE_URL": nowhere}, "model", "could not be reached"),
        ({**of_openai, f"{embedder}CONFIG__OPENAI_BASE_URL": nowhere}, "embedder", "could not be reached"),
        ({"PALIMPSEST_PROMPTS_DIR": "nowhere"}, "prompts", "is not a folder"),
        ({"PALIMPSEST_HISTORY_DB_PATH": "/dev/null/ledger.db"}, "ledger", "cannot be opened"),
    ):
        (tmp_path / part).mkdir()
        report = palimpsest_json(tmp_path / part, "doctor", code=1, settings=settings)
        (found,) = [finding for finding in report["findings"] if not finding["ok"]]
        assert (found["part"], error in found["text"]) == (part, True)


def added(folder: Path, text: str, *options: str) -> str:
    (outcome,) = palimpsest_json(folder, "add", text, *options)["results"]
    return outcome["id"][:8]


def test_a_token_file_that_was_edited_opens_no_more_than_it_says(tmp_path: Path) -> None:
    """Guards a project that is no text, which must not count as none."""
    palimpsest(tmp_path, "token", "create")
    file = tmp_path / "data" / access_tokens.FILE
    (row,) = json.loads(file.read_text("utf-8"))
    for field in ("project", "user_id"):
        file.write_text(json.dumps([row | {field: None}]), "utf-8")
        assert "Every access token is refused" in palimpsest(tmp_path, "token", "list", code=1)


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
