"""Access tokens on a disk that cannot be written: one line that says what happened, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import restricted_process
from tests.support.command_line import palimpsest_json
from tests.support.environment import clean_environment

LAUNCHER = str(Path(restricted_process.__file__))


def restricted(folder: Path, restrictions: dict[str, Any], *arguments: str) -> tuple[int, str]:
    """Run a command in a restricted process. Return its exit code and its standard error."""
    done = subprocess.run(
        [sys.executable, LAUNCHER, json.dumps(restrictions), *arguments],
        env=clean_environment(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("restrictions", "reason"),
    [({"room": 1}, "File too large"), ({"unprivileged": True}, "Permission denied")],
    ids=["full", "read-only"],
)
def test_a_token_that_cannot_be_stored_is_one_line(tmp_path: Path, restrictions: dict[str, Any], reason: str) -> None:
    """Guards `token create` and `token revoke` on a full and on a read-only disk: nothing changes."""
    first = palimpsest_json(tmp_path, "token", "create")
    data = tmp_path / "data"
    if "unprivileged" in restrictions:
        data.chmod(0o500)
    try:
        for command, otherwise in ((("create",), "no token was created"), (("revoke", first["id"]), "was revoked")):
            code, error = restricted(tmp_path, restrictions, "token", *command)
            assert code == 1
            assert error.startswith("error: the access tokens cannot be written")
            assert error.count("\n") == 1
            assert reason in error
            assert otherwise in error
    finally:
        data.chmod(0o700)
    assert [token["id"] for token in palimpsest_json(tmp_path, "token", "list")["tokens"]] == [first["id"]]
