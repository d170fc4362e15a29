"""The project of a scope: read from the git repository in which a server is started, or from a client's roots."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import ListRootsResult, Root, RootsListChangedNotification
from pydantic import FileUrl

from palimpsest.core.git_project import repository_of
from tests.support.mcp_client import reply_text
from tests.support.server_in_process import server_in_process


def scope_line(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("scope: "))


def git(folder: Path, *arguments: str) -> None:
    """Run git with its own identity, and without the settings of the user and the machine."""
    env = {**os.environ, "HOME": str(folder), "GIT_CONFIG_GLOBAL": os.devnull}
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, env=env, check=True, capture_output=True)


def cloned(folder: Path, name: str, *remotes: str) -> Path:
    """Return a new repository with these remotes, the last one named origin."""
    clone = folder / name
    clone.mkdir()
    git(clone, "init")
    for number, url in enumerate(reversed(remotes)):
        git(clone, "remote", "add", f"upstream{number}" if number else "origin", url)
    return clone


@pytest.mark.parametrize(
    ("url", "project"),
    [
        ("https://GitHub.com/acme/atlas.git", "github.com/acme/atlas"),
        ("https://user:secret@github.com/acme/atlas", "github.com/acme/atlas"),
        ("ssh://git@github.com:22/acme/atlas.git", "github.com/acme/atlas"),
        ("git@github.com:acme/atlas.git", "github.com/acme/atlas"),
        ("../atlas", "clone"),
        ("", "clone"),
    ],
)
def test_clones_of_a_repository_have_the_same_project_whatever_their_url(
    tmp_path: Path, url: str, project: str
) -> None:
    clone = cloned(
        tmp_path, "clone", *["https://example.org/other.git"] * url.startswith("https"), *filter(None, [url])
    )
    inside = clone / "src" / "deep"
    inside.mkdir(parents=True)
    assert repository_of(inside).project == project
    assert repository_of(tmp_path).project == ""


def repository(folder: Path, name: str) -> Path:
    return cloned(folder, name, f"https://github.com/acme/{name}.git")


def roots_callback(*folders: Path, requests: list[int] | None = None) -> Callable[..., Any]:
    """Return the callback of a client that has these folders open. Each request is counted in `requests`."""

    async def answer(context: Any) -> ListRootsResult:
        del context
        if requests is not None:
            requests.append(1)
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri())) for folder in folders])

    return answer


def stdio_client(folder: Path, mode: str, roots: Callable[..., Any], project: str = "auto") -> Client:
    """Return a client over stdio that has roots. Its server is started outside of them."""
    server = server_in_process(folder, PALIMPSEST_PROJECT=project)
    return Client(server, mode=mode, list_roots_callback=roots)


@pytest.mark.few_by_day(1)
@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_folder_that_a_client_has_open_is_the_project(tmp_path: Path, mode: str) -> None:
    """Unless the settings name one: then nobody is asked for roots."""
    requests: list[int] = []
    notes = tmp_path / "notes"
    notes.mkdir()
    roots = roots_callback(notes, repository(tmp_path, "atlas"), requests=requests)
    for project, shown in (("mine", "mine"), ("auto", "github.com/acme/atlas")):
        async with stdio_client(tmp_path, mode, roots, project) as client:
            for text in ("The build runs on Debian", "The tests want a database"):
                added = await client.call_tool("add_memory", {"text": text})
                assert f"scope: user alice, project {shown}" in scope_line(reply_text(added))
    assert requests == [1]


@pytest.mark.anyio
async def test_a_client_that_opens_another_folder_is_asked_again(tmp_path: Path) -> None:
    open_folders = [repository(tmp_path, "atlas")]

    async def answer(context: Any) -> ListRootsResult:
        return await roots_callback(*open_folders)(context)

    async with stdio_client(tmp_path, "legacy", answer) as client:
        assert "project github.com/acme/atlas" in scope_line(reply_text(await client.call_tool("list_memories", {})))
        open_folders[0] = repository(tmp_path, "borealis")
        await client.session.send_notification(RootsListChangedNotification())
        assert "project github.com/acme/borealis" in scope_line(reply_text(await client.call_tool("list_memories", {})))


@pytest.mark.anyio
async def test_roots_without_a_valid_project_are_passed_over(tmp_path: Path) -> None:
    pipe = tmp_path / "piped" / ".git"
    pipe.mkdir(parents=True)
    os.mkfifo(pipe / "config")
    odd_folders = [tmp_path / ("x" * 300), tmp_path / "*", tmp_path / "line\nbreak"]
    for folder in odd_folders[1:]:
        folder.mkdir()
        git(folder, "init")
    cases = (([*odd_folders, repository(tmp_path, "atlas")], "github.com/acme/atlas"), ([tmp_path / "piped"], "piped"))
    for folders, project in cases:
        async with stdio_client(tmp_path, "auto", roots_callback(*folders)) as client:
            listed = reply_text(await client.call_tool("list_memories", {}))
            assert f"project {project}" in scope_line(listed)
