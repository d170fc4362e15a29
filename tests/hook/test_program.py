"""The program as a whole: it ends by itself with 0, says nothing it should not, and loses nothing it has taken."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palimpsest.hooks import spool
from scripted_recall import answering, says
from tests.support.hook_program import (
    CODE,
    PATIENT_CODE,
    TIMEOUT,
    handle_hook,
    hook_command,
    hook_environment,
    run_hook,
    spooled,
)

PROMPT = {
    "session_id": "s1",
    "cwd": "",
    "hook_event_name": "UserPromptSubmit",
    "prompt": "Which database does the billing service use?",
}
BLOCK = "<palimpsest-memory>\n- The billing service uses PostgreSQL.\n</palimpsest-memory>"

# Kills the hook with signal 9 at a certain place, which no test could hit from outside.
KILLED_IN = """
import os, signal
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def write_half(descriptor, content, write=os.write):
    write(descriptor, content[: len(content) // 2])
    die()
os.{function} = {replacement}
"""
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


def run(
    data_dir: Path, *command: str, payload: Mapping[str, Any] = PROMPT, **rest: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as the hook with a payload, and return the process that has ended."""
    options: dict[str, Any] = {"timeout": TIMEOUT, "env": hook_environment(data_dir), **rest}
    if "stdin" not in rest:
        options["input"] = json.dumps(payload).encode()
    if "stderr" not in rest:
        options["capture_output"] = True
    start: Any = subprocess.run
    return start(command, check=False, **options)


BROKEN = (
    b"not JSON",
    b"[" * 200_000,
    b"",
    b'{"session_id": "s1", "hook_event_name": "UserPromptSubmit", "prompt": "cut off',
    b"\xff\xfe\x00garbage\x80",
    b"[]",
    b"{}",
    b'{"hook_event_name": 5, "session_id": [], "prompt": {}}',
    b'{"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": null, "workspace_roots": [5]}',
    b'{"hook_event_name": "NobodyKnows", "session_id": "s1"}',
)


def test_broken_stdin_is_silence(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with answering(data_dir, says(BLOCK, "m1")) as requests:
        assert run_hook(data_dir, BROKEN[0]) is None
        assert run_hook(data_dir, BROKEN[1]) is None
        for stdin in BROKEN:
            assert handle_hook(data_dir, stdin) is None, stdin[:60]
    assert requests == spooled(data_dir) == []
    run_hook(data_dir, {"hook_event_name": "UserPromptSubmit", "prompt": "no session"})
    run_hook(data_dir, json.dumps({**PROMPT, "prompt": "x" * 9_000_000}).encode())
    assert spooled(data_dir) == []
    run_hook(data_dir, {**PROMPT, "prompt": "Ünïcode 😀 " * 200_000})
    (record,) = spooled(data_dir)
    assert record["text"].startswith("Ünïcode 😀 Ünïcode")
    assert record["text"].endswith("… (1999999 characters)")


def hangs(connection: socket.socket, _request: dict[str, Any]) -> None:
    """Answer nothing until the hook has gone."""
    connection.recv(1)


def stops_halfway(connection: socket.socket, _request: dict[str, Any]) -> None:
    connection.sendall(json.dumps({"ids": ["m1"], "text": BLOCK}).encode()[:40])
    connection.recv(1)


def test_it_ends_although_stdin_or_a_server_does_not(tmp_path: Path) -> None:
    """Guards the prompt: the hook ends by itself and says nothing."""
    read_end, write_end = os.pipe()
    with Path("/dev/zero").open("rb") as zeros:
        for stdin in (read_end, zeros.fileno()):
            process = run(tmp_path / "data", *hook_command(patient=False), stdin=stdin)
            assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    for end in (read_end, write_end):
        os.close(end)
    for answer in (hangs, stops_halfway):
        with answering(tmp_path / "data", answer):
            assert run_hook(tmp_path / "data", PROMPT, patient=False) is None


def test_closed_streams_do_not_matter(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with answering(data_dir, says(BLOCK, "m1")):
        for redirection in ("<&-", ">&-", "<&- >&- 2>&-", ">/dev/full", "2>&-", "</dev/null"):
            shell = ("sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, PATIENT_CODE)
            process = run(data_dir, *shell)
            assert (process.returncode, process.stderr) == (0, b""), redirection
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = run(data_dir, *hook_command(), stdout=write_end, stderr=subprocess.PIPE)
        os.close(write_end)
        assert (process.returncode, process.stderr) == (0, b"")
    kept = len(spooled(data_dir))
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); {PATIENT_CODE}"
    process = run(data_dir, sys.executable, "-c", limited)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    assert len(list(Path(spool.spool_dir(str(data_dir))).iterdir())) == kept


def test_kill_9_leaves_a_whole_record_or_none(tmp_path: Path) -> None:
    cases = (("open", "die", False), ("write", "write_half", False), ("rename", "die", False), ("_exit", "die", True))
    for function, replacement, is_kept in cases:
        data_dir = tmp_path / function / "data"
        code = KILLED_IN.format(function=function, replacement=replacement) + PATIENT_CODE
        process = run(data_dir, sys.executable, "-c", code)
        assert (process.returncode, process.stdout) == (-signal.SIGKILL, b"")
        assert len(spooled(data_dir)) == is_kept, function
        handle_hook(data_dir, {**PROMPT, "prompt": "the next one"})
        assert spooled(data_dir)[-1]["text"] == "the next one"


def test_what_was_said_is_spooled_before_a_server_is_asked(tmp_path: Path) -> None:
    """It is safe before anything can hang or be killed, and finished although the time is up."""
    seen: list[int] = []

    def look(_connection: socket.socket, _request: dict[str, Any]) -> None:
        seen.append(len(spooled(tmp_path / "data")))

    with answering(tmp_path / "data", look):
        run_hook(tmp_path / "data", PROMPT)
    assert seen == [1]
    # On busy machines even the imports can take longer than the limit.
    process = run(tmp_path / "late", sys.executable, "-c", TIME_IS_UP_BEFORE_RENAME + CODE)
    assert (process.returncode, process.stderr) == (0, b"")
    assert len(spooled(tmp_path / "late")) == 1


REPORT_MODULES = f"""
import os, sys
before, end = set(sys.modules), os._exit
def report(code):
    os.write(2, " ".join(sorted(set(sys.modules) - before)).encode())
    end(code)
os._exit = report
{PATIENT_CODE}
"""


def test_few_modules_are_imported(tmp_path: Path) -> None:
    """Guards the time before every prompt, which is mostly that of imports. Sockets are for a question only."""
    for name in ("UserPromptSubmit", "Stop", "SessionStart"):
        event = {**PROMPT, "hook_event_name": name, "prompt": "yes", "last_assistant_message": "Done."}
        process = run(tmp_path / "data", sys.executable, "-I", "-c", REPORT_MODULES, payload=event)
        modules = set(process.stderr.decode().split())
        assert {module.partition(".")[0] for module in modules} - {"palimpsest"} <= sys.stdlib_module_names, name
        assert {module for module in modules if module.startswith("palimpsest.") and ".hook" not in module} == set()
        assert "socket" not in modules
        assert len(modules) <= 45, "json alone brings 23"
