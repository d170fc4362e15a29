"""Clients' files are written with care: copies that stay, other encodings, links, read-only files, other writers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.cli.clients.config_files import FileEdit, edit_of, write
from palimpsest.core.errors import InputError
from tests.support.client_files import content_of, run, write_json

EMPTY: dict[str, dict[str, str]] = {"mcpServers": {}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a client, which exists and lists no server."""
    file = tmp_path / ".cursor" / "mcp.json"
    write_json(file, EMPTY)
    return file


def test_the_first_copy_is_never_overwritten(tmp_path: Path, file: Path) -> None:
    """Guards the only copy of what a person had before: later copies are numbered, also that of uninstall."""
    first = file.read_text()
    run(tmp_path, "install", "cursor")
    second = file.read_text()
    run(tmp_path, "--user", "bob", "install", "cursor")
    third = file.read_text()
    run(tmp_path, "uninstall", "cursor")
    copies = {path.name: path.read_text() for path in file.parent.glob("*.before-palimpsest*")}
    assert copies == {
        "mcp.json.before-palimpsest": first,
        "mcp.json.before-palimpsest-2": second,
        "mcp.json.before-palimpsest-3": third,
    }


def test_the_copy_and_the_new_file_keep_the_permissions(tmp_path: Path, file: Path) -> None:
    """Guards tokens in the file against other users."""
    file.chmod(0o640)
    run(tmp_path, "install", "cursor")
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o640}


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_refused(tmp_path: Path, file: Path, encoding: str) -> None:
    """Guards text that would come back as other text."""
    before = json.dumps({"name": "Jürgen"}, ensure_ascii=False).encode(encoding)
    file.write_bytes(before)
    assert "is not in UTF-8" in run(tmp_path, "install", "cursor", code=1)
    assert file.read_bytes() == before


def test_a_byte_order_mark_stays(tmp_path: Path, file: Path) -> None:
    """Guards files that an editor of Windows saved."""
    file.write_bytes(b"\xef\xbb\xbf{}")
    run(tmp_path, "install", "cursor")
    assert file.read_bytes().startswith(b"\xef\xbb\xbf{")
    assert "palimpsest" in file.read_text("utf-8-sig")


def test_a_link_of_the_user_stays_a_link(tmp_path: Path, file: Path) -> None:
    """Guards files that are kept in a folder of their own and linked from the home folder."""
    kept = tmp_path / "dotfiles" / "mcp.json"
    write_json(kept, EMPTY)
    file.unlink()
    file.symlink_to(kept)
    run(tmp_path, "install", "cursor")
    assert file.is_symlink()
    assert "palimpsest" in content_of(kept)["mcpServers"]


def test_links_to_nowhere_and_out_of_a_project_are_refused(tmp_path: Path, file: Path) -> None:
    """Guards a repository that would have another file of the user changed."""
    file.unlink()
    file.symlink_to(tmp_path / "gone.json")
    assert "a symbolic link to a file that does not exist" in run(tmp_path, "install", "cursor", code=1)
    file.unlink()
    file.symlink_to(file)
    assert "Nothing was changed" in run(tmp_path, "install", "cursor", code=1)
    project = tmp_path / "project"
    outside = tmp_path / "mine.json"
    before = write_json(outside, EMPTY)
    project.mkdir()
    (project / ".mcp.json").symlink_to(outside)
    error = run(project, "install", "claude-code", "--project", code=1)
    assert "leads out of this folder" in error
    assert outside.read_text() == before


def test_a_read_only_file_is_refused(tmp_path: Path, file: Path) -> None:
    """Guards a file that its owner protects, although its folder can be written to."""
    file.chmod(0o444)
    assert "is read-only" in run(tmp_path, "install", "cursor", code=1)
    assert content_of(file) == EMPTY
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path, file: Path) -> None:
    """Guards an error in one line."""
    file.unlink()
    file.mkdir()
    assert "cannot be read" in run(tmp_path, "install", "cursor", code=1)


def test_json_that_is_too_deep_is_refused(tmp_path: Path, file: Path) -> None:
    """Guards an error in one line."""
    file.write_text('{"a":' * 5000)
    assert "is not valid JSON" in run(tmp_path, "install", "cursor", code=1)


@pytest.mark.parametrize("other", ['{"mcpServers": {"new": {}}}', ""])
def test_a_file_that_changed_after_it_was_read_stays_as_it_is(file: Path, other: str) -> None:
    """Guards what the client or a person writes between our reading and our writing."""
    edit = edit_of(file, [lambda text: text + "\n"])
    file.write_text(other)
    with pytest.raises(InputError, match="was changed by another program just now"):
        write(edit)
    assert file.read_text() == other


def test_a_file_that_appeared_after_it_was_looked_for_stays_as_it_is(tmp_path: Path) -> None:
    """Guards a client that writes its first file in the meantime."""
    file = tmp_path / "new.json"
    edit = edit_of(file, [lambda _: "{}"])
    assert edit == FileEdit(file, None, "{}")
    file.write_text("theirs")
    with pytest.raises(InputError, match="was changed"):
        write(edit)
    assert file.read_text() == "theirs"
