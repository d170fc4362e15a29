"""Which brief a session begins with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks import spool
from tests.support.hook_program import hook_environment, run_hook

BRIEF = "<palimpsest-memory>\nAda lives in Lisbon.\n</palimpsest-memory>"


def write_briefs(data_dir: Path, folders: Any, **briefs: Any) -> None:
    """Write the map of folders and some briefs by key, JSON values or damaged texts."""
    file = Path(spool.folders_file(str(data_dir)))
    file.parent.mkdir(mode=0o700, parents=True)
    files = {file: folders, **{Path(spool.brief_file(str(data_dir), key)): brief for key, brief in briefs.items()}}
    for path, content in files.items():
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def brief(text: str, *ids: str) -> dict[str, Any]:
    return {"v": 1, "text": text, "ids": ids}


def begun_with(data_dir: Path, cwd: str, *arguments: str, source: str = "startup", **variables: str) -> str:
    """Return the text that a session in a folder begins with, "" for none."""
    payload = {"session_id": "s1", "hook_event_name": "SessionStart", "source": source, "cwd": cwd}
    printed = run_hook(data_dir, payload, *arguments, env=hook_environment(data_dir, **variables))
    return printed["hookSpecificOutput"]["additionalContext"] if printed else ""


@pytest.mark.parametrize(
    ("cwd", "text"),
    [
        ("/home/nadia/app", "app"),
        ("/home/nadia/app/server/api", "api"),
        ("/home/nadia/app/server", "app"),
        ("/home/nadia/apple", "global"),
        ("/", "global"),
        ("", "global"),
        ("relative", "global"),
    ],
)
def test_the_nearest_folder_counts(tmp_path: Path, cwd: str, text: str) -> None:
    users = {"": {"": "k0", "/home/nadia/app": "k1", "/home/nadia/app/server/api": "k2"}}
    write_briefs(tmp_path, {"v": 1, "users": users}, k0=brief("global"), k1=brief("app"), k2=brief("api"))
    assert begun_with(tmp_path, cwd) == text


def test_a_linked_folder_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "app")
    users = {"": {str(tmp_path / "app"): "k1"}}
    write_briefs(tmp_path / "data", {"v": 1, "users": users}, k1=brief("app"))
    assert begun_with(tmp_path / "data", str(tmp_path / "link")) == "app"


def test_each_user_has_briefs_of_their_own(tmp_path: Path) -> None:
    users = {"": {"": "k0"}, "ada": {"": "k1"}}
    write_briefs(tmp_path, {"v": 1, "users": users}, k0=brief("of the settings"), k1=brief("of Ada"))
    assert begun_with(tmp_path, "/") == "of the settings"
    assert begun_with(tmp_path, "/", "--user", "ada") == "of Ada"
    assert begun_with(tmp_path, "/", PALIMPSEST_USER_ID="ada") == "of Ada"
    assert begun_with(tmp_path, "/", "--user", "eve") == ""


@pytest.mark.parametrize(
    ("folders", "content"),
    [
        ("{damaged", brief(BRIEF)),
        ([], brief(BRIEF)),
        ({"users": []}, brief(BRIEF)),
        ({"users": {"": []}}, brief(BRIEF)),
        ({"users": {"": {"": 5}}}, brief(BRIEF)),
        ({"users": {"": {"": "../../secret"}}}, brief(BRIEF)),
        ({"users": {"": {"": "k9"}}}, brief(BRIEF)),
        ({"users": {"": {"": "k1"}}}, "{damaged"),
        ({"users": {"": {"": "k1"}}}, "[" * 100_000),
        ({"users": {"": {"": "k1"}}}, {"text": 5}),
        ({"users": {"": {"": "k1"}}}, {"text": ""}),
    ],
)
def test_a_damaged_file_says_nothing(tmp_path: Path, folders: Any, content: Any) -> None:
    write_briefs(tmp_path, folders, k1=content)
    assert begun_with(tmp_path, "/") == ""


def test_an_absurdly_long_brief_is_cut(tmp_path: Path) -> None:
    text = "<palimpsest-memory>\n" + "Ada lives in Lisbon.\n" * 5_000 + "</palimpsest-memory>"
    write_briefs(tmp_path, {"users": {"": {"": "k1"}}}, k1=brief(text))
    shown = begun_with(tmp_path, "/")
    assert 7_000 < len(shown) < 8_100
    assert shown.endswith("</palimpsest-memory>")


@pytest.mark.parametrize(
    ("source", "text"), [("startup", BRIEF), ("clear", BRIEF), ("compact", BRIEF), ("resume", ""), ("fork", "")]
)
def test_a_session_that_still_sees_its_brief_gets_no_other(tmp_path: Path, source: str, text: str) -> None:
    write_briefs(tmp_path, {"users": {"": {"": "k1"}}}, k1=brief(BRIEF))
    assert begun_with(tmp_path, "/", source=source) == text


def test_memories_of_the_brief_count_as_shown(tmp_path: Path) -> None:
    write_briefs(tmp_path, {"users": {"": {"": "k1"}}}, k1=brief(BRIEF, "m1", "m2"))
    begun_with(tmp_path, "/")
    assert Path(spool.shown_file(str(tmp_path), "claude-code", "s1")).read_text().split() == ["m1", "m2"]


@pytest.mark.parametrize("mode", ["off", "capture"])
def test_a_mode_without_recall_has_no_brief(tmp_path: Path, mode: str) -> None:
    write_briefs(tmp_path, {"users": {"": {"": "k1"}}}, k1=brief(BRIEF))
    assert begun_with(tmp_path, "/", PALIMPSEST_HOOKS=mode) == ""
