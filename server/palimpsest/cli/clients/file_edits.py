"""Edits of clients' files: read with care, written only if nothing else has changed, with a copy that stays."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from palimpsest.core.errors import InputError
from palimpsest.core.files import OWNER_ONLY, replace_file

COPY_SUFFIX = ".before-palimpsest"
"""Suffix of the copy that is made of a client's file before it is changed; the second copy ends in "-2"."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change of a file that is not written yet: its text before and after. `before` is None if there is no file."""

    file: Path
    before: str | None
    after: str

    @property
    def has_changes(self) -> bool:
        """Return whether there is anything to write."""
        return (self.before or "") != self.after


def read_text(file: Path, *, inside: Path | None = None) -> str | None:
    """Return the text of a file, or None if there is no file.

    Raises InputError if it is no file in UTF-8, or a symbolic link to nowhere or, with `inside`, to another folder.
    """
    try:
        if file.is_symlink() and not file.exists():
            raise InputError(f"{file} is a symbolic link to a file that does not exist. Nothing was changed. Remove it")
        if inside is not None and not file.resolve().is_relative_to(inside.resolve()):
            raise InputError(
                f"{file} is a symbolic link that leads out of this folder, to {file.resolve()}. Nothing was changed. "
                "Edit that file by hand, or use the command without --project"
            )
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not in UTF-8: {error}. Nothing was changed. Save it as UTF-8") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle, before Python 3.13
        raise InputError(f"{file} cannot be read: {error}. Nothing was changed") from error


def edit_of(file: Path, changes: list[Callable[[str], str]], *, inside: Path | None = None) -> FileEdit:
    """Return the edit that makes all changes of one file. Raises InputError if it cannot be read or parsed."""
    before = text = read_text(file, inside=inside)
    try:
        for change in changes:
            text = change(text or "")
        return FileEdit(file, before, text or "")
    except (ValueError, RecursionError) as error:
        kind = "TOML" if file.suffix == ".toml" else "JSON"
        raise InputError(
            f"{file} is not valid {kind} for this client: {error}. The file is unchanged. Correct it and try again."
        ) from error


def write(edit: FileEdit) -> Path | None:
    """Replace the file with its new text. Return the copy of the old file, or None if there was none.

    Raises InputError if that fails, if the file is read-only or if it has changed since it was read. It is unchanged
    then.
    """
    target = edit.file.resolve()  # a symbolic link stays a link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = _mode_to_keep(edit)
        copy = None if edit.before is None else _copied(target, edit.before, mode)
        with replace_file(target, mode) as file:
            file.write(edit.after)
            if read_text(edit.file) != edit.before:
                raise InputError(f"{target} was changed by another program just now. It stays as it is. Try again")
    except OSError as error:
        raise InputError(f"{target} could not be written: {error.strerror}. The file is unchanged.") from error
    return copy


def _mode_to_keep(edit: FileEdit) -> int:
    """Return the permissions of the file. Raises InputError if it is read-only."""
    if edit.before is None:
        return OWNER_ONLY
    mode = stat.S_IMODE(edit.file.stat().st_mode)
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(edit.file, os.W_OK):
        raise InputError(f"{edit.file} is read-only. It is unchanged. Make it writable, or edit it by hand")
    return mode


def _copied(target: Path, text: str, mode: int) -> Path:
    """Return a copy of a file beside it. An earlier copy is never overwritten; one with the same text is used again."""
    for number in count(1):
        copy = target.with_name(f"{target.name}{COPY_SUFFIX}{'' if number == 1 else f'-{number}'}")
        try:
            descriptor = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY)
        except FileExistsError:
            if copy.is_file() and copy.read_bytes() == text.encode():
                return copy
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        copy.chmod(mode)
        return copy
    raise AssertionError("count never ends")
