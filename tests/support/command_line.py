"""Run the command line as a person or a program does, and return what it prints.

`palimpsest` calls the entry point in this process, which saves a second of imports per command. `palimpsest_process`
starts a real process, for what only a process shows. Both take the same arguments and return the same text.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from palimpsest import __main__
from palimpsest.cli import output
from tests.support.environment import clean_environment, inside

# The width of the terminal; no line of a table is wrapped.
COLUMNS = 500

# The mask a command starts with, whatever the one of whoever runs the tests.
UMASK = 0o022


def palimpsest(
    folder: Path, *arguments: str, code: int = 0, answer: str = "", settings: Mapping[str, str] | None = None
) -> str:
    """Run `palimpsest` on the memory in folder/data and return its standard output.

    `answer` is its standard input, `code` the exit code it must end with. If the command must fail or reads an
    answer, the returned text includes standard error.
    """
    with ThreadPoolExecutor(1) as thread:  # a test may run an event loop in its own thread; the command starts another
        done = thread.submit(_run_here, folder, arguments, answer, _environment(folder, settings)).result()
    return _printed(done, code, answer)


def palimpsest_process(
    folder: Path, *arguments: str, code: int = 0, answer: str = "", settings: Mapping[str, str] | None = None
) -> str:
    """Do what `palimpsest` does in a process of its own."""
    return _printed(_run_process(folder, ("-m", "palimpsest", *arguments), answer, settings), code, answer)


def palimpsest_json(folder: Path, *arguments: str, code: int = 0, settings: Mapping[str, str] | None = None) -> Any:
    """Run `palimpsest` with `--json` and return the JSON value it prints."""
    return json.loads(palimpsest(folder, *arguments, "--json", code=code, settings=settings))


def _environment(folder: Path, settings: Mapping[str, str] | None) -> dict[str, str]:
    return clean_environment(folder, **{"COLUMNS": str(COLUMNS), **(settings or {})})


def _run_process(
    folder: Path, arguments: tuple[str, ...], answer: str, settings: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=_environment(folder, settings),
        cwd=folder,
        input=answer,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _run_here(
    folder: Path, arguments: tuple[str, ...], answer: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Call the entry point with its own standard streams, arguments, environment, working directory and umask."""
    stdout, stderr = _Stream(), _Stream()
    umask = os.umask(UMASK)
    try:
        with (
            inside(folder, environment),
            mock.patch.multiple(sys, argv=["palimpsest", *arguments], stdin=_Stream(answer.encode())),
            redirect_stdout(stdout),
            redirect_stderr(stderr),
        ):
            code = _exit_code()
    finally:
        os.umask(umask)
    return subprocess.CompletedProcess(arguments, code, stdout.content(), stderr.content())


class _Stream(io.TextIOWrapper):
    """A standard stream as a process has it: UTF-8 over bytes."""

    def __init__(self, content: bytes = b"") -> None:
        self._bytes = io.BytesIO(content)
        super().__init__(self._bytes, "utf-8", write_through=True)

    def content(self) -> str:
        """Return what was written."""
        return self._bytes.getvalue().decode()


def _exit_code() -> int:
    """Call the entry point and return the code that the process would end with."""
    output.out.width = output.err.width = COLUMNS  # they read the environment only once, when they are imported
    try:
        __main__.main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


def _printed(done: subprocess.CompletedProcess[str], code: int, answer: str) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr if code or answer else done.stdout
