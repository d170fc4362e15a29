"""The files that hooks, servers and commands share, all of them in `<data_dir>/hooks`.

Paths are strings, because importing pathlib takes longer than all the work of the hook. Everyone may import this
module; it opens nothing.
"""

from __future__ import annotations

import os
import sys

SPOOL_SUFFIX = ".json"
UNFINISHED_SUFFIX = ".part"
"""A file of the spool that is being written. A killed hook leaves it behind; it is not a record."""
SOCKET_SUFFIX = ".json" if sys.platform == "win32" else ".sock"
MAX_SOCKET_PATH = 100
"""How many bytes the path of a socket may have: 104 with its NUL on macOS, 108 on Linux."""
SHORT_TMP = "/tmp"  # noqa: S108 - in it lies a folder of our own, which its users check
"""Not $TMPDIR: the hook and the server are started by different programs and must find the same folder."""


def hashed(*parts: str) -> str:
    """Return the name of a file for some texts: 32 hexadecimal digits."""
    from hashlib import sha256  # noqa: PLC0415 - it loads OpenSSL, and most events need no such name

    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def hooks_dir(data_dir: str) -> str:
    """Return the folder (0700) that holds everything of the hooks."""
    return os.path.join(data_dir, "hooks")


def spool_dir(data_dir: str) -> str:
    """Return the folder of the records that wait to be taken in: `<time_ns>-<pid>-<random>.json`."""
    return os.path.join(hooks_dir(data_dir), "spool")


def refused_file(data_dir: str) -> str:
    """Return the file that has a line for each record that was not kept: the time in UTC, a space, the reason.

    Reasons are `full` (the spool has reached its bound), `large` (the client gave more than the hook reads) and
    `unreadable` (the client gave no JSON object, or an event without its session or text).
    """
    return os.path.join(hooks_dir(data_dir), "refused.log")


def briefs_dir(data_dir: str) -> str:
    """Return the folder of the rendered briefs."""
    return os.path.join(hooks_dir(data_dir), "briefs")


def brief_file(data_dir: str, key: str) -> str:
    """Return the file of a brief: `{"v": 1, "text": str, "ids": [str]}`, the ids of the memories that it names."""
    return os.path.join(briefs_dir(data_dir), f"{key}.json")


def folders_file(data_dir: str) -> str:
    """Return the file that says which brief a session begins with: `{"v": 1, "users": {USER: {FOLDER: KEY}}}`.

    FOLDER is absolute; the nearest one at or above a session's folder counts, and "" is for all others. USER "" is the
    user of the settings.
    """
    return os.path.join(briefs_dir(data_dir), "folders.json")


def instructions_file(data_dir: str, key: str) -> str:
    """Return the file of the rendered instructions of a server."""
    return os.path.join(hooks_dir(data_dir), "instructions", f"{key}.txt")


def shown_dir(data_dir: str) -> str:
    """Return the folder of what was shown in sessions."""
    return os.path.join(hooks_dir(data_dir), "shown")


def shown_file(data_dir: str, client: str, session: str) -> str:
    """Return the file of the ids of memories that a session was shown, one a line."""
    return os.path.join(shown_dir(data_dir), hashed(client, session))


def settings_file(data_dir: str) -> str:
    """Return the file of what a hook must know of the settings.

    It is `{"mode": "on" | "off" | "capture" | "recall", "excluded_folders": [str]}`.
    """
    return os.path.join(hooks_dir(data_dir), "hook_settings.json")


def transcripts_file(data_dir: str) -> str:
    """Return the file of how far transcripts were read."""
    return os.path.join(hooks_dir(data_dir), "transcripts.json")


def sockets_dir(data_dir: str) -> str:
    """Return the folder where each running server has a socket, or, on Windows, a file with `port` and `token`.

    It is a folder below /tmp if the path of a socket in the data directory would be too long. Anyone may have made that
    one, so check it with `private_files.is_private_folder` or make it with `private_files.make_private_folder`.
    """
    folder = os.path.join(hooks_dir(data_dir), "sockets")
    if (
        sys.platform == "win32"
        or len(os.fsencode(os.path.join(folder, f"{'0' * 32}{SOCKET_SUFFIX}"))) <= MAX_SOCKET_PATH
    ):
        return folder
    return os.path.join(SHORT_TMP, f"palimpsest-{os.getuid()}", hashed(data_dir))
