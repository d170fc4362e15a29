"""Output that cannot be written: a command that changed something says so, and never looks as if it had failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from palimpsest.cli.output import LOST_OUTPUT
from tests.support.command_line import palimpsest_json
from tests.support.environment import clean_environment


def run(folder: Path, stdout: int, *arguments: str, **settings: str) -> tuple[int, str]:
    """Run a command with this standard output. Return its exit code and its standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "palimpsest", *arguments],
        env=clean_environment(folder, **settings),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


@contextmanager
def full_device() -> Generator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def closed_pipe() -> Generator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


Output: TypeAlias = Callable[[], AbstractContextManager[int]]

OUTPUTS = pytest.mark.parametrize("output", [full_device, closed_pipe], ids=["full", "closed"])


@pytest.mark.nightly
@OUTPUTS
def test_a_write_whose_reply_is_lost_says_on_stderr_what_is_stored(tmp_path: Path, output: Output) -> None:
    """Guards against doing it twice: an undo that is run again takes back one edit more."""
    with output() as stdout:
        code, error = run(tmp_path, stdout, "add", "User likes green tea")
        assert (code, "added: [" in error) == (LOST_OUTPUT, True)
        assert "This was done and is kept" in error
        code, error = run(tmp_path, stdout, "add", "User likes coffee", "--json")
        assert (code, "User likes coffee" in error) == (LOST_OUTPUT, True)
        code, error = run(tmp_path, stdout, "undo")
        assert (code, "deleted: [" in error) == (LOST_OUTPUT, True)
        code, error = run(tmp_path, stdout, "token", "create")
        assert (code, "palimpsest token revoke" in error) == (LOST_OUTPUT, True)
    assert [hit["text"] for hit in palimpsest_json(tmp_path, "list")["results"]] == ["User likes green tea"]


@pytest.mark.nightly
def test_a_listing_that_cannot_be_written_is_one_line_on_stderr(tmp_path: Path) -> None:
    """Guards against a traceback and an empty file like an empty memory; `palimpsest list | head` is fine."""
    with full_device() as full, closed_pipe() as closed:
        for command in (("list",), ("list", "--json"), ("export", "-"), ("prompts", "show", "decide"), ("doctor",)):
            assert run(tmp_path, closed, *command) == (0, ""), command
            code, error = run(tmp_path, full, *command)
            assert (code, "is kept" in error) == (LOST_OUTPUT, False), command
            assert error.startswith("error: standard output cannot be written"), command


@pytest.mark.nightly
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_escaped(tmp_path: Path, encoding: str) -> None:
    """Guards a terminal without Unicode: text is escaped, JSON says the same in ASCII, and an export is UTF-8."""
    text = "Ana lives in 北京 🏴 ½"
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": text}]), "utf-8")

    def output_of(*arguments: str) -> bytes:
        printed = tmp_path / "printed.txt"
        with printed.open("wb") as file:
            result = run(tmp_path, file.fileno(), *arguments, COLUMNS="500", PYTHONIOENCODING=f"{encoding}:strict")
        assert result == (0, "")
        return printed.read_bytes()

    assert b"learned 1 message" in output_of("learn", "chat.json")
    assert rb"\u5317\u4eac \U0001f3f4" in output_of("search", "Ana")
    assert json.loads(output_of("search", "Ana", "--json"))["results"][0]["text"] == text
    exported = output_of("export", "-").decode("utf-8")
    assert text in [json.loads(line).get("content") for line in exported.splitlines()]
