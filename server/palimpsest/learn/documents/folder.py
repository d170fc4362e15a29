"""Find the documents in a folder. What is not one is named, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from palimpsest.core.errors import InputError
from palimpsest.learn.documents.readers.reading import MARKUP, MAX_BYTES, TEXT

MAX_FILES = 5_000
"""More documents are refused. Set by hand: whoever has more names a folder within."""

IGNORE_FILE = ".gitignore"

CONVERSATIONS = frozenset({".json", ".jsonl", ".ndjson"})


@dataclass(frozen=True, slots=True)
class Skipped:
    """What is not learned from, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The documents in a folder in the order of their names, and what was skipped. Hidden files are not named."""

    files: list[Path] = field(default_factory=list[Path])
    skipped: list[Skipped] = field(default_factory=list[Skipped])


def documents_in(folder: Path) -> FolderContents:
    """Return the documents in a folder and the folders in it. Links are not followed. Blocking.

    Raises InputError for a folder that cannot be read, or that has too many.
    """
    found = FolderContents()
    waiting: list[tuple[Path, tuple[tuple[Path, GitIgnoreSpec], ...]]] = [(folder, ())]
    while waiting:
        place, ignored = waiting.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            if place == folder:
                raise InputError(f"{folder} cannot be read: {error.strerror}. Nothing was stored") from error
            found.skipped.append(_skipped(folder, place, f"cannot be read: {error.strerror}"))
            continue
        ignored = (*ignored, *_ignored_in(place, entries))
        folders: list[Path] = []
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            reason = _reason(entry, ignored)
            if reason:
                found.skipped.append(_skipped(folder, path, reason))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(path)
            else:
                found.files.append(path)
        waiting += [(path, ignored) for path in reversed(folders)]
        if len(found.files) > MAX_FILES:
            raise InputError(f"{folder} has more than {MAX_FILES:,} documents. Name a folder in it. Nothing was stored")
    return found


def _skipped(folder: Path, path: Path, reason: str) -> Skipped:
    return Skipped(path.relative_to(folder).as_posix(), reason)


def _ignored_in(place: Path, entries: Sequence[os.DirEntry[str]]) -> Iterator[tuple[Path, GitIgnoreSpec]]:
    """Yield what the file `.gitignore` of a folder says, if it has one that can be read."""
    for entry in entries:
        if entry.name == IGNORE_FILE and entry.is_file(follow_symlinks=False) and entry.stat().st_size <= MAX_BYTES:
            lines = Path(entry.path).read_text("utf-8", "replace").splitlines()
            yield place, GitIgnoreSpec.from_lines(lines)


def _reason(entry: os.DirEntry[str], ignored: Sequence[tuple[Path, GitIgnoreSpec]]) -> str:
    """Return why an entry of a folder is skipped, or "" if it is not."""
    is_folder = entry.is_dir(follow_symlinks=False)
    suffix = Path(entry.name).suffix.lower()
    if entry.is_symlink():
        return "a link, which is not followed"
    if any(spec.match_file(_below(base, entry.path, is_folder=is_folder)) for base, spec in ignored):
        return "ignored by .gitignore"
    if is_folder:
        return ""
    if not entry.is_file(follow_symlinks=False):
        return "not a file"
    if suffix in CONVERSATIONS:
        return "may be a conversation; name the file itself to learn from it"
    if suffix not in TEXT | MARKUP:
        return f"not a document ({suffix or 'no suffix'})"
    return f"larger than {MAX_BYTES:,} bytes" if entry.stat(follow_symlinks=False).st_size > MAX_BYTES else ""


def _below(base: Path, path: str, *, is_folder: bool) -> str:
    return Path(path).relative_to(base).as_posix() + ("/" if is_folder else "")
