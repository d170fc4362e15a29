"""Projects: which one a folder is, whatever becomes of its path and remote, and moving what one holds to another."""

from __future__ import annotations

import json
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

    def aliases(self, project: str) -> set[tuple[str, str]]:
        """Return what a project is known by."""
        (found,) = (item for item in self.json(self.root, "projects")["projects"] if item["name"] == project)
        return {(alias["kind"], alias["alias"]) for alias in found["aliases"]}


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

    def test_what_a_folder_without_a_remote_was_before_it_was_moved_is_told(self, folders: Folders) -> None:
        """Guards its memories: one command brings them along."""
        atlas = repository(folders.root / "atlas")
        folders.run(atlas, "add", "The build runs on Debian")
        (folders.root / "work").mkdir()
        moved = Path(shutil.move(atlas, folders.root / "work"))
        told = palimpsest(moved, "history", "00000000", code=1, settings=folders.settings)
        assert 'palimpsest projects merge "atlas" "work/atlas"' in told


class TestTwoProjects:
    """Two repositories stay two projects."""

    def test_two_folders_of_the_same_name_are_two_projects(self, folders: Folders) -> None:
        """Two unrelated folders of one name shared a scope."""
        first = repository(folders.root / "work" / "app")
        second = repository(folders.root / "home" / "app")
        folders.run(first, "add", "The build runs on Debian")
        folders.run(second, "add", "The site uses Svelte")
        assert folders.texts(first) == ["The build runs on Debian"]
        assert folders.texts(second) == ["The site uses Svelte"]
        assert folders.projects() == {"app": (1, 0), "home/app": (1, 0)}

    def test_another_repository_at_the_same_path_is_another_project(self, folders: Folders) -> None:
        """Guards containers, in which every repository is at the same path."""
        place = repository(folders.root / "workspace", ATLAS, created=1_700_000_000)
        folders.run(place, "add", "The build runs on Debian")
        shutil.rmtree(place)
        repository(place, "https://github.com/acme/site.git", created=1_710_000_000)
        assert folders.texts(place) == []
        folders.run(place, "add", "The site uses Svelte")
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


class TestMoving:
    """`palimpsest projects move` and `merge`."""

    @pytest.mark.nightly
    def test_a_merge_keeps_what_both_know(self, folders: Folders) -> None:
        """Guards memories and messages that are in both projects."""
        root = folders.root
        for project, other in (("a", "The site uses Svelte"), ("b", "The tests want a database")):
            folders.run(root, "add", "The build runs on Debian", "--project", project)
            folders.run(root, "add", other, "--project", project)
            chat = [{"role": "user", "content": "Our lighthouse has a red door", "id": "m1"}]
            (root / "chat.json").write_text(json.dumps(chat), "utf-8")
            folders.run(root, "learn", "chat.json", "--project", project)
        result = folders.json(root, "projects", "merge", "a", "b")
        assert (result["memories_in_both"], result["messages_in_both"]) == (1, 1)
        assert folders.projects() == {"b": (3, 1)}
        texts = ["The build runs on Debian", "The site uses Svelte", "The tests want a database"]
        assert folders.texts(root, "--project", "b") == texts
        assert folders.texts(root, "--project", "a") == texts, "an older name is followed"
        assert folders.texts(root, "--project", "b", "--deleted") == ["The build runs on Debian"]
        assert folders.json(root, "doctor", "--deep")["ok"]

    def test_a_name_that_does_not_fit_is_refused(self, folders: Folders) -> None:
        """Guards against moves that were not meant."""
        root = folders.root
        for project in ("atlas", "globe"):
            folders.run(root, "add", "The build runs on Debian", "--project", project)
        for arguments, error in {
            ("move", "atlas", "globe"): "palimpsest projects merge atlas globe joins them",
            ("move", "atlsa", "earth"): "there is no project 'atlsa'. Nothing was moved. Did you mean atlas?",
            ("merge", "atlas", "atlas"): "both names are atlas",
            ("merge", "atlas", "earth"): "there is no project 'earth'",
            ("move", "atlas", "auto"): "'auto' cannot be the name of a project",
            ("move", "atlas", "*"): "'*' is not a scope",
        }.items():
            assert error in folders.run(root, "projects", *arguments, code=1)
        assert folders.projects() == {"atlas": (1, 0), "globe": (1, 0)}
        for old, new in (("atlas", "earth"), ("earth", "atlas")):
            folders.run(root, "projects", "move", old, new)
        assert folders.projects() == {"atlas": (1, 0), "globe": (1, 0)}, "an older name can be the name again"
        assert folders.texts(root, "--project", "earth") == ["The build runs on Debian"]


class TestImports:
    """What comes from another memory is found where its project is now."""

    def test_a_project_is_not_hidden_by_an_older_name_from_elsewhere(self, folders: Folders) -> None:
        """Guards a project that was moved in another memory and is in use in this one."""
        root, elsewhere = folders.root, {"PALIMPSEST_DATA_DIR": str(folders.root / "elsewhere")}
        palimpsest(root, "--project", "a", "add", "The build runs on Debian", settings=elsewhere)
        palimpsest(root, "projects", "move", "a", "b", settings=elsewhere)
        palimpsest(root, "export", "b.jsonl", settings=elsewhere)
        folders.run(root, "add", "The site uses Svelte", "--project", "a")
        folders.run(root, "import", "b.jsonl")
        assert folders.texts(root, "--project", "a") == ["The site uses Svelte"]
        assert folders.texts(root, "--project", "b") == ["The build runs on Debian"]


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


def test_a_project_that_does_not_exist_is_told(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", "The lamp is yellow", "--project", "Stradishop")
    for words in (("search", "lamp"), ("list",), ("add", "The lamp is green")):
        printed = palimpsest(tmp_path, *words, "--project", "stradishop", answer="\n")  # with it, stderr is returned
        assert "note: alice has no project 'stradishop' yet. Did you mean Stradishop?\n" in printed, words
    assert "has no project" not in palimpsest(tmp_path, "search", "lamp", "--project", "Stradishop", answer="\n")
