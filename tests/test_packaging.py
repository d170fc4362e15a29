"""The forms in which the server is distributed: a bundle, a registry entry, a container, a file for `mcp run`."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from palimpsest import __version__
from palimpsest.core.settings import Settings
from palimpsest.server import access_tokens
from tests.support.environment import clean_environment
from tests.support.http_server import TIMEOUT
from tests.support.mcp_client import TOOL_NAMES, reply_text
from tests.support.node_programs import installed_command, run_node

pytestmark = pytest.mark.anyio

HOME = Path(__file__).parents[1]


def content(name: str) -> Any:
    return json.loads((HOME / name).read_text("utf-8"))


async def added(params: StdioServerParameters) -> str:
    async with Client(params) as client:
        return reply_text(await client.call_tool("add_memory", {"text": "Alice plays the violin"}))


def packed(tmp_path: Path) -> Path:
    """Build the bundle of this repository, and return the folder it is unpacked to."""
    source, unpacked, bundle = tmp_path / "source", tmp_path / "unpacked", tmp_path / "palimpsest.mcpb"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=HOME, capture_output=True, text=True, check=True).stdout.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HOME / name, source / name)
    for arguments in (["validate", str(source / "manifest.json")], ["pack", str(source), str(bundle)]):
        done = run_node(installed_command("mcpb"), *arguments, env=clean_environment(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.mark.nightly
async def test_the_bundle_is_valid_and_contains_a_server_that_runs(tmp_path: Path) -> None:
    """Guards the one-click installation: a valid manifest, the right files, and a server that starts."""
    unpacked = packed(tmp_path)
    names = {path.name for path in unpacked.iterdir()}
    assert names == {"LICENSE", "NOTICE", "README.md", "manifest.json", "prompts", "pyproject.toml", "server"}
    own = {"PYTHONPATH": str(unpacked / "server"), "PALIMPSEST_USER_ID": "", "PALIMPSEST_PROJECT": ""}
    env = {**clean_environment(tmp_path), **own}
    reply = await added(StdioServerParameters(command=sys.executable, args=["-m", "palimpsest"], env=env, cwd=unpacked))
    assert reply.startswith("added: [")


def test_the_manifest_matches_the_package() -> None:
    """Guards the manifest against changes elsewhere: version, tools, the command that is started."""
    manifest = content("manifest.json")
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    assert manifest["version"] == project["version"] == __version__
    assert {tool["name"] for tool in manifest["tools"]} == TOOL_NAMES
    assert (HOME / manifest["server"]["entry_point"]).is_file()
    assert manifest["server"]["mcp_config"]["args"][-1] in project["scripts"]
    assert settings_of(manifest["server"]["mcp_config"]["env"]) <= set(Settings.model_fields)


def test_the_registry_entry_matches_the_package() -> None:
    """Guards the entry: the registry compares its name with the README and its version with the package."""
    entry = content("server.json")
    (package,) = entry["packages"]
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert f"mcp-name: {entry['name']}" in (HOME / "README.md").read_text("utf-8")
    assert entry["version"] == package["version"] == __version__
    assert len(entry["description"]) <= 100
    names = [variable["name"] for variable in package["environmentVariables"]]
    assert settings_of(name for name in names if name.startswith("PALIMPSEST_")) <= set(Settings.model_fields)


def settings_of(variables: Any) -> set[str]:
    return {name.removeprefix("PALIMPSEST_").lower().split("__")[0] for name in variables}


@pytest.mark.nightly
def test_the_container_serves_requests_with_a_token(tmp_path: Path) -> None:
    """Guards the container file: the files it copies exist, its command serves, and its health check passes."""
    lines = (HOME / "Containerfile").read_text("utf-8").splitlines()
    copied = [part for line in lines if line.startswith("COPY") for part in line.split()[1:-1]]
    assert all((HOME / part).exists() for part in copied)
    served, health = (
        json.loads(line[line.index("[") :])
        for start in ("CMD", "HEALTHCHECK")
        for line in lines
        if line.startswith(start)
    )
    env = clean_environment(tmp_path)
    access_tokens.create(tmp_path / "data", access_tokens.Grant("alice"), datetime.now(UTC))
    running = [sys.executable, "-m", "palimpsest", *served, "--port", "0"]
    with subprocess.Popen(running, stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path) as process:
        try:
            assert process.stderr is not None
            startup_line = process.stderr.readline()
            assert "with a token" in startup_line
            port = re.findall(r":(\d+)/", startup_line)[0]
            checked = [sys.executable, *(part.replace("8765", port) for part in health[1:])]
            assert subprocess.run(checked, check=False, timeout=TIMEOUT).returncode == 0
        finally:
            process.terminate()


@pytest.mark.nightly
async def test_mcp_run_starts_the_file_that_the_readme_names(tmp_path: Path) -> None:
    """Guards `mcp run` and `mcp dev`, which look for the server in the globals of a file."""
    mcp = Path(sys.executable).with_name("mcp.exe" if os.name == "nt" else "mcp")
    env = clean_environment(tmp_path)
    reply = await added(StdioServerParameters(command=str(mcp), args=["run", str(HOME / "server" / "dev.py")], env=env))
    assert reply.startswith("added: [")


def test_the_page_is_small() -> None:
    """Guards the size of the package, which no build step and no large library may grow: 400 kB in the wheel."""
    folder = HOME / "server" / "palimpsest" / "page"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(folder))
    assert packed.tell() < 400_000
