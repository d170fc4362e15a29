"""`palimpsest setup`: asks for a language model, tries it, shows what it would write, and keeps the old file."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from tests.support.command_line import palimpsest, palimpsest_json

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
    assert written(tmp_path) == {
        "llm": {"provider": "openai", "config": {"model": "small", "openai_base_url": endpoint.base_url}}
    }


@pytest.mark.parametrize(("answers", "llm"), [("\n", "none"), ("sometimes\nclient\n", "sampling")])
def test_a_person_chooses_no_endpoint(tmp_path: Path, answers: str, llm: str) -> None:
    """Guards the choices that need no endpoint, and a slip of the finger: a wrong answer is asked for again."""
    printed = palimpsest(tmp_path, "setup", answer=f"{answers}y\n")
    assert ("one of none, client, openai" in printed) == (llm == "sampling")
    assert written(tmp_path) == {"llm": {"provider": llm}}


def test_comments_stay_and_each_old_file_is_kept(tmp_path: Path) -> None:
    """Guards what a person wrote by hand, and against a choice that seems to have no effect."""
    file_in(tmp_path).parent.mkdir()
    before = '# mine\nuser_id = "alice"  # me\n\n[llm.config]\nmodel = "m" # good\napi_key = "old"\n'
    file_in(tmp_path).write_text(before, "utf-8")
    printed = palimpsest(tmp_path, "setup", "--yes", "--provider", "none", "--user", "bob")
    after = before.replace("alice", "bob").replace("[llm.config]", '[llm]\nprovider = "none"\n\n[llm.config]')
    assert file_in(tmp_path).read_text("utf-8") == after
    palimpsest(tmp_path, "setup", "--yes", "--provider", "client")
    assert file_in(tmp_path).with_name("config.toml.old").read_text("utf-8") == before
    assert 'provider = "none"' in file_in(tmp_path).with_name("config.toml.old1").read_text("utf-8")
    assert "config.toml.old" in printed
    settings = {"PALIMPSEST_LLM__PROVIDER": "sampling"}
    assert "has no effect yet" in palimpsest(tmp_path, "setup", "--yes", "--provider", "none", settings=settings)


def test_the_key_of_one_vendor_is_not_sent_to_the_next(tmp_path: Path, endpoint: OpenAIServer) -> None:
    """Guards a change of the endpoint: an earlier key goes with the earlier endpoint."""
    file_in(tmp_path).parent.mkdir()
    file_in(tmp_path).write_text(f'[llm.config]\napi_key = "{KEY}"\nmodel = "large"\n', "utf-8")
    palimpsest(tmp_path, "setup", "--yes", "--provider", "openai", "--base-url", endpoint.base_url, "--model", "small")
    assert written(tmp_path)["llm"]["config"] == {"model": "small", "openai_base_url": endpoint.base_url}
    assert [request for request in endpoint.requests if KEY in str(request)] == []


def test_a_key_in_the_usual_variable_stays_there(tmp_path: Path, endpoint: OpenAIServer) -> None:
    """Guards keys from being copied without need."""
    command = (
        *("setup", "--yes", "--provider", "openai", "--base-url", endpoint.base_url),
        "--api-key-from-env",
        "OPENAI_API_KEY",
    )
    palimpsest(tmp_path, *command, settings={"OPENAI_API_KEY": KEY})
    assert KEY not in file_in(tmp_path).read_text("utf-8")
    assert [request["headers"]["authorization"] for request in endpoint.requests] == [f"Bearer {KEY}"]


def test_what_cannot_work_is_not_written(tmp_path: Path) -> None:
    """Guards the settings file from a choice that fails."""
    for options, error in (
        ((), "needs --provider"),
        (("--provider", "none", "--model", "m"), "are for --provider openai"),
        (("--provider", "openai", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"), "could not be reached"),
        (("--provider", "openai", "--api-key-from-env", "NO_SUCH_KEY"), "NO_SUCH_KEY is not set"),
    ):
        printed = palimpsest(tmp_path, "setup", "--yes", *options, code=1)
        assert error in printed
        assert "Nothing was changed" in printed
        assert not file_in(tmp_path).exists()


def test_a_restore_looks_at_the_file_before_it_asks(tmp_path: Path) -> None:
    """Guards a person from a question about a file that is not there, or is no ledger, and says what a backup holds."""
    palimpsest(tmp_path, "add", "User plays the cello")
    (tmp_path / "notes.txt").write_text("no ledger", "utf-8")
    for name, problem in (("missing.db", "there is no file"), ("notes.txt", "is not a ledger that can be read")):
        refused = palimpsest(tmp_path, "restore", name, code=1)
        assert problem in refused
        assert "Replace" not in refused
    backup = palimpsest_json(tmp_path, "backup")["file"]
    asked = palimpsest(tmp_path, "restore", backup, answer="n\n", code=1)
    assert "(1 memory and 0 messages)?" in " ".join(asked.split())
