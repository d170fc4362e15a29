"""Projects: which one a folder is, whatever becomes of its path and remote, and moving what one holds to another."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.repositories import repository, worktree

ATLAS = "https://github.com/acme/atlas.git"


class Folders:
    """Commands in folders of one machine, which share a memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = {"PALIMPSEST_DATA_DIR": str(root / "data"), "PALIMPSEST_PROJECT": "auto"}

    def run(self, folder: Path, *arguments: str, code: int = 0) -> str:
        """Run a command in a folder."""
        return palimpsest(folder, *arguments, code=code, settings=self.settings)

    def json(self, folder: Path, *arguments: str) -> Any:
        """Run a command in a folder, and return its JSON."""
        return palimpsest_json(folder, *arguments, settings=self.settings)

    def texts(self, folder: Path, *arguments: str) -> list[str]:
        """Return the memories that a folder's project and the user have."""
        return sorted(hit["text"] for hit in self.json(folder, "list", *arguments)["results"])

    def projects(self) -> dict[str, tuple[int, int]]:
        """Return how many memories and messages each project has."""
        listed = self.json(self.root, "projects")["projects"]
        return {project["name"]: (project["memories"], project["messages"]) for project in listed}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


class TestOneProject:
    """A repository stays one project."""

    def test_a_remote_a_clone_a_worktree_and_a_moved_folder_are_the_same_project(self, folders: Folders) -> None:
        """Guards the ways in which a repository comes to another path, and a remote that is added later."""
        atlas = repository(folders.root / "atlas")
        folders.run(atlas, "add", "The build runs on Debian")
        before = worktree(atlas, folders.root / "branch")
        assert folders.texts(before) == ["The build runs on Debian"], "without a remote"
        repository(atlas, ATLAS)
        clone = repository(folders.root / "elsewhere" / "copy", ATLAS)
        inside = worktree(atlas, folders.root / "trees" / "other") / "src"
        inside.mkdir()
        assert folders.texts(atlas) == ["The build runs on Debian"], "its remote is known from here on"
        for folder in (inside, Path(shutil.move(clone, folders.root / "moved"))):
            assert folders.texts(folder) == ["The build runs on Debian"]
        assert list(folders.projects()) == ["atlas"]


class TestTwoProjects:
    """Two repositories stay two projects."""

    def test_other_repositories_of_the_same_name_or_path_are_other_projects(self, folders: Folders) -> None:
        """Guards two unrelated folders of one name, and containers, in which all repositories are at the same path."""
        for name, text in (("work", "The build runs on Debian"), ("home", "The site uses Svelte")):
            folder = repository(folders.root / name / "app")
            folders.run(folder, "add", text)
            assert folders.texts(folder) == [text]
        assert folders.projects() == {"app": (1, 0), "home/app": (1, 0)}
        place = repository(folders.root / "workspace", ATLAS, created=1_700_000_000)
        folders.run(place, "add", "The build runs on Debian")
        shutil.rmtree(place)
        repository(place, "https://github.com/acme/site.git", created=1_710_000_000)
        assert folders.texts(place) == []
        shutil.rmtree(place)
        repository(place, ATLAS, created=1_700_000_000)
        assert folders.texts(place) == ["The build runs on Debian"]

    def test_a_path_and_a_remote_of_two_projects_are_told_and_not_merged(self, folders: Folders) -> None:
        """Guards two projects with memories: the remote decides, and a person merges."""
        local = repository(folders.root / "local")
        folders.run(local, "add", "The build runs on Debian")
        clone = repository(folders.root / "clone", ATLAS)
        folders.run(clone, "add", "The tests want a database")
        repository(local, ATLAS)
        told = palimpsest(local, "history", "00000000", code=1, settings=folders.settings)
        assert 'palimpsest projects merge "local" "github.com/acme/atlas"' in told
        assert folders.texts(local) == ["The tests want a database"]
        assert folders.texts(local, "--project", "local") == ["The build runs on Debian"]
        folders.run(local, "projects", "merge", "local", "github.com/acme/atlas")
        assert folders.texts(local) == ["The build runs on Debian", "The tests want a database"]


@pytest.mark.nightly
def test_processes_that_open_a_folder_at_once_agree(folders: Folders) -> None:
    """Guards the first use by several clients: each would name the project."""
    first, second = (repository(folders.root / name / "app") for name in ("work", "home"))

    def add(item: tuple[Path, int]) -> str:
        folder, number = item
        return palimpsest_process(folder, "add", f"Fact number {number}", settings=folders.settings)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, [(folder, number) for number in range(3) for folder in (first, second)]))
    assert sorted(folders.projects().values()) == [(3, 0), (3, 0)]
    assert folders.texts(first) == folders.texts(second) == [f"Fact number {number}" for number in range(3)]
