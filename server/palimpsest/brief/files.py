"""The rendered files: who may write them when, and that none outlives what it says. Blocking.

Whoever renders holds a lock from before it reads the ledger until its files are written. Whoever removes files has
changed the ledger before, and takes the lock: what is rendered after that no longer knows what was deleted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import Timeout

from palimpsest.brief.launch import INSTRUCTIONS_SIGN, VERSION, instructions_sign
from palimpsest.brief.session import Brief
from palimpsest.core.files import file_lock, replace_file
from palimpsest.hook import paths
from palimpsest.hook.private_files import make_private_folder

logger = logging.getLogger(__name__)

LOCK_SECONDS = 5.0
"""How long to wait for another process that renders, which takes milliseconds. Set by hand."""

MAX_FOLDERS = 200
"""How many folders of a user are known; those used longest ago are forgotten. Set by hand."""

MAX_INSTRUCTIONS = 50
"""How many ways to start a server have rendered instructions; the oldest are forgotten. Set by hand."""


@dataclass
class Folders:
    """Which brief a session in a folder begins with: a key by folder, of each user. `projects` are those of the keys.

    The folder that was used last stands last. "" stands for every folder that is not named.
    """

    users: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    projects: dict[str, str] = field(default_factory=dict[str, str])

    def learn(self, user: str, folder: str, key: str, project: str) -> None:
        """Set the key of a folder, and forget the folder used longest ago if there are too many."""
        folders = self.users.setdefault(user, {})
        folders.pop(folder, None)
        folders[folder] = key
        for old in [name for name in folders if name][: max(len(folders) - MAX_FOLDERS, 0)]:
            del folders[old]
        used = {known for names in self.users.values() for known in names.values()}
        self.projects = {known: name for known, name in {**self.projects, key: project}.items() if known in used}

    def keys_of(self, user: str) -> frozenset[str]:
        """Return the keys of a user's briefs."""
        return frozenset(self.users.get(user, {}).values())


class RenderedFiles:
    """The rendered files in the folder of the hooks. Every method raises OSError."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = str(data_dir)
        self._briefs = Path(paths.briefs_dir(self._data_dir))
        self._instructions = Path(paths.instructions_file(self._data_dir, "")).parent

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other processes from rendering and removing. One that holds the lock for too long is not waited for."""
        make_private_folder(paths.hooks_dir(self._data_dir))
        lock = file_lock(Path(paths.hooks_dir(self._data_dir)) / "rendering.lock")
        try:
            lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            logger.warning("another process has been rendering for %s seconds; it is not waited for", LOCK_SECONDS)
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def folders(self) -> Folders:
        """Return the folders that are known; none if the file is missing or cannot be understood."""
        try:
            content: Any = json.loads(Path(paths.folders_file(self._data_dir)).read_text("utf-8"))
            users = {str(user): _texts(folders) for user, folders in content["users"].items()}
            return Folders(users, _texts(content["projects"]))
        except FileNotFoundError:
            return Folders()
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return Folders()  # it is written anew, and briefs that no folder names are removed

    def write_folders(self, folders: Folders) -> None:
        """Write the folders. The only user that is known is also the user of clients that name none, ""."""
        users = {user: names for user, names in folders.users.items() if user}
        if len(users) == 1:
            users = {**users, "": next(iter(users.values()))}
        make_private_folder(str(self._briefs))
        self._write(
            Path(paths.folders_file(self._data_dir)),
            json.dumps({"v": VERSION, "users": users, "projects": folders.projects}),
        )

    def write_brief(self, key: str, brief: Brief, at: str) -> None:
        """Write the brief of a key, or remove its file if there is nothing to say."""
        path = Path(paths.brief_file(self._data_dir, key))
        if not brief.text:
            path.unlink(missing_ok=True)
            return
        make_private_folder(str(self._briefs))
        self._write(path, json.dumps({"v": VERSION, "text": brief.text, "ids": brief.ids, "at": at}))

    def has_brief(self, key: str) -> bool:
        """Return whether a brief is rendered."""
        return Path(paths.brief_file(self._data_dir, key)).is_file()

    def write_instructions(self, launch: str, sign: str, text: str) -> None:
        """Write the instructions for servers that are started in one way, and remove the oldest if there are many."""
        make_private_folder(str(self._instructions))
        self._write(Path(paths.instructions_file(self._data_dir, launch)), f"{sign}\n{text}")
        for old in self._instruction_files()[:-MAX_INSTRUCTIONS]:
            old.unlink(missing_ok=True)

    def launches_of(self, sign: str) -> list[str]:
        """Return the ways to start a server whose instructions have this sign."""
        return [path.stem for path in self._instruction_files() if _first_line(path) == sign]

    def remove(self, user: str, folders: Folders) -> None:
        """Remove everything rendered of a user, and what cannot be assigned to a user."""
        others = frozenset[str]().union(*(folders.keys_of(other) for other in folders.users if other not in ("", user)))
        briefs = {Path(paths.folders_file(self._data_dir)).name, *(f"{key}.json" for key in others)}
        for path in _files(self._briefs):
            if path.name not in briefs:
                path.unlink(missing_ok=True)
        sign = instructions_sign(user)
        for path in self._instruction_files():
            line = _first_line(path)
            if line.startswith(f"{sign} ") or not line.startswith(f"{INSTRUCTIONS_SIGN} "):
                path.unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove everything rendered of all users."""
        with self.locked():
            for path in (*_files(self._briefs), *_files(self._instructions)):
                path.unlink(missing_ok=True)

    def _instruction_files(self) -> list[Path]:
        """Return the files of instructions, the oldest first."""
        return sorted(_files(self._instructions), key=_written_at)

    def _write(self, path: Path, text: str) -> None:
        with replace_file(path, durable=False) as file:  # a lost one is rendered anew
            file.write(text)


def _texts(value: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()}


def _files(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.iterdir() if not path.is_dir()) if folder.is_dir() else ()


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(200).rstrip("\n")
    except FileNotFoundError:
        return ""


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
