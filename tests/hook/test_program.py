"""The program as a whole: it ends by itself with 0, says nothing it should not, and loses nothing it has taken."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks import spool
from scripted_recall import answering, says
from tests.support.hook_program import CODE, PATIENT_CODE, TIMEOUT, hook_command, hook_environment, run_hook, spooled

PROMPT = {
    "session_id": "s1",
    "cwd": "",
    "hook_event_name": "UserPromptSubmit",
    "prompt": "Which database does the billing service use?",
}
BLOCK = "<palimpsest-memory>\n- The billing service uses PostgreSQL.\n</palimpsest-memory>"
REPORT_MODULES = f"""
import os, sys
before, end = set(sys.modules), os._exit
def report(code):
    os.write(2, " ".join(sorted(set(sys.modules) - before)).encode())
    end(code)
os._exit = report
{PATIENT_CODE}
"""
KILLED_IN = """
import os, signal
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def write_half(descriptor, content, write=os.write):
    write(descriptor, content[: len(content) // 2])
    die()
os.{function} = {replacement}
"""
"""Kills the hook with signal 9 at a certain place, which no test could hit from outside."""
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
NEEDED_MODULES = {
    "binascii", "collections", "copyreg", "enum", "functools", "itertools", "json", "keyword", "operator", "palimpsest",
    "re", "reprlib", "types",
}  # fmt: skip
"""What the hook imports for an event, beside modules in C and what starts every interpreter."""
NAMING_MODULES = {"hashlib"}
"""What names the file of a session, where that is looked for."""
SOCKET_MODULES = {"array", "errno", "math", "select", "selectors", "socket"}
"""What it imports for a question to a server as well."""
MAX_MODULES = 45
"""All modules for an event, with those in C, our own and parts of packages; `json` alone brings 23."""


def imported_for(data_dir: Path, payload: Mapping[str, Any]) -> set[str]:
    """Return the modules that the hook imports for an event."""
    process = subprocess.run(
        [sys.executable, "-I", "-c", REPORT_MODULES],
        input=json.dumps(payload).encode(),
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
        env=hook_environment(data_dir),
    )
    return set(process.stderr.decode().split())


def public_roots(modules: set[str]) -> set[str]:
    """Return the packages and modules of some modules, without private ones, which most often are those in C."""
    return {name.partition(".")[0] for name in modules if not name.startswith("_")}


@pytest.mark.parametrize("name", ["UserPromptSubmit", "Stop", "PreCompact", "SessionStart", "SessionEnd"])
def test_few_modules_are_imported(tmp_path: Path, name: str) -> None:
    """Guards the time before every prompt, which is mostly that of imports."""
    event = {**PROMPT, "hook_event_name": name, "prompt": "yes", "last_assistant_message": "Done."}
    modules = imported_for(tmp_path / "data", event)
    assert public_roots(modules) - NEEDED_MODULES - (NAMING_MODULES if name == "PreCompact" else set()) == set()
    assert len(modules) <= MAX_MODULES
    assert public_roots(modules) - {"palimpsest"} <= sys.stdlib_module_names
    assert {name for name in modules if name.startswith("palimpsest.") and ".hook" not in name} == set()


def test_sockets_are_imported_for_a_question_only(tmp_path: Path) -> None:
    with answering(tmp_path / "data", says(BLOCK, "m1")):
        asking = imported_for(tmp_path / "data", PROMPT)
        resting = imported_for(tmp_path / "data", {**PROMPT, "prompt": "yes"})
    assert public_roots(asking) - NEEDED_MODULES - NAMING_MODULES - SOCKET_MODULES == set()
    assert "socket" not in resting


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    "stdin",
    [
        b"",
        b"\n",
        b"not JSON",
        b'{"session_id": "s1", "hook_event_name": "UserPromptSubmit", "prompt": "cut off',
        b"\xff\xfe\x00garbage\x80",
        b"[]",
        b"null",
        b'"text"',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"{}",
        b'{"hook_event_name": "UserPromptSubmit"}',
        b'{"hook_event_name": 5, "session_id": [], "prompt": {}}',
        b'{"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": ["a list"]}',
        b'{"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": null, "workspace_roots": [5]}',
        b'{"hook_event_name": "NobodyKnows", "session_id": "s1"}',
    ],
)
def test_broken_stdin_is_silence(tmp_path: Path, stdin: bytes) -> None:
    with answering(tmp_path / "data", says(BLOCK, "m1")) as requests:
        assert run_hook(tmp_path / "data", stdin) is None
    assert requests == spooled(tmp_path / "data") == []


def test_what_cannot_be_read_is_noted(tmp_path: Path) -> None:
    run_hook(tmp_path / "data", b"not JSON")
    run_hook(tmp_path / "data", {"hook_event_name": "UserPromptSubmit", "prompt": "no session"})
    run_hook(tmp_path / "data", json.dumps({**PROMPT, "prompt": "x" * 9_000_000}).encode())
    lines = Path(spool.refused_file(str(tmp_path / "data"))).read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["unreadable", "unreadable", "large"]
    assert spooled(tmp_path / "data") == []


def test_a_long_prompt_is_kept_with_its_beginning(tmp_path: Path) -> None:
    run_hook(tmp_path / "data", {**PROMPT, "prompt": "Ünïcode 😀 " * 200_000})
    (record,) = spooled(tmp_path / "data")
    assert record["text"].startswith("Ünïcode 😀 Ünïcode")
    assert record["text"].endswith("… (1999999 characters)")


@pytest.mark.nightly
def test_a_full_spool_refuses_and_notes_it(tmp_path: Path) -> None:
    folder = Path(spool.spool_dir(str(tmp_path / "data")))
    folder.mkdir(parents=True)
    for number in range(spool.MAX_FILES):
        (folder / f"{number}-1-a.json").touch()
    with answering(tmp_path / "data", says(BLOCK, "m1")):
        assert run_hook(tmp_path / "data", PROMPT) is not None
    assert len(list(folder.iterdir())) == spool.MAX_FILES
    assert Path(spool.refused_file(str(tmp_path / "data"))).read_text().split()[1] == "full"


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("endless", [False, True], ids=["open", "endless"])
def test_it_ends_although_stdin_does_not(tmp_path: Path, endless: bool) -> None:  # noqa: FBT001 - two cases
    read_end, write_end = os.pipe()
    with Path("/dev/zero").open("rb") as zeros:
        stdin = zeros.fileno() if endless else read_end
        process = subprocess.run(
            hook_command(patient=False),
            stdin=stdin,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
            env=hook_environment(tmp_path / "data"),
        )
    os.close(read_end)
    os.close(write_end)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "<&- >&- 2>&-", ">/dev/full", "2>&-", "</dev/null"])
def test_closed_streams_do_not_matter(tmp_path: Path, redirection: str) -> None:
    with answering(tmp_path / "data", says(BLOCK, "m1")):
        process = subprocess.run(
            ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, PATIENT_CODE],
            input=json.dumps(PROMPT).encode(),
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
            env=hook_environment(tmp_path / "data"),
        )
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_client_that_does_not_read_the_answer_does_not_matter(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with answering(tmp_path / "data", says(BLOCK, "m1")):
        process = subprocess.run(
            hook_command(),
            input=json.dumps(PROMPT).encode(),
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
            check=False,
            env=hook_environment(tmp_path / "data"),
        )
    os.close(write_end)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.parametrize("place", ["data", "data/hooks", "data/hooks/spool", "data/hooks/hook_settings.json"])
def test_a_folder_that_is_none_is_silence(tmp_path: Path, place: str) -> None:
    """Guards a data directory that cannot be written; a root user can write any real folder."""
    path = tmp_path / place
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if place.endswith(".json"):
        path.mkdir()
    else:
        path.write_text("a file")
    assert run_hook(tmp_path / "data", PROMPT) is None


@pytest.mark.parametrize("level", ["hooks", "hooks/spool"])
def test_a_link_that_someone_put_there_is_not_followed(tmp_path: Path, level: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link = tmp_path / "data" / level
    link.parent.mkdir(mode=0o700, parents=True)
    link.symlink_to(elsewhere)
    assert run_hook(tmp_path / "data", PROMPT) is None
    assert list(elsewhere.rglob("*.json")) == []


def test_a_full_disk_is_silence(tmp_path: Path) -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); {PATIENT_CODE}"
    with answering(tmp_path / "data", says(BLOCK, "m1")):
        process = subprocess.run(
            [sys.executable, "-c", limited],
            input=json.dumps(PROMPT).encode(),
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
            env=hook_environment(tmp_path / "data"),
        )
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    assert list(Path(spool.spool_dir(str(tmp_path / "data"))).iterdir()) == []


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HOME": ""},
        {"HOME": "/nonexistent"},
        {"LC_ALL": "C", "LANG": "xx_YY.KOI8-R"},
        {"PALIMPSEST_USER_ID": "ä\n", "CLAUDE_PROJECT_DIR": "\x01", "XDG_DATA_HOME": "~"},
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "0", "PYTHONWARNINGS": "error"},
    ],
)
def test_a_strange_environment_does_not_matter(tmp_path: Path, variables: dict[str, str]) -> None:
    env = {"PALIMPSEST_DATA_DIR": str(tmp_path / "data"), **variables}
    assert run_hook(tmp_path / "data", PROMPT, env=env) is None
    assert [record["text"] for record in spooled(tmp_path / "data")] == [PROMPT["prompt"]]


@pytest.mark.parametrize(
    "arguments", [["--client"], ["--unknown", "x"], ["--client", "emacs"], ["x"], ["--user", "", "--client", ""]]
)
def test_strange_arguments_do_not_matter(tmp_path: Path, arguments: list[str]) -> None:
    assert run_hook(tmp_path / "data", PROMPT, *arguments) is None
    assert [record["client"] for record in spooled(tmp_path / "data")] == ["claude-code"]


def test_ten_at_once_lose_nothing(tmp_path: Path) -> None:
    texts = [f"This is what was said as number {number}." for number in range(10)]

    def say(text: str) -> None:
        assert run_hook(tmp_path / "data", {**PROMPT, "prompt": text}) is None

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(say, texts))
    assert sorted(record["text"] for record in spooled(tmp_path / "data")) == sorted(texts)


@pytest.mark.parametrize(
    ("function", "replacement", "is_kept"),
    [("open", "die", False), ("write", "write_half", False), ("rename", "die", False), ("_exit", "die", True)],
)
def test_kill_9_leaves_a_whole_record_or_none(
    tmp_path: Path,
    function: str,
    replacement: str,
    is_kept: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", KILLED_IN.format(function=function, replacement=replacement) + PATIENT_CODE],
        input=json.dumps(PROMPT).encode(),
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        env=hook_environment(tmp_path / "data"),
    )
    assert (process.returncode, process.stdout) == (-signal.SIGKILL, b"")
    assert len(spooled(tmp_path / "data")) == is_kept
    run_hook(tmp_path / "data", {**PROMPT, "prompt": "the next one"})
    assert spooled(tmp_path / "data")[-1]["text"] == "the next one"


def test_what_was_said_is_spooled_before_a_server_is_asked(tmp_path: Path) -> None:
    """Guards the order: what was said is safe before anything can hang or be killed."""
    seen: list[int] = []

    def look(_connection: socket.socket, _request: dict[str, Any]) -> None:
        seen.append(len(spooled(tmp_path / "data")))

    with answering(tmp_path / "data", look):
        run_hook(tmp_path / "data", PROMPT)
    assert seen == [1]


def test_a_record_is_finished_although_the_time_is_up(tmp_path: Path) -> None:
    """Guards busy machines, on which even the imports can take longer than the limit."""
    process = subprocess.run(
        [sys.executable, "-c", TIME_IS_UP_BEFORE_RENAME + CODE],
        input=json.dumps(PROMPT).encode(),
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        env=hook_environment(tmp_path / "data"),
    )
    assert (process.returncode, process.stderr) == (0, b"")
    assert len(spooled(tmp_path / "data")) == 1


def test_an_answer_is_never_cut(tmp_path: Path) -> None:
    """Guards the longest answer that there is: it fills most of a pipe, and is JSON as a whole or not there."""
    long = f"<palimpsest-memory>{'ü' * 7_900}</palimpsest-memory>"
    with answering(tmp_path / "data", says(long, "m1")):
        printed = run_hook(tmp_path / "data", PROMPT)
    assert printed is not None
    assert printed["hookSpecificOutput"]["additionalContext"] == long
