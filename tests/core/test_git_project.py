"""The project a server is started in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.types import ErrorData, ListRootsResult, Root, RootsListChangedNotification
from pydantic import FileUrl

from palimpsest.core.git_project import project_of
from palimpsest.core.settings import load_settings
from tests.support.environment import clean_environment
from tests.support.http_server import run_http_server
from tests.support.mcp_client import reply_text
from tests.support.server_in_process import server_in_process


def git(folder: Path, *arguments: str) -> None:
    """Run git with an identity and settings of its own."""
    env = {**os.environ, "HOME": str(folder), "GIT_CONFIG_GLOBAL": os.devnull}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, env=env, check=True, capture_output=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://GitHub.com/acme/atlas.git",
        "https://user:secret@github.com/acme/atlas",
        "ssh://git@github.com:22/acme/atlas.git",
        "git@github.com:acme/atlas.git",
        "git://github.com/acme/atlas/",
    ],
)
def test_every_clone_has_the_same_project_however_it_was_cloned(tmp_path: Path, url: str) -> None:
    """Guards one project for one repository. The part of the URL before the host is dropped, a password included."""
    clone = tmp_path / "anything"
    clone.mkdir()
    git(clone, "init")
    git(clone, "remote", "add", "upstream", "https://example.org/other.git")
    git(clone, "remote", "add", "origin", url)
    inside = clone / "src" / "deep"
    inside.mkdir(parents=True)
    assert project_of(inside) == "github.com/acme/atlas"


def test_a_worktree_has_the_project_of_its_repository(tmp_path: Path) -> None:
    """Guards two worktrees of one repository: they share a project."""
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init")
    git(clone, "remote", "add", "origin", "https://github.com/acme/atlas.git")
    git(clone, "commit", "--allow-empty", "--message", "first")
    git(clone, "worktree", "add", "../tree", "-b", "branch")
    assert project_of(tmp_path / "tree") == "github.com/acme/atlas"


@pytest.mark.parametrize("remote", [None, "/srv/git/atlas.git", "../atlas"])
def test_without_a_remote_elsewhere_the_folder_names_the_project(tmp_path: Path, remote: str | None) -> None:
    """Guards against local paths, which differ from machine to machine."""
    clone = tmp_path / "atlas"
    clone.mkdir()
    git(clone, "init")
    if remote is not None:
        git(clone, "remote", "add", "origin", remote)
    assert project_of(clone) == "atlas"


def test_outside_of_a_repository_there_is_no_project(tmp_path: Path) -> None:
    """Guards clients that start their servers in the home folder."""
    assert project_of(tmp_path) == ""


def test_the_setting_auto_takes_the_folder_the_server_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards `project = "auto"`, and that an explicit name is kept."""
    clone = tmp_path / "atlas"
    clone.mkdir()
    git(clone, "init")
    monkeypatch.chdir(clone)
    assert load_settings(data_dir=tmp_path, project="auto").project == "atlas"
    assert load_settings(data_dir=tmp_path, project="other").project == "other"
    assert load_settings(data_dir=tmp_path).project == ""


def repository(folder: Path, name: str) -> Path:
    """Return a new repository with a remote of its own."""
    clone = folder / name
    clone.mkdir()
    git(clone, "init")
    git(clone, "remote", "add", "origin", f"https://github.com/acme/{name}.git")
    return clone


def with_roots(*folders: Path, asked: list[int] | None = None) -> Callable[..., Any]:
    """Return the answer of a client that has these folders open."""

    async def answer(context: Any) -> ListRootsResult:
        del context
        if asked is not None:
            asked.append(1)
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri())) for folder in folders])

    return answer


