"""The entry in a client's file: whose it is, where it is, what it starts, and what stays when it is changed."""

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
from palimpsest.cli.clients.installation import Target, installation, invocation_of
from palimpsest.core.errors import InputError
from tests.support.client_files import FOREIGN_SERVER, content_of, run, write_json
from tests.support.command_line import palimpsest
from tests.support.environment import clean_environment

REPOSITORY = Path(__file__).parents[2]
LINUX, MAC, WINDOWS = PurePosixPath("/home/me"), PurePosixPath("/Users/me"), PureWindowsPath("C:/Users/me")
SUPPORT, ROAMING = MAC / "Library" / "Application Support", WINDOWS / "AppData" / "Roaming"
USER_FILES: list[tuple[str, Any, Any, str]] = [
    ("claude-desktop", LINUX, LINUX / ".config", "/home/me/.config/Claude/claude_desktop_config.json"),
    ("claude-desktop", MAC, SUPPORT, "/Users/me/Library/Application Support/Claude/claude_desktop_config.json"),
    ("claude-desktop", WINDOWS, ROAMING, "C:/Users/me/AppData/Roaming/Claude/claude_desktop_config.json"),
    ("claude-code", WINDOWS, ROAMING, "C:/Users/me/.claude.json"),
    ("codex", LINUX, LINUX / ".config", "/home/me/.codex/config.toml"),
    ("gemini", MAC, SUPPORT, "/Users/me/.gemini/settings.json"),
    ("cursor", MAC, SUPPORT, "/Users/me/.cursor/mcp.json"),
    ("vscode", LINUX, LINUX / ".config", "/home/me/.config/Code/User/mcp.json"),
    ("vscode", MAC, SUPPORT, "/Users/me/Library/Application Support/Code/User/mcp.json"),
    ("vscode", WINDOWS, ROAMING, "C:/Users/me/AppData/Roaming/Code/User/mcp.json"),
]

OURS = [
    ({"command": "/opt/venv/bin/palimpsest"}, ()),
    ({"command": "C:\\Users\\Ünï\\venv\\Scripts\\palimpsest.exe", "args": ["serve"]}, ("serve",)),
    ({"command": "palimpsest", "args": ["--user", "bob"]}, ("--user", "bob")),
    ({"command": "/usr/bin/python3.12", "args": ["-m", "palimpsest"]}, ()),
    ({"command": "python", "args": ["-I", "-m", "palimpsest", "serve"]}, ("serve",)),
    ({"command": "uvx", "args": ["palimpsest-mcp"]}, ()),
    ({"command": "/home/me/.local/bin/uvx", "args": ["palimpsest-mcp@0.2"]}, ()),
    (
        {"command": "uvx", "args": ["--python", "3.12", "--from", "palimpsest-mcp>=0.1", "palimpsest", "serve"]},
        ("serve",),
    ),
    ({"command": "uv", "args": ["tool", "run", "--from=palimpsest-mcp", "palimpsest"]}, ()),
    ({"command": "uv", "args": ["run", "--directory", "/src/x", "palimpsest"]}, ()),
    ({"command": "pipx", "args": ["run", "--spec", "palimpsest-mcp", "palimpsest"]}, ()),
]
FOREIGN: list[object] = [
    FOREIGN_SERVER,
    {"command": "npx", "args": ["-y", "server-filesystem", "/home/me/palimpsest"]},
    {"command": "uvx", "args": ["mcp-server-git", "--repository", "palimpsest"]},
    {"command": "uvx", "args": ["--with", "palimpsest-mcp", "other-server"]},
    {"command": "uvx", "args": ["palimpsest-mcp-fork"]},
    {"command": "python", "args": ["server.py", "-m", "palimpsest"]},
    {"command": "python", "args": ["-m", "palimpsest_notes"]},
    {"command": "/opt/palimpsest/bin/server"},
    {"url": "https://memory.example.org/mcp"},
    {"command": ["palimpsest"]},
    "palimpsest",
    None,
]


