"""Which project a folder belongs to: the same name for every clone and worktree of a repository."""

from __future__ import annotations

import re
from pathlib import Path

MAX_CHARS = 1_000_000
"""More of a file is not read."""

_URL = re.compile(r"^(?:[a-z+]+://)?(?:[^@/]*@)?(?P<host>[^/:]+)(?::\d+(?=/))?[:/](?P<path>.+?)(?:\.git)?/*$")
_SECTION = re.compile(r'^\s*\[remote "(?P<name>[^"]+)"\]')
_VALUE = re.compile(r"^\s*url\s*=\s*(?P<url>\S+)")


def project_of(folder: Path) -> str:
    """Return the project of a folder: host and path of its git remote, else the name of the repository's folder.

    Outside of a repository that is "": no project. The remote is `origin`, or else the first.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.exists():
            remotes = _remotes(_common(git) / "config")
            url = remotes.get("origin") or next(iter(remotes.values()), "")
            return _named(url) or place.name
    return ""


def _common(git: Path) -> Path:
    """Return the folder that a repository's worktrees share; `git` is a folder, or a file that names one."""
    if git.is_dir():
        return git
    named = _read(git).removeprefix("gitdir:").strip()
    own = (git.parent / named).resolve()
    shared = _read(own / "commondir").strip()
    return (own / shared).resolve() if shared else own


def _remotes(config: Path) -> dict[str, str]:
    """Return the URLs of a repository's remotes by name."""
    found: dict[str, str] = {}
    name: str | None = None
    for line in _read(config).splitlines():
        section = _SECTION.match(line)
        if section is not None or line.lstrip().startswith("["):
            name = section["name"] if section is not None else None
            continue
        value = _VALUE.match(line)
        if name is not None and value is not None:
            found.setdefault(name, value["url"])
    return found


def _named(url: str) -> str:
    """Return host and path of a URL as one name; "" for a path on this machine, which says nothing to others."""
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
    except OSError:  # not there, or not ours to read: the folder's name serves
        return ""
