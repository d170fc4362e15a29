"""Clients' files are written with care: only what is ours changes; copies, links and other writers."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.cli.clients import config_files
from palimpsest.cli.clients.config_files import FileEdit, edit_of, write
from palimpsest.cli.clients.installation import ENTRY_NAME
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


def test_what_cannot_be_edited_stays(tmp_path: Path, file: Path) -> None:
    """Guards text that would come back as other text, a file that its owner protects, and an error in one line."""
    cases = (
        (UTF_16, 0o644, "cannot be read: 'utf-"),
        (LATIN_1, 0o644, "cannot be read: 'utf-"),
        (b'{"a":' * 5000, 0o644, "is not valid"),
        (b"{}", 0o444, "is read-only"),
    )
    for content, mode, error in cases:
        file.unlink()
        file.write_bytes(content)
        file.chmod(mode)
        assert error in run(tmp_path, "install", "cursor", code=1)
        assert (file.read_bytes(), list(file.parent.iterdir())) == (content, [file])
    file.unlink()
    file.mkdir()
    assert "cannot be read" in run(tmp_path, "install", "cursor", code=1)


def test_a_link_of_the_user_stays_and_links_to_nowhere_and_out_of_a_project_are_refused(
    tmp_path: Path, file: Path
) -> None:
    """Guards files that are kept in a folder of their own, and others from a repository that would change them."""
    kept = tmp_path / "dotfiles" / "mcp.json"
    before = write_json(kept, EMPTY)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".mcp.json").symlink_to(kept)
    error = run(tmp_path / "project", "install", "claude-code", "--project", code=1)
    assert ("leads out of this folder" in error, kept.read_text()) == (True, before)
    for target, said in (
        (tmp_path / "gone.json", "a symbolic link to a file that does not exist"),
        (file, "Nothing was changed"),
    ):
        file.unlink()
        file.symlink_to(target)
        assert said in run(tmp_path, "install", "cursor", code=1)
    file.unlink()
    file.symlink_to(kept)
    run(tmp_path, "install", "cursor")
    assert file.is_symlink()
    assert "palimpsest" in content_of(kept)["mcpServers"]


def test_a_file_that_changed_after_it_was_read_stays_as_it_is(tmp_path: Path) -> None:
    """Guards what the client or a person writes between our reading and our writing, also its first file."""
    for number, (before, other) in enumerate([("{}", '{"new": {}}'), ("{}", ""), (None, "x")]):
        file = tmp_path / f"{number}.json"
        if before is not None:
            file.write_text(before)
        edit = edit_of(file, [lambda text: text + "\n"])
        assert edit == FileEdit(file, before, f"{before or ''}\n")
        file.write_text(other)
        with pytest.raises(InputError, match="was changed by another program just now"):
            write(edit)
        assert file.read_text() == other


DEEP = "[" * 100_000


def test_a_device_and_a_pipe_are_refused(tmp_path: Path) -> None:
    """Guards against a command that reads for ever, whatever the name of the file promises."""
    palimpsest(tmp_path, "add", "The lamp is yellow")
    named = tmp_path / "zeros.json"
    named.symlink_to("/dev/zero")
    pipes = [tmp_path / "pipe", tmp_path / "pipe.md"]
    for pipe in pipes:
        os.mkfifo(pipe)
    for file in (Path("/dev/zero"), named, *pipes):
        for command in (("import", str(file)), ("learn", str(file)), ("restore", str(file), "--yes")):
            said = palimpsest(tmp_path, *command, code=1)
            assert (str(file) in said, "Nothing was" in said) == (True, True)
    assert "The lamp is yellow" in palimpsest(tmp_path, "list")


def test_brackets_without_end_are_refused(tmp_path: Path) -> None:
    """Guards against a traceback for JSON that is nested too deep."""
    file = tmp_path / "deep.json"
    for content in (DEEP, f'{{"messages": {DEEP}', f'{{"a": 1}}\n{DEEP}\n', '{"a":' * 50_000):
        file.write_text(content, "utf-8")
        for command in ("import", "learn"):
            assert "deep.json" in palimpsest(tmp_path, command, str(file), code=1)


COMMENTED = """\
// my servers
{
  "inputs": [ /* none yet */ ],
  "servers": {
    "github": {"type": "http", "url": "https://example.org/mcp"}, // the company's
    /* added on Monday */
    "files": {
      "command": "npx",
      "args": ["-y", "server-files", "/home/me",],
    },
  },
  "theme": "dark",
}
"""

ENTRY = {"command": "palimpsest", "env": {"PALIMPSEST_USER_ID": "ünï"}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read_value(text: str, path: tuple[str, ...]) -> Any:
    plain = re.sub(r"(\"(?:[^\"\\]|\\.)*\")|//[^\n]*|/\*.*?\*/", r"\1", text.removeprefix("\ufeff"), flags=re.DOTALL)
    value = json.loads(re.sub(r",(\s*[\]}])", r"\1", plain))
    for key in path:
        value = value.get(key) if value is not None else None
    return value


class TestJsonc:
    def test_everything_else_stays_byte_for_byte(self) -> None:
        """Guards comments, order, spacing and trailing commas: only the lines of the entry are added and removed."""
        changed = config_files.with_entry(COMMENTED, ("servers", ENTRY_NAME), ENTRY)
        assert [line for line in changed.splitlines() if line not in COMMENTED.splitlines()] == [
            '    "palimpsest": {',
            '      "command": "palimpsest",',
            '      "env": {',
            '        "PALIMPSEST_USER_ID": "ünï"',
            "      }",
            "    }",
        ]
        assert read_value(changed, ("servers", ENTRY_NAME)) == ENTRY
        assert set(COMMENTED.splitlines()) <= set(changed.splitlines())
        without = config_files.without_entry(changed, ("servers", ENTRY_NAME))
        assert read_value(without, ("servers",)) == read_value(COMMENTED, ("servers",))
        assert "// the company's" in without
        assert "/* added on Monday */" in without

    def test_an_empty_file_gets_the_missing_objects_and_damaged_json_is_refused(self) -> None:
        """Guards a client that has no server yet, and a file in the middle of an edit: nothing is guessed."""
        for empty in ("", "{\n}\n", '{"servers": {}}', "// nothing\n{ /* yet */ }", "\ufeff{}"):
            changed = config_files.with_entry(empty, ("servers", ENTRY_NAME), ENTRY)
            assert read_value(changed, ("servers",)) == {ENTRY_NAME: ENTRY}
            assert all(comment in changed for comment in ("// nothing", "/* yet */") if comment in empty)
        for broken in ("{", '{"a" 1}', '{"a": 1 "b": 2}', "[1", '{"servers": 3}', "{} {}", '{"servers": {"x": nul}}'):
            with pytest.raises(ValueError, match="line 1"):
                config_files.with_entry(broken, ("servers", ENTRY_NAME), ENTRY)
        with pytest.raises(ValueError, match="line 2: 'servers' is here a second time"):
            config_files.with_entry('{"servers": {},\n"servers": {}}', ("servers", "x"), {})

    @given(
        document=st.dictionaries(st.text(), JSON, max_size=4), data=st.data(), indent=st.sampled_from([None, 2, "\t"])
    )
    def test_the_items_of_any_list_stay(self, document: dict[str, Any], data: st.DataObject, indent: Any) -> None:
        """Guards hooks, which are items of lists in lists: one is added at the end, changed, and removed."""
        items = data.draw(st.lists(JSON, max_size=4))
        text = json.dumps({**document, "items-x": items}, indent=indent)
        added = config_files.with_entry(text, ("items-x", len(items)), {"a": ["new"]})
        assert json.loads(added) == {**document, "items-x": [*items, {"a": ["new"]}]}
        changed = config_files.with_entry(added, ("items-x", len(items), "a", 0), "newer")
        assert json.loads(changed) == {**document, "items-x": [*items, {"a": ["newer"]}]}
        number = data.draw(st.integers(0, len(items)))
        left = [*items, {"a": ["newer"]}]
        del left[number]
        assert json.loads(config_files.without_entry(changed, ("items-x", number))) == {**document, "items-x": left}

    def test_line_ends_and_indentation_are_those_of_the_file(self) -> None:
        """Guards files of Windows, and files that are indented by tabs or four spaces."""
        windows = config_files.with_entry('{\r\n\t"a": {}\r\n}\r\n', ("servers", "x"), {"command": "y"})
        assert windows == (
            '{\r\n\t"a": {},\r\n\t"servers": {\r\n\t\t"x": {\r\n\t\t\t"command": "y"\r\n\t\t}\r\n\t}\r\n}\r\n'
        )
        assert '\n        "x": {}' in config_files.with_entry('{\n    "servers": {}\n}', ("servers", "x"), {})