def over_stdio(folder: Path, mode: str, roots: Callable[..., Any], project: str = "auto") -> Client:
    """Return a client over stdio with roots. Its server is started outside of them."""
    server = server_in_process(folder, PALIMPSEST_PROJECT=project)
    return Client(server, mode=mode, list_roots_callback=roots)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_folder_a_client_has_open_is_the_project(tmp_path: Path, mode: str) -> None:
    """Guards clients that start the server outside the project. They are asked for roots once, not at every call."""
    asked: list[int] = []
    elsewhere = tmp_path / "notes"
    elsewhere.mkdir()
    async with over_stdio(tmp_path, mode, with_roots(elsewhere, repository(tmp_path, "atlas"), asked=asked)) as client:
        for text in ("The build runs on Debian", "The tests want a database"):
            assert reply_text(await client.call_tool("add_memory", {"text": text})).endswith(
                "scope: user alice, project github.com/acme/atlas"
            )
        given = {"query": "build", "scope": {"project": "other"}}
        assert reply_text(await client.call_tool("search_memories", given)).endswith("project other")
    assert asked == [1]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_project_that_the_settings_name_stands(tmp_path: Path, mode: str) -> None:
    """Guards the one setting that corrects a wrong project."""
    asked: list[int] = []
    roots = with_roots(repository(tmp_path, "atlas"), asked=asked)
    async with over_stdio(tmp_path, mode, roots, project="mine") as client:
        assert reply_text(await client.call_tool("list_memories", {})).endswith("scope: user alice, project mine")
    assert asked == []


@pytest.mark.anyio
async def test_a_client_that_opens_another_folder_is_asked_anew(tmp_path: Path) -> None:
    """Guards client windows that switch to another project."""
    open_now = [repository(tmp_path, "atlas")]

    async def answer(context: Any) -> ListRootsResult:
        return await with_roots(*open_now)(context)

    async with over_stdio(tmp_path, "legacy", answer) as client:
        assert reply_text(await client.call_tool("list_memories", {})).endswith("project github.com/acme/atlas")
        open_now[0] = repository(tmp_path, "borealis")
        await client.session.send_notification(RootsListChangedNotification())
        assert reply_text(await client.call_tool("list_memories", {})).endswith("project github.com/acme/borealis")


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_that_declines_to_tell_has_the_servers_folder(tmp_path: Path, mode: str) -> None:
    """Guards the fallback: a client that refuses to list its roots can still call tools."""

    async def answer(context: Any) -> ErrorData:
        del context
        return ErrorData(code=-1, message="roots are private")

    here = repository(tmp_path, "here")
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "palimpsest"],
        env=clean_environment(tmp_path, PALIMPSEST_PROJECT="auto"),
        cwd=here,
    )
    async with Client(server, mode=mode, list_roots_callback=answer) as client:
        told = ""
        with anyio.fail_after(60):
            while not told:
                with suppress(MCPError):  # the newer protocol's client gives the call up with the question
                    told = reply_text(await client.call_tool("list_memories", {}))
    assert told.endswith("project github.com/acme/here")


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["legacy", "sse"])
async def test_every_session_over_http_has_the_project_it_has_open(tmp_path: Path, how: str) -> None:
    """Guards one server that is shared by windows with different projects."""
    with run_http_server(tmp_path, PALIMPSEST_PROJECT="auto") as running:
        for name in ("atlas", "borealis"):
            roots = with_roots(repository(tmp_path, name))
            if how == "sse":
                there = Client(sse_client(f"{running.base}/sse"), list_roots_callback=roots)
            else:
                there = Client(f"{running.base}/mcp", mode="legacy", list_roots_callback=roots)
            async with there as client:
                assert reply_text(await client.call_tool("list_memories", {})).endswith(
                    f"project github.com/acme/{name}"
                )


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_roots_that_name_no_project_hinder_nobody(tmp_path: Path, mode: str) -> None:
    """Guards against folders that cannot be read, and names that are not valid in a scope."""
    pipe = tmp_path / "piped" / ".git"
    pipe.mkdir(parents=True)
    os.mkfifo(pipe / "config")
    odd = [tmp_path / ("x" * 300), tmp_path / "*", tmp_path / "line\nbreak"]
    for folder in odd[1:]:
        folder.mkdir()
        git(folder, "init")
    async with over_stdio(tmp_path, mode, with_roots(*odd, repository(tmp_path, "atlas"))) as client:
        assert reply_text(await client.call_tool("list_memories", {})).endswith("project github.com/acme/atlas")
    async with over_stdio(tmp_path, mode, with_roots(tmp_path / "piped")) as client:
        assert reply_text(await client.call_tool("list_memories", {})).endswith("project piped")
