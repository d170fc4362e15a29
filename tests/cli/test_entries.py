"""The entry in a client's file: whose it is, where it is, what it starts, what stays, and what is wrong with it."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import anyio
import pytest
import tomlkit
from mcp import Client, StdioServerParameters

from palimpsest.cli.clients import installation as programs
from palimpsest.cli.clients.catalog import CLIENTS, Folders
from palimpsest.cli.clients.installation import invocation_of
from tests.support.client_files import content_of, run, write_json
from tests.support.environment import clean_environment

REPOSITORY = Path(__file__).parents[2]
LINUX, MAC, WINDOWS = PurePosixPath("/home/me"), PurePosixPath("/Users/me"), PureWindowsPath("C:/Users/me")
SUPPORT, ROAMING = MAC / "Library" / "Application Support", WINDOWS / "AppData" / "Roaming"
PLATFORMS = {"linux": (LINUX, LINUX / ".config"), "mac": (MAC, SUPPORT), "windows": (WINDOWS, ROAMING)}

# Entries that start our server, with its arguments, and that do not; and where clients have their files.
CASES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("entries.json").read_text("utf-8"))


def test_an_entry_that_starts_our_server_is_ours() -> None:
    """Guards every way in which ours is started, its arguments, and other servers that only mention our name."""
    for entry, arguments in (*CASES["ours"], *((entry, None) for entry in CASES["foreign"])):
        invocation = invocation_of(entry)
        assert (invocation and list(invocation.arguments)) == arguments, entry


def test_each_client_has_its_file_on_each_platform() -> None:
    for client, platform, file in CASES["files"]:
        home, config = PLATFORMS[platform]
        assert Folders(home, config, home, {}).place_of(CLIENTS[client].user_file).as_posix() == file


def test_a_client_that_was_told_another_folder_is_followed(tmp_path: Path) -> None:
    """Guards an installation into files that the client does not read."""
    settings = {"CODEX_HOME": str(tmp_path / "cx"), "CLAUDE_CONFIG_DIR": str(tmp_path / "cc")}
    run(tmp_path, "install", "codex", "--hooks", settings=settings)
    run(tmp_path, "install", "claude-code", "--hooks", settings=settings)
    written = {str(file.relative_to(tmp_path)) for folder in ("cx", "cc") for file in (tmp_path / folder).iterdir()}
    assert written == {"cx/config.toml", "cx/hooks.json", "cc/.claude.json", "cc/settings.json"}


def test_every_client_has_a_page_in_the_documentation() -> None:
    """Guards the documentation of a client that is added later, and that it tells about hooks where there are any."""
    for client, of in CLIENTS.items():
        page = (REPOSITORY / "docs" / "clients" / f"{client}.md").read_text("utf-8")
        assert f"palimpsest install {client}" in page
        assert f"palimpsest uninstall {client}" in page
        assert (f"palimpsest install {client} --hooks" in page) == (of.hooks is not None)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_installed_entry_starts_a_server_and_is_removed_again(tmp_path: Path, client: str) -> None:
    """Guards install and uninstall: a dry run writes nothing, the entry works, a second time changes nothing."""
    file = Folders(tmp_path, tmp_path / ".config", tmp_path, {}).of_user(CLIENTS[client].user_file)
    other = {"command": "x", "args": ["ü"]}
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".toml":
        file.write_text('# mine\nmodel = "o9"  # the best\n\n[mcp_servers.other]\ncommand = "x"\nargs = ["ü"]\n')
    else:
        write_json(file, {"theme": "dark", CLIENTS[client].section: {"other": other}})
    before = file.read_text()
    assert "+" in run(tmp_path, "--user", "bob", "install", client, "--dry-run")
    assert file.read_text() == before
    run(tmp_path, "--user", "bob", "install", client)
    servers = content_of(file)[CLIENTS[client].section]
    assert servers["other"] == other
    entry = servers["palimpsest"]
    assert entry["env"] == {"PALIMPSEST_USER_ID": "bob"}
    assert file.with_name(f"{file.name}.before-palimpsest").read_text() == before
    assert "is already up to date" in run(tmp_path, "--user", "bob", "install", client)
    if client in {"codex", "vscode"}:  # the entries of the others are the same
        assert "user bob" in started(tmp_path, entry)
    run(tmp_path, "uninstall", client)
    assert content_of(file) == {**content_of(file), CLIENTS[client].section: {"other": other}}
    assert all(line in file.read_text() for line in before.splitlines() if line.startswith(("#", "model")))
    assert "no entry 'palimpsest' starts this program" in run(tmp_path, "uninstall", client)


def started(folder: Path, entry: dict[str, Any]) -> str:
    async def search() -> str:
        env = {**clean_environment(folder), **entry.get("env", {})}
        parameters = StdioServerParameters(command=entry["command"], args=entry.get("args", []), env=env)
        async with Client(parameters) as server:
            asked = {"query": "x", "scope": {"project": "any"}}  # a reply names a scope with a project, and so the user
            return str((await server.call_tool("search_memories", asked)).content)

    return anyio.run(search)


class TestSharedFiles:
    def test_a_temporary_installation_is_started_by_what_made_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Guards a path into a cache: it would be gone tomorrow. Hooks need one that stays, and are refused."""
        monkeypatch.setattr(sys, "prefix", str(tmp_path / ".cache" / "uv" / "archive-v0" / "Xy1"))
        uvx = tmp_path / "bin" / "uvx"
        uvx.parent.mkdir()
        shutil.copy("/bin/true", uvx)
        settings = {"PATH": str(uvx.parent)}
        run(tmp_path, "install", "cursor", settings=settings)
        entry = content_of(tmp_path / ".cursor" / "mcp.json")["mcpServers"]["palimpsest"]
        assert (entry["command"], entry["args"]) == (str(uvx), [programs.DISTRIBUTION])
        error = run(tmp_path, "install", "codex", "--hooks", code=1, settings=settings)
        assert "uv tool install palimpsest-mcp" in error
        assert not (tmp_path / ".codex").exists()


