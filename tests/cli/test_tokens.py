"""Access tokens by command: what they open, and what is said if they cannot be stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

from palimpsest.server import access_tokens
from tests.support.command_line import palimpsest, palimpsest_json


def test_what_a_token_of_a_project_opens_is_chosen_and_said(tmp_path: Path) -> None:
    """Guards the choice: off by default."""
    palimpsest(tmp_path, "--project", "web", "add", "The web shop sells tea")
    create = ("token", "create", "--project")
    alone, general = (palimpsest_json(tmp_path, *create, "web", *rest) for rest in ((), ("--with-general",)))
    everything = palimpsest_json(tmp_path, "token", "create")
    assert [token["with_general"] for token in (alone, general, everything)] == [False, True, True]
    listed = palimpsest(tmp_path, "token", "list")
    for token, reach in ((alone, "web"), (general, r"web \+ general")):
        assert re.search(rf"{token['id']}  alice  {reach} {{2,}}read and write", listed)


def test_a_project_that_is_not_known_is_asked_about(tmp_path: Path) -> None:
    """Guards against a misspelt project: its token opens nothing, and nobody knows why."""
    palimpsest(tmp_path, "--project", "atlas", "add", "Atlas is written in Rust")
    for project, said in (("atals", "Did you mean atlas?"), ("nothing-alike", "alice has no project 'nothing-alike'")):
        asked = palimpsest(tmp_path, "token", "create", "--project", project, answer="n\n", code=1)
        assert said in asked
        assert "Create the token anyway?" in asked
    assert "--project is empty" in palimpsest(tmp_path, "token", "create", "--project", " ", code=1)
    assert palimpsest_json(tmp_path, "token", "list")["tokens"] == []
    palimpsest(tmp_path, "token", "create", "--project", "atals", answer="y\n")
    palimpsest(tmp_path, "token", "create", "--project", "atals", "--yes")
    palimpsest(tmp_path, "token", "create", "--project", "atlas")
    assert len(palimpsest_json(tmp_path, "token", "list")["tokens"]) == 3


def test_a_token_file_that_was_edited_opens_no_more_than_it_says(tmp_path: Path) -> None:
    """Guards a project that is no text, which must not count as none."""
    palimpsest(tmp_path, "token", "create")
    file = tmp_path / "data" / access_tokens.FILE
    (row,) = json.loads(file.read_text("utf-8"))
    for field in ("project", "user_id"):
        file.write_text(json.dumps([row | {field: None}]), "utf-8")
        assert "Every access token is refused" in palimpsest(tmp_path, "token", "list", code=1)
