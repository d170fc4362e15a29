"""Access tokens on a disk that cannot be written: one line that says what happened, and no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import palimpsest_json, palimpsest_restricted


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
            error = palimpsest_restricted(tmp_path, restrictions, "token", *command)
            assert error.startswith("error: the access tokens cannot be written")
            assert error.count("\n") == 1
            assert reason in error
            assert otherwise in error
    finally:
        data.chmod(0o700)
    assert [token["id"] for token in palimpsest_json(tmp_path, "token", "list")["tokens"]] == [first["id"]]
