"""Files that no command may read to their end: devices, pipes, and brackets without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command_line import palimpsest

DEEP = "[" * 100_000


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("command", ["import", "learn", "restore"])
def test_a_device_and_a_pipe_are_refused(tmp_path: Path, command: str) -> None:
    """Guards against a command that reads for ever, whatever the name of the file promises."""
    palimpsest(tmp_path, "add", "The lamp is yellow")
    options = ("--yes",) if command == "restore" else ()
    named = tmp_path / "zeros.json"
    named.symlink_to("/dev/zero")
    pipes = [tmp_path / "pipe", tmp_path / "pipe.json", tmp_path / "pipe.md"]
    for pipe in pipes:
        os.mkfifo(pipe)
    for file in (Path("/dev/zero"), named, *pipes):
        said = palimpsest(tmp_path, command, str(file), *options, code=1)
        assert str(file) in said
        assert "Nothing was" in said
    assert "The lamp is yellow" in palimpsest(tmp_path, "list")


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("command", ["import", "learn"])
@pytest.mark.parametrize("content", [DEEP, f'{{"messages": {DEEP}', f'{{"a": 1}}\n{DEEP}\n', '{"a":' * 50_000])
def test_brackets_without_end_are_refused(tmp_path: Path, command: str, content: str) -> None:
    """Guards against a traceback for JSON that is nested too deep."""
    file = tmp_path / "deep.json"
    file.write_text(content, "utf-8")
    said = palimpsest(tmp_path, command, str(file), code=1)
    assert "deep.json" in said
    assert "Traceback" not in said
