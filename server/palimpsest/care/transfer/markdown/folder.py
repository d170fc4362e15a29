"""The folder of an export on the disk: which files are read, and how ours are written. No link leads out of it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from palimpsest.care.transfer.markdown.manifest import MANIFEST
from palimpsest.core.errors import InputError
from palimpsest.text.control_characters import visible

MAX_FILES = 50_000
MAX_FILE_BYTES = 32 * 2**20
MAX_FOLDER_BYTES = 512 * 2**20
"""Bounds of what is read, far above what a person keeps in a folder of notes. Set by hand."""

MAX_NAMED = 5
"""How many files an error or a note names."""

MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The Markdown files of a folder by their paths in it, and those that were not read, with the reason."""

    files: Mapping[str, bytes]
    unread: Mapping[str, str]


def read_folder(folder: Path) -> FolderFiles:
    """Return the Markdown files of a folder and the folders in it, without hidden ones and other exports.

    Raises InputError for a folder beyond the bounds, or that cannot be read.
    """
    files: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    size = 0
    try:
        for number, path in enumerate(_markdown_files(folder)):
            if number >= MAX_FILES:
                raise InputError(f"{folder} has more than {MAX_FILES:,} Markdown files. Nothing was done")
            name = path.relative_to(folder).as_posix()
            status = path.lstat()
            if reason := _reason_against(status):
                unread[name] = reason
                continue
            size += status.st_size
            if size > MAX_FOLDER_BYTES:
                megabytes = MAX_FOLDER_BYTES // MEGABYTE
                raise InputError(f"{folder} has more than {megabytes} MB of Markdown. Nothing was done")
            files[name] = _read(path)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error}. Nothing was done") from error
    return FolderFiles(files, unread)


def listed(paths: Sequence[str]) -> str:
    """Return the first of some paths in one line, and how many more there are."""
    more = f" and {len(paths) - MAX_NAMED:,} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(map(visible, paths[:MAX_NAMED])) + more


def _markdown_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_raise):
        here = Path(parent)
        if here != folder and MANIFEST in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not (here / name).is_symlink())
        yield from (here / name for name in sorted(names) if name.endswith(".md") and not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error


def _reason_against(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "no plain file"
    return f"larger than {MAX_FILE_BYTES // MEGABYTE} MB" if status.st_size > MAX_FILE_BYTES else ""


def _read(path: Path) -> bytes:
    """Return the bytes of a file that is no link, also if somebody has exchanged it since it was looked at."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def refuse_links(folder: Path, paths: list[str]) -> None:
    """Raise InputError if one of the paths, or a folder on the way to it, is a symbolic link or leads out."""
    for path in paths:
        step = folder
        for part in Path(path).parts:
            step /= part
            if step.is_symlink():
                raise InputError(f"{step} is a symbolic link, which is not followed. Nothing was written")


def write_file(folder: Path, path: str, text: str) -> None:
    """Write a file of the export (0600) as a whole, with its folder (0700). Raises OSError."""
    target = folder / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its own name, so that no file of the person's is in the way, and none that somebody can guess.
    descriptor, draft = tempfile.mkstemp(prefix=".palimpsest-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(target)
    finally:
        with suppress(FileNotFoundError):
            Path(draft).unlink()


def remove_file(folder: Path, path: str) -> None:
    """Remove a file of the export, and the folder it was in if that is empty now. Raises OSError."""
    target = folder / path
    target.unlink(missing_ok=True)
    for parent in target.relative_to(folder).parents:
        if parent == Path():
            return
        try:
            (folder / parent).rmdir()
        except OSError:  # something else is in it
            return
