"""Clients' files are written with care: copies, encodings, links, read-only and special files, other writers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from palimpsest.cli.clients.config_files import FileEdit, edit_of, write
from palimpsest.core.errors import InputError
from tests.support.client_files import content_of, run, write_json
from tests.support.command_line import palimpsest

EMPTY: dict[str, dict[str, str]] = {"mcpServers": {}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / ".cursor" / "mcp.json"
    write_json(file, EMPTY)
    return file


def test_the_first_copy_is_never_overwritten(tmp_path: Path, file: Path) -> None:
    """Guards the only copy of what a person had before, and tokens in it: later copies are numbered, all private."""
    first = file.read_text()
    file.chmod(0o640)
    run(tmp_path, "install", "cursor")
    second = file.read_text()
    run(tmp_path, "--user", "bob", "install", "cursor")
    third = file.read_text()
    run(tmp_path, "uninstall", "cursor")
    copies = {path.name: path.read_text() for path in file.parent.glob("*.before-palimpsest*")}
    assert copies == {
        "mcp.json.before-palimpsest": first,
        "mcp.json.before-palimpsest1": second,
        "mcp.json.before-palimpsest2": third,
    }
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o640}


UTF_16, LATIN_1 = (json.dumps({"name": "Jürgen"}, ensure_ascii=False).encode(name) for name in ("utf-16", "latin-1"))


@pytest.mark.parametrize(
    ("content", "mode", "error"),
    [
        (UTF_16, 0o644, "cannot be read"),
        (LATIN_1, 0o644, "cannot be read"),
        (b'{"a":' * 5000, 0o644, "is not valid: "),
        (b"{}", 0o444, "is read-only"),
        (None, 0o755, "cannot be read"),
    ],
    ids=["utf-16", "latin-1", "deep", "read-only", "folder"],
)
def test_what_cannot_be_edited_stays(tmp_path: Path, file: Path, content: bytes | None, mode: int, error: str) -> None:
    """Guards text that would come back as other text, a file that its owner protects, and an error in one line."""
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    file.chmod(mode)
    assert error in run(tmp_path, "install", "cursor", code=1)
    assert content is None or file.read_bytes() == content
    assert list(file.parent.iterdir()) == [file]


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


@pytest.mark.parametrize(
    ("before", "other"),
    [('{"mcpServers": {}}', '{"mcpServers": {"new": {}}}'), ('{"mcpServers": {}}', ""), (None, "x")],
)
def test_a_file_that_changed_after_it_was_read_stays_as_it_is(tmp_path: Path, before: str | None, other: str) -> None:
    """Guards what the client or a person writes between our reading and our writing, also its first file."""
    file = tmp_path / "mcp.json"
    if before is not None:
        file.write_text(before)
    edit = edit_of(file, [lambda text: text + "\n"])
    assert edit == FileEdit(file, before, f"{before or ''}\n")
    file.write_text(other)
    with pytest.raises(InputError, match="was changed by another program just now"):
        write(edit)
    assert file.read_text() == other


DEEP = "[" * 100_000


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("command", ["import", "learn", "restore"])
def test_a_device_and_a_pipe_are_refused(tmp_path: Path, command: str) -> None:
    """Guards against a command that reads for ever, whatever the name of the file promises."""
    palimpsest(tmp_path, "add", "The lamp is yellow")
    options = ("--yes",) if command == "restore" else ()
    named = tmp_path / "zeros.json"
    named.symlink_to("/dev/zero")
    pipes = [tmp_path / "pipe", tmp_path / "pipe.json", tmp_path / "pipe.md"]
    for pipe in pipes:
        os.mkfifo(pipe)
    for file in (Path("/dev/zero"), named, *pipes):
        said = palimpsest(tmp_path, command, str(file), *options, code=1)
        assert str(file) in said
        assert "Nothing was" in said
    assert "The lamp is yellow" in palimpsest(tmp_path, "list")


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("command", ["import", "learn"])
@pytest.mark.parametrize("content", [DEEP, f'{{"messages": {DEEP}', f'{{"a": 1}}\n{DEEP}\n', '{"a":' * 50_000])
def test_brackets_without_end_are_refused(tmp_path: Path, command: str, content: str) -> None:
    """Guards against a traceback for JSON that is nested too deep."""
    file = tmp_path / "deep.json"
    file.write_text(content, "utf-8")
    said = palimpsest(tmp_path, command, str(file), code=1)
    assert "deep.json" in said
    assert "Traceback" not in said
