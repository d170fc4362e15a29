"""Run code in a new interpreter."""

from __future__ import annotations

import subprocess
import sys


def output_of(code: str, **environment: str) -> str:
    """Return what code prints in a new interpreter, with only these variables if any are given.

    A warning makes it fail.
    """
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment or None,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()
