"""The project of a folder: the same name for every clone and worktree of a git repository."""

from __future__ import annotations

import re
from pathlib import Path

MAX_CHARS = 1_000_000
"""How many characters of a git file are read at most."""

_URL = re.compile(r"^(?:[a-z+]+://)?(?:[^@/]*@)?(?P<host>[^/:]+)(?::\d+(?=/))?[:/](?P<path>.+?)(?:\.git)?/*$")
_SECTION = re.compile(r'^\s*\[remote "(?P<name>[^"]+)"\]')
_VALUE = re.compile(r"^\s*url\s*=\s*(?P<url>\S+)")


def project_of(folder: Path) -> str:
    """Return the project of a folder: host and path of its git remote, else the name of the repository's folder.

    The remote is `origin`, or the first one if there is no `origin`. Outside a repository the result is "", no project.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.exists():
            remotes = _remotes(_common_folder(git) / "config")
            url = remotes.get("origin") or next(iter(remotes.values()), "")
            return _host_and_path(url) or place.name
    return ""


def _common_folder(git: Path) -> Path:
    """Return the folder that all worktrees of a repository share. `git` is a folder, or a file that names one."""
    if git.is_dir():
        return git
    git_dir = _read(git).removeprefix("gitdir:").strip()
    own = (git.parent / git_dir).resolve()
    common_dir = _read(own / "commondir").strip()
    return (own / common_dir).resolve() if common_dir else own


def _remotes(config: Path) -> dict[str, str]:
    """Return the URLs of a repository's remotes by name."""
    urls: dict[str, str] = {}
    name: str | None = None
    for line in _read(config).splitlines():
        section = _SECTION.match(line)
        if section is not None or line.lstrip().startswith("["):
            name = section["name"] if section is not None else None
            continue
        value = _VALUE.match(line)
        if name is not None and value is not None:
            urls.setdefault(name, value["url"])
    return urls


def _host_and_path(url: str) -> str:
    """Return host and path of a URL, or "" for a local path, which is different on every machine."""
    match = _URL.match(url)
    if match is None or url.startswith(("/", ".", "file:")):
        return ""
    return f"{match['host'].lower()}/{match['path'].strip('/')}"


def _read(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(MAX_CHARS)
    except OSError:  # missing or not readable: the folder's name is used instead
        return ""
