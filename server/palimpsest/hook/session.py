"""What the hook finds for a session: the brief it begins with, running servers, and the memories that it was shown."""

from __future__ import annotations

import os
import time

from palimpsest.hook import paths
from palimpsest.hook.json_values import is_object, read_object, texts_in
from palimpsest.hook.private_files import append_line, is_private_folder, make_private_folder

MAX_SERVERS = 8
"""So many servers are tried. Those that were killed refuse at once."""
MAX_SHOWN_BYTES = 1024 * 1024
MAX_SHOWN = 500
"""The newest ids of a session that go into a request. A session that has seen more has been compacted long ago."""
SHOWN_SECONDS = 30 * 24 * 3600
"""Claude Code keeps transcripts for 30 days, so an older session can no longer be resumed."""


class Injection:
    """A text for the model, and the ids of the memories that it names."""

    __slots__ = ("ids", "text")

    def __init__(self, text: str, ids: list[str]) -> None:
        self.text = text
        self.ids = ids


def find_brief(data_dir: str, user: str, folder: str) -> Injection | None:
    """Return the brief for a session of a user in a folder; None if there is none or its file is damaged."""
    try:
        users = read_object(paths.folders_file(data_dir)).get("users")
        folders = users.get(user) if is_object(users) else None
        key = _nearest(folders, folder) if is_object(folders) else None
        if not isinstance(key, str) or not key.isalnum():
            return None
        brief = read_object(paths.brief_file(data_dir, key))
    except (OSError, ValueError):
        return None
    text = brief.get("text")
    return Injection(text, texts_in(brief.get("ids"))) if isinstance(text, str) and text else None


def find_servers(data_dir: str) -> list[str]:
    """Return the files by which running servers are reached, the newest first, from a folder that is ours alone."""
    folder = paths.sockets_dir(data_dir)
    if not is_private_folder(folder):
        return []
    with os.scandir(folder) as entries:
        files = [entry for entry in entries if entry.name.endswith(paths.SOCKET_SUFFIX)]
        found = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in files]
    return [path for _, path in sorted(found, reverse=True)[:MAX_SERVERS]]


def shown_ids(data_dir: str, client: str, session: str) -> list[str]:
    """Return the ids of the memories that a session was shown since it began or was compacted."""
    try:
        with open(paths.shown_file(data_dir, client, session), encoding="utf-8") as file:
            return file.read(MAX_SHOWN_BYTES).split()[-MAX_SHOWN:]
    except (OSError, ValueError):
        return []


def note_shown(data_dir: str, client: str, session: str, ids: list[str]) -> None:
    """Write down that a session was shown some memories. Raises OSError."""
    if ids:
        make_private_folder(paths.hooks_dir(data_dir))
        make_private_folder(paths.shown_dir(data_dir))
        append_line(paths.shown_file(data_dir, client, session), "\n".join(ids))


def forget_shown(data_dir: str, client: str, session: str) -> None:
    """Forget what a session was shown, because its model no longer sees it. Raises OSError."""
    path = paths.shown_file(data_dir, client, session)
    if os.path.exists(path):
        os.unlink(path)


def forget_old_sessions(data_dir: str) -> None:
    """Remove the lists of sessions that can no longer be resumed. Raises OSError."""
    folder = paths.shown_dir(data_dir)
    if not os.path.isdir(folder):
        return
    oldest = time.time() - SHOWN_SECONDS
    with os.scandir(folder) as entries:
        old = [entry.path for entry in entries if entry.stat(follow_symlinks=False).st_mtime < oldest]
    for path in old:
        os.unlink(path)


def is_within(place: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it, as written or with all links followed."""
    return _is_below(os.path.abspath(place), os.path.abspath(folder)) or _is_below(
        os.path.realpath(place), os.path.realpath(folder)
    )


def _is_below(place: str, folder: str) -> bool:
    place, folder = os.path.normcase(place), os.path.normcase(folder)
    return place == folder or place.startswith(os.path.join(folder, ""))


def _nearest(folders: dict[str, object], folder: str) -> object:
    """Return the value of the nearest folder at or above a folder, else that of ""."""
    for place in (*_upwards(folder), *_upwards(os.path.realpath(folder))) if folder else ():
        if place in folders:
            return folders[place]
    return folders.get("")


def _upwards(folder: str) -> list[str]:
    """Return a folder and those above it, the nearest first."""
    places = [folder]
    while (above := os.path.dirname(places[-1])) not in ("", places[-1]):
        places.append(above)
    return places
