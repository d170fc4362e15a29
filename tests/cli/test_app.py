"""The command line as a person and a program use it: exit codes, text, JSON; each group once as a real process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.server import access_tokens
from palimpsest.text.display import counted
from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.mcp_client import TOOL_NAMES
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


def test_advice_and_errors_name_commands_and_no_tools(tmp_path: Path) -> None:
    """Guards a person at a terminal from the names of tools, which only agents can call."""
    palimpsest(tmp_path, "add", "User's dog Rex is old")
    similar = palimpsest(tmp_path, "add", "User's dog Rex is very old")
    assert "resembles" in similar
    assert "--replaces" in similar
    undone = palimpsest(tmp_path, "undo")
    assert "palimpsest undelete " in undone
    errors = [
        palimpsest(tmp_path, *command, code=1)
        for command in (("history", "abc"), ("history", "0123456789"), ("list", "--cursor", "x"), ("search", " "))
    ]
    for text in (similar, undone, *errors):
        assert not [tool for tool in TOOL_NAMES if tool in text]


def test_conversations_of_other_programs_are_learnt(tmp_path: Path) -> None:
    """Guards files as other programs write them: JSON, and JSON lines where they are a list."""
    for number, case in enumerate(FORMS):
        is_list = isinstance(case["given"], list)
        name = f"chat{number}.json{'l' * is_list}"
        text = "\n".join(json.dumps(item) for item in case["given"]) if is_list else json.dumps(case["given"])
        (tmp_path / name).write_text(text, "utf-8")
        printed = palimpsest(tmp_path, "learn", name, "--project", str(number))
        assert f"learned {counted(len(case['said']), 'message')} and 0 facts" in printed, case["form"]
        assert all(reason.partition(" ")[2] in printed for reason in case["left_out"]), case["form"]


def test_a_conversation_in_latin_1_is_learnt_and_what_is_none_is_refused(tmp_path: Path) -> None:
    """Guards letters of files from before UTF-8, and against guesses that nobody could read."""
    messages = [{"role": "user", "content": "Zoë's café in Orléans is called «L'Étoile»", "at": "2026-05-01"}]
    (tmp_path / "old.json").write_bytes(json.dumps(messages, ensure_ascii=False).encode("cp1252"))
    assert "old.json is not UTF-8 and was read as Latin-1" in palimpsest(tmp_path, "learn", "old.json")
    assert palimpsest_json(tmp_path, "search", "Orléans")["results"][0]["text"] == messages[0]["content"]
    user = b'[{"role": "user", "content": "%s"}]'
    for name, data, problem in (
        ("koi8.json", user % ("Зоя живёт в Туле и любит рано вставать".encode("koi8-r") * 4), "cannot be read"),
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