@pytest.mark.parametrize(("entry", "arguments"), [*OURS, *((entry, None) for entry in FOREIGN)])
def test_an_entry_that_starts_our_server_is_ours(entry: object, arguments: tuple[str, ...] | None) -> None:
    """Guards every way in which ours is started, its arguments, and other servers that only mention our name."""
    invocation = invocation_of(entry)
    assert (invocation and invocation.arguments) == arguments


@pytest.mark.parametrize(("client", "home", "config", "file"), USER_FILES)
def test_each_client_has_its_file_on_each_platform(client: str, home: Any, config: Any, file: str) -> None:
    assert Folders(home, config, home, {}).place_of(CLIENTS[client].user_file).as_posix() == file


def test_a_client_that_was_told_another_folder_is_followed(tmp_path: Path) -> None:
    """Guards an installation into files that the client does not read."""
    settings = {"CODEX_HOME": str(tmp_path / "cx"), "CLAUDE_CONFIG_DIR": str(tmp_path / "cc")}
    run(tmp_path, "install", "codex", "--hooks", settings=settings)
    run(tmp_path, "install", "claude-code", "--hooks", settings=settings)
    written = {str(file.relative_to(tmp_path)) for folder in ("cx", "cc") for file in (tmp_path / folder).iterdir()}
    assert written == {"cx/config.toml", "cx/hooks.json", "cc/.claude.json", "cc/settings.json"}


def test_every_client_but_claude_desktop_has_a_file_in_a_project(tmp_path: Path) -> None:
    """Guards the files that are shared with everyone who works on a project, and a misspelt client."""
    folders = Folders(LINUX, LINUX, PurePosixPath("/src"), {})
    names = ("claude-code", "codex", "gemini", "cursor", "vscode")
    assert [str(Target(CLIENTS[name], folders, in_project=True).entry_file) for name in names] == [
        *("/src/.mcp.json", "/src/.codex/config.toml", "/src/.gemini/settings.json", "/src/.cursor/mcp.json"),
        "/src/.vscode/mcp.json",
    ]
    with pytest.raises(InputError, match="Leave --project out"):
        _ = Target(CLIENTS["claude-desktop"], folders, in_project=True).entry_file
    error = palimpsest(tmp_path, "install", "emacs", code=2)
    assert [name for name in ("'emacs' is not a known client", *CLIENTS) if name not in error] == []


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_a_page_in_the_documentation(client: str) -> None:
    """Guards the documentation of a client that is added later, and that it tells about hooks where there are any."""
    page = (REPOSITORY / "docs" / "clients" / f"{client}.md").read_text("utf-8")
    assert f"palimpsest install {client}" in page
    assert f"palimpsest uninstall {client}" in page
    assert (f"palimpsest install {client} --hooks" in page) == (CLIENTS[client].hooks is not None)


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
    assert "no entry" in run(tmp_path, "uninstall", client)


def started(folder: Path, entry: dict[str, Any]) -> str:
    async def search() -> str:
        env = {**clean_environment(folder), **entry.get("env", {})}
        parameters = StdioServerParameters(command=entry["command"], args=entry.get("args", []), env=env)
        async with Client(parameters) as server:
            asked = {"query": "x", "scope": {"project": "any"}}  # a reply names a scope with a project, and so the user
            return str((await server.call_tool("search_memories", asked)).content)

    return anyio.run(search)


class TestOtherServers:
    def test_the_official_memory_server_is_never_touched(self, tmp_path: Path) -> None:
        """Guards the fault that install replaced it without a word, and that uninstall removed it."""
        file = tmp_path / ".cursor" / "mcp.json"
        before = write_json(file, {"mcpServers": {"memory": FOREIGN_SERVER}})
        run(tmp_path, "install", "cursor")
        assert content_of(file)["mcpServers"]["memory"] == FOREIGN_SERVER
        run(tmp_path, "uninstall", "cursor")
        assert content_of(file)["mcpServers"] == {"memory": FOREIGN_SERVER}
        assert (tmp_path / ".cursor" / "mcp.json.before-palimpsest").read_text() == before

    @pytest.mark.parametrize("client", ["cursor", "codex"])
    def test_another_server_under_our_name_is_refused(self, tmp_path: Path, client: str) -> None:
        """Guards a server that happens to have our name: the error says what it starts, and nothing that is secret."""
        file = Folders(tmp_path, tmp_path, tmp_path, {}).of_user(CLIENTS[client].user_file)
        if client == "codex":
            file.parent.mkdir()
            file.write_text('[mcp_servers.palimpsest]\ncommand = "npx"\nenv = {TOKEN = "s3cret"}\n')
        else:
            write_json(file, {"mcpServers": {"palimpsest": FOREIGN_SERVER}})
        before = file.read_text()
        error = run(tmp_path, "install", client, code=1)
        assert "'palimpsest' that does not start this program" in error
        assert "Rename that entry or remove it" in error
        assert "s3cret" not in error
        assert "no entry 'palimpsest' starts this program" in run(tmp_path, "uninstall", client)
        assert file.read_text() == before


