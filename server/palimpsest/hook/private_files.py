"""Folders and files that only their owner can read, made without following links that someone else put there."""

from __future__ import annotations

import os
import stat

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700
OTHERS = 0o077
NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def is_private_folder(path: str) -> bool:
    """Return whether a path is a folder of this user, not a link to one, that nobody else can enter."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    # Windows has neither: there, folders of the profile are the user's own.
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & OTHERS)


def make_private_folder(path: str) -> None:
    """Make a folder (0700) and those above it, unless it exists.

    An own folder that others can enter is closed to them. Raises OSError, also if the path is a link, a file or
    someone else's folder.
    """
    os.makedirs(os.path.dirname(path), OWNER_ONLY_FOLDER, exist_ok=True)
    try:
        os.mkdir(path, OWNER_ONLY_FOLDER)
    except FileExistsError:
        if is_private_folder(path):
            return
        if os.path.islink(path):
            raise
        os.chmod(path, OWNER_ONLY_FOLDER)  # fails if it is someone else's
        if not is_private_folder(path):
            raise


def write_new_file(path: str, content: bytes) -> None:
    """Write a file (0600) that did not exist. Raises OSError, FileExistsError also for a link."""
    descriptor = os.open(path, NEW_FILE, OWNER_ONLY)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)


def append_line(path: str, line: str) -> None:
    """Append a line to a file (0600) in one write, so that lines of several processes are not mixed. Raises OSError."""
    flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
