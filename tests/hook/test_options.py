"""Opt-outs, and where the hook finds its data directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from palimpsest.hooks import spool
from palimpsest.hooks.events import default_data_dir
from tests.support.hook_program import hook_environment, run_hook, spooled

PROMPT = {"session_id": "s1", "hook_event_name": "UserPromptSubmit", "prompt": "I moved to Lisbon.", "cwd": ""}


def write_settings(data_dir: Path, settings: Any) -> None:
    file = Path(spool.settings_file(str(data_dir)))
    file.parent.mkdir(mode=0o700, parents=True)
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))


def kept(data_dir: Path, cwd: str = "", **variables: str) -> bool:
    """Run the hook with a prompt in a folder and return whether it was kept."""
    run_hook(data_dir, {**PROMPT, "cwd": cwd}, env=hook_environment(data_dir, **variables))
    return bool(spooled(data_dir))


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("variable", "settings", "is_kept"),
    [
        ("", None, True),
        ("", {"mode": "on", "excluded_folders": []}, True),
        ("", {"mode": "off"}, False),
        ("", {"mode": "recall"}, False),
        ("", {"mode": "capture"}, True),
        ("on", {"mode": "off"}, True),
        ("off", {"mode": "on"}, False),
        (" OFF ", {"mode": "on"}, False),
        ("0", None, False),
        ("", {"mode": "sometimes"}, False),
        ("", {"mode": None}, False),
        ("", "{damaged", False),
        ("", "[]", False),
    ],
)
def test_the_mode_of_the_environment_wins_over_the_settings(
    tmp_path: Path,
    variable: str,
    settings: Any,
    is_kept: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    if settings is not None:
        write_settings(tmp_path / "data", settings)
    assert kept(tmp_path / "data", PALIMPSEST_HOOKS=variable) is is_kept


@pytest.mark.parametrize(
    "payload", [PROMPT, {**PROMPT, "hook_event_name": "SessionStart"}, b"not JSON", b"x" * 9_000_000]
)
def test_off_leaves_no_trace(tmp_path: Path, payload: dict[str, Any] | bytes) -> None:
    assert run_hook(tmp_path / "data", payload, env=hook_environment(tmp_path / "data", PALIMPSEST_HOOKS="off")) is None
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("cwd", "is_kept"),
    [
        ("secret", False),
        ("secret/below/it", False),
        ("secret/../secret", False),
        ("link", False),
        ("secretive", True),
        ("", True),
        ("open/../open", True),
    ],
)
def test_excluded_folders_are_left_out_with_all_below_them(
    tmp_path: Path,
    cwd: str,
    is_kept: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    for name in ("secret/below/it", "secretive", "open"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    write_settings(tmp_path / "data", {"mode": "on", "excluded_folders": [str(tmp_path / "secret")]})
    assert kept(tmp_path / "data", str(tmp_path / cwd) if cwd else "") is is_kept


def test_an_excluded_folder_may_begin_with_the_home_folder(tmp_path: Path) -> None:
    write_settings(tmp_path / "data", {"mode": "on", "excluded_folders": ["~/secret"]})
    assert not kept(tmp_path / "data", str(tmp_path / "secret"))


@pytest.mark.parametrize("variable", ["CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR", "GEMINI_PROJECT_DIR"])
def test_a_session_of_an_excluded_folder_stays_excluded_elsewhere(tmp_path: Path, variable: str) -> None:
    write_settings(tmp_path / "data", {"mode": "on", "excluded_folders": [str(tmp_path / "secret")]})
    assert not kept(tmp_path / "data", "/tmp", **{variable: str(tmp_path / "secret")})  # noqa: S108 - only named


def test_arguments_win_over_the_environment(tmp_path: Path) -> None:
    env = hook_environment(tmp_path / "other", PALIMPSEST_USER_ID="bob")
    run_hook(tmp_path / "data", PROMPT, "--data-dir", str(tmp_path / "data"), "--user", "ada", env=env)
    run_hook(tmp_path / "data", PROMPT, "--data-dir", str(tmp_path / "data"), env=env)
    assert [record["user"] for record in spooled(tmp_path / "data")] == ["ada", "bob"]
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("value", [None, "", "  ", "relative/path", "/srv/data", "/srv/data/"])
def test_the_default_data_directory_is_that_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if value is None:
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_DATA_HOME", value)
    environment = {} if value is None else {"XDG_DATA_HOME": value}
    assert Path(default_data_dir(environment)) == platformdirs.user_data_path("palimpsest", appauthor=False)