def write_client_file(home: Path, name: str, content: dict[str, Any], *, mark: str = "") -> Path:
    file = Folders(home, home / ".config", home, {}).of_user(CLIENTS[name].user_file)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = tomlkit.dumps(content) if file.suffix == ".toml" else json.dumps(content, indent=2)
    file.write_text(mark + text, "utf-8")
    return file


@pytest.mark.parametrize("name", CLIENTS)
def test_a_file_with_values_of_a_wrong_type_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    """Guards a file that a person edited: what is wrong with it is said in a sentence, and it is not changed."""
    for value in ("x", 5, [1]):
        for servers in (value, {"palimpsest": value}, {"palimpsest": {"command": "/opt/palimpsest", "env": value}}):
            file = write_client_file(tmp_path, name, {CLIENTS[name].section: servers})
            before = file.read_bytes()
            refused = run(tmp_path, "install", name, code=1)
            assert refused.startswith("error: ")
            assert "othing was changed" in refused or "The file is unchanged" in refused
            assert file.read_bytes() == before


@pytest.mark.parametrize("name", CLIENTS)
def test_a_byte_order_mark_stays_and_an_entry_that_is_turned_off_is_turned_on(tmp_path: Path, name: str) -> None:
    """Guards files from editors that write a mark, and a person who wonders why the memory does not start."""
    off = {"enabled": False} if name == "codex" else {"disabled": True}
    ours = {"command": "/opt/old/palimpsest", "env": {"A": "b"}, **off}
    file = write_client_file(
        tmp_path, name, {"other": {"key": 1}, CLIENTS[name].section: {"palimpsest": ours}}, mark="\ufeff"
    )
    run(tmp_path, "install", name)
    text = file.read_text("utf-8")
    assert text.startswith("\ufeff")
    content = tomllib.loads(text[1:]) if file.suffix == ".toml" else json.loads(text[1:])
    entry = content[CLIENTS[name].section]["palimpsest"]
    assert (content["other"], entry["env"]) == ({"key": 1}, {"A": "b"})
    assert off.keys().isdisjoint(entry)
    run(tmp_path, "uninstall", name)
    assert file.read_text("utf-8").startswith("\ufeff")
    assert "palimpsest" not in file.read_text("utf-8")