class TestSharedFiles:
    def test_a_shared_entry_starts_wherever_uvx_is_on_the_path(self, tmp_path: Path) -> None:
        """Guards the file of a project: no path of this machine, and no name without a word."""
        printed = run(tmp_path, "install", "claude-code", "--project")
        entry = content_of(tmp_path / ".mcp.json")["mcpServers"]["palimpsest"]
        assert entry == {"type": "stdio", "command": "uvx", "args": ["palimpsest-mcp"]}
        assert "Everybody who uses it needs uv" in printed

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


SECTIONS = {name: client.section for name, client in CLIENTS.items()}
WRONG_VALUES: list[Any] = ["x", 5, [1], True]


def write_client_file(home: Path, name: str, content: dict[str, Any], *, mark: str = "") -> Path:
    file = Folders(home, home / ".config", home, {}).of_user(CLIENTS[name].user_file)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = tomlkit.dumps(content) if file.suffix == ".toml" else json.dumps(content, indent=2)
    file.write_text(mark + text, "utf-8")
    return file


@pytest.mark.parametrize("name", CLIENTS)
def test_a_file_with_values_of_a_wrong_type_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    """Guards a file that a person edited: what is wrong with it is said in a sentence, and it is not changed."""
    target = Target(CLIENTS[name], Folders(tmp_path, tmp_path / ".config", tmp_path, {}), in_project=False)
    for value in WRONG_VALUES:
        for servers in (value, {"palimpsest": value}, {"palimpsest": {"command": "/opt/palimpsest", "env": value}}):
            file = write_client_file(tmp_path, name, {SECTIONS[name]: servers})
            before = file.read_bytes()
            with pytest.raises(InputError, match=r"[Nn]othing was changed|The file is unchanged"):
                installation(target, {}, None)
            assert file.read_bytes() == before
    refused = run(tmp_path, "install", name, code=1)
    assert refused.startswith("error: ")
    assert "with a faulty env" in refused


@pytest.mark.parametrize("name", CLIENTS)
def test_a_byte_order_mark_stays_and_an_entry_that_is_turned_off_is_told(tmp_path: Path, name: str) -> None:
    """Guards files from editors that write a mark, and a person who wonders why the memory does not start."""
    off = {"enabled": False} if name == "codex" else {"disabled": True}
    ours = {"command": "/opt/old/palimpsest", "env": {"A": "b"}, **off}
    file = write_client_file(tmp_path, name, {"other": {"key": 1}, SECTIONS[name]: {"palimpsest": ours}}, mark="\ufeff")
    told = run(tmp_path, "install", name)
    key, value = next(iter(off.items()))
    assert f"note: 'palimpsest' is turned off in {file} ({key} = {json.dumps(value)}) and stays so" in told
    text = file.read_text("utf-8")
    assert text.startswith("\ufeff")
    content = tomllib.loads(text[1:]) if file.suffix == ".toml" else json.loads(text[1:])
    entry = content[SECTIONS[name]]["palimpsest"]
    assert (content["other"], entry["env"], entry[key]) == ({"key": 1}, {"A": "b"}, value)
    run(tmp_path, "uninstall", name)
    assert file.read_text("utf-8").startswith("\ufeff")
    assert "palimpsest" not in file.read_text("utf-8")
