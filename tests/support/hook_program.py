"""The program `palimpsest-hook` as clients run it, and a server that answers its questions as a test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from palimpsest.hooks import events, spool
from palimpsest.hooks.program import MAX_PAYLOAD_BYTES

# What the generated script of the entry point does.
CODE = "from palimpsest.hooks.program import main; main()"
# The same with time for a machine that runs many tests at once.
PATIENT_CODE = f"from palimpsest.hooks import program; program.LIMIT = program.ANSWER_LIMIT = 50; {CODE}"
# Seconds after which a test fails because the hook has not ended.
TIMEOUT = 60


def hook_command(*arguments: str, patient: bool = True) -> list[str]:
    """Return the command line of the hook. A patient one has time for a busy machine, and hangs with what it asks."""
    return [sys.executable, "-c", PATIENT_CODE if patient else CODE, *arguments]


def hook_environment(data_dir: Path, **variables: str) -> dict[str, str]:
    """Return an environment of a client: none of this process's own clients, and a folder as home."""
    foreign = ("PALIMPSEST_", "CLAUDE", "CURSOR", "GEMINI", "CODEX", "XDG_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return {**inherited, "HOME": str(data_dir.parent), "PALIMPSEST_DATA_DIR": str(data_dir), **variables}


def run_hook(
    data_dir: Path,
    payload: Mapping[str, Any] | bytes,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    patient: bool = True,
) -> dict[str, Any] | None:
    """Run the hook with a payload and return the object that it prints, None for nothing.

    It has time for a busy machine unless it is not `patient`: then it has the limits of the real program. The call
    fails the test if the hook does not exit with 0, or writes to stderr.
    """
    process = subprocess.run(
        hook_command(*arguments, patient=patient),
        input=payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        env=hook_environment(data_dir) if env is None else dict(env),
    )
    assert (process.returncode, process.stderr) == (0, b"")
    return json.loads(process.stdout) if process.stdout else None


def handle_hook(
    data_dir: Path, payload: Mapping[str, Any] | bytes, *arguments: str, **variables: str
) -> dict[str, Any] | None:
    """Do in this process what the program does with a payload, which is quicker than to start it."""
    stdin = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    environment = patch.dict(os.environ, hook_environment(data_dir, **variables), clear=True)
    with environment, patch.object(sys, "argv", ["palimpsest-hook", *arguments]):
        try:
            call = events.handle_event(stdin if len(stdin) <= MAX_PAYLOAD_BYTES else None)
            reply = events.build_reply(*call, time.monotonic() + TIMEOUT) if call is not None else b""
        except Exception:  # noqa: BLE001 - the program ends without a word, too
            return None
    return json.loads(reply) if reply else None


def spooled(data_dir: Path) -> list[dict[str, Any]]:
    """Return the records in the spool, the oldest first."""
    folder = Path(spool.spool_dir(str(data_dir)))
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob(f"*{spool.SPOOL_SUFFIX}"))]
