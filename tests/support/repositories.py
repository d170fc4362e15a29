"""Git repositories written by hand: the few files by which a project is recognized."""

from __future__ import annotations

import os
from pathlib import Path


def repository(folder: Path, remote: str = "", created: int = 0) -> Path:
    """Write a repository at a folder, or give the one that is there another remote. Return the folder.

    `created` is when git wrote its description, in seconds since 1970; without it, there is none.
    """
    git = folder / ".git"
    git.mkdir(parents=True, exist_ok=True)
    (git / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n' if remote else "[core]\n", "utf-8")
    if created:
        (git / "description").write_text("Unnamed repository\n", "utf-8")
        os.utime(git / "description", (created, created))
    return folder


def worktree(main: Path, folder: Path) -> Path:
    """Write a worktree of a repository at a folder, and return the folder."""
    own = main / ".git" / "worktrees" / folder.name
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n", "utf-8")
    folder.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {own}\n", "utf-8")
    return folder
