"""Files that are replaced as a whole: a reader never sees a part of the new text, and other users have no access."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from palimpsest.core.files import replace_file


def names(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {file.name for file in folder.iterdir()}


def fail_halfway(path: Path, failure: type[BaseException]) -> None:
    """Raise `failure` after half of the new text was written."""
    with replace_file(path) as file:
        file.write("half")
        raise failure


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_created_and_replaced(tmp_path: Path, *, durable: bool) -> None:
    """Guards the text and its line ends, and that no other file stays in the folder."""
    path = tmp_path / "state.json"
    for text in ("first\r\nline\n", "második"):
        with replace_file(path, durable=durable) as file:
            file.write(text)
        assert path.read_bytes() == text.encode()
    assert names(tmp_path) == {"state.json"}


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


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """Guards the old text if a write fails or is interrupted halfway."""
    path = tmp_path / "state.json"
    path.write_text("old", "utf-8")
    for failure in (OSError, KeyboardInterrupt):
        with pytest.raises(failure):
            fail_halfway(path, failure)
    assert path.read_text("utf-8") == "old"
    assert names(tmp_path) == {"state.json"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits, and links need a privilege")
class TestPosix:
    @pytest.mark.parametrize("mode", [0o600, 0o644])
    def test_the_mode_does_not_depend_on_the_umask(self, tmp_path: Path, mode: int) -> None:
        """Guards private files under a permissive umask, and shared files under a strict one."""
        for umask in (0o000, 0o077):
            previous_umask = os.umask(umask)
            try:
                with replace_file(tmp_path / "state.json", mode) as file:
                    assert stat.S_IMODE((tmp_path / "state.json.new").stat().st_mode) == 0o600
                    file.write("new")
            finally:
                os.umask(previous_umask)
            assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == mode

    def test_a_link_in_place_of_the_draft_is_not_followed(self, tmp_path: Path) -> None:
        """Guards files elsewhere against a symbolic link that someone else put in the folder."""
        target = tmp_path / "elsewhere"
        target.write_text("untouched", "utf-8")
        (tmp_path / "state.json.new").symlink_to(target)
        with replace_file(tmp_path / "state.json") as file:
            file.write("new")
        assert target.read_text("utf-8") == "untouched"
