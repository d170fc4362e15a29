"""The command line as a person and a program use it: exit codes, text, JSON; each group once as a real process."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from loopback import OpenAIServer
from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.environment import clean_environment


def test_what_is_added_is_found_listed_and_has_a_history(tmp_path: Path) -> None:
    """Guards the everyday commands, for people and for programs."""
    assert "added: [" in palimpsest_process(tmp_path, "add", "User's dog [Rex] is old")
    (hit,) = palimpsest_json(tmp_path, "search", "pet")["results"]
    assert hit["text"] == "User's dog [Rex] is old"
    assert "dog [Rex]" in palimpsest_process(tmp_path, "search", "pet")
    assert "dog [Rex]" in palimpsest(tmp_path, "list")
    replaced = palimpsest(tmp_path, "add", "User's dog Rex is young", "--replaces", hit["id"])
    assert "replaced: [" in replaced
    assert [entry["event"] for entry in palimpsest_json(tmp_path, "history", hit["id"])["history"]] == ["ADD", "DELETE"]
    assert "young" in palimpsest(tmp_path, "summary")
    assert palimpsest_json(tmp_path, "list", "--deleted")["results"][0]["id"] == hit["id"]


def test_a_conversation_is_learnt_and_answers_questions(tmp_path: Path) -> None:
    """Guards the README's one command, on JSON, JSON lines and an object with messages."""
    turns = [
        {"role": "user", "name": "Ana", "content": "The offsite is in Lisbon this year", "at": "2026-05-01T10:00:00Z"},
        {"role": "user", "name": "Ben", "content": "I will bring my guitar", "at": "2026-05-01T10:01:00Z"},
    ]
    texts = {
        "list.json": json.dumps(turns),
        "object.json": json.dumps({"messages": turns}),
        "lines.jsonl": "\n".join(json.dumps(turn) for turn in turns),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
        printed = palimpsest(tmp_path, "learn", "--temporary", name, "--ask", "Where is the team retreat?")
        assert "learnt 2 messages and 0 facts" in printed
        assert "Lisbon" in printed.split("team retreat?", 1)[1]
    assert palimpsest_json(tmp_path, "search", "offsite")["results"] == []


def test_a_file_that_is_no_conversation_is_told(tmp_path: Path) -> None:
    """Guards the input of learn."""
    (tmp_path / "a.json").write_text("{", "utf-8")
    (tmp_path / "b.json").write_text('[{"role": "king", "content": "x"}]', "utf-8")
    assert "is no JSON" in palimpsest(tmp_path, "learn", "a.json", code=1)
    assert "0.role" in palimpsest(tmp_path, "learn", "b.json", code=1)
    assert "cannot be read" in palimpsest(tmp_path, "learn", "c.json", code=1)


def test_the_doctor_finds_a_new_installation_well_and_names_every_part(tmp_path: Path) -> None:
    """Guards against alarms about what is only not there yet."""
    found = palimpsest_json(tmp_path, "doctor")
    assert found["ok"]
    parts = {finding["part"] for finding in found["findings"]}
    assert parts == {"scope", "prompts", "embedder", "ledger", "vectors", "index", "model"}


def test_rebuild_makes_an_index_that_the_doctor_counts(tmp_path: Path) -> None:
    """Guards the way back from a broken index."""
    palimpsest(tmp_path, "add", "User likes tea")
    assert "1 full-text rows, 1 vectors" in palimpsest(tmp_path, "rebuild")
    assert "folder 0 is free, 1 vectors, 0 changes behind" in palimpsest(tmp_path, "doctor")
    (tmp_path / "data" / "index" / "0" / "checkpoint.json").write_text("{}", "utf-8")
    assert "another ledger or embedder" in palimpsest(tmp_path, "doctor", code=1)
    palimpsest(tmp_path, "rebuild")
    palimpsest(tmp_path, "doctor")
    (tmp_path / "data" / "index" / "0" / "checkpoint.json").unlink()
    assert "is unfinished" in palimpsest(tmp_path, "doctor"), "a server that ended while building is no alarm"


@pytest.mark.parametrize(
    ("settings", "part", "told"),
    [
        ({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "model", "could not be reached"),
        (
            {
                "PALIMPSEST_EMBEDDER__PROVIDER": "openai",
                "PALIMPSEST_EMBEDDER__CONFIG__MODEL": "e",
                "PALIMPSEST_EMBEDDER__CONFIG__OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
            },
            "embedder",
            "could not be reached",
        ),
        ({"PALIMPSEST_PROMPTS_DIR": "nowhere"}, "prompts", "is not a folder"),
        ({"PALIMPSEST_HISTORY_DB_PATH": "/dev/null/ledger.db"}, "ledger", "cannot be opened"),
    ],
)
def test_the_doctor_names_what_is_degraded_and_exits_with_1(
    tmp_path: Path, settings: dict[str, str], part: str, told: str
) -> None:
    """Guards the diagnosis, one part at a time, the others still examined."""
    found = json.loads(palimpsest(tmp_path, "doctor", "--json", code=1, settings=settings))
    findings = {finding["part"]: finding for finding in found["findings"]}
    assert [name for name, finding in findings.items() if not finding["ok"]] == [part]
    assert told in findings[part]["text"]


def test_a_model_that_answers_is_well(tmp_path: Path) -> None:
    """Guards the doctor's look at a working endpoint."""
    with OpenAIServer() as server:
        printed = palimpsest(tmp_path, "doctor", settings={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url})
    assert "gpt-4o-mini answers" in printed


def test_prompts_are_listed_shown_checked_and_compared(tmp_path: Path) -> None:
    """Guards the way to an own prompt: copy the shipped one, edit it, see what differs."""
    own = tmp_path / "own"
    own.mkdir()
    settings = {"PALIMPSEST_PROMPTS_DIR": str(own)}
    shipped = palimpsest_process(tmp_path, "prompts", "show", "decide")
    assert shipped.startswith("---\nname: decide\n")
    (own / "decide.md").write_text(shipped, "utf-8")
    assert palimpsest(tmp_path, "prompts", "diff", settings=settings) == ""
    (own / "decide.md").write_text(shipped.replace("You keep a memory", "You keep our memory"), "utf-8")
    assert str(own / "decide.md") in palimpsest(tmp_path, "prompts", "list", settings=settings)
    diff = palimpsest(tmp_path, "prompts", "diff", settings=settings)
    assert "-You keep a memory" in diff
    assert "+You keep our memory" in diff
    palimpsest(tmp_path, "prompts", "check", settings=settings)
    (own / "decide.md").write_text(shipped.replace("$memories", "$memoriez"), "utf-8")
    assert "$memoriez is not an input" in palimpsest(tmp_path, "prompts", "check", code=1, settings=settings)
    assert "no prompt 'nothing'" in palimpsest(tmp_path, "prompts", "show", "nothing", code=1)


def test_wrong_settings_are_one_line_on_stderr(tmp_path: Path) -> None:
    """Guards against tracebacks where a sentence would do."""
    told = palimpsest_process(tmp_path, "list", code=1, settings={"PALIMPSEST_LLM__PROVIDER": "openia"})
    assert told.startswith("error: llm.provider: Input should be 'auto', 'openai', 'sampling' or 'none'")
    assert "did you mean" in palimpsest(tmp_path, "list", code=1, settings={"PALIMPSEST_DATADIR": "x"})


def test_the_options_before_the_command_choose_user_and_project(tmp_path: Path) -> None:
    """Guards the scope on the command line."""
    palimpsest(tmp_path, "--user", "bob", "--project", "web", "add", "The site is blue")
    assert palimpsest_json(tmp_path, "search", "blue")["results"] == []
    assert len(palimpsest_json(tmp_path, "--user", "bob", "--project", "web", "search", "blue")["results"]) == 1
    assert palimpsest_json(tmp_path, "--user", "bob", "search", "blue")["results"] == []


def test_without_arguments_a_terminal_gets_help(tmp_path: Path) -> None:
    """Guards the person who types the bare command; a pipe gets the server (test_server.py)."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "palimpsest"],
            env=clean_environment(tmp_path),
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Usage" in done.stdout + done.stderr
