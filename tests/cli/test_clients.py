"""The entry in a client's configuration file: added and removed, with everything else unchanged."""

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
from palimpsest.cli.clients.config_files import CLIENTS, ENTRY_NAME, config_file
from palimpsest.core.errors import InputError
from tests.support.command_line import palimpsest, palimpsest_process
from tests.support.environment import clean_environment

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


def value_at(text: str, path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys in JSON with comments and trailing commas, or None."""
    plain = re.sub(r"(\"(?:[^\"\\]|\\.)*\")|//[^\n]*|/\*.*?\*/", r"\1", text.removeprefix("\ufeff"), flags=re.DOTALL)
    value = json.loads(re.sub(r",(\s*[\]}])", r"\1", plain))
    for key in path:
        value = value.get(key) if value is not None else None
    return value


class TestJsonc:
    def test_everything_else_stays_byte_for_byte(self) -> None:
        """Guards comments, order, spacing and trailing commas: only the lines of the entry are added and removed."""
        changed = jsonc.with_entry(COMMENTED, ("servers", ENTRY_NAME), ENTRY)
        assert [line for line in changed.splitlines() if line not in COMMENTED.splitlines()] == [
            '    "memory": {',
            '      "command": "palimpsest",',
            '      "env": {',
            '        "PALIMPSEST_USER_ID": "ünï"',
            "      }",
            "    }",
        ]
        assert value_at(changed, ("servers", ENTRY_NAME)) == ENTRY
        assert set(COMMENTED.splitlines()) <= set(changed.splitlines())
        without = jsonc.without_entry(changed, ("servers", ENTRY_NAME))
        assert value_at(without, ("servers",)) == value_at(COMMENTED, ("servers",))
        assert "// the company's" in without
        assert "/* added on Monday */" in without

    def test_adding_it_twice_changes_nothing_more(self) -> None:
        """Guards a command that is run twice."""
        once = jsonc.with_entry(COMMENTED, ("servers", ENTRY_NAME), ENTRY)
        assert jsonc.with_entry(once, ("servers", ENTRY_NAME), ENTRY) == once

    @pytest.mark.parametrize("empty", ["", "{}", "{\n}\n", '{"servers": {}}', "// nothing\n{ /* yet */ }", "\ufeff{}"])
    def test_an_empty_file_gets_the_missing_objects(self, empty: str) -> None:
        """Guards a client that has no server yet."""
        changed = jsonc.with_entry(empty, ("servers", ENTRY_NAME), ENTRY)
        assert value_at(changed, ("servers",)) == {ENTRY_NAME: ENTRY}
        assert all(comment in changed for comment in ("// nothing", "/* yet */") if comment in empty)

    @pytest.mark.parametrize(
        "broken",
        ["{", '{"a" 1}', '{"a": 1 "b": 2}', "[1", '{"servers": 3}', '{"a": }', "{} {}", '{"servers": {"x": nul}}'],
    )
    def test_damaged_json_is_refused(self, broken: str) -> None:
        """Guards a file in the middle of an edit by a person: nothing is guessed."""
        with pytest.raises(ValueError, match="line 1"):
            jsonc.with_entry(broken, ("servers", ENTRY_NAME), ENTRY)

    @given(document=st.dictionaries(st.text(), JSON, max_size=4), value=JSON, indent=st.sampled_from([None, 2, "\t"]))
    def test_any_document_keeps_its_other_values(self, document: dict[str, Any], value: Any, indent: Any) -> None:
        """Guards adding and removing an entry in any JSON document."""
        text = json.dumps(document, indent=indent)
        changed = jsonc.with_entry(text, ("servers-x", ENTRY_NAME), value)
        assert json.loads(changed) == {**document, "servers-x": {ENTRY_NAME: value}}
        assert json.loads(jsonc.without_entry(changed, ("servers-x",))) == document

    @given(document=st.dictionaries(st.text(), JSON, min_size=1, max_size=4), data=st.data())
    def test_any_entry_is_removed_alone(self, document: dict[str, Any], data: st.DataObject) -> None:
        """Guards the removal of the first, the last and the only entry."""
        removed = data.draw(st.sampled_from(sorted(document)))
        text = jsonc.without_entry(json.dumps(document, indent=2), (removed,))
        assert json.loads(text) == {key: value for key, value in document.items() if key != removed}


LINUX, MAC, WINDOWS = PurePosixPath("/home/me"), PurePosixPath("/Users/me"), PureWindowsPath("C:/Users/me")
SUPPORT, ROAMING = MAC / "Library" / "Application Support", WINDOWS / "AppData" / "Roaming"
USER_FILES: list[tuple[Any, Any, Any, str]] = [
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


@pytest.mark.parametrize(("client", "home", "config", "file"), USER_FILES)
def test_each_client_has_its_file_on_each_platform(client: str, home: Any, config: Any, file: str) -> None:
    """Guards the paths and sections that the clients document."""
    assert str(config_file(CLIENTS[client], home, config, None)) == file
    assert CLIENTS[client].section == ("servers" if client == "vscode" else "mcpServers")


def test_every_client_but_claude_desktop_has_a_file_in_a_project() -> None:
    """Guards the files that are shared with everyone who works on a project."""
    project = PurePosixPath("/src")
    files = [str(config_file(CLIENTS[name], LINUX, LINUX, project)) for name in ("claude-code", "cursor", "vscode")]
    assert files == ["/src/.mcp.json", "/src/.cursor/mcp.json", "/src/.vscode/mcp.json"]
    with pytest.raises(InputError, match="Leave --project out"):
        config_file(CLIENTS["claude-desktop"], LINUX, LINUX, project)


def test_an_unknown_client_is_refused_with_the_known_names(tmp_path: Path) -> None:
    """Guards a misspelt client: the error lists the names, and the exit code is that of a wrong argument."""
    error_text = palimpsest(tmp_path, "install", "emacs", code=2)
    assert "'emacs' is not a known client" in error_text
    assert all(name in error_text for name in CLIENTS)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_a_page_in_the_documentation(client: str) -> None:
    """Guards the documentation of a client that is added later."""
    page = Path(__file__).parents[2] / "docs" / "clients" / f"{client}.md"
    assert f"palimpsest install {client}" in page.read_text("utf-8")


def run(folder: Path, *arguments: str) -> str:
    """Run a command with a configuration folder of its own and return what it prints."""
    return palimpsest(folder, *arguments, settings={"XDG_CONFIG_HOME": str(folder / ".config")})


def test_the_installed_entry_starts_a_server_and_is_removed_again(tmp_path: Path) -> None:
    """Guards install and uninstall: a dry run writes nothing, the entry works, and the old file is kept."""
    file = tmp_path / ".config" / "Code" / "User" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(COMMENTED)
    assert '+    "memory"' in run(tmp_path, "--user", "bob", "install", "vscode", "--dry-run")
    assert file.read_text() == COMMENTED
    run(tmp_path, "--user", "bob", "install", "vscode")
    entry = value_at(file.read_text(), ("servers", ENTRY_NAME))
    assert entry["env"] == {"PALIMPSEST_USER_ID": "bob"}
    assert file.with_name("mcp.json.before-palimpsest").read_text() == COMMENTED
    assert "is already up to date" in run(tmp_path, "--user", "bob", "install", "vscode")

    async def search() -> str:
        env = {**clean_environment(tmp_path), **entry["env"]}
        async with Client(
            StdioServerParameters(command=entry["command"], args=entry.get("args", []), env=env)
        ) as server:
            return str((await server.call_tool("search_memories", {"query": "x"})).content)

    assert "user bob" in anyio.run(search)
    run(tmp_path, "uninstall", "vscode")
    assert value_at(file.read_text(), ("servers", ENTRY_NAME)) is None
    assert "does not exist" in run(tmp_path, "uninstall", "vscode")


def test_a_file_that_is_not_json_stays_unchanged(tmp_path: Path) -> None:
    """Guards a file in the middle of an edit: the error names the line."""
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {')
    assert "line 1" in palimpsest_process(tmp_path, "install", "cursor", code=1)
    assert file.read_text() == '{"mcpServers": {'
