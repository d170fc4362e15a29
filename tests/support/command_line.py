"""Run the command line as a person or a program does, and return what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.environment import clean_environment


def palimpsest(
    folder: Path, *arguments: str, code: int = 0, answer: str = "", settings: Mapping[str, str] | None = None
) -> str:
    """Run `palimpsest` on the memory in folder/data and return its standard output.

    `answer` is its standard input, `code` the exit code it must end with. If the command must fail or reads an
    answer, the returned text includes standard error.
    """
    done = subprocess.run(
        [sys.executable, "-m", "palimpsest", *arguments],
        env=clean_environment(folder, COLUMNS="500", **(settings or {})),
        cwd=folder,
        input=answer,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr if code or answer else done.stdout


def palimpsest_json(folder: Path, *arguments: str, code: int = 0, settings: Mapping[str, str] | None = None) -> Any:
    """Run `palimpsest` with `--json` and return the JSON value it prints."""
    return json.loads(palimpsest(folder, *arguments, "--json", code=code, settings=settings))
