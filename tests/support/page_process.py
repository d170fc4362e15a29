"""Run `palimpsest ui` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.environment import clean_environment

# Seconds to wait for an answer, or for the process to stop.
TIMEOUT = 60


@contextmanager
def run_ui(folder: Path, **settings: str) -> Generator[str]:
    """Run `palimpsest ui` on the memory in folder/data until the block ends; its first URL."""
    command = [sys.executable, "-u", "-m", "palimpsest", "ui", "--no-open"]
    env = clean_environment(folder, **{"PALIMPSEST_LLM__PROVIDER": "none", **settings})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=folder) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(TIMEOUT)
