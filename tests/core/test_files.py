"""Files that are replaced as a whole, with access for the owner alone; the settings file keeps what is not changed."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from palimpsest.core.errors import SettingsError
from palimpsest.core.files import replace_file
from palimpsest.core.settings_file import keep_copy, set_values


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_readers_see_the_old_text_until_the_block_ends(tmp_path: Path) -> None:
    """Guards readers without a lock, and the next write after a process was killed in the middle of one."""
    path = tmp_path / "state.json"
    path.write_text("old", "utf-8")
    (tmp_path / "state.json.new").write_text("left behind, and longer than the new text", "utf-8")
    with replace_file(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text("utf-8") == "old"
    assert path.read_text("utf-8") == "new"
    assert names(tmp_path) == {"state.json"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits, and links need a privilege")
def test_the_mode_does_not_depend_on_the_umask_and_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("untouched", "utf-8")
    (tmp_path / "state.json.new").symlink_to(target)
    previous_umask = os.umask(0)
    try:
        with replace_file(tmp_path / "state.json", 0o644) as file:
            assert stat.S_IMODE((tmp_path / "state.json.new").stat().st_mode) == 0o600
            file.write("new")
    finally:
        os.umask(previous_umask)
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o644
    assert target.read_text("utf-8") == "untouched"


# Settings files before and after a change.
CASES: dict[str, dict[str, list[str]]] = json.loads((Path(__file__).parent / "settings_files.json").read_text("utf-8"))


def changed(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    set_values(path, {"embedder.provider": "e5"})
    return path.read_bytes().decode()


@pytest.mark.parametrize(("before", "after"), CASES["one value"].values(), ids=CASES["one value"])
def test_everything_else_in_a_toml_file_stays(tmp_path: Path, before: str, after: str) -> None:
    assert changed(tmp_path / "config.toml", before) == after
    assert tomllib.loads(after)["embedder"]["provider"] == "e5"


@pytest.mark.parametrize("text", ['embedder = "static"\n', "["], ids=["no section", "not TOML"])
def test_a_file_that_is_written_otherwise_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(SettingsError, match=r"Change embedder\.provider by hand. Nothing was changed"):
        changed(path, text)
    assert path.read_text("utf-8") == text


def test_an_error_does_not_show_a_key(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('llm = "none"\n', "utf-8")
    with pytest.raises(SettingsError, match=r"Change llm\.provider, llm\.config\.api_key by hand") as error:
        set_values(path, {"llm.provider": "openai", "llm.config.api_key": "of-a-vendor"})
    assert "of-a-vendor" not in str(error.value)


def test_a_file_that_gets_a_key_is_private_and_its_copies_too(tmp_path: Path) -> None:
    """It may be a link, which stays one."""
    path, real = tmp_path / "config.toml", tmp_path / "real.toml"
    assert keep_copy(path) is None
    real.write_text("explain = true\n", "utf-8")
    path.symlink_to(real)
    copies = [keep_copy(path), keep_copy(path)]
    real.write_text("explain = false\n", "utf-8")
    copies.append(keep_copy(path))
    assert copies == [tmp_path / f"config.toml.old{number}" for number in ("", "", "1")]
    set_values(path, {"llm.config.api_key": "k"}, private=True)
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, *copies) if file} == {0o600}
    assert (tmp_path / "config.toml.old").read_text("utf-8") == "explain = true\n"
    assert path.is_symlink()
