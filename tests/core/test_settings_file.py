"""One value of a settings file is changed, and everything else stays as it is."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest

from palimpsest.core.configuration.file import set_value
from palimpsest.core.errors import SettingsError


def changed(path: Path, text: str) -> str:
    """Return the text of a settings file after the embedder was changed."""
    path.write_bytes(text.encode())
    set_value(path, "embedder", "provider", "e5")
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[embedder]\nprovider = "e5"\n'),
        ('user_id = "me"', 'user_id = "me"\n\n[embedder]\nprovider = "e5"\n'),
        ('[embedder]\nprovider = "static"  # fast\n', '[embedder]\nprovider = "e5"  # fast\n'),
        ("[embedder] # mine\n  provider='static'\n", '[embedder] # mine\n  provider = "e5"\n'),
        (
            '[embedder.config]\nmodel = "m"\n[llm]\nprovider = "none"\n',
            '[embedder.config]\nmodel = "m"\n[llm]\nprovider = "none"\n\n[embedder]\nprovider = "e5"\n',
        ),
        (
            '[embedder]\n# what\n[embedder.config]\nprovider_name = "x"\n',
            '[embedder]\nprovider = "e5"\n# what\n[embedder.config]\nprovider_name = "x"\n',
        ),
        ('user_id = "me"\r\n', 'user_id = "me"\r\n\r\n[embedder]\r\nprovider = "e5"\r\n'),
        ("[embedder]", '[embedder]\nprovider = "e5"\n'),
    ],
    ids=["empty", "no section", "a comment", "other quotes", "only a subsection", "no key", "Windows", "no line end"],
)
def test_every_other_line_of_a_toml_file_stays(tmp_path: Path, before: str, after: str) -> None:
    """A person's comments and order are theirs."""
    assert changed(tmp_path / "config.toml", before) == after
    assert tomllib.loads(after)["embedder"]["provider"] == "e5"


@pytest.mark.parametrize(
    "text",
    ['embedder = { provider = "static" }\n', 'embedder.provider = "static"\n', 'note = """\n[embedder]\n"""\n', "["],
    ids=["inline", "dotted", "in a string", "not TOML"],
)
def test_a_file_that_is_written_otherwise_is_left_alone(tmp_path: Path, text: str) -> None:
    """The error says what to write by hand."""
    path = tmp_path / "config.toml"
    with pytest.raises(SettingsError, match=r'embedder\.provider = "e5".*Nothing was changed'):
        changed(path, text)
    assert path.read_text("utf-8") == text


def test_a_json_file_keeps_its_values(tmp_path: Path) -> None:
    """Mem0's users bring a JSON file."""
    values = {"user_id": "ä", "embedder": {"config": {"model": "m"}, "provider": "openai"}, "llm": {"provider": "none"}}
    after = json.loads(changed(tmp_path / "settings.json", json.dumps(values)))
    assert after == {**values, "embedder": {"config": {"model": "m"}, "provider": "e5"}}


def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    """It may hold keys."""
    path = tmp_path / "new" / "config.toml"
    set_value(path, "embedder", "provider", "e5")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    set_value(path, "embedder", "provider", "static")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Settings are often kept in another folder."""
    (tmp_path / "real.toml").write_text("", "utf-8")
    (tmp_path / "config.toml").symlink_to(tmp_path / "real.toml")
    set_value(tmp_path / "config.toml", "embedder", "provider", "e5")
    assert (tmp_path / "config.toml").is_symlink()
    assert "e5" in (tmp_path / "real.toml").read_text("utf-8")
