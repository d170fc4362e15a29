"""The entry in a client's file: put in and taken out, with everything else as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters

from palimpsest.cli.clients import jsonc
from palimpsest.cli.clients.config_files import NAME, place_of
from palimpsest.core.errors import InputError
from tests.support.command_line import palimpsest, palimpsest_process
from tests.support.environment import clean_environment

COMMENTED = """\
// my servers
{
  "inputs": [ /* none yet */ ],
  "servers": {
    "github": {"type": "http", "url": "https://example.org/mcp"}, // the company's
    /* asked for on Monday */
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


def value_at(text: str, path: tuple[str, ...]) -> Any:
    """Return what stands under a path of keys in JSON with comments and trailing commas; None where nothing does."""
    plain = re.sub(r"(\"(?:[^\"\\]|\\.)*\")|//[^\n]*|/\*.*?\*/", r"\1", text.removeprefix("\ufeff"), flags=re.DOTALL)
    found = json.loads(re.sub(r",(\s*[\]}])", r"\1", plain))
    for key in path:
        found = found.get(key) if found is not None else None
    return found


class TestJsonc:
    def test_everything_else_stays_byte_for_byte(self) -> None:
        """Guards comments, order, spacing and trailing commas: only lines of the entry come, and go again."""
        changed = jsonc.with_entry(COMMENTED, ("servers", NAME), ENTRY)
        assert [line for line in changed.splitlines() if line not in COMMENTED.splitlines()] == [
            '    "memory": {',
            '      "command": "palimpsest",',
            '      "env": {',
            '        "PALIMPSEST_USER_ID": "ünï"',
            "      }",
            "    }",
        ]
        assert value_at(changed, ("servers", NAME)) == ENTRY
        assert set(COMMENTED.splitlines()) <= set(changed.splitlines())
        without = jsonc.without_entry(changed, ("servers", NAME))
        assert value_at(without, ("servers",)) == value_at(COMMENTED, ("servers",))
        assert "// the company's" in without
        assert "/* asked for on Monday */" in without

    def test_putting_it_in_twice_changes_nothing_more(self) -> None:
        """Guards a command that is run again."""
        once = jsonc.with_entry(COMMENTED, ("servers", NAME), ENTRY)
        assert jsonc.with_entry(once, ("servers", NAME), ENTRY) == once

    @pytest.mark.parametrize("empty", ["", "{}", "{\n}\n", '{"servers": {}}', "// nothing\n{ /* yet */ }", "\ufeff{}"])
    def test_a_file_with_nothing_in_it_gets_all_it_needs(self, empty: str) -> None:
        """Guards a client that has no server yet."""
        changed = jsonc.with_entry(empty, ("servers", NAME), ENTRY)
        assert value_at(changed, ("servers",)) == {NAME: ENTRY}
        assert all(comment in changed for comment in ("// nothing", "/* yet */") if comment in empty)

    @pytest.mark.parametrize(
        "broken",
        ["{", '{"a" 1}', '{"a": 1 "b": 2}', "[1", '{"servers": 3}', '{"a": }', "{} {}", '{"servers": {"x": nul}}'],
    )
    def test_what_is_no_such_json_is_refused(self, broken: str) -> None:
        """Guards a file that a person has half edited: nothing is guessed."""
        with pytest.raises(ValueError, match="line 1"):
            jsonc.with_entry(broken, ("servers", NAME), ENTRY)

    @given(document=st.dictionaries(st.text(), JSON, max_size=4), value=JSON, indent=st.sampled_from([None, 2, "\t"]))
    def test_any_document_keeps_its_other_values(self, document: dict[str, Any], value: Any, indent: Any) -> None:
        """Guards the edit itself, for every document there is, in and out."""
        text = json.dumps(document, indent=indent)
        changed = jsonc.with_entry(text, ("servers-x", NAME), value)
        assert json.loads(changed) == {**document, "servers-x": {NAME: value}}
        assert json.loads(jsonc.without_entry(changed, ("servers-x",))) == document

    @given(document=st.dictionaries(st.text(), JSON, min_size=1, max_size=4), data=st.data())
    def test_any_entry_is_taken_out_alone(self, document: dict[str, Any], data: st.DataObject) -> None:
        """Guards the first, the last and the only one."""
        gone = data.draw(st.sampled_from(sorted(document)))
        text = jsonc.without_entry(json.dumps(document, indent=2), (gone,))
        assert json.loads(text) == {key: value for key, value in document.items() if key != gone}


LINUX, MAC, WINDOWS = PurePosixPath("/home/me"), PurePosixPath("/Users/me"), PureWindowsPath("C:/Users/me")
SUPPORT, ROAMING = MAC / "Library" / "Application Support", WINDOWS / "AppData" / "Roaming"
PLACES: list[tuple[Any, Any, Any, str]] = [
    ("claude-desktop", LINUX, LINUX / ".config", "/home/me/.config/Claude/claude_desktop_config.json"),
    ("claude-desktop", MAC, SUPPORT, "/Users/me/Library/Application Support/Claude/claude_desktop_config.json"),
    (
        "claude-desktop",
        WINDOWS,
        ROAMING,
        "C:\\Users\\me\\AppData\\Roaming\\Claude\\claude_desktop_config.json",
    ),
    ("claude-code", WINDOWS, ROAMING, "C:\\Users\\me\\.claude.json"),
    ("cursor", MAC, SUPPORT, "/Users/me/.cursor/mcp.json"),
    ("vscode", LINUX, LINUX / ".config", "/home/me/.config/Code/User/mcp.json"),
    ("vscode", MAC, SUPPORT, "/Users/me/Library/Application Support/Code/User/mcp.json"),
    ("vscode", WINDOWS, ROAMING, "C:\\Users\\me\\AppData\\Roaming\\Code\\User\\mcp.json"),
]


@pytest.mark.parametrize(("client", "home", "config", "file"), PLACES)
def test_each_client_has_its_place_on_each_platform(client: Any, home: Any, config: Any, file: str) -> None:
    """Guards the paths that the clients document."""
    place = place_of(client, home, config, None)
    assert str(place.file) == file
    assert place.section == ("servers" if client == "vscode" else "mcpServers")


def test_a_project_has_a_file_for_all_but_claude_desktop() -> None:
    """Guards what is put beside the code."""
    project = PurePosixPath("/src")
    files = [str(place_of(name, LINUX, LINUX, project).file) for name in ("claude-code", "cursor", "vscode")]
    assert files == ["/src/.mcp.json", "/src/.cursor/mcp.json", "/src/.vscode/mcp.json"]
    with pytest.raises(InputError, match="leave --project out"):
        place_of("claude-desktop", LINUX, LINUX, project)


def run(folder: Path, *arguments: str) -> str:
    """Run a command with a configuration folder of its own and return what it prints."""
    return palimpsest(folder, *arguments, settings={"XDG_CONFIG_HOME": str(folder / ".config")})


def test_what_is_installed_starts_and_what_is_taken_out_is_gone(tmp_path: Path) -> None:
    """Guards the whole way: a dry run writes nothing, the entry starts a server, a copy of before is kept."""
    file = tmp_path / ".config" / "Code" / "User" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(COMMENTED)
    assert '+    "memory"' in run(tmp_path, "--user", "bob", "install", "vscode", "--dry-run")
    assert file.read_text() == COMMENTED
    run(tmp_path, "--user", "bob", "install", "vscode")
    entry = value_at(file.read_text(), ("servers", NAME))
    assert entry["env"] == {"PALIMPSEST_USER_ID": "bob"}
    assert file.with_name("mcp.json.before-palimpsest").read_text() == COMMENTED
    assert "as it should be" in run(tmp_path, "--user", "bob", "install", "vscode")

    async def ask() -> str:
        env = {**clean_environment(tmp_path), **entry["env"]}
        async with Client(
            StdioServerParameters(command=entry["command"], args=entry.get("args", []), env=env)
        ) as server:
            return str((await server.call_tool("search_memories", {"query": "x"})).content)

    assert "user bob" in anyio.run(ask)
    run(tmp_path, "uninstall", "vscode")
    assert value_at(file.read_text(), ("servers", NAME)) is None
    assert "is not there" in run(tmp_path, "uninstall", "vscode")


def test_a_file_that_is_no_json_is_left_alone(tmp_path: Path) -> None:
    """Guards a file in the middle of an edit, and that the text says where."""
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {')
    assert "line 1" in palimpsest_process(tmp_path, "install", "cursor", code=1)
    assert file.read_text() == '{"mcpServers": {'
