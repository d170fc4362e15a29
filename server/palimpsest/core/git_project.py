"""Projects, and what identifies the git repository of a folder: where it is, its remote, and when it was created.

The ledger knows which project a repository is (`store/projects.py`).
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

# How many characters of a git file are read at most.
MAX_CHARS = 1_000_000

# How many names `names` tries: the folder's own, and those with one, two and three folders around it.
MAX_NAMES = 4

_URL = re.compile(r"^(?:[a-z+]+://)?(?:[^@/]*@)?(?P<host>[^/:]+)(?::\d+(?=/))?[:/](?P<path>.+?)(?:\.git)?/*$")
_REMOTE = re.compile(
    r'^\s*\[remote "(?P<name>[^"]+)"\](?:(?!^\s*\[).)*?^\s*url\s*=\s*(?P<url>\S+)', re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository of a folder; empty outside of one. All worktrees of a repository share it.

    `path` is its root. `remote` is host and path of its remote, or "". `checkout` is the name of the worktree's
    own folder. `created` is when it was cloned or initialized, in seconds since 1970, or 0 if that is not known.
    `gone` are the folder and those around it that do not exist, for a folder that was deleted or moved.
    """

    path: str = ""
    remote: str = ""
    checkout: str = ""
    created: int = 0
    gone: tuple[str, ...] = ()

    @property
    def project(self) -> str:
        """Return the name of its project, unless the ledger knows another one."""
        return self.remote or (self.names[0] if self.path else "")

    @property
    def names(self) -> tuple[str, ...]:
        """Return names of its folder, each longer than the one before, such as "app" and "work/app"."""
        parts = [part for part in Path(self.path).parts if part != Path(self.path).anchor]
        shorter = ("/".join(parts[-count:]) for count in range(1, min(MAX_NAMES, len(parts)) + 1))
        return tuple(dict.fromkeys((*shorter, self.path)))


AliasKind: TypeAlias = Literal["path", "remote", "name"]


@dataclass(frozen=True, slots=True)
class Alias:
    """Something that a project is known by.

    `other_project` is another project that may be the same one. `repository_created` is when the repository at a path
    was created, in seconds since 1970, or 0. `reported` is whether a reply has told of the alias, or need not.
    """

    kind: AliasKind
    alias: str
    project: str
    other_project: str = ""
    repository_created: int = 0
    reported: bool = True


@dataclass(frozen=True, slots=True)
class Project:
    """A project with what is stored in it. `used_at` is when something in it last changed, or None if it is empty."""

    name: str
    aliases: tuple[Alias, ...]
    memories: int = 0
    messages: int = 0
    used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What a move of everything in one project to another takes along.

    `memories` and `messages` count the deleted ones too. `same_memories` and `same_messages` are those that the other
    project has already.
    """

    old: str
    new: str
    memories: int
    messages: int
    same_memories: int
    same_messages: int


def repository_of(folder: Path) -> Repository:
    """Return the repository of a folder.

    Its remote is `origin`, or the first one if there is no `origin`.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.exists():
            common = _common_folder(git)
            remotes = [(found["name"], found["url"]) for found in _REMOTE.finditer(_read(common / "config"))]
            url = next((url for name, url in remotes if name == "origin"), remotes[0][1] if remotes else "")
            return Repository(_normal(_root(place, common)), _host_and_path(url), place.name, _created(common))
    return Repository(gone=tuple(_normal(place) for place in (folder, *folder.parents) if not place.exists()))


def _root(place: Path, common: Path) -> Path:
    """Return the folder that all worktrees have in common; for a repository with a single one, its root."""
    is_linked = (place / ".git").is_file() and (common / "worktrees").is_dir()
    shared = common.parent if common.name == ".git" else common
    return shared if is_linked else place


def _normal(place: Path) -> str:
    """Return a path that is the same however the folder was reached."""
    return os.path.normcase(place.resolve())


def _created(common: Path) -> int:
    """Return when git wrote a file that it writes once. Copies and moves of the repository keep that time."""
    with suppress(OSError):  # left out by the templates of some
        return int((common / "description").stat().st_mtime)
    return 0


def _common_folder(git: Path) -> Path:
    """Return the folder that all worktrees of a repository share. `git` is a folder, or a file that names one."""
    if git.is_dir():
        return git
    git_dir = _read(git).removeprefix("gitdir:").strip()
    own = (git.parent / git_dir).resolve()
    common_dir = _read(own / "commondir").strip()
    return (own / common_dir).resolve() if common_dir else own


def _host_and_path(url: str) -> str:
    """Return host and path of a URL, or "" for a local path, which is different on every machine."""
    if (match := _URL.match(url)) is None or url.startswith(("/", ".", "file:")):
        return ""
    return f"{match['host'].lower()}/{match['path'].strip('/')}"


def _read(file: Path) -> str:
    with suppress(OSError):  # missing or not readable: the folder's name is used instead
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as stream:
                return stream.read(MAX_CHARS)
    return ""
