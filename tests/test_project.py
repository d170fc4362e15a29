"""The project a server is started in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from palimpsest.config import load_settings
from palimpsest.project import project_of


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
    """Guards one memory for one repository; what stands before the host, a password among it, is left out."""
    clone = tmp_path / "anything"
    clone.mkdir()
    git(clone, "init")
    git(clone, "remote", "add", "upstream", "https://example.org/other.git")
    git(clone, "remote", "add", "origin", url)
    inside = clone / "src" / "deep"
    inside.mkdir(parents=True)
    assert project_of(inside) == "github.com/acme/atlas"


def test_a_worktree_has_the_project_of_its_repository(tmp_path: Path) -> None:
    """Guards who works on two branches at once."""
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init")
    git(clone, "remote", "add", "origin", "https://github.com/acme/atlas.git")
    git(clone, "commit", "--allow-empty", "--message", "first")
    git(clone, "worktree", "add", "../tree", "-b", "branch")
    assert project_of(tmp_path / "tree") == "github.com/acme/atlas"


@pytest.mark.parametrize("remote", [None, "/srv/git/atlas.git", "../atlas"])
def test_without_a_remote_elsewhere_the_folder_names_the_project(tmp_path: Path, remote: str | None) -> None:
    """Guards paths of one machine, which would be another project on the next."""
    clone = tmp_path / "atlas"
    clone.mkdir()
    git(clone, "init")
    if remote is not None:
        git(clone, "remote", "add", "origin", remote)
    assert project_of(clone) == "atlas"


def test_outside_of_a_repository_there_is_no_project(tmp_path: Path) -> None:
    """Guards a client that starts its servers at home."""
    assert project_of(tmp_path) == ""


def test_the_setting_auto_takes_the_folder_the_server_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the one setting by which it is chosen, and that a name that is given stands."""
    clone = tmp_path / "atlas"
    clone.mkdir()
    git(clone, "init")
    monkeypatch.chdir(clone)
    assert load_settings(data_dir=tmp_path, project="auto").project == "atlas"
    assert load_settings(data_dir=tmp_path, project="other").project == "other"
    assert load_settings(data_dir=tmp_path).project == ""
